"""Intervals and tests for few numbers: means, differences, medians, ratios and shares.

Every interval of the package is an `Interval` of this module. Only numpy is needed; the tests
compare quantiles and p-values with scipy. `benchmarks/coverage.py` measures how often the intervals
hold the truth, and docs/benchmarks.md has the table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
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
"""Runs of one instance below which a ratio has no interval: of two it would be a dozen standard
errors wide.
"""

FEW = 8
"""Instances below which a bootstrap covers less than was asked, and its text has the coverage."""

SHORT = 0.03
"""How far the coverage may be below the level before it is written next to the number."""

MANY_DEGREES = 1000
"""Degrees of freedom above which Student's quantile comes from a series, right to 1e-10."""


# Student's t --------------------------------------------------------------------------------------


def t_p_value(t: float, df: int) -> float:
    r"""Return the two-sided $P(|T| \ge |t|)$ of Student's t with `df` degrees of freedom.

    With $\theta = \arctan(|t| / \sqrt\nu)$ the probability of the inside is a finite sum of powers
    of $\cos\theta$ (Abramowitz and Stegun 26.7.3 and 26.7.4): O(df) operations, right to about
    1e-14.

    >>> round(t_p_value(12.706, 1), 5), round(t_p_value(-2.776, 4), 5), t_p_value(0.0, 7)
    (0.05, 0.05002, 1.0)
    """
    theta = math.atan(abs(t) / math.sqrt(df))
    cos = math.cos(theta)
    odd = df % 2
    term = cos**odd
    terms = term * (df > 1)
    for k in range(2 + odd, df, 2):
        term *= (k - 1) / k * cos * cos
        terms += term
    inside = math.sin(theta) * terms
    if odd:
        inside = 2 / math.pi * (theta + inside)
    return max(0.0, 1 - inside)


@lru_cache(maxsize=4096)
def t_quantile(level: float, df: int) -> float:
    r"""Return the t with $P(|T| \le t)$ = `level` (below 1), by bisection.

    For many degrees of freedom it is the normal quantile with the first three terms of its
    expansion in 1 / df (Abramowitz and Stegun 26.7.5).

    >>> [round(t_quantile(0.95, df), 3) for df in (1, 2, 4, 9, 5_000_000)]
    [12.706, 4.303, 2.776, 2.262, 1.96]
    """
    if df > MANY_DEGREES:
        z = NormalDist().inv_cdf((1 + level) / 2)
        first = (z**3 + z) / 4
        second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
        third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
        return z + first / df + second / df**2 + third / df**3
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


def holm(p_values: Sequence[float | None]) -> list[float]:
    r"""Return p-values adjusted by Holm (1979), in their order; None, for no test, becomes 1.

    The i-th smallest of m is multiplied by $m - i + 1$ and is never below one before it. All tests
    whose adjusted p-value is at most $\alpha$ are significant together: with probability
    $1 - \alpha$ none of them is due to chance, whatever their correlations.

    >>> holm([0.04, 0.01, None])
    [0.04, 0.02, 1.0]
    """
    tests = sorted((p, i) for i, p in enumerate(p_values) if p is not None)
    adjusted = [1.0] * len(p_values)
    largest = 0.0
    for rank, (p, i) in enumerate(tests):
        largest = max(largest, min(1.0, (len(tests) - rank) * p))
        adjusted[i] = largest
    return adjusted


def simultaneous_level(level: float, count: int) -> float:
    """Return the level of each of `count` intervals that hold together at `level` (Bonferroni).

    >>> round(simultaneous_level(0.95, 5), 6)
    0.99
    """
    return 1 - (1 - level) / count


