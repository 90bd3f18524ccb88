"""The methods that are compared: the paper's three, and what an honest comparison needs beside them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from posse.experiments.dp_combinatorial.problem import DELTA, UNIT, Size
from posse.privacy.dp.guarantee import Budget, rounded_up
from posse.privacy.dp.plans import Plan, plan
from posse.privacy.dp.schedules import communication_rounds
from posse.problems.markets.market import Market
from posse.protocols.dp_combinatorial.terms import Terms


@dataclass(frozen=True)
class Method:
    """What agents do, and with which noise; `epsilon` is what is asked for, at delta 0.01 for one entry."""

    name: str
    kind: str
    """Method of the terms."""
    noise: str = ""
    """paper or tight; nothing where no noise is planned."""
    epsilon: float = 0.0
    rule: str = "accept"
    coefficient: float = 1.0

    def terms(self, market: Market, size: Size) -> Terms:
        """Make the agents' terms."""
        if self.kind in ("alone", "fcb"):
            return Terms(market.agents, market.producers, size.rounds, self.kind)
        reports = reports_of(size)
        noise = self.plan(size).multipliers if self.noise else (0.0,) * len(reports)
        return Terms(market.agents, market.producers, size.rounds, self.kind, reports, noise, self.rule)

    def plan(self, size: Size) -> Plan:
        """Plan the noise; an entry's guarantee does not depend on the number of producers."""
        return _plan(self.noise, self.epsilon, size)

    def proved(self, size: Size) -> float:
        """Epsilon that is proved for one entry at delta 0.01, rounded up."""
        return rounded_up(self.plan(size).guarantee().epsilon)

    def privacy(self, size: Size) -> str:
        """Say what is known of the privacy, with delta and unit.

        >>> PAPER.privacy(Size())
        'claims (1, 0.01), proved (0.1459, 0.01), unit entry'
        """
        if self.kind == "alone":
            return "nothing is sent"
        if self.kind == "placebo":
            return "nothing about purchases is sent"
        if not self.noise:
            return "none: in the clear"
        proved = f"proved {self.plan(size).guarantee().figure}, unit {UNIT}"
        return f"claims {Budget(self.epsilon, DELTA)}, {proved}" if self.noise == "paper" else proved


def reports_of(size: Size) -> tuple[int, ...]:
    """Rounds after which P-FCB reports."""
    return communication_rounds(size.start, size.stop, size.rounds)


@cache
def _plan(noise: str, epsilon: float, size: Size) -> Plan:
    return plan(
        Budget(epsilon, DELTA), UNIT, noise, rounds=reports_of(size), producers=size.producers, horizon=size.rounds,
        stop=size.stop,
    )  # fmt: skip


def paper(epsilon: float) -> Method:
    """P-FCB with the published noise for a claimed epsilon."""
    return Method("P-FCB, paper noise", "p-fcb", "paper", epsilon)


def tight(epsilon: float) -> Method:
    """P-FCB with the least noise that proves epsilon."""
    return Method("P-FCB, tight noise", "p-fcb", "tight", epsilon)


def matched(size: Size) -> Method:
    """P-FCB with the least noise that proves what the published noise for a claimed epsilon of 1 proves."""
    return Method(MATCHED, "p-fcb", "tight", PAPER.proved(size))


MATCHED = "P-FCB, tight noise, proved as paper's"
ALONE = Method("alone", "alone")
ALONE_HALF = Method("alone, coefficient 0.5", "alone", coefficient=0.5)
PAPER = paper(1.0)
TIGHT = tight(1.0)
CLEAR = Method("P-FCB's schedule, no noise", "p-fcb")
PLACEBO = Method("placebo: noise alone", "placebo", "paper", 1.0)
FCB = Method("FCB", "fcb")
TIGHT_HALF = Method("P-FCB, tight noise, coefficient 0.5", "p-fcb", "tight", 1.0, coefficient=0.5)
FUSED = Method("P-FCB, tight noise, fused", "p-fcb", "tight", 1.0, rule="fuse")
