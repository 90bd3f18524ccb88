"""Any number of arms from the rows themselves: an arm is the centre of a cluster, and pays where a row is near.

Hannun, Knott, Sengupta, van der Maaten: Privacy-preserving multi-party contextual bandits, 2019, section 5: K-means
with K = |A|, and nu_a proportional to exp(-|c_a - x|^2 / (2 sigma)), sigma = 1/2. The paper does not print the factor.
Its authors' published code (CrypTen, examples/bandits) takes the kernel, which is at most 1, as the chance of a reward,
and so does `normalise="none"`. On the 60,000 rows of MNIST the best arm of a row then pays with an average chance of
0.55 for 10 arms, 0.72 for 100 and 0.76 for 200, and an arm at random with 0.27, 0.22 and 0.21. With `sum` (the chances
of a row add up to 1) the best of 10 would pay with 0.20 and the best of 100 with 0.03, so that rewards for different
numbers of arms could not share an axis; with `max` the best arm of every row always pays.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from posse.core import check
from posse.core.errors import ConfigError
from posse.core.random import INSTANCE, uniform

SIGMA = 0.5
MOST_SWEEPS = 100
Normalise = Literal["none", "max", "sum"]

_ROWS = 4096
_SEEDING = 0


def kernel_means(
    rows: NDArray[np.float64], centres: NDArray[np.float64], sigma: float = SIGMA, normalise: Normalise = "none"
) -> NDArray[np.float64]:
    """Chances (rows, K) that arms pay: exp(-|c_a - x|^2 / (2 sigma)), as it is, or with the max or sum of a row 1.

    >>> x, c = np.array([[1.0, 0.0]]), np.array([[1.0, 0.0], [0.0, 1.0]])
    >>> [kernel_means(x, c, normalise=how).round(3).tolist() for how in ("none", "sum")]
    [[[1.0, 0.135]], [[0.881, 0.119]]]
    """
    check.positive(sigma=sigma)
    check.one_of(("none", "max", "sum"), normalise=normalise)
    out = np.empty((len(rows), len(centres)))
    for low in range(0, len(rows), _ROWS):
        exponent = _distances(rows[low : low + _ROWS], centres) / (-2.0 * sigma)
        if normalise != "none":  # the nearest first: a factor of the row, which a small sigma would take to 0
            exponent -= exponent.max(axis=1, keepdims=True)
        kernel = np.exp(exponent)
        out[low : low + _ROWS] = kernel / kernel.sum(axis=1, keepdims=True) if normalise == "sum" else kernel
    return out


def kmeans(rows: NDArray[np.float64], clusters: int, seed: int, most: int = MOST_SWEEPS) -> NDArray[np.float64]:
    """Find the centres (K, D) of K clusters: Lloyd's algorithm, seeded as k-means++, a function of rows and seed.

    It ends when no row changes its cluster, or after `most` sweeps; a cluster that loses all its rows begins anew at
    the row that is furthest from its centre. O(rows K D) a sweep. Arthur and Vassilvitskii, SODA 2007.

    >>> rows = np.array([[0.0, 0.1], [1.0, 0.0], [0.0, 0.3], [0.8, 0.0]])
    >>> sorted(kmeans(rows, 2, seed=7).round(3).tolist())
    [[0.0, 0.2], [0.9, 0.0]]
    """
    if not 2 <= clusters <= len(rows):
        raise ConfigError(f"arms must be in [2, {len(rows)}], the number of rows to cluster, got {clusters}.")
    if not 0 <= seed < 2**63:
        raise ConfigError(f"seed of a clustering must be in [0, 2^63), got {seed}. Choose another.")
    check.at_least(1, most=most)
    centres = _seeded(rows, clusters, seed)
    label = np.full(len(rows), -1)
    for _ in range(most):
        before, (label, distance) = label, _nearest(rows, centres)
        if (label == before).all():
            break
        sizes = np.bincount(label, minlength=clusters)
        sums = np.stack([np.bincount(label, column, minlength=clusters) for column in rows.T], axis=1)
        centres = sums / np.maximum(sizes, 1)[:, None]
        empty = np.flatnonzero(sizes == 0)
        centres[empty] = rows[np.argsort(-distance, kind="stable")[: len(empty)]]
    return centres


def _seeded(rows: NDArray[np.float64], clusters: int, seed: int) -> NDArray[np.float64]:
    """k-means++: a further centre is a row, drawn by its squared distance from the nearest one so far."""
    centres = np.empty((clusters, rows.shape[1]))
    distance = np.ones(len(rows))
    for k in range(clusters):
        reached = np.cumsum(distance)
        if not reached[-1] > 0:
            raise ConfigError(f"arms must be at most {k}, the number of different rows, got {clusters}. Ask for fewer.")
        u = float(uniform(np.uint64(seed), INSTANCE, _SEEDING, k, 0))
        row = min(int(np.searchsorted(reached, u * reached[-1], side="right")), len(rows) - 1)
        centres[k] = rows[row]
        new = ((rows - centres[k]) ** 2).sum(axis=1)
        distance = new if k == 0 else np.minimum(distance, new)
    return centres


def _distances(rows: NDArray[np.float64], centres: NDArray[np.float64]) -> NDArray[np.float64]:
    """Squared distances (rows, K)."""
    squares = (rows**2).sum(axis=1)[:, None] + (centres**2).sum(axis=1)[None, :]
    return np.asarray(np.maximum(squares - 2.0 * (rows @ centres.T), 0.0))


def _nearest(rows: NDArray[np.float64], centres: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Number of the nearest centre of each row, the first of equals, and the squared distance to it."""
    label, distance = np.empty(len(rows), np.int64), np.empty(len(rows))
    for low in range(0, len(rows), _ROWS):
        squares = _distances(rows[low : low + _ROWS], centres)
        label[low : low + _ROWS] = squares.argmin(axis=1)
        distance[low : low + _ROWS] = squares.min(axis=1)
    return label, distance
