"""What statistical tests share: limits that a true hypothesis passes with a stated rate of false
alarms.

Most seeds are fixed, and such a test gives the same answer every time; the rate says how often
another seed would fail.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray


def chi_square_limit(freedom: int, alpha: float = 1e-3) -> float:
    """Upper alpha point of chi-square, by Wilson and Hilferty's cube root (within 1 % from 1 degree
    of freedom on).
    """
    part = 2 / (9 * freedom)
    return freedom * (1 - part + NormalDist().inv_cdf(1 - alpha) * math.sqrt(part)) ** 3


def chi_square(counts: ArrayLike, expected: ArrayLike | None = None) -> float:
    """Pearson's statistic of counts against what is expected: equal counts, unless told."""
    counts = np.asarray(counts, float)
    wanted = counts.mean() if expected is None else np.asarray(expected, float)
    return float(((counts - wanted) ** 2 / wanted).sum())


def contingency(table: NDArray[np.int64]) -> tuple[float, int]:
    """Pearson's statistic of independence of rows and columns, and its degrees of freedom."""
    table = table[:, table.sum(axis=0) > 0]
    expected = table.sum(axis=1, keepdims=True) * table.sum(axis=0, keepdims=True) / table.sum()
    return chi_square(table, expected), (table.shape[0] - 1) * (table.shape[1] - 1)


def ks(samples: Sequence[float], cdf: Callable[[float], float]) -> float:
    """sqrt(n) times the largest distance between the samples' distribution and a continuous one
    (Kolmogorov).
    """
    values = np.array([cdf(x) for x in sorted(samples)])
    n = len(values)
    above = np.arange(1, n + 1) / n - values
    below = values - np.arange(n) / n
    return float(math.sqrt(n) * max(above.max(), below.max()))


KS_LIMIT = 1.9495
"""Upper .001 point of Kolmogorov's distribution."""

SIGMAS = 3.2905
"""Two-sided .001 point of the normal distribution."""
