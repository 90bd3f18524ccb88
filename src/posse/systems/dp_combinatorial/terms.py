"""What all agents agree on before the first round, and the noise that it takes: public, and the
same for everyone.
"""

from __future__ import annotations

import hashlib

import msgspec
import numpy as np
from numpy.typing import NDArray

from posse.core import check
from posse.core.errors import ConfigError
from posse.privacy.dp.plans import Plan
from posse.systems.dp_combinatorial.learning import ACCEPT, FUSE, POOL, SUM

VERSION = 1
AGENT = "agent"
"""The kind of role, and its name in attacks."""

METHODS = ("alone", "fcb", "p-fcb", "placebo", "naive")
"""No federation; everything after every round; noisy reports at a few rounds; reports of noise
alone; noisy reports after every round.
"""

LARGEST_WEIGHT = 1e6
"""Beyond it sums of units would not be finite in the end."""

_RULES = {"pool": POOL, "accept": ACCEPT, "fuse": FUSE}


class Terms(msgspec.Struct, frozen=True):
    """Who takes part, for how long, when reports are sent, with how much noise, and how they are
    learnt from.
    """

    agents: tuple[str, ...]
    producers: tuple[str, ...]
    rounds: int
    method: str = "p-fcb"
    reports: tuple[int, ...] = ()
    """Rounds after which a report is sent; for `fcb` and `naive` after every round, and this is
    empty.
    """
    multipliers: tuple[float, ...] = ()
    """Noise of each report: its standard deviation in units of the sender's capacity; for `naive`
    one for all.
    """
    rule: str = "accept"
    """accept, pool or fuse."""
    width: float = 0.1
    """How far from its own estimate an agent accepts a quality, in widths of its confidence
    interval.
    """
    weight: float = 10.0
    """How often an accepted unit counts."""
    explore: int = 0
    """Rounds of pure exploration at the start: one unit of every producer."""

    def __post_init__(self) -> None:
        check.one_of(METHODS, method=self.method)
        check.one_of(tuple(_RULES), rule=self.rule)
        check.at_least(1, rounds=self.rounds)
        check.between(0, LARGEST_WEIGHT, width=self.width)
        check.between(0, LARGEST_WEIGHT, open_low=True, weight=self.weight)
        if self.method != "alone" and len(self.agents) < 2:
            raise ConfigError(
                f"a federation needs at least 2 agents, got {len(self.agents)}. Use the method "
                "'alone'."
            )
        check_explore(self.explore, self.rounds)
        wanted = 1 if self.method == "naive" else len(self.reports)
        if len(self.multipliers) != wanted:
            raise ConfigError(
                f"a run needs one noise multiplier per report, got {len(self.multipliers)} for "
                f"{len(self.reports)} reports."
            )
        if any(b <= a for a, b in zip((0, *self.reports), self.reports, strict=False)):
            raise ConfigError(f"reports must be at increasing rounds from 1, got {self.reports}.")

    @property
    def always(self) -> bool:
        """Whether everything is sent after every round."""
        return self.method in ("fcb", "naive")

    @property
    def opening(self) -> int:
        """Round of the first report; 0 where there is none."""
        return 1 if self.always else next(iter(self.reports), 0)

    @property
    def planned(self) -> int:
        """How many reports each agent sends."""
        return self.rounds if self.always else len(self.reports)

    def number_at(self, t: int) -> int | None:
        """Number of the report that is sent after round t, or None."""
        if self.always:
            return t - 1
        return self.reports.index(t) if t in self.reports else None

    def multiplier(self, number: int) -> float:
        """Noise of a report."""
        if self.always:
            return self.multipliers[0] if self.multipliers else 0.0
        return self.multipliers[number]

    @property
    def digest(self) -> bytes:
        """Digest that agents compare before the first round."""
        return hashlib.sha256(b"posse dp-combinatorial\x00" + msgspec.msgpack.encode(self)).digest()

    @property
    def learning_rule(self) -> int:
        """Number of the rule in compiled code; what is sent after every round is added up."""
        return SUM if self.method == "naive" else POOL if self.always else _RULES[self.rule]


def check_explore(explore: int, rounds: int) -> None:
    """Refuse a phase of exploration that is no number of rounds of the run."""
    if not 0 <= explore <= rounds:
        raise ConfigError(
            f"explore must be from 0 to the {rounds:,} rounds there are, got {explore}. Choose one "
            "in between."
        )


def check_noise(plan: Plan, capacity: NDArray[np.generic]) -> None:
    """Refuse noise so large that its steps show.

    Noise of deviation sigma is made of 53-bit numbers, so its law is off by about sigma / 2^53;
    that must stay far below delta, of which a hundredth is taken here.
    """
    most = max(plan.multipliers) * float(np.max(capacity, initial=0))
    if most > plan.delta * 2.0**52 / 100:
        raise ConfigError(
            f"noise of deviation {most:.3g} is larger than 53-bit arithmetic can make for delta "
            f"{plan.delta:g} "
            f"(at most {plan.delta * 2.0**52 / 100:.3g}). Count units in hundreds, or choose "
            "another unit or epsilon."
        )


def check_plan(plan: Plan, terms: Terms, capacity: NDArray[np.float64]) -> None:
    """Refuse a plan that does not pay for what these terms let an agent send."""
    dealt = int(np.count_nonzero(capacity))
    sent = range(1, terms.rounds + 1) if terms.always else terms.reports
    paid = (plan.rounds, plan.multipliers) == (sent, terms.multipliers)
    if terms.method == "fcb" or not paid or plan.producers < dealt:
        planned = "every round" if plan.alike else f"rounds {list(plan.rounds)}"
        raise ConfigError(
            "the terms and the plan of the noise must agree, or the ledger would be wrong: "
            f"the plan has reports after {planned} about up to {plan.producers} producers, "
            "and the agent sends after "
            f"{'every round' if terms.always else list(terms.reports)} about {dealt}, or with "
            "other noise. Make both from the same settings."
        )
    check_noise(plan, capacity)
