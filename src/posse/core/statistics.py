"""Intervals and tests for few numbers: means, differences, medians, ratios and shares.

An *instance* is a problem that was drawn at random, and a *run* is one seed on it. The *coverage*
of an interval is the probability that it contains the true value: the `level` that the caller asks
for, or less where few numbers allow no more. `benchmarks/coverage.py` measures it, and
docs/benchmarks.md has the table.

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

_BLOCK = 1_000_000
"""Numbers that are resampled at a time, so that the memory does not grow with the instances."""

FEWEST_RUNS = 3
"""Runs of one instance that a ratio needs for an interval: with two runs, Student's quantile would
make it a dozen standard errors wide.
"""

FEWEST_INSTANCES = 8
"""Instances that a bootstrap needs to cover nearly its level; with fewer, its text has the largest
possible coverage.
"""

MAX_SHORTFALL = 0.03
"""How far the coverage may be below the level before it is written next to the number."""

MANY_DEGREES = 1000
"""Degrees of freedom above which Student's quantile comes from a series, right to 1e-10."""

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
    # P(|T| < |t|) is a finite sum of powers of cos(theta): the even powers if df is even, and the
    # odd ones if it is odd (Abramowitz and Stegun 26.7.3 and 26.7.4).
    theta = math.atan(abs(t) / math.sqrt(df))
    cos = math.cos(theta)
    odd = df % 2
    term = cos**odd
    power_sum = term * (df > 1)  # with one degree of freedom there is no power
    for k in range(2 + odd, df, 2):
        term *= (k - 1) / k * cos * cos
        power_sum += term
    inside = math.sin(theta) * power_sum
    if odd:
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
    # Bisection: double `high` until the quantile is below it, then halve the interval.
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
    """Return the level of each of `count` intervals that hold together at `level` (Bonferroni).

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
    """Coverage that was asked for."""
    resamples: int = 0
    """Number of resamples; 0 if nothing was resampled."""
    over: str = "runs"
    """What varies at random: "instances", or "runs" if there is only one instance."""
    how: str = ""
    """How it was computed; empty for a bootstrap with the coverage `level`."""
    covers: float | None = None
    """Actual coverage; None if it is `level`."""

    @property
    def known(self) -> bool:
        """Whether there is an interval at all."""
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
    def _percent(self) -> str:
        covers = self.level if self.covers is None else self.covers
        return f"{100 * covers:.4g} %"

    def __str__(self) -> str:
        """Write the estimate and the interval.

        The actual coverage is added if it is clearly below the level.

        >>> print(Interval(0.65, 0.5, 0.7, over="instances", covers=0.75))
        0.65 [0.50, 0.70] (75 %)
        """
        text = format_interval(self.estimate, self.low, self.high)
        if self.known and self.covers is not None and self.covers < self.level - MAX_SHORTFALL:
            return f"{text} ({self._percent})"
        return text


def format_interval(estimate: float, low: float, high: float) -> str:
    """Write an estimate and its interval, with as many decimals as the interval justifies.

    Half the width of the interval is at least 3 units of the last decimal. There are at most 6
    decimals.

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
    half = (high - low) / 2
    if half == 0:  # an interval without a width justifies no number of decimals
        return f"{_format_number(estimate)} [{_format_number(low)}, {_format_number(high)}]"
    decimals = 0
    while decimals < 6 and half * 10**decimals < 3:
        decimals += 1
    return f"{estimate:,.{decimals}f} [{low:,.{decimals}f}, {high:,.{decimals}f}]"


def _format_number(value: float) -> str:
    """Write a large or whole number without decimals, and any other with 4 significant digits."""
    if abs(value) >= 1e4 or float(value).is_integer():
        return f"{value:,.0f}"
    return f"{value:,.4g}"


