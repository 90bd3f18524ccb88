"""Settings of a market with agents that learn together: one model for flags, files and Python."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from posse.core import check
from posse.core.errors import ConfigError
from posse.privacy.dp.budget import Budget
from posse.privacy.dp.plans import Plan, plan
from posse.privacy.dp.schedules import communication_rounds
from posse.problems.market import Market
from posse.problems.market_settings import MarketSettings
from posse.protocols.dp_combinatorial.levels import level_of
from posse.protocols.dp_combinatorial.terms import Terms

EXACT_ROUNDS = 20_000
"""Rounds beyond which the exact oracle would take hours."""


@dataclass(frozen=True, eq=False)
class Setup:
    """What settings make: a market, the agents' terms, and the plan for their noise."""

    market: Market
    terms: Terms
    plan: Plan | None
    level: str


class MarketRunSettings(MarketSettings):
    """Everything a run of dp-combinatorial needs to know."""

    method: Literal["p-fcb", "fcb", "alone", "placebo"] = "p-fcb"
    """p-fcb: noisy reports at a few rounds; fcb: everything after every round, in the clear; alone: no federation;
    placebo: reports of noise alone, a control."""
    noise: Literal["tight", "paper", "equal", "none"] = "tight"
    """Noise of p-fcb: the least that proves epsilon and delta; as published; the least without using that windows are
    disjoint; none, for the same reports in the clear."""
    epsilon: float = 1.0
    """Privacy asked for, together with delta and unit."""
    delta: str = "0.01"
    """A number, 1/n (agents) or 1/T (rounds); at most 1/n."""
    unit: Literal["entry", "round", "history"] = "entry"
    """What is protected: one agent's purchase from one producer in one round; all of a round; or its whole history."""
    rounds: int = 20_000
    """Number of rounds T."""
    start: int = 200
    """Round of the first report; each later one comes after twice as many rounds."""
    stop: int = 40_000
    """No report after this round."""
    rule: Literal["accept", "fuse"] = "accept"
    """How agents learn from a report: accept it within a width and count it with a weight; or fuse by its variance."""
    width: float = 0.1
    """Width of acceptance, in half-widths of an agent's own confidence interval."""
    weight: float = 10.0
    """How often an accepted unit counts."""
    coefficient: float = 1.0
    """Optimism of the quality bound; 1 as published."""
    margin: float = 0.0
    """Safety margin on alpha when buying, such as 0.01 where the threshold binds."""
    oracle: Literal["greedy", "exact"] = "greedy"
    """How an agent chooses: greedy in closed form, or exact by HiGHS, which is a thousand times slower."""
    path: Literal["agents", "compiled"] = "agents"
    """agents: real agents that exchange messages; compiled: the same run simulated in one place, fifty times faster."""
    seed: int = 1
    """World seed: deliveries, and in a simulation the noise; kept in the record."""
    runs: int = 1
    """Number of runs, with seeds seed, seed + 1, ..."""
    points: int = 200
    """Points of a curve."""

    def check(self) -> Setup:
        """Check everything before anything starts, and return what it makes."""
        self._check_numbers()
        plan_ = self._plan_of(self.producers) if self.offers is None else None  # before files are read
        market = self.market(self.rounds)
        deals = int((market.capacity > 0).sum(axis=1).max())
        if plan_ is None or deals != self.producers:
            plan_ = self._plan_of(deals)
        terms = self._terms(market, plan_)
        return Setup(market, terms, plan_, level_of(terms, self.noise))

    @property
    def seeds(self) -> tuple[int, ...]:
        """One world seed a run."""
        return tuple(range(self.seed, self.seed + self.runs))

    def budget(self, agents: int) -> Budget:
        """Return the privacy asked for; delta may be told as 1/n or 1/T."""
        text = {"1/n": f"1/{agents}", "1/t": f"1/{self.rounds}"}.get(self.delta.strip().lower(), self.delta)
        try:
            delta = float(Fraction(text)) if "/" in text else float(text)
        except (ValueError, ZeroDivisionError):
            raise ConfigError(f"delta must be a number, 1/n or 1/T, got '{self.delta}'.") from None
        return Budget(self.epsilon, delta)

    def _check_numbers(self) -> None:
        check.at_least(1, rounds=self.rounds)
        check.at_least(0, width=self.width)
        check.positive(weight=self.weight)
        check.at_least(0, coefficient=self.coefficient)
        check.between(0, 1, margin=self.margin)
        check.at_least(1, runs=self.runs)
        check.at_least(2, points=self.points)
        if not 0 <= self.seed < 2**63 - self.runs:
            raise ConfigError(f"seed must be in [0, 2^63), got {self.seed}.")
        if self.oracle == "exact" and (self.path == "compiled" or self.rounds > EXACT_ROUNDS):
            raise ConfigError(
                f"the exact oracle runs in agents and for up to {EXACT_ROUNDS:,} rounds, got path '{self.path}' and "
                f"{self.rounds:,} rounds. Use the greedy oracle."
            )

    def _reports(self) -> tuple[int, ...]:
        return communication_rounds(self.start, self.stop, self.rounds)

    def _plan_of(self, producers: int) -> Plan | None:
        """Plan the noise; none for methods that have none."""
        if self.method in ("alone", "fcb") or self.noise == "none":
            return None
        budget = self.budget(self.agents)
        return plan(
            budget, self.unit, self.noise, rounds=self._reports(), producers=producers, horizon=self.rounds,
            stop=self.stop,
        )  # fmt: skip

    def _terms(self, market: Market, plan_: Plan | None) -> Terms:
        if self.method in ("alone", "fcb"):
            return Terms(market.agents, market.producers, self.rounds, self.method)
        if plan_ is not None:
            self._check_delta(plan_.delta, len(market.agents))
        reports = self._reports()
        return Terms(
            market.agents, market.producers, self.rounds, self.method, reports,
            (0.0,) * len(reports) if plan_ is None else plan_.multipliers, self.rule, self.width, self.weight,
        )  # fmt: skip

    def _check_delta(self, delta: float, agents: int) -> None:
        if delta > 1 / agents:
            raise ConfigError(
                f"delta must be at most 1/n = {1 / agents:g} for {agents} agents, got {delta:g}: "
                "a larger one would let some agent's entry show with certainty. Lower it, or give 1/T."
            )
