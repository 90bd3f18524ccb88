"""Intervals and tests for few numbers: means, differences, medians, ratios and shares.

An *instance* is a problem that was drawn at random, and a *run* is one seed on an instance. The
*coverage* of an interval is the probability that it contains the true value. The caller asks for
the coverage `level`; few numbers may allow only less. `benchmarks/coverage.py` measures the actual
coverage, and docs/benchmarks.md has the table.

Only numpy is needed; the tests compare quantiles and p-values with scipy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from posse.core import check
from posse.core.errors import DataError

Floats = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]

Statistic = Callable[..., object]
"""A function of an array and `axis`, such as `np.median` or `np.mean`."""

LEVEL = 0.95
"""Coverage of an interval unless the caller asks for another one."""

_BLOCK = 1_000_000
"""Numbers that are resampled at a time, so that memory does not grow with the number of instances.
"""

FEWEST_RUNS = 3
"""Runs of one instance that a ratio needs for an interval. With two runs, Student's quantile would
make the interval a dozen standard errors wide.
"""

FEWEST_INSTANCES = 8
"""Instances that a bootstrap interval needs to cover nearly its level. With fewer instances,
`Interval.what` has the largest possible coverage.
"""

MAX_SHORTFALL = 0.03
"""If the coverage is below the level by more than this, it is written next to the interval."""

MANY_DEGREES = 1000
"""Degrees of freedom above which Student's quantile is computed by a series, which is then right to
1e-10.
"""

TIGHTEN = 0.5
"""Share of the correction for skewness that may bring an end of the interval of a paired difference
closer to the estimate. With 0 the real difference in docs/benchmarks.md is clear in 81 % of
comparisons of 50 runs instead of 89 %; with 1 intervals of 20 differences, most of them 0, cover
88 % in simulations.
"""

_MAX_EXPONENT = 700.0
"""The exponential of a larger number could be infinite."""


# Student's t --------------------------------------------------------------------------------------


def t_p_value(t: float, df: int) -> float:
    r"""Return the two-sided $P(|T| \ge |t|)$ of Student's t with `df` degrees of freedom.

    The computation takes O(df) operations, and the result is right to about 1e-14.

    >>> round(t_p_value(12.706, 1), 5), round(t_p_value(-2.776, 4), 5), t_p_value(0.0, 7)
    (0.05, 0.05002, 1.0)
    """
    # Abramowitz and Stegun 26.7.3 and 26.7.4. P(|T| < |t|) is
    #     sin(theta) (sum of even powers of cos(theta)) if df is even, and
    #     2 / pi (theta + sin(theta) (sum of odd powers of cos(theta))) if df is odd.
    # The powers are at most df - 2; for df = 1 the sum is empty. Each power has a coefficient.
    theta = math.atan(abs(t) / math.sqrt(df))
    cos = math.cos(theta)
    lowest_power = df % 2
    term = cos**lowest_power
    power_sum = 0.0
    for power in range(lowest_power, df - 1, 2):
        power_sum += term
        term *= (power + 1) / (power + 2) * cos * cos
    inside = math.sin(theta) * power_sum
    if df % 2 == 1:
        inside = 2 / math.pi * (theta + inside)
    return max(0.0, 1 - inside)


@lru_cache(maxsize=4096)
def t_quantile(level: float, df: int) -> float:
    r"""Return the t with $P(|T| \le t)$ = `level` (below 1).

    >>> [round(t_quantile(0.95, df), 3) for df in (1, 2, 4, 9, 5_000_000)]
    [12.706, 4.303, 2.776, 2.262, 1.96]
    """
    if df > MANY_DEGREES:
        # The normal quantile z, corrected by a series in 1 / df (Abramowitz and Stegun 26.7.5).
        z = NormalDist().inv_cdf((1 + level) / 2)
        first = (z**3 + z) / 4
        second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
        third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
        return z + first / df + second / df**2 + third / df**3
    # Bisection: double `high` until it is above the quantile, and then halve [low, high]. After 60
    # halvings, both ends are equal up to rounding.
    low = 0.0
    high = 1.0
    while t_p_value(high, df) > 1 - level:
        low = high
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        if t_p_value(middle, df) > 1 - level:
            low = middle
        else:
            high = middle
    return high


def simultaneous_level(level: float, count: int) -> float:
    """Return the level that each of `count` intervals needs (Bonferroni).

    Then all intervals together contain their true values with probability at least `level`.

    >>> round(simultaneous_level(0.95, 5), 6)
    0.99
    """
    return 1 - (1 - level) / count


# Intervals ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Interval:
    """An estimate and its interval; `low` and `high` are NaN or infinite if there is no interval.

    >>> print(Interval(0.6934, 0.6128, 0.7811, resamples=4000, over="instances"))
    0.69 [0.61, 0.78]
    """

    estimate: float
    low: float
    high: float
    level: float = LEVEL
    """Coverage that the caller asked for."""
    resamples: int = 0
    """Number of resamples; 0 if nothing was resampled."""
    over: str = "runs"
    """What the numbers belong to: "instances", or "runs" if all belong to one instance."""
    how: str = ""
    """How the interval was computed; empty for a bootstrap with the coverage `level`."""
    covers: float | None = None
    """Actual coverage; None if the actual coverage is `level`."""

    @property
    def known(self) -> bool:
        """Whether there is an interval, and not only an estimate."""
        return math.isfinite(self.low) and math.isfinite(self.high)

    @property
    def excludes_zero(self) -> bool:
        """Whether both ends are on the same side of 0."""
        return self.low > 0 or self.high < 0

    @property
    def what(self) -> str:
        """Coverage and kind of the interval, in words; a dash if there is no interval.

        >>> Interval(0.69, 0.61, 0.78, resamples=4000, over="instances").what
        '95 % bootstrap interval over instances, 4,000 resamples'
        """
        if not self.known:
            return "–"
        how = self.how or f"bootstrap interval over {self.over}, {self.resamples:,} resamples"
        return f"{self._percent} {how}"

    @property
    def _coverage(self) -> float:
        """Actual coverage."""
        return self.level if self.covers is None else self.covers

    @property
    def _percent(self) -> str:
        """Actual coverage as text."""
        return f"{100 * self._coverage:.4g} %"

    def __str__(self) -> str:
        """Write the estimate and the interval.

        The actual coverage is written too if it is below the level by more than `MAX_SHORTFALL`.

        >>> print(Interval(0.65, 0.5, 0.7, over="instances", covers=0.75))
        0.65 [0.50, 0.70] (75 %)
        """
        text = format_interval(self.estimate, self.low, self.high)
        falls_short = self._coverage < self.level - MAX_SHORTFALL
        if self.known and falls_short:
            return f"{text} ({self._percent})"
        return text


def format_interval(estimate: float, low: float, high: float) -> str:
    """Write an estimate and its interval, with as many decimals as the interval justifies.

    The number of decimals is the smallest one, at most 6, for which half the width of the interval
    is at least 3 units of the last decimal.

    >>> nan = float("nan")
    >>> format_interval(0.6934, 0.6128, 0.7811), format_interval(1234.5, 1100.0, 1320.0)
    ('0.69 [0.61, 0.78]', '1,234 [1,100, 1,320]')
    >>> format_interval(0.6934, nan, nan), format_interval(3.0, nan, nan)
    ('0.6934', '3')
    >>> format_interval(0.6934, 0.6934, 0.6934), format_interval(1.0, 1.0, 1.0)
    ('0.6934 [0.6934, 0.6934]', '1 [1, 1]')
    """
    if not (math.isfinite(low) and math.isfinite(high)):
        return _format_number(estimate)
    half_width = (high - low) / 2
    if half_width == 0:
        # No number of decimals follows from an interval without a width.
        return f"{_format_number(estimate)} [{_format_number(low)}, {_format_number(high)}]"
    decimals = 0
    while decimals < 6 and half_width * 10**decimals < 3:
        decimals += 1
    return f"{estimate:,.{decimals}f} [{low:,.{decimals}f}, {high:,.{decimals}f}]"


def _format_number(value: float) -> str:
    """Write a large or whole number without decimals, and any other with 4 significant digits."""
    if abs(value) >= 1e4 or float(value).is_integer():
        return f"{value:,.0f}"
    return f"{value:,.4g}"


def unknown_interval(estimate: float, level: float = LEVEL, over: str = "runs") -> Interval:
    """Return an estimate without an interval, for cases with too few numbers."""
    return Interval(estimate, math.nan, math.nan, level, over=over)


# Means and differences ----------------------------------------------------------------------------


def standard_error(values: npt.ArrayLike) -> float | None:
    """Return the standard error of a mean, s / sqrt(n); None for fewer than two values.

    >>> standard_error([1.0, 3.0]), standard_error([1.0])
    (1.0, None)
    """
    x = np.asarray(values, dtype=np.float64)
    if x.size < 2:
        return None
    return float(x.std(ddof=1) / math.sqrt(x.size))


def student(estimate: float, error: float | None, df: int, level: float = LEVEL) -> Interval:
    """Return an estimate with Student's interval of `df` degrees of freedom.

    There is no interval if `error`, the standard error, is None or if `df` is below 1.

    >>> print(student(8.0, 1.0, df=4), student(8.0, None, df=0))
    8.0 [5.2, 10.8] 8
    """
    if error is None or df < 1:
        return unknown_interval(estimate, level)
    half_width = t_quantile(level, df) * error
    low = estimate - half_width
    high = estimate + half_width
    return Interval(estimate, low, high, level, how="t interval")


def mean_interval(values: npt.ArrayLike, level: float = LEVEL) -> Interval:
    """Return the mean of independent values with Student's interval.

    >>> print(mean_interval([1.0, 2.0, 3.0]))
    2.0 [-0.5, 4.5]
    """
    x = np.asarray(values, dtype=np.float64)
    return student(float(x.mean()), standard_error(x), x.size - 1, level)


def skewed_interval(
    estimate: float,
    error: float,
    residuals: Floats,
    *,
    df: int | None = None,
    level: float = LEVEL,
    tighten: float = 0.0,
) -> Interval:
    """Return Student's interval, corrected for the skewness of the residuals (Hall 1992).

    Take values with a long tail to the right. A sample with too little of the tail has a small mean
    and a small spread, so Student's upper end is too low. A sample with too much of the tail has a
    large mean and a large spread, so Student's lower end is lower than needed. The correction moves
    the end on the side of the tail away from the estimate. It moves the other end closer to the
    estimate, but only by the share `tighten`, because the skewness of few values is uncertain.

    Args:
        estimate: The mean, or a ratio of means.
        error: Standard error of the estimate.
        residuals: What each independent value contributes to the error of the estimate; the mean of
            all residuals is 0.
        df: Degrees of freedom; by default the number of residuals less 1.
        level: Coverage.
        tighten: Share, in [0, 1], of a correction that moves an end closer to the estimate. With 0
            the interval contains Student's interval.

    Reference: Hall: On the removal of skewness by transformation, 1992.

    >>> x = np.array([0.0, 0.0, 1.0, 0.0, 1.0, 12.0])
    >>> print(skewed_interval(x.mean(), standard_error(x), x - x.mean()))
    2 [-3, 18]
    """
    n = residuals.size
    df = n - 1 if df is None else df
    if df < 1:
        return unknown_interval(estimate, level)
    skewness = _skewness(residuals)
    low_skewness = skewness
    high_skewness = skewness
    # With a tail to the right (skewness above 0), the correction moves the lower end closer to the
    # estimate; with a tail to the left, the upper end. Only a share of this correction is made.
    if skewness > 0:
        low_skewness *= tighten
    else:
        high_skewness *= tighten
    # At an end, (estimate - end) / error is the t statistic that is just not rejected: t for the
    # lower end, and -t for the upper end.
    t = t_quantile(level, df)
    low = estimate - _invert_hall(t, low_skewness, n) * error
    high = estimate - _invert_hall(-t, high_skewness, n) * error
    return Interval(estimate, low, high, level, how="t interval, corrected for skewness")


def paired_interval(differences: npt.ArrayLike, level: float = LEVEL) -> Interval:
    """Return the mean of paired differences with its interval, corrected for skewness.

    One difference has no interval.

    >>> print(paired_interval([1.0, 2.0, 3.0, 2.0]), paired_interval([1.0]))
    2.0 [0.7, 3.3] 1
    """
    x = np.asarray(differences, dtype=np.float64)
    estimate = float(x.mean())
    error = standard_error(x)
    if error is None:
        return unknown_interval(estimate, level)
    return skewed_interval(estimate, error, x - estimate, level=level, tighten=TIGHTEN)


def _skewness(residuals: Floats) -> float:
    """Return the mean cube of the residuals in units of their standard deviation."""
    variance = float((residuals**2).mean())
    if variance <= 0:
        return 0.0
    # Scale before taking cubes: cubes of tiny numbers would be 0.
    scaled = residuals / math.sqrt(variance)
    return float((scaled**3).mean())


def _invert_hall(t: float, skewness: float, n: int) -> float:
    """Return the t statistic of n skewed values for which Hall's transformation gives `t`."""
    # Without skewness, the transformation changes nothing. The formula below would divide by 0.
    if abs(skewness) < 1e-6:
        return t
    # With x = statistic / sqrt(n) and the skewness c, the transformation is
    #     t / sqrt(n) = x + c x^2 / 3 + c^2 x^3 / 27 + c / (6 n).
    # The sum of the first three terms is ((1 + c x / 3)^3 - 1) / c, so x follows by a cube root.
    sum_of_three = t / math.sqrt(n) - skewness / (6 * n)
    root = float(np.cbrt(1 + skewness * sum_of_three))
    return math.sqrt(n) * 3 * (root - 1) / skewness