# Intervals ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Interval:
    """An estimate and its interval; without one `low` and `high` are NaN or infinite.

    >>> print(Interval(0.6934, 0.6128, 0.7811, resamples=4000, over="instances"))
    0.69 [0.61, 0.78]
    """

    estimate: float
    low: float
    high: float
    level: float = LEVEL
    """Coverage that was asked for."""
    resamples: int = 0
    """0 where nothing was resampled."""
    over: str = "runs"
    """What it is over: "instances", or "runs" of the only instance."""
    how: str = ""
    """How it was computed; empty for a bootstrap."""
    covers: float | None = None
    """Actual coverage, if it is not `level`."""

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
        """What kind of interval it is; a dash without one.

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
        """Write both; a coverage clearly below the level is added.

        >>> print(Interval(0.65, 0.5, 0.7, over="instances", covers=0.75))
        0.65 [0.50, 0.70] (75 %)
        """
        text = format_interval(self.estimate, self.low, self.high)
        if self.known and self.covers is not None and self.covers < self.level - SHORT:
            return f"{text} ({self._percent})"
        return text


def format_interval(estimate: float, low: float, high: float) -> str:
    """Write an estimate and its interval to the first place that matters.

    >>> nan = float("nan")
    >>> format_interval(0.6934, 0.6128, 0.7811), format_interval(1234.5, 1100.0, 1320.0)
    ('0.69 [0.61, 0.78]', '1,234 [1,100, 1,320]')
    >>> format_interval(0.6934, nan, nan), format_interval(3.0, nan, nan)
    ('0.6934', '3')
    """
    if not (math.isfinite(low) and math.isfinite(high)):
        if abs(estimate) >= 1e4 or float(estimate).is_integer():
            return f"{estimate:,.0f}"
        return f"{estimate:,.4g}"
    half = (high - low) / 2
    places = 0
    while places < 6 and 0 < half * 10**places < 3:
        places += 1
    return f"{estimate:,.{places}f} [{low:,.{places}f}, {high:,.{places}f}]"


def unknown_interval(estimate: float, level: float = LEVEL, over: str = "runs") -> Interval:
    """Return an estimate from too few numbers for an interval."""
    return Interval(estimate, math.nan, math.nan, level, over=over)


# Means and differences ----------------------------------------------------------------------------


def standard_error(values: npt.ArrayLike) -> float | None:
    """Return s / sqrt(n), or None for fewer than two values, which have no standard error.

    >>> standard_error([1.0, 3.0]), standard_error([1.0])
    (1.0, None)
    """
    x = np.asarray(values, dtype=np.float64)
    if x.size < 2:
        return None
    return float(x.std(ddof=1) / math.sqrt(x.size))


def student(estimate: float, error: float | None, df: int, level: float = LEVEL) -> Interval:
    """Return Student's interval of an estimate with a standard error; without one, no interval.

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
    r"""Return Student's interval, corrected for the skewness of the residuals.

    If the values have a long tail to the right, a sample often has too little of it: its mean is too
    small, and so is its spread. Student's upper end is then too low, and its lower end lower than
    needed. Hall's transformation of t (1992, "On the removal of skewness by transformation"),
    $g(t) = t + \gamma t^2 / 3 + \gamma^2 t^3 / 27 + \gamma / (6 n)$ with the skewness $\gamma$,
    corrects both ends. The skewness of few values is itself uncertain. So the end that becomes wider
    gets the whole correction, and the other end only the share `tighten`.

    Args:
        estimate: The mean, or a ratio of means.
        error: Its standard error.
        residuals: What the independent values contribute to its error, with mean 0.
        df: Degrees of freedom; the number of residuals less 1 if left out.
        level: Coverage.
        tighten: Share of the correction for the end that comes closer; with 0 the interval holds
            Student's.

    >>> x = np.array([0.0, 0.0, 1.0, 0.0, 1.0, 12.0])
    >>> print(skewed_interval(x.mean(), standard_error(x), x - x.mean()))
    2 [-3, 18]
    """
    n = residuals.size
    df = n - 1 if df is None else df
    if df < 1:
        return unknown_interval(estimate, level)
    reach = t_quantile(level, df)
    skewness = _skewness(residuals)
    shortened = tighten * skewness
    # A tail to the right brings the lower end closer, and one to the left the upper end.
    low = _hall(reach, min(shortened, skewness), n)
    high = _hall(-reach, max(shortened, skewness), n)
    how = "t interval, corrected for skewness"
    return Interval(estimate, estimate - low * error, estimate - high * error, level, how=how)


def _skewness(residuals: Floats) -> float:
    variance = float((residuals**2).mean())
    if variance <= 0:
        return 0.0
    # Scaled first: cubes of tiny numbers would be 0.
    return float(((residuals / math.sqrt(variance)) ** 3).mean())


def _hall(t: float, skewness: float, n: int) -> float:
    """Invert Hall's transformation: return the t statistic whose corrected value is `t`."""
    if abs(skewness) < 1e-6:
        return t
    corrected = t / math.sqrt(n) - skewness / (6 * n)
    root = float(np.cbrt(1 + skewness * corrected))
    return math.sqrt(n) * 3 * (root - 1) / skewness


