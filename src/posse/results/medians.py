"""The interval of a median between two of the values: exact, whatever their distribution."""

from __future__ import annotations

import math

import numpy as np

from posse.results.bands import Floats
from posse.results.interval import Interval


def ranks(n: int, level: float) -> tuple[int, float]:
    r"""Return the rank k such that the k-th smallest to the k-th largest of n hold the median, and how often they do.

    They hold it with probability $1 - 2 P(\mathrm{Bin}(n, 1/2) < k)$; k is the largest for which that is at least
    `level`, or 1 where nothing is.

    >>> [(n, *ranks(n, 0.95)) for n in (5, 6, 9)]
    [(5, 1, 0.9375), (6, 1, 0.96875), (9, 2, 0.9609375)]
    """
    k, tail, each = 1, 1, 1
    while True:
        each = each * (n - k + 1) // k
        if 2 * k >= n or 1 - 2 * ((tail + each) / 2**n) < level:
            return k, 1 - 2 * (tail / 2**n)
        k, tail = k + 1, tail + each


def median_interval(x: Floats, level: float) -> Interval:
    """Return the median of instances, between order statistics; one instance has no interval.

    >>> median_interval(np.array([3.0, 1.0, 2.0, 5.0, 4.0]), 0.95).what
    '93.75 % interval, smallest to largest of 5 instances'
    """
    estimate, n = float(np.median(x)), x.size
    if n < 2:
        return Interval(estimate, math.nan, math.nan, level, 0, "instances")
    k, covers = ranks(n, level)
    low, high = np.sort(x)[[k - 1, n - k]]
    ends = "smallest to largest" if k == 1 else f"{_ordinal(k)} smallest to {_ordinal(k)} largest"
    how = f"interval, {ends} of {n} instances"
    return Interval(estimate, float(low), float(high), level, 0, "instances", how, covers)


def _ordinal(k: int) -> str:
    """Write a rank.

    >>> [_ordinal(k) for k in (1, 2, 3, 4, 11, 12, 21, 102)]
    ['1st', '2nd', '3rd', '4th', '11th', '12th', '21st', '102nd']
    """
    return f"{k}{'th' if k % 100 in (11, 12, 13) else {1: 'st', 2: 'nd', 3: 'rd'}.get(k % 10, 'th')}"
