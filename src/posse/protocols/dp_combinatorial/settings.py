"""Settings of a market with agents that learn together: one model for flags, files and Python."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from posse.core import check
from posse.core.errors import ConfigError
from posse.privacy.dp.guarantee import Budget
from posse.privacy.dp.plans import Plan, plan
from posse.privacy.dp.schedules import communication_rounds
from posse.problems.markets.market import Market
from posse.problems.markets.settings import MarketSettings
from posse.protocols.dp_combinatorial.terms import LARGEST_WEIGHT, Terms, check_noise, level_of

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
    """How an agent chooses: greedy in closed form, or exact by HiGHS, which is thousands of times slower."""
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
        self._check_heard()
        if self.offers is None:
            self._plan_of(self.producers, self.agents)  # what is wrong with it is told before a market is made
        market = self.market(self.rounds)
        plan_ = self._plan_of(int((market.capacity > 0).sum(axis=1).max()), len(market.agents))
        if plan_ is not None:
            check_noise(plan_, market.capacity)
        terms = self._terms(market.agents, market.producers, plan_)
        return Setup(market, terms, plan_, level_of(terms, self.noise))

    @property
    def unheard(self) -> tuple[str, ...]:
        """Settings that say nothing about this method; a record leaves them out."""
        talk = ("noise", "epsilon", "delta", "unit", "start", "stop", "rule", "width", "weight")
        if self.method in ("alone", "fcb"):
            return talk
        unused = ("epsilon", "delta", "unit") if self.noise == "none" else ()
        return (*unused, "width", "weight") if self.rule == "fuse" else unused

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
        check.between(0, LARGEST_WEIGHT, width=self.width)
        check.between(0, LARGEST_WEIGHT, open_low=True, weight=self.weight)
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

    def _check_heard(self) -> None:
        """Refuse settings that were given and say nothing, for their reader would think they did."""
        if self.method == "placebo" and self.noise == "none":
            raise ConfigError("a placebo is noise alone, got noise 'none'. Choose tight, paper or equal.")
        for name in self.unheard:
            default = type(self).model_fields[name].default
            if getattr(self, name) != default:
                why = f"noise '{self.noise}'" if self.method in ("p-fcb", "placebo") else f"method '{self.method}'"
                why = f"rule '{self.rule}'" if name in ("width", "weight") and self.rule == "fuse" else why
                raise ConfigError(f"{name} has no meaning with {why}, got {getattr(self, name)}. Leave {name} out.")

    def with_method(self, method: str) -> MarketRunSettings:
        """The same market, seeds and buyers with another method, and nothing set that it does not hear."""
        other = self.model_copy(update={"method": method})
        return other.model_copy(update={name: type(self).model_fields[name].default for name in other.unheard})

    def _plan_of(self, producers: int, agents: int) -> Plan | None:
        """Plan the noise; none for methods that have none."""
        if self.method in ("alone", "fcb") or self.noise == "none":
            return None
        budget = self.budget(agents)
        return plan(
            budget, self.unit, self.noise, rounds=self._reports(), producers=producers, horizon=self.rounds,
            stop=self.stop,
        )  # fmt: skip

    def plan_and_terms(self, agents: tuple[str, ...], producers: tuple[str, ...]) -> tuple[Plan | None, Terms]:
        """Make what agents of a market of their own agree on; noise is planned for who deals with every producer."""
        self._check_numbers()
        self._check_heard()
        plan_ = self._plan_of(len(producers), len(agents))
        return plan_, self._terms(agents, producers, plan_)

    def _terms(self, agents: tuple[str, ...], producers: tuple[str, ...], plan_: Plan | None) -> Terms:
        if self.method in ("alone", "fcb"):
            return Terms(agents, producers, self.rounds, self.method)
        if plan_ is not None:
            self._check_delta(plan_.delta, len(agents))
        reports = self._reports()
        return Terms(
            agents, producers, self.rounds, self.method, reports,
            (0.0,) * len(reports) if plan_ is None else plan_.multipliers, self.rule, self.width, self.weight,
        )  # fmt: skip

    def _check_delta(self, delta: float, agents: int) -> None:
        if delta > 1 / agents:
            raise ConfigError(
                f"delta must be at most 1/n = {1 / agents:g} for {agents} agents, got {delta:g}: a larger one would "
                "allow a mechanism that publishes one agent's data outright. Lower it, or give 1/T."
            )
