"""Regrets as arrays (instances, runs), and ratios of them with intervals over instances."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from posse.experiments.dp_combinatorial.methods import Method
from posse.experiments.dp_combinatorial.problem import Place, Size
from posse.experiments.dp_combinatorial.sweep import Job, Outcomes
from posse.results.statistics import Interval, Statistic, bootstrap

Floats = NDArray[np.float64]
Band = tuple[Floats, Floats, Floats]
"""Estimate, low and high at every point."""


def curves(found: Outcomes, places: Sequence[Place], method: Method, size: Size) -> Floats:
    """(instances, runs, points) regret an agent, the mean over agents."""
    rows = [found[Job(place, method, size)].regret / place.agents for place in places]
    return np.stack(rows)


def at_end(found: Outcomes, places: Sequence[Place], method: Method, size: Size) -> Floats:
    """(instances, runs) regret an agent at the last round."""
    return curves(found, places, method, size)[:, :, -1]


def ratio_of_means(above: Floats, below: Floats) -> Interval:
    """Mean of all over mean of all, as a paper's averages give it; instances are resampled in pairs.

    >>> print(ratio_of_means(np.array([[2.0], [9.0]]), np.array([[1.0], [3.0]])).estimate)
    2.75
    """
    a, b = above.mean(axis=1), below.mean(axis=1)

    def ratio(numbers: Floats, axis: int) -> object:
        chosen = numbers.astype(np.int64)
        return a[chosen].mean(axis=axis) / b[chosen].mean(axis=axis)

    return bootstrap(np.arange(len(a)), ratio)


def band_of_ratio(above: Floats, below: Floats) -> Band:
    """Median over instances of the ratio of two sets of curves (instances, runs, points), with its band.

    Points where an instance has no regret to compare with are NaN.
    """
    base = below.mean(axis=1)
    return band(above.mean(axis=1) / np.where(base > 0, base, np.nan), np.median)


def band(values: Floats, statistic: Statistic = np.mean, *, resamples: int = 1000) -> Band:
    """Estimate, low and high of a statistic over instances (the first axis) at every point.

    The 95 % percentile interval of the bootstrap, with the same resamples at all points of a curve.

    >>> [part.tolist() for part in band(np.array([[1.0, 2.0], [3.0, 2.0]]))]
    [[2.0, 2.0], [1.0, 2.0], [3.0, 2.0]]
    """
    chosen = np.random.default_rng(0).integers(0, len(values), (resamples, len(values)))
    low, high = np.quantile(np.asarray(statistic(values[chosen], axis=1)), [0.025, 0.975], axis=0)
    return np.asarray(statistic(values, axis=0)), low, high