def unknown_interval(estimate: float, level: float = LEVEL, over: str = "runs") -> Interval:
    """Return an estimate without an interval, because there are too few numbers for one."""
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
    """Return an estimate with Student's interval.

    Without a standard error, or without degrees of freedom, there is no interval.

    >>> print(student(8.0, 1.0, df=4), student(8.0, None, df=0))
    8.0 [5.2, 10.8] 8
    """
    if error is None or df < 1:
        return unknown_interval(estimate, level)
    reach = t_quantile(level, df) * error
    return Interval(estimate, estimate - reach, estimate + reach, level, how="t interval")


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

    If the values have a long tail to the right, a sample often has too little of it: its mean is
    too small, and so is its spread. Student's upper end is then too low, and its lower end is lower
    than needed. The correction widens the end on the side of the tail. The other end comes closer
    only by the share `tighten` of its correction, because the skewness of few values is uncertain.

    Args:
        estimate: The mean, or a ratio of means.
        error: Its standard error.
        residuals: What each independent value contributes to the error of the estimate; their mean
            is 0.
        df: Degrees of freedom; by default the number of residuals less 1.
        level: Coverage.
        tighten: Share in [0, 1] of the correction that brings an end closer. With 0 the interval
            contains Student's interval.

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
    # A tail to the right (skewness above 0) brings the lower end closer, and one to the left the
    # upper end. That end gets only a share of the correction.
    if skewness > 0:
        low_skewness *= tighten
    else:
        high_skewness *= tighten
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
    # Scaled first: cubes of tiny numbers would be 0.
    return float(((residuals / math.sqrt(variance)) ** 3).mean())


def _invert_hall(t: float, skewness: float, n: int) -> float:
    """Return the t statistic of n skewed values for which Hall's transformation gives `t`."""
    if abs(skewness) < 1e-6:
        return t
    # With x = statistic / sqrt(n) and the skewness c, the transformation is
    #     t / sqrt(n) = x + c x^2 / 3 + c^2 x^3 / 27 + c / (6 n).
    # The first three terms are ((1 + c x / 3)^3 - 1) / c, so x follows by a cube root.
    first_terms = t / math.sqrt(n) - skewness / (6 * n)
    root = float(np.cbrt(1 + skewness * first_terms))
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
    """Return the mean over runs (the first axis) and a band around it.

    By default the band is Student's 95 % interval of the *mean*. With `quantiles=(0.025, 0.975)` it
    is the range of the middle 95 % of the *runs*, which does not shrink with their number. One run
    has a band of width zero.

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
    half = t_quantile(LEVEL, n - 1) * error
    return Band(mean, mean - half, mean + half, n, f"95 % interval of the mean, {runs}")


# Shares -------------------------------------------------------------------------------------------


def wilson(hits: float, tries: int, level: float = LEVEL) -> tuple[float, float]:
    """Return the ends of Wilson's interval of a share: `hits` of `tries`.

    For example, the share of members that an attack on privacy finds. The function also takes the
    sum of values in [0, 1] as `hits`. Without tries the interval is [0, 1].

    >>> [round(end, 4) for end in wilson(81, 263)]
    [0.2553, 0.3662]
    """
    if tries <= 0:
        return 0.0, 1.0
    # The ends are the shares p for which `share` is z standard deviations sqrt(p (1 - p) / tries)
    # from p: the roots of a quadratic equation.
    z = NormalDist().inv_cdf((1 + level) / 2)
    share = hits / tries
    square = z * z / tries
    middle = share + square / 2
    variance = share * (1 - share) / tries + square / tries / 4
    half = z * math.sqrt(max(0.0, variance))
    scale = 1 + square
    low = (middle - half) / scale
    high = (middle + half) / scale
    # Rounding may move an end a little beyond the share itself, and so beyond 0 or 1.
    return max(0.0, min(low, share)), min(1.0, max(high, share))


# Medians, ratios and other statistics of instances ------------------------------------------------


def median_rank(n: int, level: float) -> tuple[int, float]:
    """Return (k, coverage) of an interval of the median of n values.

    The interval from the k-th smallest to the k-th largest value contains the median with
    probability `coverage`. k is the largest rank whose coverage is at least `level`; 1 if no rank
    has so much.

    >>> [(n, *median_rank(n, 0.95)) for n in (5, 6, 9)]
    [(5, 1, 0.9375), (6, 1, 0.96875), (9, 2, 0.9609375)]
    """
    # Each value is below or above the median like the toss of a coin: 2^n equal cases. The interval
    # misses the median if fewer than k values are below it, or fewer than k above it.
    k = 1
    new_cases = 1  # with exactly k - 1 values below the median
    cases = 1  # with fewer than k values below the median
    while 2 * k < n:
        new_cases = new_cases * (n - k + 1) // k
        if 1 - 2 * ((cases + new_cases) / 2**n) < level:
            break
        k += 1
        cases += new_cases
    return k, 1 - 2 * (cases / 2**n)


def median_interval(x: Floats, level: float) -> Interval:
    """Return the median of instances, with an interval between two of their values.

    One instance has no interval.

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

    In an array (instances, runs) the runs of each instance are averaged first, because they are not
    independent of each other. One instance has no interval.

    The interval of a median is exact: it runs between two of the values, and nothing is resampled.
    For any other statistic, instances are drawn with replacement, and the interval runs between two
    quantiles of the resampled statistics. From 8 instances on, a 95 % interval of a mean, or of a
    ratio of means, covers 91 to 95 %. With fewer, `Interval.what` has the largest coverage that is
    possible.

    Args:
        values: One number per instance, or one per instance and run.
        statistic: A function of an array and `axis`.
        level: Coverage.
        resamples: Number of resamples; has no effect for the median.
        seed: Seed of the resamples; has no effect for the median.

    Reference: Hesterberg: What teachers should know about the bootstrap, 2015.

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
    n = x.size
    estimate = float(np.asarray(statistic(x[None, :], axis=1))[0])
    if n < 2:
        return unknown_interval(estimate, level, "instances")
    rng = np.random.default_rng(seed)
    rows = [x[numbers] for numbers in _resamples(rng, n, resamples)]
    resampled = np.concatenate([np.asarray(statistic(row, axis=1)) for row in rows])
    low, high = np.quantile(resampled, _bootstrap_quantiles(n, level))
    interval = Interval(estimate, float(low), float(high), level, resamples, "instances")
    if n >= FEWEST_INSTANCES:
        return interval
    # The interval stays within the range of the values. Even the middle of a symmetric distribution
    # is outside that range if all values are on one side of it: with probability 2 / 2^n.
    how = f"at best: bootstrap interval over {n} instances, {resamples:,} resamples"
    return replace(interval, how=how, covers=min(level, 1 - 2 ** (1 - n)))


