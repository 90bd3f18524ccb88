"""Settings of a market with agents that learn together: one model for flags, files and Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from pydantic import field_validator, model_validator

from posse.core import check
from posse.core.errors import ConfigError
from posse.core.settings import number_as_text
from posse.privacy.dp.guarantee import Budget
from posse.privacy.dp.plans import Plan, plan
from posse.privacy.dp.rounds import every_round
from posse.privacy.dp.schedules import communication_rounds
from posse.problems.markets.market import Market
from posse.problems.markets.settings import MarketSettings
from posse.results.values import JSON
from posse.systems.base import RunSettings, flatten_built_in_policy
from posse.systems.dp_combinatorial.terms import (
    LARGEST_WEIGHT,
    METHODS,
    Terms,
    check_explore,
    check_noise,
)
from posse.systems.registry import system_of

if TYPE_CHECKING:
    from posse.systems.dp_combinatorial.twin import Truth

EXACT_ROUNDS = 20_000
"""Rounds beyond which the exact oracle would take hours."""
LISTEN = ("start", "stop", "reports", "rule", "width", "weight")
"""Settings that say when agents report, and what they make of a report; reports of every round are
added up.
"""
TALK = ("noise", "epsilon", "delta", "unit", *LISTEN)
"""Settings that say what agents tell each other, and what they make of it."""


@dataclass(frozen=True, eq=False)
class Setup:
    """What settings make: a market, the agents' terms, and the plan for their noise."""

    market: Market
    terms: Terms
    plan: Plan | None


