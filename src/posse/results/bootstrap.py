"""Intervals over the problem instances that an experiment drew, or over the runs of the only one."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from posse.core import check
from posse.core.errors import DataError
from posse.results import student
from posse.results.bands import Floats
from posse.results.interval import Interval
from posse.results.medians import median_interval

__all__ = ["Interval", "Statistic", "bootstrap", "regret_ratio"]

Statistic = Callable[..., object]
"""A function of an array and `axis`, such as `np.median` or `np.mean`."""

_BLOCK = 1_000_000
"""Numbers that are resampled at a time, so that the memory does not grow with the instances."""

FEWEST_RUNS = 3
"""Runs of one instance below which a ratio has no interval: of two it would be a dozen standard errors wide."""

FEW = 8
"""Instances below which a bootstrap covers less than was asked, and says so."""


def bootstrap(
    values: npt.ArrayLike,
    statistic: Statistic = np.median,
    *,
    level: float = 0.95,
    resamples: int = 4000,
    seed: int = 0,
) -> Interval:
    r"""Estimate a statistic over instances (the first axis), with an interval.

    Of an array (instances, runs) the runs of an instance are averaged first: they share its luck and are no further
    instances. One instance has no interval.

    The interval of a median runs between order statistics (`medians`): exact, and nothing is resampled. For any other
    statistic instances are drawn with replacement, and the interval runs between the $\alpha'$ and $1 - \alpha'$
    quantiles of the statistic of the resamples. Plain percentiles are too short for few instances; here
    $\alpha' = \Phi(-\sqrt{n / (n - 1)}\; t_{n - 1})$, which makes that of a mean about as wide as Student's t
    (Hesterberg 2015, "What teachers should know about the bootstrap"). From 8 instances on a 95 % interval of a mean,
    or of a ratio of means, then covers 91 to 95 %. No such interval leaves the range of the data, and the range of n
    holds even the middle of a symmetric distribution with probability $1 - 2^{1 - n}$ only: `what` says so below 8.

    >>> print(bootstrap([3.0, 1.0, 2.0, 5.0, 4.0]), bootstrap([[2.0, 4.0]]))
    3.0 [1.0, 5.0] 3
    >>> bootstrap([1.0, 2.0, 4.0], np.mean).what
    '75 % at best: bootstrap interval over 3 instances, 4,000 resamples'
    """
    check.between(0, 1, level=level)
    check.at_least(1, resamples=resamples)
    x = _instances(values, "values").mean(axis=1)
    if statistic is np.median:
        return median_interval(x, level)

    def of(chosen: npt.NDArray[np.int64]) -> Floats:
        return np.asarray(statistic(x[chosen], axis=1), dtype=np.float64)

    return _percentiles(of, x.size, level, resamples, seed)


def regret_ratio(
    with_: npt.ArrayLike, alone: npt.ArrayLike, *, level: float = 0.95, resamples: int = 4000, seed: int = 0
) -> Interval:
    r"""Estimate the federated regret ratio: regret with federation over regret alone, below 1 where joining helps.

    Both are (instances, runs) or (instances,), on the same instances and seeds. The ratio of an instance is
    $\bar R_\text{with} / \bar R_\text{alone}$ of its means over runs; the estimate is the median over instances.

    Of one instance the interval is over its runs, from the third on, and knows nothing of other instances: with
    $\hat r$ the ratio of means and s the standard deviation of $d_i = R_{\text{with}, i} - \hat r R_{\text{alone}, i}$,
    paired by run, it is $\hat r \exp(\pm t_{n - 1}\, s / (\sqrt n\, \bar R_\text{with}))$.

    >>> print(regret_ratio([[6.0, 7.0], [5.0, 5.0], [8.0, 6.0]], [[10.0, 10.0]] * 3))
    0.65 [0.50, 0.70] (75 %)
    >>> one = regret_ratio([[6.0, 7.0, 6.5]], [[10.0, 12.0, 11.0]])
    >>> print(one, one.over, one.what, sep="; ")
    0.591 [0.571, 0.612]; runs; 95 % t interval over runs of this one market
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
    check.between(0, 1, level=level)
    if one:
        return _over_runs(mine[0], base[0], level)
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


def _over_runs(mine: Floats, base: Floats, level: float) -> Interval:
    """The ratio of two means over the same runs, with a t interval on its logarithm.

    Of the ways to make one this covers best for the ratio that is told: logarithms of the ratios of single runs
    average to another number where the two differ in spread, and Fieller's interval has no end for few runs.
    """
    n, ratio = base.size, float(mine.mean() / base.mean())
    if n < FEWEST_RUNS or ratio <= 0:
        return Interval(ratio, math.nan, math.nan, level, 0, "runs")
    error = float((mine - ratio * base).std(ddof=1)) / math.sqrt(n) / float(mine.mean())
    reach = math.exp(min(700.0, student.quantile(level, n - 1) * error))
    return Interval(ratio, ratio / reach, ratio * reach, level, 0, "runs", "t interval over runs of this one market")


def _percentiles(
    of: Callable[[npt.NDArray[np.int64]], Floats], n: int, level: float, resamples: int, seed: int
) -> Interval:
    """Resample n instances; `of` takes rows of their numbers and gives one figure a row."""
    estimate = float(of(np.arange(n)[None, :])[0])
    if n < 2:
        return Interval(estimate, math.nan, math.nan, level, resamples, "instances")
    rng = np.random.default_rng(seed)
    block = max(1, _BLOCK // n)
    sizes = [min(block, resamples - done) for done in range(0, resamples, block)]
    drawn = np.concatenate([of(rng.integers(0, n, (size, n))) for size in sizes])
    tail = math.erfc(math.sqrt(n / (n - 1) / 2) * student.quantile(level, n - 1)) / 2
    low, high = np.quantile(drawn, [tail, 1 - tail])
    made = Interval(estimate, float(low), float(high), level, resamples, "instances")
    if n >= FEW:
        return made
    how = f"at best: bootstrap interval over {n} instances, {resamples:,} resamples"
    return replace(made, how=how, covers=min(level, 1 - 2 ** (1 - n)))