def _bootstrap_quantiles(n: int, level: float) -> tuple[float, float]:
    """Return the two quantiles of resampled statistics between which a bootstrap interval runs.

    With the quantiles (1 - level) / 2 and (1 + level) / 2 it would be too short for few instances.
    """
    # Resampling divides by n and not by n - 1, and knows only the normal quantile. Hesterberg's
    # tail is Phi(-sqrt(n / (n - 1)) t). It makes the interval of a mean about as wide as Student's.
    # Phi(-sqrt(2) z) is erfc(z) / 2.
    z = math.sqrt(n / (n - 1) / 2) * t_quantile(level, n - 1)
    tail = math.erfc(z) / 2
    return tail, 1 - tail


def _resamples(rng: np.random.Generator, n: int, resamples: int) -> Iterator[Numbers]:
    """Yield the numbers of resampled instances, as many rows at a time as fit into memory."""
    block = max(1, _BLOCK // n)
    for start in range(0, resamples, block):
        yield rng.integers(0, n, (min(block, resamples - start), n))


def regret_ratio(with_: npt.ArrayLike, alone: npt.ArrayLike, *, level: float = LEVEL) -> Interval:
    """Estimate the federated regret ratio: regret with federation over regret alone.

    The ratio is below 1 if joining helps. The estimate is the median over instances of the ratio of
    the mean regrets of each instance.

    With only one instance, the estimate is the ratio of its mean regrets. The interval is then over
    its runs, needs at least three of them, and is not about other instances.

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
    """Return values as an array (instances, runs); a value per instance counts as its only run.

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

    Of the usual intervals this one covers best. The mean of the logarithms of the runs' own
    ratios estimates another number if the two regrets differ in spread, and Fieller's interval may
    be infinite for few runs.
    """
    n = regret_alone.size
    mean_with = float(regret_with.mean())
    ratio = float(regret_with.mean() / regret_alone.mean())
    if n < FEWEST_RUNS or ratio <= 0:
        return unknown_interval(ratio, level)
    # The error of the ratio is that of the mean of these residuals, divided by the mean regret
    # alone. Divided by the ratio too, it is the error of the logarithm of the ratio.
    residuals = regret_with - ratio * regret_alone
    log_error = float(residuals.std(ddof=1)) / math.sqrt(n) / mean_with
    factor = math.exp(min(_MAX_EXPONENT, t_quantile(level, n - 1) * log_error))
    how = "t interval over runs of this one problem"
    return Interval(ratio, ratio / factor, ratio * factor, level, how=how)