class DpCombinatorial(RunSettings, MarketSettings):
    """Everything a run of dp-combinatorial needs to know.

    >>> DpCombinatorial(agents=3, rounds=1000).horizon
    1000
    """

    system: ClassVar[str] = "dp-combinatorial"
    aliases: ClassVar[Mapping[str, str]] = {
        "rounds": "horizon",
        "steps": "horizon",
        "budget": "horizon",
        "method": "policy",
    }
    panels: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(
            ("noise", "epsilon", "delta", "unit", "start", "stop", "reports"), "Who may learn what"
        ),
        "policy": "How to choose",
    }

    policy: Literal["p-fcb", "fcb", "alone", "placebo", "naive"] = "p-fcb"
    """How agents learn together (the paper's method). p-fcb: noisy reports at a few rounds; fcb:
    everything after every round, in the clear; naive: everything after every round, with noise;
    alone: no federation; placebo: reports of noise alone, a control.
    """
    horizon: int = 20_000
    """Number of rounds T."""
    noise: Literal["tight", "paper", "equal", "none"] = "tight"
    """Noise of p-fcb and naive: the least that proves epsilon and delta; as published; the least
    without using that windows are disjoint; none, for the same reports in the clear.
    """
    epsilon: float = 1.0
    """Privacy epsilon asked for, together with delta and unit; of naive with noise paper, epsilon
    of each round.
    """
    delta: str = "0.01"
    """A number, 1/n (agents) or 1/T (rounds); at most 1/n."""
    unit: Literal["entry", "round", "history"] = "entry"
    """What is protected: one agent's purchase from one producer in one round; all of a round; or
    its whole history.
    """
    start: int = 200
    """Round of the first report; each later one comes after twice as many rounds."""
    stop: int = 40_000
    """No report after this round."""
    reports: tuple[int, ...] | None = None
    """Rounds after which agents report, in place of start and stop: 1, 2, 4, ... is the schedule as
    printed.
    """
    rule: Literal["accept", "fuse"] = "accept"
    """How agents learn from a report: accept it within a width and count it with a weight; or fuse
    by its variance.
    """
    width: float = 0.1
    """Width of acceptance, in half-widths of an agent's own confidence interval."""
    weight: float = 10.0
    """How often an accepted unit counts."""
    coefficient: float = 1.0
    """Optimism of the quality bound; 1 as published."""
    explore: int = 0
    """Rounds of pure exploration at the start: one unit of every producer a round (Algorithms 1 and
    2).
    """
    margin: float = 0.0
    """Safety margin on alpha when buying, such as 0.01 where the threshold binds."""
    oracle: Literal["greedy", "exact"] = "greedy"
    """How an agent chooses: greedy in closed form, or exact by HiGHS, which is thousands of times
    slower.
    """
    path: Literal["agents", "compiled"] = "agents"
    """agents: real agents that exchange messages; compiled: the same run simulated in one place,
    fifty times faster.
    """

    _text = field_validator("delta", mode="before")(number_as_text)

    @model_validator(mode="before")
    @classmethod
    def _shipped(cls, values: Any) -> Any:
        why = (
            "what agents send is what its noise is planned for, and a policy of yours could send "
            "more."
        )
        return flatten_built_in_policy(values, "dp-combinatorial", METHODS, ("coefficient",), why)

    @model_validator(mode="after")
    def _check_method(self) -> Self:
        check.at_least(1, horizon=self.horizon)
        check.between(0, LARGEST_WEIGHT, width=self.width)
        check.between(0, LARGEST_WEIGHT, open_low=True, weight=self.weight)
        check.at_least(0, coefficient=self.coefficient)
        check.between(0, 1, margin=self.margin)
        check_explore(self.explore, self.horizon)
        if self.oracle == "exact" and (self.path == "compiled" or self.horizon > EXACT_ROUNDS):
            raise ConfigError(
                f"the exact oracle runs in agents and for up to {EXACT_ROUNDS:,} rounds, got path "
                f"'{self.path}' and "
                f"{self.horizon:,} rounds. Use the greedy oracle."
            )
        self._check_used()
        if self.noisy:
            self.asked(agents=2)
        if self.talks:
            self.report_rounds()
        return self

    @property
    def talks(self) -> bool:
        """Whether agents send reports that may carry noise."""
        return self.policy in ("p-fcb", "placebo", "naive")

    @property
    def selects(self) -> bool:
        """Whether agents learn only from reports near their own estimates."""
        return self.policy in ("p-fcb", "placebo") and self.rule == "accept"

    @property
    def noisy(self) -> bool:
        """Whether reports carry noise."""
        return self.talks and self.noise != "none"

    @property
    def unused(self) -> tuple[str, ...]:
        """Settings that have no effect with this policy; a record leaves them out."""
        if not self.talks:
            return TALK
        without = () if self.noisy else ("epsilon", "delta", "unit")
        if self.policy == "naive":
            return (*without, *LISTEN)
        without = (*without, *(("reports",) if self.reports is None else ("start", "stop")))
        return (*without, "width", "weight") if self.rule == "fuse" else without

    def _check_used(self) -> None:
        """Raise if a given setting has no effect."""
        if self.policy == "placebo" and self.noise == "none":
            raise ConfigError(
                "a placebo is noise alone, got noise 'none'. Choose tight, paper or equal."
            )
        if self.policy == "naive" and self.noise == "none":
            raise ConfigError(
                "naive is fcb with noise, got noise 'none'. Choose tight, paper or equal, or "
                "method fcb."
            )
        for name in self.unused:
            default = type(self).model_fields[name].default
            if getattr(self, name) != default:
                own = self.talks and not (self.policy == "naive" and name in LISTEN)
                why = f"noise '{self.noise}'" if own else f"method '{self.policy}'"
                why = "reports" if own and self.reports and name in ("start", "stop") else why
                why = (
                    f"rule '{self.rule}'"
                    if name in ("width", "weight") and self.rule == "fuse"
                    else why
                )
                raise ConfigError(
                    f"{name} has no meaning with {why}, got {getattr(self, name)}. Leave {name} "
                    "out."
                )

    def instead(self, **changes: Any) -> Self:
        """Return the same market and seeds with changes; settings that then have no effect are left
        out.
        """
        given = {name: getattr(self, name) for name in self.model_fields_set} | changes
        blank = self.model_construct(**{**self.__dict__, **changes})
        return type(self)(
            **{name: value for name, value in given.items() if name not in blank.unused}
        )

    # What the settings make -----------------------------------------------------------------------

    def load(self) -> Setup:
        """Make the market, the terms and the plan of the noise, and check what needs them; once."""
        return self.cached("setup", self._load)

    def _load(self) -> Setup:
        if self.noisy and not self.own_data:
            self._plan_of(
                self.producers, self.agents
            )  # what is wrong with it is said before a market is made
        market = self.market(self.horizon)
        plan_ = self._plan_of(int((market.capacity > 0).sum(axis=1).max()), len(market.agents))
        if plan_ is not None:
            check_noise(plan_, market.capacity)
        return Setup(market, self._terms(market.agents, market.producers, plan_), plan_)

    def best_purchases(self) -> Truth:
        """Solve for what regret is measured against; once."""
        from posse.systems.dp_combinatorial.twin import truth_of

        return self.cached("truth", lambda: truth_of(self.load().market))

    def plan_and_terms(
        self, agents: tuple[str, ...], producers: tuple[str, ...]
    ) -> tuple[Plan | None, Terms]:
        """Make what agents of a market of their own agree on; noise is planned for who deals with
        every producer.
        """
        plan_ = self._plan_of(len(producers), len(agents))
        return plan_, self._terms(agents, producers, plan_)

    def _plan_of(self, producers: int, agents: int) -> Plan | None:
        """Plan the noise; None where there is none."""
        if not self.noisy:
            return None
        if self.policy == "naive":
            asked = self.asked(agents)
            return every_round(
                asked, self.unit, self.noise, rounds=self.horizon, producers=producers
            )
        return plan(
            self.asked(agents),
            self.unit,
            self.noise,
            rounds=self.report_rounds(),
            producers=producers,
            horizon=self.horizon,
            stop=None if self.reports else self.stop,
        )

    def asked(self, agents: int) -> Budget:
        """Return the privacy asked for; delta may be 1/n or 1/T."""
        text = {"1/n": f"1/{agents}", "1/t": f"1/{self.horizon}"}.get(
            self.delta.strip().lower(), self.delta
        )
        try:
            delta = float(Fraction(text)) if "/" in text else float(text)
        except (ValueError, ZeroDivisionError):
            raise ConfigError(f"delta must be a number, 1/n or 1/T, got '{self.delta}'.") from None
        return Budget(self.epsilon, delta)

    def report_rounds(self) -> Sequence[int]:
        """Rounds after which agents report.

        >>> DpCombinatorial(reports=(1, 2, 4), horizon=10).report_rounds()
        (1, 2, 4)
        """
        if self.policy == "naive":
            return range(1, self.horizon + 1)
        if self.reports is None:
            return communication_rounds(self.start, self.stop, self.horizon)
        increasing = all(a < b for a, b in zip((0, *self.reports), self.reports, strict=False))
        if not self.reports or not increasing or self.reports[-1] > self.horizon:
            raise ConfigError(
                f"reports must be increasing rounds from 1 to {self.horizon}, at least one, got "
                f"{list(self.reports)}."
            )
        return self.reports

    def _terms(
        self, agents: tuple[str, ...], producers: tuple[str, ...], plan_: Plan | None
    ) -> Terms:
        if not self.talks:
            return Terms(agents, producers, self.horizon, self.policy, explore=self.explore)
        if plan_ is not None and plan_.delta > 1 / len(agents):
            raise ConfigError(
                f"delta must be at most 1/n = {1 / len(agents):g} for {len(agents)} agents, got "
                f"{plan_.delta:g}: a "
                "larger one would allow a mechanism that publishes one agent's data outright. "
                "Lower it, or give 1/T."
            )
        reports = () if self.policy == "naive" else tuple(self.report_rounds())
        return Terms(
            agents,
            producers,
            self.horizon,
            self.policy,
            reports,
            (0.0,) * len(reports) if plan_ is None else plan_.multipliers,
            self.rule,
            self.width,
            self.weight,
            self.explore,
        )

    # What a record keeps --------------------------------------------------------------------------

    @property
    def level(self) -> str:
        """The protection: the noise schedule, `plain`, `alone` or `placebo`.

        >>> DpCombinatorial(method="fcb").level, DpCombinatorial(noise="paper").level
        ('plain', 'paper')
        """
        return (
            self.policy
            if self.policy in ("alone", "placebo")
            else self.noise
            if self.noisy
            else "plain"
        )

    def files(self) -> Sequence[Path]:
        """The user's own files of offers, qualities or records."""
        return self.data_files()

    def config(self) -> dict[str, JSON]:
        """Every setting that has an effect, with the value that was used."""
        given = {name: value for name, value in self.resolved().items() if name not in self.unused}
        return {**given, **self.used(self.load().market), "policy": self.described()}

    def described(self) -> dict[str, JSON]:
        """Return name and parameters of the policy, as a record keeps them."""
        return {"name": self.policy, "parameters": {"coefficient": self.coefficient}}

    def problem(self) -> dict[str, JSON]:
        """What is learnt, as a record keeps it."""
        name = self.data_name if self.own_data else f"{self.data} market"
        money = {"money": self.currency} if self.currency else {}
        return {
            "name": name,
            **self.load().market.describe(),
            "words": {**system_of(self).about.nouns, **money},
        }
