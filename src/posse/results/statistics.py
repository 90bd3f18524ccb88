"""How far a mean, a median or a ratio of few runs can be trusted; without scipy."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from posse.core import check
from posse.core.errors import DataError
from posse.results import words

Floats = npt.NDArray[np.float64]

Statistic = Callable[..., object]
"""A function of an array and `axis`, such as `np.median` or `np.mean`."""

_BLOCK = 1_000_000
"""Numbers that are resampled at a time, so that the memory does not grow with the instances."""

FEWEST_RUNS = 3
"""Runs of one instance below which a ratio has no interval: of two it would be a dozen standard
errors wide.
"""

FEW = 8
"""Instances below which a bootstrap covers less than was asked, and says so."""

SHORT = 0.03
"""How far an interval may fall short of the level asked for before the number itself says so."""


def t_p_value(t: float, df: int) -> float:
    r"""Return the two-sided $P(|T| \ge |t|)$ of Student's t with `df` degrees of freedom.

    With $\theta = \arctan(|t| / \sqrt\nu)$ the probability of the inside is a finite sum of powers
    of $\cos\theta$ (Abramowitz and Stegun 26.7.3 and 26.7.4): O(df) operations, right to about
    1e-14.

    >>> round(t_p_value(12.706, 1), 5), round(t_p_value(-2.776, 4), 5), t_p_value(0.0, 7)
    (0.05, 0.05002, 1.0)
    """
    theta = math.atan(abs(t) / math.sqrt(df))
    cos, odd = math.cos(theta), df % 2
    term = cos if odd else 1.0
    terms = term if df > 1 else 0.0
    for k in range(2 + odd, df, 2):
        term *= (k - 1) / k * cos * cos
        terms += term
    inside = math.sin(theta) * terms
    return max(0.0, 1 - (2 / math.pi * (theta + inside) if odd else inside))


def t_quantile(level: float, df: int) -> float:
    r"""Return the t with $P(|T| \le t)$ = `level` (below 1), by bisection.

    >>> [round(t_quantile(0.95, df), 3) for df in (1, 2, 4, 9)]
    [12.706, 4.303, 2.776, 2.262]
    """
    low, high = 0.0, 1.0
    while t_p_value(high, df) > 1 - level:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if t_p_value(middle, df) > 1 - level else (low, middle)
    return high


def holm(p_values: Sequence[float | None]) -> list[float]:
    r"""Return p-values adjusted by Holm (1979), in the order given; a test that was not made (None)
    stays out, at 1.

    The i-th smallest of m is multiplied by $m - i + 1$ and is never below one before it. What is
    then at most $\alpha$ holds together: with probability $1 - \alpha$ none of it is chance,
    however the tests hang together.

    >>> holm([0.04, 0.01, None])
    [0.04, 0.02, 1.0]
    """
    made = sorted((p, i) for i, p in enumerate(p_values) if p is not None)
    adjusted, largest = [1.0] * len(p_values), 0.0
    for rank, (p, i) in enumerate(made):
        largest = max(largest, min(1.0, (len(made) - rank) * p))
        adjusted[i] = largest
    return adjusted


@dataclass(frozen=True)
class Band:
    """A mean curve between `low` and `high`, over `runs` runs; `what` says in words what the band
    is.
    """

    mean: Floats
    low: Floats
    high: Floats
    runs: int
    what: str


def band(values: npt.ArrayLike, quantiles: tuple[float, float] | None = None) -> Band:
    r"""Return the mean over runs (the first axis) and a 95 % band.

    By default the band is Student's interval of the *mean*, $\bar x \pm t_{n-1}\, s / \sqrt n$ with
    the sample standard deviation s (n - 1) and t = 1.96 for many runs, 12.7 for two. With
    `quantiles=(0.025, 0.975)` it is instead the range that holds 95 % of the *runs*, which does not
    shrink with n. One run has a band of width zero; no run is refused.

    >>> b = band([[1.0, 2.0], [3.0, 2.0]])
    >>> b.mean.tolist(), b.high.round(2).tolist(), b.what
    ([2.0, 2.0], [14.71, 2.0], '95 % interval of the mean, 2 runs')
    """
    x = np.asarray(values, dtype=np.float64)
    if x.ndim == 0 or x.shape[0] == 0:
        raise DataError(
            f"a band needs at least one run, got shape {x.shape}. The record holds no finished run."
        )
    n = x.shape[0]
    mean = np.asarray(x.mean(axis=0))
    if quantiles is not None:
        low_q, high_q = quantiles
        if not 0 <= low_q <= high_q <= 1:
            raise DataError(f"quantiles must satisfy 0 <= low <= high <= 1, got {quantiles}.")
        low, high = np.quantile(x, low_q, axis=0), np.quantile(x, high_q, axis=0)
        return Band(
            mean,
            np.asarray(low),
            np.asarray(high),
            n,
            f"{low_q:g} to {high_q:g} quantiles of {words.count(n, 'run')}",
        )
    half = (
        t_quantile(0.95, n - 1) * np.asarray(x.std(axis=0, ddof=1)) / math.sqrt(n)
        if n > 1
        else np.zeros_like(mean)
    )
    return Band(
        mean,
        mean - half,
        mean + half,
        n,
        f"95 % interval of the mean, {words.count(n, 'run')}" if n > 1 else "1 run",
    )


def standard_error(values: npt.ArrayLike) -> float | None:
    """Return s / sqrt(n), or None for fewer than two values, which have no standard error.

    >>> standard_error([1.0, 3.0]), standard_error([1.0])
    (1.0, None)
    """
    x = np.asarray(values, dtype=np.float64)
    return float(x.std(ddof=1) / math.sqrt(x.size)) if x.size > 1 else None


@dataclass(frozen=True)
class Interval:
    """An estimate and its interval; `low` and `high` are NaN where there are too few numbers for
    one.

    >>> print(Interval(0.6934, 0.6128, 0.7811, level=0.95, resamples=4000, over="instances"))
    0.69 [0.61, 0.78]
    """

    estimate: float
    low: float
    high: float
    level: float
    """Coverage that was asked for."""
    resamples: int
    """0 where nothing was resampled."""
    over: str
    """What it is over: "instances", or "runs" of the only instance."""
    how: str = ""
    """How it was made; empty for a bootstrap."""
    covers: float | None = None
    """Coverage that it has, where that is not `level`."""

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
        how = self.how or f"bootstrap interval over {self.over}, {self.resamples:,} resamples"
        return f"{self._percent} {how}"

    @property
    def _percent(self) -> str:
        return f"{100 * (self.level if self.covers is None else self.covers):.4g} %"

    def __str__(self) -> str:
        """Write both; an interval that covers clearly less often than was asked says so.

        >>> print(Interval(0.65, 0.5, 0.7, level=0.95, resamples=0, over="instances", covers=0.75))
        0.65 [0.50, 0.70] (75 %)
        """
        text = words.interval(self.estimate, self.low, self.high)
        short = self.known and self.covers is not None and self.covers < self.level - SHORT
        return f"{text} ({self._percent})" if short else text


def ranks(n: int, level: float) -> tuple[int, float]:
    r"""Return the rank k such that the k-th smallest to the k-th largest of n hold the median, and
    how often they do.

    They hold it with probability $1 - 2 P(\mathrm{Bin}(n, 1/2) < k)$; k is the largest for which
    that is at least `level`, or 1 where nothing is.

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
    return (
        f"{k}{'th' if k % 100 in (11, 12, 13) else {1: 'st', 2: 'nd', 3: 'rd'}.get(k % 10, 'th')}"
    )


