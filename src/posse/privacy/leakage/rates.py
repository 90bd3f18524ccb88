"""How often an attack was right: two rates, their difference, and an interval for it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

from posse.core import check
from posse.core.errors import ConfigError


@dataclass(frozen=True)
class Membership:
    """An attack that calls rows members of the training data; its advantage is TPR - FPR (Yeom et al. 2018).

    >>> print(Membership("loss", "squared error at most 0.1", 500, 300, 500, 250, apart=True).sentence())
    loss (member if squared error at most 0.1): advantage 0.100 [0.038, 0.161] at confidence 0.95, from 300 of 500
    members and 250 of 500 others called members.
    """

    attack: str
    rule: str
    """When a row is called a member."""
    members: int
    found: int
    """Members called members."""
    others: int
    accused: int
    """Others called members."""
    apart: bool
    """Whether the rule was fitted on other rows than those it was scored on."""
    confidence: float = 0.95

    def __post_init__(self) -> None:
        check.at_least(1, members=self.members)
        check.at_least(1, others=self.others)
        check.between(0, self.members, found=self.found)
        check.between(0, self.others, accused=self.accused)
        check_confidence(self.confidence)

    @property
    def true_positive_rate(self) -> float:
        """Share of members that are called members."""
        return self.found / self.members

    @property
    def false_positive_rate(self) -> float:
        """Share of others that are called members."""
        return self.accused / self.others

    @property
    def advantage(self) -> float:
        """TPR - FPR: 0 for a guess, 1 for certainty; below 0 where the rule was fitted on noise."""
        return self.true_positive_rate - self.false_positive_rate

    @property
    def interval(self) -> tuple[float, float] | None:
        """Newcombe's interval for the advantage of this rule on this model; None in sample, where none covers."""
        if not self.apart:
            return None
        return difference_interval(self.found, self.members, self.accused, self.others, self.confidence)

    @property
    def leaks(self) -> bool:
        """Whether membership shows: the interval lies above 0. Never in sample, where noise alone shows it."""
        return self.interval is not None and self.interval[0] > 0

    def sentence(self) -> str:
        """Say what came out."""
        counted = f"{self.found:,} of {self.members:,} members and {self.accused:,} of {self.others:,} others"
        known = "in sample, above 0 without any leak" if self.interval is None else ""
        if self.interval is not None:
            known = f"[{self.interval[0]:.3f}, {self.interval[1]:.3f}] at confidence {self.confidence:g}"
        return (
            f"{self.attack} (member if {self.rule}): advantage {self.advantage:.3f} {known}, from {counted} called "
            "members."
        )


def difference_interval(
    found: int, members: int, accused: int, others: int, confidence: float = 0.95
) -> tuple[float, float]:
    """Interval for a difference of two independent shares, from Wilson's intervals (l, u) of each.

    [d - sqrt((p - l)^2 + (u' - p')^2), d + sqrt((u - p)^2 + (p' - l')^2)]. Newcombe: Interval estimation for the
    difference between independent proportions, Statistics in Medicine 1998, method 10: 95 % intervals cover 92 to 97 %,
    whatever the counts.

    >>> [round(edge, 4) for edge in difference_interval(56, 70, 48, 80)]
    [0.0524, 0.3339]
    """
    first, second = _wilson(found, members, confidence), _wilson(accused, others, confidence)
    p, q = found / members, accused / others
    low = p - q - math.hypot(p - first[0], second[1] - q)
    high = p - q + math.hypot(first[1] - p, q - second[0])
    return low, high


def check_confidence(confidence: float) -> None:
    """Refuse a confidence that no interval has."""
    if not 0 < confidence < 1:
        raise ConfigError(f"confidence must be above 0 and below 1, got {confidence}. 0.95 is usual.")


def _wilson(hits: int, trials: int, confidence: float) -> tuple[float, float]:
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    share, square = hits / trials, z * z / trials
    middle, half = share + square / 2, z * math.sqrt(share * (1 - share) / trials + square / trials / 4)
    return (middle - half) / (1 + square), (middle + half) / (1 + square)