@dataclass(frozen=True)
class Band:
    """A mean curve, and a band around it."""

    mean: Floats
    low: Floats
    high: Floats
    runs: int
    """Number of runs."""
    what: str
    """What the band shows, in words."""


def band(values: npt.ArrayLike, quantiles: tuple[float, float] | None = None) -> Band:
    """Return the mean over runs (the first axis) and a band around the mean.

    By default the band is Student's 95 % interval of the *mean*. With `quantiles=(0.025, 0.975)`
    the band is the range of the middle 95 % of the *runs*, which does not shrink with more runs. By
    default, a single run has a band of width zero.

    >>> b = band([[1.0, 2.0], [3.0, 2.0]])
    >>> b.mean.tolist(), b.high.round(2).tolist(), b.what
    ([2.0, 2.0], [14.71, 2.0], '95 % interval of the mean, 2 runs')
    """
    x = np.asarray(values, dtype=np.float64)
    if x.ndim == 0 or x.shape[0] == 0:
        raise DataError(
            f"a band needs at least one run, got shape {x.shape}. The record holds no finished "
            "run.",
            rule="core.values.empty",
        )
    n = x.shape[0]
    runs = "1 run" if n == 1 else f"{n:,} runs"
    mean = np.asarray(x.mean(axis=0))
    if quantiles is not None:
        low, high = quantiles
        if not 0 <= low <= high <= 1:
            raise DataError(
                f"quantiles must satisfy 0 <= low <= high <= 1, got {quantiles}. Give both in "
                "order.",
                rule="core.quantiles.out-of-range",
            )
        ends = np.quantile(x, quantiles, axis=0)
        return Band(mean, ends[0], ends[1], n, f"{low:g} to {high:g} quantiles of {runs}")
    if n == 1:
        return Band(mean, mean, mean, n, runs)
    error = np.asarray(x.std(axis=0, ddof=1)) / math.sqrt(n)
    half_width = t_quantile(LEVEL, n - 1) * error
    what = f"95 % interval of the mean, {runs}"
    return Band(mean, mean - half_width, mean + half_width, n, what)


