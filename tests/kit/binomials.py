"""What tests of deliveries share: the binomial law, and draws held against it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tests.kit.statistics import chi_square, chi_square_limit

CLASSES = 25


def pmf(count: int, q: float) -> tuple[int, NDArray[np.float64]]:
    """First value and probabilities of Binomial(count, q) within nine standard deviations (and nine
    units).
    """
    reach = 9 * math.sqrt(count * q * (1 - q)) + 9
    low, high = max(0, math.floor(count * q - reach)), min(count, math.ceil(count * q + reach))
    whole = math.lgamma(count + 1)
    logs = [
        whole
        - math.lgamma(x + 1)
        - math.lgamma(count - x + 1)
        + x * math.log(q)
        + (count - x) * math.log1p(-q)
        for x in range(low, high + 1)
    ]
    return low, np.exp(logs)


def distance(
    drawn: Sequence[float] | NDArray[np.float64], count: int, q: float
) -> tuple[float, float]:
    """Pearson's statistic of draws against Binomial(count, q) in at most 25 classes, and its .001
    point.

    Power above .99 at 20 000 draws against a mean that is off by .08 standard deviations
    (noncentrality 128).
    """
    low, p = pmf(count, q)
    # A class ends where its share is reached; what is left joins the last one.
    ends, share = [], 0.0
    for x, one in enumerate(p):
        share += one
        if share >= 1 / CLASSES:
            ends.append(low + x)
            share = 0.0
    if share * len(drawn) < 8:
        ends.pop()
    edges = [-math.inf, *ends, math.inf]
    index = np.searchsorted(ends, np.arange(low, low + len(p)))
    expected = np.bincount(index, weights=p, minlength=len(edges) - 1) * len(drawn)
    observed = np.bincount(np.searchsorted(ends, drawn), minlength=len(edges) - 1)
    return chi_square(observed, expected), chi_square_limit(len(edges) - 2)


def moved(count: int, q: float) -> float:
    """Quality at which the mean is .08 standard deviations higher, or lower where there is no
    room.
    """
    step = 0.08 * math.sqrt(q * (1 - q) / count)
    return q + step if q + step < 1 else q - step
