"""What the paper claims, told from paired differences between lines: holds, does not hold, or cannot tell."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from posse.experiments.kit import Mean, Table, mean_of

HOLDS, FAILS, UNKNOWN = "holds", "does not hold", "cannot tell"
TOLERANCE = 0.05
"""Differences below this share of the reward are small: an interval within it shows that two lines are alike."""

Ends = Mapping[str, NDArray[np.float64]]
"""Rewards at the end by line, one a seed; seeds are paired."""


@dataclass(frozen=True)
class Statement:
    """A claim, the difference that it is told from, and what that says."""

    claim: str
    difference: Mean
    verdict: str

    @property
    def words(self) -> str:
        """One sentence."""
        return f"{self.claim}: {self.verdict} ({self.difference.text(sign=True)})."


def better(claim: str, one: NDArray[np.float64], other: NDArray[np.float64]) -> Statement:
    """Claim that one line earns more: holds if the whole interval is above 0, does not if it is below.

    >>> better("more", np.array([0.5, 0.6, 0.7]), np.array([0.1, 0.21, 0.29])).verdict
    'holds'
    """
    gap = mean_of(one - other)
    return Statement(claim, gap, HOLDS if gap.low > 0 else FAILS if gap.high < 0 else UNKNOWN)


def no_worse(claim: str, one: NDArray[np.float64], other: NDArray[np.float64]) -> Statement:
    """Claim that one line earns as much or more.

    Holds if the interval reaches 0 and not further below it than the tolerance; does not if all of it is below 0.
    """
    gap = mean_of(one - other)
    if gap.high < 0:
        return Statement(claim, gap, FAILS)
    return Statement(claim, gap, HOLDS if gap.low >= -TOLERANCE * abs(float(other.mean())) else UNKNOWN)


def alike(claim: str, one: NDArray[np.float64], other: NDArray[np.float64]) -> Statement:
    """Claim that two lines earn the same: holds if the interval is within the tolerance, does not if it is beyond 0."""
    gap = mean_of(one - other)
    small = TOLERANCE * abs(float(other.mean()))
    if max(abs(gap.low), abs(gap.high)) <= small:
        return Statement(claim, gap, HOLDS)
    return Statement(claim, gap, FAILS if gap.low > 0 or gap.high < 0 else UNKNOWN)


def exploring(ends: Ends, greedy: str, others: Sequence[str]) -> list[Statement]:
    """Claim of every policy that explores that it earns no less than Greedy."""
    return [no_worse(f"{other} earns no less than {greedy}", ends[other], ends[greedy]) for other in others]


def close_to_best(ends: Ends, own: str, others: Sequence[str]) -> Statement:
    """Claim that a line is the best, or that its interval reaches the best: against the best of the others."""
    best = max(others, key=lambda other: float(ends[other].mean()))
    return no_worse(f"{own} is the best or within the interval of it (best other: {best})", ends[own], ends[best])


@dataclass(frozen=True)
class Spread:
    """Standard deviation over seeds as a share of the mean, with a bound that it is below in 95 of 100 cases."""

    share: float
    bound: float

    @property
    def verdict(self) -> str:
        """Whether it is negligible: below the tolerance."""
        return HOLDS if self.bound <= TOLERANCE else FAILS if self.share > TOLERANCE else UNKNOWN


def spread(values: NDArray[np.float64]) -> Spread:
    """Measure the spread over seeds; the bound is by chi-squared (Wilson and Hilferty's form of its quantile).

    >>> spread(np.array([0.70, 0.701, 0.699])).verdict
    'holds'
    """
    free = len(values) - 1
    share = float(values.std(ddof=1)) / abs(float(values.mean()))
    root = 1 - 2 / (9 * free) - 1.6449 * math.sqrt(2 / (9 * free))
    return Spread(share, share * math.sqrt(1 / root**3) if root > 0 else math.inf)


def statement_table(statements: Sequence[Statement], places: int = 4) -> Table:
    """Every claim with its difference."""
    rows = tuple((one.claim, one.difference.text(places, sign=True), one.verdict) for one in statements)
    return Table("What the paper says, here", ("claim", "difference ± 95 % t interval, paired by seed", "so"), rows)


def counts(statements: Sequence[Statement]) -> str:
    """How many claims hold.

    >>> counts([Statement("a", Mean(1, 0.1, 3), HOLDS), Statement("b", Mean(0, 0.1, 3), UNKNOWN)])
    '1 of 2 claims holds, 0 do not, 1 cannot be told'
    """
    held, failed, open_ = (sum(one.verdict == word for one in statements) for word in (HOLDS, FAILS, UNKNOWN))
    return (
        f"{held} of {len(statements)} claims {'holds' if held == 1 else 'hold'}, {failed} "
        f"{'does' if failed == 1 else 'do'} not, {open_} cannot be told"
    )