# Shares -------------------------------------------------------------------------------------------


def wilson(hits: float, tries: int, level: float = LEVEL) -> tuple[float, float]:
    """Return the ends of Wilson's interval of a share: `hits` of `tries`.

    An example is the share of members that an attack on privacy finds. `hits` may also be a sum of
    `tries` values in [0, 1]. Without tries the interval is [0, 1].

    >>> [round(end, 4) for end in wilson(81, 263)]
    [0.2553, 0.3662]
    """
    if tries <= 0:
        return 0.0, 1.0
    # At an end p of the interval, `share` is z standard deviations sqrt(p (1 - p) / tries) away
    # from p. So the ends are the roots of a quadratic equation in p.
    z = NormalDist().inv_cdf((1 + level) / 2)
    share = hits / tries
    square = z * z / tries
    middle = share + square / 2
    variance = share * (1 - share) / tries + square / tries / 4
    half_width = z * math.sqrt(max(0.0, variance))
    scale = 1 + square
    low = (middle - half_width) / scale
    high = (middle + half_width) / scale
    # Rounding may move an end a little beyond the share itself, and so beyond 0 or 1.
    return max(0.0, min(low, share)), min(1.0, max(high, share))


# Medians, ratios and other statistics of instances ------------------------------------------------


def median_rank(n: int, level: float) -> tuple[int, float]:
    """Return (k, coverage) of an interval of the median of n values.

    The interval from the k-th smallest to the k-th largest value contains the true median with
    probability `coverage`. k is the largest rank with a coverage of at least `level`; 1 if no rank
    has this coverage.

    >>> [(n, *median_rank(n, 0.95)) for n in (5, 6, 9)]
    [(5, 1, 0.9375), (6, 1, 0.96875), (9, 2, 0.9609375)]
    """

    def coverage(k: int) -> float:
        # Each value is below or above the true median with probability 1/2: 2^n equally likely
        # cases. The interval misses the median if fewer than k values are below the median, or
        # fewer than k values are above it.
        cases = sum(math.comb(n, below) for below in range(k))
        missed: float = 2 * (cases / 2**n)
        return 1 - missed

    k = 1
    while 2 * (k + 1) <= n + 1 and coverage(k + 1) >= level:
        k += 1
    return k, coverage(k)