@dataclass(frozen=True)
class Band:
    """A mean curve between `low` and `high`, over `runs` runs; `what` describes the band."""

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
    shrink with n. One run has a band of width zero.

    >>> b = band([[1.0, 2.0], [3.0, 2.0]])
    >>> b.mean.tolist(), b.high.round(2).tolist(), b.what
    ([2.0, 2.0], [14.71, 2.0], '95 % interval of the mean, 2 runs')
    """
    x = np.asarray(values, dtype=np.float64)
    if x.ndim == 0 or x.shape[0] == 0:
        raise DataError(
            f"a band needs at least one run, got shape {x.shape}. The record holds no finished run.",
            rule="core.values.empty",
        )
    n = x.shape[0]
    runs = "1 run" if n == 1 else f"{n:,} runs"
    mean = np.asarray(x.mean(axis=0))
    if quantiles is not None:
        low, high = quantiles
        if not 0 <= low <= high <= 1:
            raise DataError(
                f"quantiles must satisfy 0 <= low <= high <= 1, got {quantiles}. Give both in order.",
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
    """Return Wilson's interval of a share, such as that of members whom an attack on privacy finds.

    >>> [round(end, 4) for end in wilson(81, 263)]
    [0.2553, 0.3662]
    """
    z = NormalDist().inv_cdf((1 + level) / 2)
    share = hits / tries
    square = z * z / tries
    middle = share + square / 2
    variance = share * (1 - share) / tries + square / tries / 4
    half = z * math.sqrt(max(0.0, variance))
    return (middle - half) / (1 + square), (middle + half) / (1 + square)


# Medians, ratios and other statistics of instances ------------------------------------------------


def ranks(n: int, level: float) -> tuple[int, float]:
    r"""Return the rank k such that the k-th smallest to the k-th largest of n hold the median, and
    how often they do.

    They hold it with probability $1 - 2 P(\mathrm{Bin}(n, 1/2) < k)$; k is the largest for which
    that is at least `level`, or 1 where nothing is.

    >>> [(n, *ranks(n, 0.95)) for n in (5, 6, 9)]
    [(5, 1, 0.9375), (6, 1, 0.96875), (9, 2, 0.9609375)]
    """
    k = 1
    ways = 1
    tail = 1
    while 2 * k < n:
        ways = ways * (n - k + 1) // k
        if 1 - 2 * ((tail + ways) / 2**n) < level:
            break
        k += 1
        tail += ways
    return k, 1 - 2 * (tail / 2**n)


def median_interval(x: Floats, level: float) -> Interval:
    """Return the median of instances, between order statistics; one instance has no interval.

    >>> median_interval(np.array([3.0, 1.0, 2.0, 5.0, 4.0]), 0.95).what
    '93.75 % interval, smallest to largest of 5 instances'
    """
    estimate = float(np.median(x))
    n = x.size
    if n < 2:
        return unknown_interval(estimate, level, "instances")
    k, covers = ranks(n, level)
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
        covers=covers,
    )


def _ordinal(k: int) -> str:
    """Write a rank.

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
    `what` has the coverage below 8.

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
    values_of_resamples = np.concatenate([np.asarray(statistic(row, axis=1)) for row in rows])
    tail = math.erfc(math.sqrt(n / (n - 1) / 2) * t_quantile(level, n - 1)) / 2
    low, high = np.quantile(values_of_resamples, [tail, 1 - tail])
    interval = Interval(estimate, float(low), float(high), level, resamples, "instances")
    if n >= FEW:
        return interval
    how = f"at best: bootstrap interval over {n} instances, {resamples:,} resamples"
    return replace(interval, how=how, covers=min(level, 1 - 2 ** (1 - n)))


def _resamples(rng: np.random.Generator, n: int, resamples: int) -> Iterator[Numbers]:
    """Yield the numbers of resampled instances, as many rows at a time as fit into memory."""
    block = max(1, _BLOCK // n)
    for start in range(0, resamples, block):
        yield rng.integers(0, n, (min(block, resamples - start), n))


def regret_ratio(with_: npt.ArrayLike, alone: npt.ArrayLike, *, level: float = LEVEL) -> Interval:
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
    joined = _instances(with_, "with_")
    base = _instances(alone, "alone")
    if joined.shape != base.shape:
        raise DataError(
            "regret with federation and alone must be of the same instances and runs, got "
            f"{joined.shape} and {base.shape}. Run both on the same seeds.",
            rule="core.alone.other-shape",
        )
    single = base.shape[0] == 1
    means = base[0] if single else base.mean(axis=1)
    if (means <= 0).any():
        each = "run" if single else "instance"
        raise DataError(
            f"regret alone must be above 0 in every {each}, got {means.min():g}: joining cannot "
            f"lower it. Leave out such an {each}, or compare differences.",
            rule="core.alone.not-positive",
        )
    check.between(0, 1, level=level)
    if single:
        return _ratio_over_runs(joined[0], base[0], level)
    return median_interval(joined.mean(axis=1) / means, level)


def _instances(values: npt.ArrayLike, name: str) -> Floats:
    """Return (instances, runs); one axis is one run an instance."""
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


def _ratio_over_runs(joined: Floats, base: Floats, level: float) -> Interval:
    """Return the ratio of two means over the same runs, with a t interval of its logarithm.

    Of the usual intervals this covers best for the ratio of means: logarithms of the ratios of
    single runs average to another number where the two differ in spread, and Fieller's interval has
    no end for few runs.
    """
    n = base.size
    ratio = float(joined.mean() / base.mean())
    if n < FEWEST_RUNS or ratio <= 0:
        return unknown_interval(ratio, level)
    error = float((joined - ratio * base).std(ddof=1)) / math.sqrt(n) / float(joined.mean())
    reach = math.exp(min(700.0, t_quantile(level, n - 1) * error))
    how = "t interval over runs of this one problem"
    return Interval(ratio, ratio / reach, ratio * reach, level, how=how)
