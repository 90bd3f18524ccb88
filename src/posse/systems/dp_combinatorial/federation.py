"""Runs in one process: agents with the simulated market they buy in, or the compiled twin in their
place.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import numpy as np

from posse.core.errors import ConfigError
from posse.core.random import derive_key
from posse.core.roles import Ask, Message, Role
from posse.policies.purchase.oracle import exact
from posse.privacy.dp.ledger import Ledger
from posse.privacy.dp.noise import SeededNoise
from posse.privacy.dp.plans import Plan, plan_of_noise
from posse.privacy.dp.rounds import noise_every_round
from posse.problems.markets.market import Market, epoch_at, make_market
from posse.results.record import Record, Traffic, points_of
from posse.runtime.memory import MemoryRun, fork
from posse.systems.base import AnySystem, presentation
from posse.systems.dp_combinatorial import twin
from posse.systems.dp_combinatorial.agent import Agent, Buyer, Oracle
from posse.systems.dp_combinatorial.learning import Floats, nothing_known, qualities
from posse.systems.dp_combinatorial.messages import Buy, Delivered
from posse.systems.dp_combinatorial.remarks import (
    first_noise,
    privacy_of,
    sums_of_rounds,
    threshold,
    what_to_buy,
)
from posse.systems.dp_combinatorial.settings import DpCombinatorial
from posse.systems.dp_combinatorial.terms import Terms
from posse.systems.dp_combinatorial.twin import Truth
from posse.systems.runs import RolesRun, Run

BASELINE = [
    "coefficient",
    "explore",
    "margin",
    "oracle",
    "homogeneous",
    "overlap",
    "sd",
    "largest_capacity",
    "drift",
    "drift_every",
    "instance_seed",
    "data",
]
"""Settings that agents alone must share to be compared with: how they choose, and what the problem
does not say.
"""
LOOK = 0.25
"""Seconds of compiled work between two looks at Ctrl-C."""
ROUND = 4e-7
"""Seconds that the compiled twin takes a round and agent, about."""


def federation(
    market: Market,
    terms: Terms,
    *,
    seed: int | None,
    plan: Plan | None = None,
    coefficient: float = 1.0,
    margin: float = 0.0,
    oracle: Oracle | None = None,
    kinds: Mapping[str, Callable[..., Agent]] | None = None,
) -> list[Role]:
    """Make the agents of a market; each gets its own costs and capacities, its own noise and its
    own ledger.

    Noise without a plan is counted (unit entry, delta 1e-5) and never refused. With a world seed
    the noise derives from it, so that the run can be repeated and compared with its plain twin; it
    then protects nothing from who knows the seed. Without (`seed=None`) it comes from secrets that
    each agent draws from the operating system. `kinds` gives other classes for some agents, by
    name.
    """
    kinds = kinds or {}
    offers = twin.offers_of(market, margin)
    if plan is None and any(terms.multipliers) and terms.method != "placebo":
        dealt = int((market.capacity > 0).sum(axis=1).max())
        plan = (
            noise_every_round(terms.multipliers[0], rounds=terms.rounds, producers=dealt)
            if terms.always
            else plan_of_noise(terms.multipliers, rounds=terms.reports, producers=dealt)
        )
    return [
        kinds.get(name, Agent)(
            name,
            terms,
            Buyer(
                offers.cost[j], offers.capacity[j], offers.alpha, offers.rho, coefficient, oracle
            ),
            None if seed is None else SeededNoise(derive_key(seed, j)),
            None if plan is None else Ledger(plan, name),
        )
        for j, name in enumerate(market.agents)
    ]


def agents_of(roles: Sequence[Role]) -> list[Agent]:
    """Give the agents among roles."""
    return [role for role in roles if isinstance(role, Agent)]


class SimulatedMarket:
    """Answers purchases, and keeps what only the world knows: every agent's revenue and regret.

    Agents may be in different rounds, as far as they need not wait for each other.
    """

    def __init__(
        self,
        market: Market,
        seed: int,
        rounds: int,
        *,
        points: int = 200,
        truth: Truth | None = None,
        opening: int = 0,
    ) -> None:
        agents, producers = market.cost.shape
        self._market, self._seed, self._opening = market, np.uint64(seed), opening
        self._number = {name: j for j, name in enumerate(market.agents)}
        self._offers, self._truth = (
            twin.offers_of(market),
            twin.truth_of(market) if truth is None else truth,
        )
        self._words, self._found = (
            np.zeros((4, (producers + 3) // 4), np.uint64),
            np.zeros(producers),
        )
        self._point = [0] * agents
        self._rounds = [0] * agents
        self.steps = points_of(rounds, points)
        self.bought = np.zeros((agents, producers))
        self.curves = twin.no_curves(self.steps, agents, producers)

    def __call__(self, buy: Buy) -> Delivered:
        """Deliver what an agent bought."""
        j, purchase = self._number[buy.party], np.array(buy.units, np.float64)
        twin.deliver(
            self._market.supply,
            self._seed,
            j,
            buy.round,
            self.bought[j],
            purchase,
            self._words,
            self._found,
        )
        self._settle(j, buy.round, purchase, self._found)
        return Delivered(buy.round, tuple(self._found.tolist()))

    def answered(self, buy: Buy, good: Sequence[float]) -> None:
        """Count a purchase that a world outside has delivered."""
        self._settle(
            self._number[buy.party],
            buy.round,
            np.array(buy.units, np.float64),
            np.array(good, np.float64),
        )

    def _settle(self, j: int, t: int, purchase: twin.Floats, good: twin.Floats) -> None:
        epoch = epoch_at(self._market.supply, t)
        earned, lost, met = twin.settle(j, epoch, purchase, good, self._offers, self._truth)
        self.bought[j] += purchase
        curves = self.curves
        curves.earned[j] += earned
        curves.lost[j] += lost
        curves.missed[j] += not met
        if t == self._opening:
            curves.first[j] = self.bought[j]
        self._rounds[j] = t
        point = self._point[j]
        if point < len(self.steps) and self.steps[point] == t:
            curves.revenue[point, j], curves.regret[point, j] = curves.earned[j], curves.lost[j]
            curves.below[point, j] = curves.missed[j]
            self._point[j] += 1

    @property
    def reached(self) -> int:
        """Rounds that every agent has behind it."""
        return min(self._rounds)

    @property
    def points_reached(self) -> int:
        """Points of the curves that every agent has passed."""
        return min(self._point)


class MarketRun(RolesRun):
    """Agents that exchange reports, in one process."""

    unit = "round"
    settings: DpCombinatorial

    def __init__(
        self,
        system: AnySystem,
        settings: DpCombinatorial,
        *,
        kinds: Mapping[str, Callable[..., Agent]] | None = None,
        **options: Any,
    ) -> None:
        """Make the agents; `kinds` gives other classes for those that deviate, by name."""
        self._setup = settings.load()
        self._kinds = kinds
        warm_up()
        super().__init__(system, settings, **options)

    @property
    def _seed_horizon(self) -> int:
        return self.settings.horizon

    def _role_maker(self, seed: int) -> Callable[[], list[Role]]:
        settings, setup = self.settings, self._setup
        return lambda: federation(
            setup.market,
            setup.terms,
            seed=seed,
            plan=setup.plan if settings.policy != "placebo" else None,
            coefficient=settings.coefficient,
            margin=settings.margin,
            oracle=exact if settings.oracle == "exact" else None,
            kinds=self._kinds,
        )

    def new_agents(self) -> list[Agent]:
        """Make the agents of the current seed anew, as they are before they start."""
        return agents_of(self._role_makers[-1]())

    def _make_world(self, seed: int) -> SimulatedMarket:
        settings = self.settings
        return SimulatedMarket(
            self._setup.market,
            seed,
            settings.horizon,
            points=settings.points,
            truth=settings.best_purchases(),
            opening=self._setup.terms.opening,
        )

    def _reply(self, ask: Ask, reward: Sequence[float]) -> Message:
        """Deliver: `reward` has the good units of each producer."""
        assert isinstance(ask, Buy)
        good = tuple(float(units) for units in reward)
        if len(good) != len(ask.units) or any(
            not 0 <= x <= most for x, most in zip(good, ask.units, strict=True)
        ):
            raise ConfigError(
                "good units must be one number a producer, from 0 to the units bought "
                f"{list(ask.units)}, got "
                f"{list(good)}."
            )
        return Delivered(ask.round, good)

    @property
    def public_terms(self) -> dict[str, Any]:
        """The terms that everybody knows."""
        return msgspec.structs.asdict(self._setup.terms)

    def truth(self) -> dict[str, Any]:
        """What only the simulation knows: what each agent bought (up to its last report), qualities
        and capacities.
        """
        market, talks = self._setup.market, self.settings.policy != "alone"
        known = [agent.knowledge for agent in agents_of(list(self.memory.roles.values()))]
        return {
            "agents": market.agents,
            "bought": self.world.bought.copy(),
            "quality": market.quality,
            "reported": np.stack(
                [(one.sent_units if talks else one.units).copy() for one in known]
            ),
            "capacity": market.capacity.astype(np.float64),
        }

    def record(self, status: str | None = None) -> Record:
        """Return the record: of the whole runs where there are some, else of the one going on, as
        far as it came.
        """
        many = len(self.worlds) if self.done or len(self.worlds) == 1 else len(self.worlds) - 1
        worlds, memories = self.worlds[:many], self.memories[:many]
        runs, learnt = [], []
        for world, memory in zip(worlds, memories, strict=True):
            taken = np.array(
                [agent.taken for agent in agents_of(list(memory.roles.values()))], np.int64
            )
            learnt.append(
                np.stack([agent.qualities for agent in agents_of(list(memory.roles.values()))])
            )
            known = nothing_known(*world.bought.shape)._replace(units=world.bought)
            runs.append((known, world.curves._replace(taken=taken)))
        agents = agents_of(list(memories[0].roles.values()))
        hops = self.traffic(many).values()
        return _record(
            self,
            twin.gather(self.seeds[:many], worlds[0].steps, runs),
            min(world.points_reached for world in worlds),
            status,
            steps_done=sum(world.reached for world in worlds),
            ledgers=[agent.ledger for agent in agents if agent.ledger is not None],
            known=not self.outside,
            learnt=learnt,
            role_seconds=self.role_seconds(many),
            traffic=(
                Traffic("agent -> agent", sum(hop[0] for hop in hops), sum(hop[1] for hop in hops)),
            ),
        )


class TwinRun(Run):
    """The whole market compiled, all seeds side by side on every core."""

    unit = "round"
    settings: DpCombinatorial

    def __init__(
        self, system: AnySystem, settings: DpCombinatorial, seeds: Sequence[int] | None
    ) -> None:
        super().__init__(system, settings, seeds)
        self._setup = setup = settings.load()
        warm_up()
        self.markets = [
            twin.Simulation(
                setup.market,
                setup.terms,
                seed,
                coefficient=settings.coefficient,
                margin=settings.margin,
                points=settings.points,
                truth=settings.best_purchases(),
            )
            for seed in self.seeds
        ]

    @property
    def time(self) -> int:
        """Rounds made in all runs."""
        return sum(market.time for market in self.markets)

    @property
    def horizon(self) -> int:
        """Rounds of all runs."""
        return self.settings.horizon * len(self.seeds)

    @property
    def done(self) -> bool:
        """Whether all rounds of all runs are made."""
        return self.time == self.horizon

    @property
    def seeds_at_once(self) -> int:
        """All runs go forward together."""
        return len(self.seeds)

    @property
    def most_steps_at_once(self) -> int:
        """Rounds between two looks: a fraction of a second of work."""
        each = ROUND * len(self._setup.market.agents) * -(-len(self.seeds) // (os.cpu_count() or 1))
        return max(1, min(self.settings.horizon, int(LOOK / each)))

    def _advance(self, n: int) -> None:
        """Make n rounds of every run; Ctrl-C stops all of them soon, each between two rounds."""
        if len(self.markets) == 1:
            self.markets[0].advance(n)
            return
        stop = np.zeros(1, np.int64)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            try:
                list(pool.map(lambda market: market.advance(n, stop), self.markets))
            except BaseException:
                stop[0] = 1
                pool.shutdown(cancel_futures=True)
                raise

    def record(self, status: str | None = None) -> Record:
        """Return the record of what was done; curves end where the shortest run ended."""
        steps, done = self.markets[0].curves.points, min(market.time for market in self.markets)
        outcome = twin.gather(
            self.seeds, steps, [(market.known, market.curves) for market in self.markets]
        )
        plan = self._setup.plan
        ledgers = []
        if plan is not None and self.settings.policy != "placebo":
            ledgers = [_spent(Ledger(plan, name), done) for name in self._setup.market.agents]
        reached = int(np.searchsorted(steps, done, side="right"))
        learnt = [qualities(market.known) for market in self.markets]
        return _record(
            self, outcome, reached, status, steps_done=self.time, ledgers=ledgers, learnt=learnt
        )

    def save(self) -> Any:
        """Return this moment."""
        return [fork(market) for market in self.markets], self.seconds

    def load(self, saved: Any) -> None:
        """Come back to a saved moment."""
        self.markets, self.seconds = [fork(market) for market in saved[0]], saved[1]


def _spent(ledger: Ledger[Plan], done: int) -> Ledger[Plan]:
    """Pay for the reports up to a round, as an agent would one by one."""
    if ledger.mechanism.alike:
        if done:
            ledger.spend(times=done)
        return ledger
    for number, round_ in enumerate(ledger.mechanism.rounds):
        if round_ <= done:
            ledger.spend(number)
    return ledger


def warm_up() -> None:
    """Compile what a run calls, so that compiling is not counted as running."""
    market = make_market([0.9, 0.1], [[0.5, 0.05], [0.5, 0.05]], [[3, 30], [3, 30]], alpha=0.5)
    terms = Terms(
        market.agents,
        market.producers,
        8,
        "placebo",
        reports=(2, 4, 8),
        multipliers=(1.0, 1.0, 1.0),
    )
    twin.run_once(market, terms, 0)
    MemoryRun(federation(market, terms, seed=0), SimulatedMarket(market, 0, 8)).finish()


def _record(
    run: Run,
    outcome: twin.Outcome,
    reached: int,
    status: str | None,
    *,
    steps_done: int,
    ledgers: Sequence[Ledger[Plan]],
    learnt: Sequence[Floats],
    known: bool = True,
    **more: Any,
) -> Record:
    """Make the record of agents or of the twin; without `known` nobody knows the qualities, and so
    no regret.
    """
    settings = run.settings
    assert isinstance(settings, DpCombinatorial)
    market, missed = settings.load().market, int(outcome.missed.sum())
    made = steps_done * len(market.agents)
    cards = [
        [f"{missed:,} of {made:,}", f"purchases below the threshold, a quality of {market.alpha:g}"]
    ]
    return run.make_record(
        status,
        seeds=outcome.seeds,
        steps=outcome.steps[:reached],
        reward=outcome.revenue[:, :reached],
        regret=outcome.regret[:, :reached] if known else None,
        total=tuple(outcome.agent_revenue.cumsum(axis=1)[:, -1]),
        pulls=outcome.units,
        parties=market.agents,
        party_total=outcome.agent_revenue,
        party_regret=outcome.agent_regret if known else None,
        privacy=privacy_of(ledgers),
        summary={
            "steps_done": steps_done,
            **({"missed": missed} if known else {}),
            "entries_learnt": int(outcome.taken.sum()),
            "path": settings.path,
        },
        show=presentation(
            run.system,
            settings,
            [
                what_to_buy(market, learnt, outcome.units, known=known),
                *([threshold(market, settings, outcome, reached)] if known and reached else []),
                *sums_of_rounds(ledgers),
            ],
            protection=settings.level,
            implied=["noise"],
            baseline=BASELINE,
            warnings=first_noise(settings, outcome),
            **({"cards": cards} if known else {}),
        ),
        **more,
    )