def median_interval(x: Floats, level: float) -> Interval:
    """Return the median of `x`, which has one value per instance, with an interval.

    Both ends of the interval are values in `x`. A single instance has no interval.

    >>> median_interval(np.array([3.0, 1.0, 2.0, 5.0, 4.0]), 0.95).what
    '93.75 % interval, smallest to largest of 5 instances'
    """
    estimate = float(np.median(x))
    n = x.size
    if n < 2:
        return unknown_interval(estimate, level, "instances")
    k, coverage = median_rank(n, level)
    ordered = np.sort(x)
    ends = "smallest to largest"
    if k > 1:
        ends = f"{_ordinal(k)} smallest to {_ordinal(k)} largest"
    return Interval(
        estimate,
        float(ordered[k - 1]),
        float(ordered[n - k]),
        level,
        over="instances",
        how=f"interval, {ends} of {n} instances",
        covers=coverage,
    )


def _ordinal(k: int) -> str:
    """Write a rank, such as "2nd".

    >>> [_ordinal(k) for k in (1, 2, 3, 4, 11, 12, 21, 102)]
    ['1st', '2nd', '3rd', '4th', '11th', '12th', '21st', '102nd']
    """
    ending = {1: "st", 2: "nd", 3: "rd"}.get(k % 10, "th")
    if k % 100 in (11, 12, 13):
        ending = "th"
    return f"{k}{ending}"


