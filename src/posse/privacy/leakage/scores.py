"""How good guesses are, with an interval and against chance: counts of hits, areas under a curve,
correlations.

All intervals are at confidence .95. p values are one-sided: how often somebody who saw nothing does
as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from posse.privacy.leakage.attack import Score, Truth

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
_Z = NormalDist().inv_cdf(0.975)


def tail(hits: int, tries: int, chance: float) -> float:
    """P(X >= hits) for X binomial: the sum of its terms, by their ratios.

    >>> round(tail(9, 10, 0.5), 4), tail(0, 5, 0.1), tail(3, 3, 0.0)
    (0.0107, 1.0, 0.0)
    """
    if hits <= 0:
        return 1.0
    if chance <= 0.0 or chance >= 1.0:
        return 0.0 if chance <= 0.0 else 1.0
    if hits <= tries * chance:  # the shorter sum, from the other side
        return 1.0 - tail(tries - hits + 1, tries, 1.0 - chance)
    k = np.arange(hits, tries + 1, dtype=np.float64)
    first = math.lgamma(tries + 1) - math.lgamma(hits + 1) - math.lgamma(tries - hits + 1)
    first += hits * math.log(chance) + (tries - hits) * math.log1p(-chance)
    ratios = np.concatenate([[0.0], np.log((tries - k[:-1]) / (k[:-1] + 1.0))]) + math.log(
        chance / (1.0 - chance)
    )
    ratios[0] = 0.0
    return float(min(1.0, math.exp(first) * np.exp(np.cumsum(ratios)).sum()))


def share_interval(hits: int, tries: int, confidence: float = 0.95) -> tuple[float, float]:
    """Clopper and Pearson's interval of a share, by bisection.

    >>> (
    ...     [round(edge, 3) for edge in share_interval(24, 24)],
    ...     [round(edge, 3) for edge in share_interval(5, 10)],
    ... )
    ([0.858, 1.0], [0.187, 0.813])
    """
    alpha = (1.0 - confidence) / 2.0
    low = _root(lambda p: tail(hits, tries, p) - alpha) if hits else 0.0
    high = _root(lambda p: alpha - 1.0 + tail(hits + 1, tries, p)) if hits < tries else 1.0
    return low, high


def _root(rising: Callable[[float], float]) -> float:
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2.0
        low, high = (low, middle) if rising(middle) > 0.0 else (middle, high)
    return (low + high) / 2.0


def hits(found: int, tries: int, chance: float, what: str) -> Score:
    """Score of guesses each of which is right or wrong; `chance` is the share that is right without
    having seen.

    >>> made = hits(24, 24, 0.08, "runs")
    >>> str(made), made.text, made.p < 1e-20
    ('1 [0.858, 1]', '24 of 24 runs', True)
    """
    text = f"{found:,} of {tries:,} {what}"
    if not tries:
        return Score(chance, (0.0, 1.0), text, chance, 1.0)
    return Score(
        found / tries, share_interval(found, tries), text, chance, tail(found, tries, chance)
    )


def area(scores: ArrayLike, labels: ArrayLike, what: str) -> Score:
    """Area under the curve of scores that should be larger where the label is 1; ties count half.

    p and interval are by the normal law of Mann and Whitney's statistic (Hanley and McNeil 1982 for
    the interval).

    >>> made = area([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1], "steps")
    >>> made.value, made.baseline, made.text
    (0.75, 0.5, '2 among 4 steps')
    """
    given, ones = np.asarray(scores, np.float64), np.asarray(labels, bool)
    n, m = int(ones.sum()), int((~ones).sum())
    text = f"{n:,} among {n + m:,} {what}"
    if not n or not m:
        return Score(0.5, (0.0, 1.0), text, 0.5, 1.0)
    ranks, ties = _ranks(given)
    value = (ranks[ones].sum() - n * (n + 1) / 2) / (n * m)
    spread = (n + m + 1 - ties / ((n + m) * (n + m - 1))) / (12 * n * m)
    q1, q2 = value / (2 - value), 2 * value * value / (1 + value)
    error = math.sqrt(
        max(value * (1 - value) + (n - 1) * (q1 - value**2) + (m - 1) * (q2 - value**2), 0)
        / (n * m)
    )
    p = 1.0 if spread <= 0 else NormalDist().cdf(-(value - 0.5) / math.sqrt(spread))
    return Score(
        float(value), (max(0.0, value - _Z * error), min(1.0, value + _Z * error)), text, 0.5, p
    )


def _ranks(values: Floats) -> tuple[Floats, float]:
    """Ranks from 1, equal values sharing theirs, and the sum of c^3 - c over groups of c equal
    values.
    """
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return ((last - (counts - 1) / 2.0)[inverse]).astype(np.float64), float(
        (counts.astype(float) ** 3 - counts).sum()
    )


def determination(estimates: ArrayLike, truths: ArrayLike, what: str) -> Score:
    """Squared correlation of estimates and truths, with the interval of Fisher's z.

    >>> determination([1.0, 2.0, 3.0, 4.5], [1.1, 2.0, 3.2, 4.4], "runs").value > 0.98
    True
    """
    x, y = np.asarray(estimates, np.float64), np.asarray(truths, np.float64)
    text = f"{len(x):,} {what}"
    if len(x) < 4 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return Score(0.0, (0.0, 1.0), text, 0.0, 1.0)
    r = min(max(float(np.corrcoef(x, y)[0, 1]), -1 + 1e-15), 1 - 1e-15)
    z, width = math.atanh(r), _Z / math.sqrt(len(x) - 3)
    low, high = math.tanh(z - width), math.tanh(z + width)
    p = NormalDist().cdf(-z * math.sqrt(len(x) - 3))
    return Score(max(r, 0.0) ** 2, (max(low, 0.0) ** 2, max(high, 0.0) ** 2), text, 0.0, p)


def shuffled(name: str, number: int) -> Callable[[Sequence[Truth], int], list[Truth]]:
    """Return a negative control (`Attack.shuffle`) that permutes the truth called `name`.

    The `number` keeps the draws of different attacks apart.
    """

    def shuffle(truths: Sequence[Truth], seed: int) -> list[Truth]:
        rng = np.random.default_rng((seed, number))
        return [{**truth, name: rng.permutation(truth[name])} for truth in truths]

    return shuffle


def area_of(name: str, what: str) -> Callable[[Sequence[ArrayLike], Sequence[Truth]], Score]:
    """Return a score (`Attack.score`): the area under the curve, by the truth called `name`."""

    def score(found: Sequence[ArrayLike], truths: Sequence[Truth]) -> Score:
        return area(np.concatenate(found), np.concatenate([truth[name] for truth in truths]), what)

    return score


def permuted(values: Any, seed: int) -> Any:
    """An array in a random order: what no view can tell."""
    return np.random.default_rng((seed, 77)).permutation(values)
