"""A whole federation of agents, and the simulated market they buy in."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from posse.core.random import derive
from posse.core.roles import Role
from posse.privacy.dp.ledger import Ledger
from posse.privacy.dp.noise import Noise, SeededNoise
from posse.privacy.dp.plans import Plan, plan_of_noise
from posse.problems.markets.market import Market
from posse.problems.markets.supply import epoch_at
from posse.protocols.dp_combinatorial import kernels
from posse.protocols.dp_combinatorial.agent import Agent, Buyer, Oracle
from posse.protocols.dp_combinatorial.kernels import Curves, Truth
from posse.protocols.dp_combinatorial.messages import Buy, Delivered
from posse.protocols.dp_combinatorial.regret import offers_of, truth_of
from posse.protocols.dp_combinatorial.terms import Terms
from posse.results.record import points_of


def federation(
    market: Market,
    terms: Terms,
    *,
    seed: int | None,
    plan: Plan | None = None,
    coefficient: float = 1.0,
    margin: float = 0.0,
    oracle: Oracle | None = None,
) -> list[Role]:
    """Make the agents of a market; each gets its own costs and capacities, its own noise and its own ledger.

    Noise without a plan is counted (unit entry, delta 1e-5) and never refused.
    With a world seed the noise derives from it, so that the run can be repeated and compared with its plain twin; it
    then protects nothing from who knows the seed. Without (`seed=None`) it comes from secrets that each agent draws
    from the operating system.
    """
    offers = offers_of(market, margin)
    if plan is None and any(terms.multipliers) and terms.method != "placebo":
        dealt = int((market.capacity > 0).sum(axis=1).max())
        plan = plan_of_noise(terms.multipliers, rounds=terms.reports, producers=dealt)
    return [
        Agent(
            name,
            terms,
            Buyer(offers.cost[j], offers.capacity[j], offers.alpha, offers.rho, coefficient, oracle),
            _noise(seed, j),
            None if plan is None else Ledger(plan, name),
        )
        for j, name in enumerate(market.agents)
    ]


def _noise(seed: int | None, agent: int) -> Noise | None:
    return None if seed is None else SeededNoise(derive(seed, agent))


class SimulatedMarket:
    """Answers purchases, and keeps what only the world knows: every agent's revenue and regret.

    Agents may be in different rounds, as far as they need not wait for each other.
    """

    def __init__(
        self, market: Market, seed: int, rounds: int, *, points: int = 200, truth: Truth | None = None
    ) -> None:
        agents, producers = market.cost.shape
        self._market, self._seed = market, np.uint64(seed)
        self._number = {name: j for j, name in enumerate(market.agents)}
        self._offers, self._truth = offers_of(market), truth_of(market) if truth is None else truth
        self._words, self._found = np.zeros((4, (producers + 3) // 4), np.uint64), np.zeros(producers)
        self._point = [0] * agents
        self.steps = points_of(rounds, points)
        self.bought = np.zeros((agents, producers))
        self.reached = np.zeros(agents, np.int64)
        """Rounds that each agent has behind it."""
        self.curves = Curves(
            self.steps, np.zeros((len(self.steps), agents)), np.zeros((len(self.steps), agents)), np.zeros(agents),
            np.zeros(agents), np.zeros(agents, np.int64), np.zeros(agents, np.int64),
            np.zeros((0, agents, producers)),
        )  # fmt: skip

    def __call__(self, buy: Buy) -> Delivered:
        """Deliver what an agent bought."""
        j, t, supply = self._number[buy.party], buy.round, self._market.supply
        purchase = np.array(buy.units, np.float64)
        kernels.deliver(supply, self._seed, j, t, self.bought[j], purchase, self._words, self._found)
        earned, lost, met = kernels.settle(j, epoch_at(supply, t), purchase, self._found, self._offers, self._truth)
        self.bought[j] += purchase
        curves = self.curves
        curves.earned[j] += earned
        curves.lost[j] += lost
        curves.missed[j] += not met
        self.reached[j] = t
        point = self._point[j]
        if point < len(self.steps) and self.steps[point] == t:
            curves.revenue[point, j], curves.regret[point, j] = curves.earned[j], curves.lost[j]
            self._point[j] += 1
        return Delivered(t, tuple(self._found.tolist()))

    @property
    def points_reached(self) -> int:
        """Points of the curves that every agent has passed."""
        return min(self._point)


def agents_of(roles: Sequence[Role]) -> list[Agent]:
    """Give the agents among roles."""
    return [role for role in roles if isinstance(role, Agent)]