def bootstrap(
    values: npt.ArrayLike,
    statistic: Statistic = np.median,
    *,
    level: float = 0.95,
    resamples: int = 4000,
    seed: int = 0,
) -> Interval:
    r"""Estimate a statistic over instances (the first axis), with an interval.

    Of an array (instances, runs) the runs of an instance are averaged first: they share its luck
    and are no further instances. One instance has no interval.

    The interval of a median runs between order statistics (`medians`): exact, and nothing is
    resampled. For any other statistic instances are drawn with replacement, and the interval runs
    between the $\alpha'$ and $1 - \alpha'$ quantiles of the statistic of the resamples. Plain
    percentiles are too short for few instances; here $\alpha' = \Phi(-\sqrt{n / (n - 1)}\; t_{n -
    1})$, which makes that of a mean about as wide as Student's t (Hesterberg 2015, "What teachers
    should know about the bootstrap"). From 8 instances on a 95 % interval of a mean, or of a ratio
    of means, then covers 91 to 95 %. No such interval leaves the range of the data, and the range
    of n holds even the middle of a symmetric distribution with probability $1 - 2^{1 - n}$ only:
    `what` says so below 8.

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


def regret_ratio(with_: npt.ArrayLike, alone: npt.ArrayLike, *, level: float = 0.95) -> Interval:
    r"""Estimate the federated regret ratio: regret with federation over regret alone, below 1 where
    joining helps.

    Both are (instances, runs) or (instances,), on the same instances and seeds. The ratio of an
    instance is $\bar R_\text{with} / \bar R_\text{alone}$ of its means over runs; the estimate is
    the median over instances.

    Of one instance the interval is over its runs, from the third on, and knows nothing of other
    instances: with $\hat r$ the ratio of means and s the standard deviation of $d_i =
    R_{\text{with}, i} - \hat r R_{\text{alone}, i}$, paired by run, it is $\hat r \exp(\pm t_{n -
    1}\, s / (\sqrt n\, \bar R_\text{with}))$.

    >>> print(regret_ratio([[6.0, 7.0], [5.0, 5.0], [8.0, 6.0]], [[10.0, 10.0]] * 3))
    0.65 [0.50, 0.70] (75 %)
    >>> one = regret_ratio([[6.0, 7.0, 6.5]], [[10.0, 12.0, 11.0]])
    >>> print(one, one.over, one.what, sep="; ")
    0.591 [0.571, 0.612]; runs; 95 % t interval over runs of this one problem
    """
    mine, base = _instances(with_, "regret with federation"), _instances(alone, "regret alone")
    if mine.shape != base.shape:
        raise DataError(
            "regret with federation and alone must be of the same instances and runs, got "
            f"{mine.shape} and "
            f"{base.shape}. Run both on the same seeds."
        )
    one = base.shape[0] == 1
    means = base[0] if one else base.mean(axis=1)
    if (means <= 0).any():
        each = "run" if one else "instance"
        raise DataError(
            f"regret alone must be above 0 in every {each}, got {means.min():g}: without regret "
            "there is nothing that "
            "joining could lower. Leave such instances out, or compare differences."
        )
    check.between(0, 1, level=level)
    if one:
        return _over_runs(mine[0], base[0], level)
    return median_interval(mine.mean(axis=1) / means, level)


def _instances(values: npt.ArrayLike, name: str) -> Floats:
    """Return (instances, runs); one axis is one run an instance."""
    x = np.asarray(values, dtype=np.float64)
    x = x[:, None] if x.ndim == 1 else x
    if x.ndim != 2 or x.size == 0:
        raise DataError(
            f"{name} must have shape (instances,) or (instances, runs), not empty, got {x.shape}."
        )
    if not np.isfinite(x).all():
        raise DataError(
            f"{name} must be finite, got NaN or infinity. Leave out what was not finished."
        )
    return x


def _over_runs(mine: Floats, base: Floats, level: float) -> Interval:
    """The ratio of two means over the same runs, with a t interval on its logarithm.

    Of the ways to make one this covers best for the ratio of means: logarithms of the ratios of
    single runs average to another number where the two differ in spread, and Fieller's interval has
    no end for few runs.
    """
    n, ratio = base.size, float(mine.mean() / base.mean())
    if n < FEWEST_RUNS or ratio <= 0:
        return Interval(ratio, math.nan, math.nan, level, 0, "runs")
    error = float((mine - ratio * base).std(ddof=1)) / math.sqrt(n) / float(mine.mean())
    reach = math.exp(min(700.0, t_quantile(level, n - 1) * error))
    return Interval(
        ratio,
        ratio / reach,
        ratio * reach,
        level,
        0,
        "runs",
        "t interval over runs of this one problem",
    )


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
    tail = math.erfc(math.sqrt(n / (n - 1) / 2) * t_quantile(level, n - 1)) / 2
    low, high = np.quantile(drawn, [tail, 1 - tail])
    made = Interval(estimate, float(low), float(high), level, resamples, "instances")
    if n >= FEW:
        return made
    how = f"at best: bootstrap interval over {n} instances, {resamples:,} resamples"
    return replace(made, how=how, covers=min(level, 1 - 2 ** (1 - n)))