def bootstrap(
    values: npt.ArrayLike,
    statistic: Statistic = np.median,
    *,
    level: float = LEVEL,
    resamples: int = 4000,
    seed: int = 0,
) -> Interval:
    """Estimate a statistic over instances (the first axis), with an interval.

    In an array (instances, runs) the runs of each instance are averaged first, because the runs of
    one instance are not independent of each other. One instance has no interval.

    The interval of a median has two of the values as its ends. Its coverage is known exactly, and
    nothing is resampled. For any other statistic, instances are drawn with replacement, and the
    ends of the interval are two quantiles of the resampled statistics. From 8 instances on, a 95 %
    interval of a mean, or of a ratio of means, covers 91 to 95 %. With fewer instances the
    coverage is lower: `Interval.what` states the largest possible one.

    Args:
        values: One number per instance, or one per instance and run.
        statistic: A function of an array and `axis`.
        level: Coverage.
        resamples: Number of resamples; has no effect for the median.
        seed: Seed of the resamples; has no effect for the median.

    Reference: Hesterberg: What teachers should know about the bootstrap, 2015.

    >>> print(bootstrap([3.0, 1.0, 2.0, 5.0, 4.0]))
    3.0 [1.0, 5.0]
    >>> bootstrap([1.0, 2.0, 4.0], np.mean).what
    '75 % at best: bootstrap interval over 3 instances, 4,000 resamples'
    """
    check.between(0, 1, level=level)
    check.at_least(1, resamples=resamples)
    x = _instances(values, "values").mean(axis=1)
    if statistic is np.median:
        return median_interval(x, level)
    n = x.size
    estimate = float(np.asarray(statistic(x[None, :], axis=1))[0])
    if n < 2:
        return unknown_interval(estimate, level, "instances")
    rng = np.random.default_rng(seed)
    blocks = [x[numbers] for numbers in _resamples(rng, n, resamples)]
    resampled = np.concatenate([np.asarray(statistic(block, axis=1)) for block in blocks])
    low, high = np.quantile(resampled, _bootstrap_quantiles(n, level))
    interval = Interval(estimate, float(low), float(high), level, resamples, "instances")
    if n >= FEWEST_INSTANCES:
        return interval
    # The interval is within the range of the values. With probability 2 / 2^n all values are on one
    # side of the middle of a symmetric distribution. Then the interval does not contain the middle.
    how = f"at best: bootstrap interval over {n} instances, {resamples:,} resamples"
    largest_coverage = 1 - 2 / 2**n
    return replace(interval, how=how, covers=min(level, largest_coverage))


