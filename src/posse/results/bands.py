"""A mean over runs, and how far it can be trusted."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from posse.core.errors import DataError
from posse.results.student import quantile

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Band:
    """A mean curve between `low` and `high`, over `runs` runs; `what` says in words what the band is."""

    mean: Floats
    low: Floats
    high: Floats
    runs: int
    what: str


def band(values: npt.ArrayLike, quantiles: tuple[float, float] | None = None) -> Band:
    r"""Return the mean over runs (the first axis) and a 95 % band.

    By default the band is Student's interval of the *mean*, $\bar x \pm t_{n-1}\, s / \sqrt n$ with the sample
    standard deviation s (n - 1) and t = 1.96 for many runs, 12.7 for two. With
    `quantiles=(0.025, 0.975)` it is instead the range that holds 95 % of the *runs*, which does not shrink with n.
    One run has a band of width zero; no run is refused.

    >>> b = band([[1.0, 2.0], [3.0, 2.0]])
    >>> b.mean.tolist(), b.high.round(2).tolist(), b.what
    ([2.0, 2.0], [14.71, 2.0], '95 % interval of the mean, 2 runs')
    """
    x = np.asarray(values, dtype=np.float64)
    if x.ndim == 0 or x.shape[0] == 0:
        raise DataError(f"a band needs at least one run, got shape {x.shape}. The record holds no finished run.")
    n = x.shape[0]
    mean = np.asarray(x.mean(axis=0))
    if quantiles is not None:
        low_q, high_q = quantiles
        if not 0 <= low_q <= high_q <= 1:
            raise DataError(f"quantiles must satisfy 0 <= low <= high <= 1, got {quantiles}.")
        low, high = np.quantile(x, low_q, axis=0), np.quantile(x, high_q, axis=0)
        return Band(mean, np.asarray(low), np.asarray(high), n, f"{low_q:g} to {high_q:g} quantiles of {_runs(n)}")
    half = quantile(0.95, n - 1) * np.asarray(x.std(axis=0, ddof=1)) / math.sqrt(n) if n > 1 else np.zeros_like(mean)
    return Band(mean, mean - half, mean + half, n, f"95 % interval of the mean, {_runs(n)}" if n > 1 else "1 run")


def standard_error(values: npt.ArrayLike) -> float | None:
    """Return s / sqrt(n), or None for fewer than two values, which have no standard error.

    >>> standard_error([1.0, 3.0]), standard_error([1.0])
    (1.0, None)
    """
    x = np.asarray(values, dtype=np.float64)
    return float(x.std(ddof=1) / math.sqrt(x.size)) if x.size > 1 else None


def _runs(n: int) -> str:
    return "1 run" if n == 1 else f"{n} runs"
