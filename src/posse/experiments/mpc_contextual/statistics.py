"""Means over runs with intervals, and exponents of growth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from posse.results.statistics import t_quantile

LEVEL = 0.95


@dataclass(frozen=True)
class Mean:
    """A mean over runs, and half the width of its 95 % t interval; NaN of one run."""

    mean: float
    half: float
    runs: int

    @property
    def low(self) -> float:
        """Lower end of the interval."""
        return self.mean - self.half

    @property
    def high(self) -> float:
        """Upper end of the interval."""
        return self.mean + self.half

    def text(self, places: int = 4, scale: float = 1.0, *, sign: bool = False) -> str:
        """Write it.

        >>> mean_of([0.81, 0.83, 0.82]).text(), mean_of([0.5]).text(2), mean_of([0.02, 0.02]).text(1, 100, sign=True)
        ('0.8200 ± 0.0248', '0.50', '+2.0 ± 0.0')
        """
        plus = "+" if sign else ""
        told = f"{scale * self.mean:{plus}.{places}f}"
        return told if math.isnan(self.half) else f"{told} ± {scale * self.half:.{places}f}"


def mean_of(values: ArrayLike) -> Mean:
    """Average numbers, one a run."""
    found = np.asarray(values, np.float64)
    if len(found) < 2:
        return Mean(float(found.mean()), math.nan, len(found))
    error = float(found.std(ddof=1)) / math.sqrt(len(found))
    return Mean(float(found.mean()), t_quantile(LEVEL, len(found) - 1) * error, len(found))


def exponent(x: Sequence[float], y: Sequence[float]) -> float:
    """Return the e of y ~ x^e that fits best: the slope of log y over log x.

    >>> round(exponent([10, 20, 40], [3.0, 12.0, 48.0]), 9)
    2.0
    """
    return float(np.polyfit(np.log(np.asarray(x, np.float64)), np.log(np.asarray(y, np.float64)), 1)[0])


def verdict(difference: Mean, claim: str, against: str) -> str:
    """Say what an interval of a difference says about a claim that it is above 0.

    >>> verdict(Mean(0.02, 0.01, 5), "helps", "harms"), verdict(Mean(0.0, 0.01, 5), "helps", "harms")
    ('helps', 'no difference seen')
    """
    if difference.low > 0:
        return claim
    return against if difference.high < 0 else "no difference seen"
