"""Intervals by resampling, over the problem instances that an experiment drew."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from posse.core import check
from posse.core.errors import DataError
from posse.results import words
from posse.results.bands import Floats

Statistic = Callable[..., object]
"""A function of an array and `axis`, such as `np.median` or `np.mean`."""

_BLOCK = 1_000_000
"""Numbers that are resampled at a time, so that the memory does not grow with the instances."""


@dataclass(frozen=True)
class Interval:
    """An estimate and its percentile interval; `low` and `high` are NaN where there was nothing to resample.

    >>> print(Interval(0.6934, 0.6128, 0.7811, level=0.95, resamples=4000, over="instances"))
    0.69 [0.61, 0.78]
    """

    estimate: float
    low: float
    high: float
    level: float
    resamples: int
    over: str
    """What was resampled: "instances", or "runs" of the only instance."""

    @property
    def known(self) -> bool:
        """Whether there is an interval at all."""
        return math.isfinite(self.low) and math.isfinite(self.high)

    @property
    def what(self) -> str:
        """Say what the interval is; a dash where there is none.

        >>> Interval(0.69, 0.61, 0.78, level=0.95, resamples=4000, over="instances").what
        '95 % bootstrap interval over instances, 4,000 resamples'
        """
        if not self.known:
            return words.UNKNOWN
        return f"{100 * self.level:g} % bootstrap interval over {self.over}, {self.resamples:,} resamples"

    def __str__(self) -> str:
        return words.interval(self.estimate, self.low, self.high)


def bootstrap(
    values: npt.ArrayLike,
    statistic: Statistic = np.median,
    *,
    level: float = 0.95,
    resamples: int = 4000,
    seed: int = 0,
) -> Interval:
    r"""Estimate a statistic over instances (the first axis), with its percentile interval.

    Instances are drawn with replacement; the interval runs from the $(1 - \text{level}) / 2$ quantile of the
    statistic of the resamples to the $(1 + \text{level}) / 2$ one. Of an array (instances, runs) the runs of an
    instance are averaged first: they share its luck and are no further instances. With a handful of instances any
    such interval is too short. One instance has none.

    >>> print(bootstrap([3.0, 1.0, 2.0, 5.0, 4.0]), bootstrap([[2.0, 4.0]]))
    3.0 [1.0, 5.0] 3
    """
    x = _instances(values, "values").mean(axis=1)

    def of(chosen: npt.NDArray[np.int64]) -> object:
        return statistic(x[chosen], axis=1)

    return _percentiles(of, x.size, "instances", level, resamples, seed)


def regret_ratio(
    with_: npt.ArrayLike, alone: npt.ArrayLike, *, level: float = 0.95, resamples: int = 4000, seed: int = 0
) -> Interval:
    r"""Estimate the federated regret ratio: regret with federation over regret alone, below 1 where joining helps.

    Both are (instances, runs) or (instances,), on the same instances and seeds. The ratio of an instance is
    $\bar R_\text{with} / \bar R_\text{alone}$ of its means over runs; the estimate is the median over instances. Of
    one instance the runs are resampled instead, in pairs, and `over` says so: that interval knows nothing of other
    instances.

    >>> print(regret_ratio([[6.0, 7.0], [5.0, 5.0], [8.0, 6.0]], [[10.0, 10.0]] * 3))
    0.65 [0.50, 0.70]
    >>> regret_ratio([[6.0, 7.0]], [[10.0, 12.0]]).over
    'runs'
    """
    mine, base = _instances(with_, "regret with federation"), _instances(alone, "regret alone")
    if mine.shape != base.shape:
        raise DataError(
            f"regret with federation and alone must be of the same instances and runs, got {mine.shape} and "
            f"{base.shape}. Run both on the same seeds."
        )
    one = base.shape[0] == 1
    means = base[0] if one else base.mean(axis=1)
    if (means <= 0).any():
        each = "run" if one else "instance"
        raise DataError(
            f"regret alone must be above 0 in every {each}, got {means.min():g}: without regret there is nothing that "
            "joining could lower. Leave such instances out, or compare differences."
        )

    def of_runs(chosen: npt.NDArray[np.int64]) -> object:
        return mine[0][chosen].mean(axis=1) / base[0][chosen].mean(axis=1)

    if one:
        return _percentiles(of_runs, base.shape[1], "runs", level, resamples, seed)
    return bootstrap(mine.mean(axis=1) / means, np.median, level=level, resamples=resamples, seed=seed)


def _instances(values: npt.ArrayLike, name: str) -> Floats:
    """Return (instances, runs); one axis is one run an instance."""
    x = np.asarray(values, dtype=np.float64)
    x = x[:, None] if x.ndim == 1 else x
    if x.ndim != 2 or x.size == 0:
        raise DataError(f"{name} must have shape (instances,) or (instances, runs), not empty, got {x.shape}.")
    if not np.isfinite(x).all():
        raise DataError(f"{name} must be finite, got NaN or infinity. Leave out what was not finished.")
    return x


def _percentiles(
    of: Callable[[npt.NDArray[np.int64]], object], n: int, over: str, level: float, resamples: int, seed: int
) -> Interval:
    """Resample n things; `of` takes rows of their numbers and gives one figure a row."""
    check.between(0, 1, level=level)
    check.at_least(1, resamples=resamples)
    estimate = float(np.asarray(of(np.arange(n)[None, :]), dtype=np.float64)[0])
    if n < 2:
        return Interval(estimate, math.nan, math.nan, level, resamples, over)
    rng = np.random.default_rng(seed)
    block = max(1, _BLOCK // n)
    sizes = [min(block, resamples - done) for done in range(0, resamples, block)]
    drawn = [np.asarray(of(rng.integers(0, n, (size, n))), dtype=np.float64) for size in sizes]
    low, high = np.quantile(np.concatenate(drawn), [(1 - level) / 2, (1 + level) / 2])
    return Interval(estimate, float(low), float(high), level, resamples, over)