def _bootstrap_quantiles(n: int, level: float) -> tuple[float, float]:
    """Return the two quantiles of resampled statistics that are the ends of a bootstrap interval.

    For few instances, the interval between the quantiles (1 - level) / 2 and (1 + level) / 2 would
    be too short.
    """
    # That interval is too short for two reasons. The variance of resampled values has the divisor n
    # instead of n - 1, and the quantiles of resampled means are normal ones instead of Student's.
    # So Hesterberg takes the tail Phi(-sqrt(n / (n - 1)) t), with Student's quantile t. Then the
    # interval of a mean is about as wide as Student's. Phi(-sqrt(2) z) is erfc(z) / 2.
    z = math.sqrt(n / (n - 1) / 2) * t_quantile(level, n - 1)
    tail = math.erfc(z) / 2
    return tail, 1 - tail


def _resamples(rng: np.random.Generator, n: int, resamples: int) -> Iterator[Numbers]:
    """Yield arrays of indices of instances, drawn with replacement.

    Each row of an array is one resample of `n` indices. An array has about `_BLOCK` elements, so
    that many resamples fit into memory.
    """
    block = max(1, _BLOCK // n)
    for start in range(0, resamples, block):
        yield rng.integers(0, n, (min(block, resamples - start), n))


def regret_ratio(with_: npt.ArrayLike, alone: npt.ArrayLike, *, level: float = LEVEL) -> Interval:
    """Estimate the federated regret ratio: regret with federation over regret alone.

    The ratio is below 1 if joining the federation helps. Each instance has a ratio of two mean
    regrets. The estimate is the median of these ratios over the instances.

    With only one instance, the estimate is the ratio of this instance. The interval is then over
    the runs of the instance, and does not cover other instances. It needs at least three runs.

    Args:
        with_: Regret with federation, of shape (instances, runs) or (instances,).
        alone: Regret alone, of the same instances and seeds.
        level: Coverage.

    Raises:
        DataError: The shapes differ, or regret alone is not above 0.

    >>> print(regret_ratio([[6.0, 7.0], [5.0, 5.0], [8.0, 6.0]], [[10.0, 10.0]] * 3))
    0.65 [0.50, 0.70] (75 %)
    >>> one = regret_ratio([[6.0, 7.0, 6.5]], [[10.0, 12.0, 11.0]])
    >>> print(one, one.over, one.what, sep="; ")
    0.591 [0.571, 0.612]; runs; 95 % t interval over runs of this one problem
    """
    regret_with = _instances(with_, "with_")
    regret_alone = _instances(alone, "alone")
    if regret_with.shape != regret_alone.shape:
        raise DataError(
            "regret with federation and alone must be of the same instances and runs, got "
            f"{regret_with.shape} and {regret_alone.shape}. Run both on the same seeds.",
            rule="core.alone.other-shape",
        )
    check.between(0, 1, level=level)
    if len(regret_alone) == 1:
        _check_divisors(regret_alone[0], "run")
        return _ratio_over_runs(regret_with[0], regret_alone[0], level)
    means_alone = regret_alone.mean(axis=1)
    _check_divisors(means_alone, "instance")
    return median_interval(regret_with.mean(axis=1) / means_alone, level)


def _check_divisors(regret_alone: Floats, noun: str) -> None:
    """Raise an error if regret alone is not above 0 in every run or instance (`noun`)."""
    if (regret_alone <= 0).any():
        raise DataError(
            f"regret alone must be above 0 in every {noun}, got {regret_alone.min():g}: joining "
            f"cannot lower it. Leave that {noun} out, or compare differences.",
            rule="core.alone.not-positive",
        )


def _instances(values: npt.ArrayLike, name: str) -> Floats:
    """Return values as an array (instances, runs).

    If there is only one value per instance, the instance has one run with this value.

    Raises:
        DataError: The array is empty, has another shape, or has a value that is not finite.
    """
    x = np.asarray(values, dtype=np.float64)
    if x.ndim == 1:
        x = x[:, None]
    if x.ndim != 2 or x.size == 0:
        raise DataError(
            f"{name} must have shape (instances,) or (instances, runs), not empty, got {x.shape}.",
            rule=f"core.{name}.wrong-shape",
        )
    if not np.isfinite(x).all():
        raise DataError(
            f"{name} must be finite, got NaN or infinity. Leave out what was not finished.",
            rule=f"core.{name}.not-finite",
        )
    return x


def _ratio_over_runs(regret_with: Floats, regret_alone: Floats, level: float) -> Interval:
    """Return the ratio of two means over the same runs, with a t interval of its logarithm.

    Of the usual intervals this one has the best coverage. An interval of the mean logarithm of each
    run's own ratio would estimate another number if the two regrets differ in spread. Fieller's
    interval may be infinite for few runs.
    """
    n = regret_alone.size
    mean_with = float(regret_with.mean())
    ratio = mean_with / float(regret_alone.mean())
    if n < FEWEST_RUNS or ratio <= 0:
        return unknown_interval(ratio, level)
    # The error of the ratio is the error of the mean of these residuals, divided by the mean regret
    # alone. The error of the ratio's logarithm is the error of the ratio, divided by the ratio. The
    # product of both divisors is the mean regret with federation.
    residuals = regret_with - ratio * regret_alone
    error_of_mean = float(residuals.std(ddof=1)) / math.sqrt(n)
    error_of_logarithm = error_of_mean / mean_with
    half_width = t_quantile(level, n - 1) * error_of_logarithm
    factor = math.exp(min(_MAX_EXPONENT, half_width))
    how = "t interval over runs of this one problem"
    return Interval(ratio, ratio / factor, ratio * factor, level, how=how)
