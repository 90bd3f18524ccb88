"""Images as a contextual bandit: arms are classes or clusters.

A class pays for its own images, and a cluster for the images near its centre.

Images are projected on their first principal components, and every row is scaled to norm 1, as in
Hannun, Knott, Sengupta, van der Maaten: Privacy-preserving multi-party contextual bandits, 2019,
section 5 (MNIST, 20 components).

Clusters give any number of arms (section 5): K-means with K = |A|, and nu_a proportional to
exp(-|c_a - x|^2 / (2 sigma)), sigma = 1/2. The paper does not print the factor. Its authors'
published code (CrypTen, examples/bandits) takes the kernel, which is at most 1, as the chance of a
reward, and so does `normalise="none"`. On the 60,000 rows of MNIST the best arm of a row then pays
with an average chance of 0.55 for 10 arms, 0.72 for 100 and 0.76 for 200, and an arm at random with
0.27, 0.22 and 0.21. With `sum` (the chances of a row add up to 1) the best of 10 would pay with
0.20 and the best of 100 with 0.03, so that rewards for different numbers of arms could not share an
axis; with `max` the best arm of every row always pays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from posse.core import check
from posse.core.errors import ConfigError, DataError
from posse.core.random import INSTANCE, uniform
from posse.problems.contexts.contexts import Bounds, Contexts, check_rows, scale_blocks, split
from posse.problems.datasets.files import data_folder
from posse.problems.datasets.mnist import CLASSES, Part, load_mnist
from posse.problems.requirements import Floats, Ints
from posse.problems.tables.text import FilePath

COMPONENTS = 20

_ROWS = 4096
"""Rows that are computed at a time: a copy of all images in floats would be large."""


@dataclass(frozen=True, eq=False)
class Projection:
    """Principal components: x -> (x - mean) axes."""

    mean: Floats
    """(pixels,)"""
    axes: Floats
    """(pixels, components), the direction of largest variance first; each axis has its largest
    entry positive.
    """

    def unit(self, images: NDArray[np.generic]) -> Floats:
        """Project rows and scale each to norm 1; a row at the mean itself stays 0."""
        out = np.empty((len(images), self.axes.shape[1]))
        for low in range(0, len(images), _ROWS):
            rows = (images[low : low + _ROWS].astype(np.float64) - self.mean) @ self.axes
            norms = np.linalg.norm(rows, axis=1, keepdims=True)
            out[low : low + _ROWS] = rows / np.where(norms > 0, norms, 1.0)
        return out


def principal(images: NDArray[np.generic], components: int = COMPONENTS) -> Projection:
    """Find the first principal components, by the eigenvectors of the covariance.

    For grey values the sums are whole numbers below 2^53, so that the covariance does not depend on
    the order of addition; only the eigenvectors carry the rounding of the machine's linear algebra.
    O(rows pixels^2).

    >>> projection = principal(np.array([[0, 0], [1, 1], [2, 2], [3, 3]]), components=1)
    >>> projection.axes.round(3).tolist(), projection.mean.tolist()
    ([[0.707], [0.707]], [1.5, 1.5])
    """
    count, width = images.shape
    if not 1 <= components <= width:
        raise ConfigError(
            f"components must be in [1, {width}], the number of features, got {components}.",
            rule="problems.components.out-of-range",
        )
    products, sums = np.zeros((width, width)), np.zeros(width)
    for low in range(0, count, _ROWS):
        rows = images[low : low + _ROWS].astype(np.float64)
        products += rows.T @ rows
        sums += rows.sum(axis=0)
    scatter = count * products - np.outer(sums, sums)
    _, vectors = np.linalg.eigh(scatter)
    axes = vectors[:, ::-1][:, :components]
    largest = axes[np.abs(axes).argmax(axis=0), np.arange(components)]
    if not np.trace(scatter) > 0:
        raise DataError(
            f"features must vary, got {count} equal rows. Give rows that differ.",
            rule="problems.components.rows-equal",
        )
    return Projection(sums / count, np.ascontiguousarray(axes * np.where(largest < 0, -1.0, 1.0)))


@dataclass(frozen=True, eq=False)
class Labelled:
    """Rows of norm 1, and the class of each."""

    name: str
    rows: Floats
    labels: Ints
    classes: tuple[str, ...]

    def __post_init__(self) -> None:
        for array in (self.rows, self.labels):
            array.flags.writeable = False

    def __len__(self) -> int:
        return len(self.rows)

    def first(self, rows: int | None) -> Labelled:
        """Return the first rows; all rows without a number."""
        if rows is None:
            return self
        check_rows(rows, len(self), self.name)
        return Labelled(self.name, self.rows[:rows], self.labels[:rows], self.classes)

    def contexts(
        self, parties: Sequence[str], counts: Sequence[int] | None = None, bounds: Bounds = "joint"
    ) -> Contexts:
        """Make the bandit: one arm per class. It pays 1 if it is the label, and otherwise 0."""
        means = np.zeros((len(self), len(self.classes)))
        means[np.arange(len(self)), self.labels] = 1.0
        return shared(self.name, self.rows, self.classes, means, parties, counts, bounds)


def shared(
    name: str,
    rows: Floats,
    arms: tuple[str, ...],
    means: Floats,
    parties: Sequence[str],
    counts: Sequence[int] | None = None,
    bounds: Bounds = "joint",
) -> Contexts:
    """Split rows of norm at most 1 over parties.

    With declared bounds, each party scales its block down to its bound.
    """
    blocks = split(rows.shape[1], parties, counts, bounds)
    features = scale_blocks(rows, blocks) if bounds == "declared" else rows
    return Contexts(name, features, blocks, arms, means, joint_norm_checked=bounds == "joint")


@lru_cache(maxsize=4)
def digits(components: int = COMPONENTS) -> Labelled:
    """Return scikit-learn's digits: 1,797 images of 8 x 8 pixels, ten classes.

    This needs the extra `data`, and no file.

    >>> rows = digits()
    >>> rows.rows.shape, rows.classes[:3]
    ((1797, 20), ('0', '1', '2'))
    """
    pixels, labels = check.require("sklearn.datasets", extra="data").load_digits(return_X_y=True)
    rows = principal(pixels, components).unit(pixels)
    return Labelled("digits", rows, np.array(labels, np.int64), CLASSES)


def mnist(
    data_dir: FilePath | None = None,
    part: Part = "train",
    components: int = COMPONENTS,
    verify: bool = True,
) -> Labelled:
    """Return MNIST from `data_dir`, or else from the folder that POSSE_DATA names.

    The result is kept in memory. Both parts have the components of the images to train on, so a
    test image is projected as a trained bandit would project it.
    """
    return _mnist(str(data_folder(data_dir).resolve()), part, components, verify)


@lru_cache(maxsize=4)
def _mnist(folder: str, part: Part, components: int, verify: bool) -> Labelled:
    train = load_mnist(Path(folder), "train", verify)
    projection = principal(train.pixels, components)
    if part == "train":
        return Labelled("mnist", projection.unit(train.pixels), train.labels, CLASSES)
    test = load_mnist(Path(folder), "test", verify)
    return Labelled("mnist (test)", projection.unit(test.pixels), test.labels, CLASSES)


SIGMA = 0.5
MOST_SWEEPS = 100
Normalise = Literal["none", "max", "sum"]

_SEEDING = 0


def kernel_means(
    rows: Floats,
    centres: Floats,
    sigma: float = SIGMA,
    normalise: Normalise = "none",
) -> Floats:
    """Return the chances (rows, K) that arms pay: exp(-|c_a - x|^2 / (2 sigma)).

    `normalise` scales each row so that its largest chance is 1 (max) or its sum is 1 (sum).

    >>> x, c = np.array([[1.0, 0.0]]), np.array([[1.0, 0.0], [0.0, 1.0]])
    >>> [kernel_means(x, c, normalise=how).round(3).tolist() for how in ("none", "sum")]
    [[[1.0, 0.135]], [[0.881, 0.119]]]
    """
    check.positive(sigma=sigma)
    check.one_of(("none", "max", "sum"), normalise=normalise)
    out = np.empty((len(rows), len(centres)))
    for low in range(0, len(rows), _ROWS):
        exponent = _distances(rows[low : low + _ROWS], centres) / (-2.0 * sigma)
        if normalise != "none":
            # The nearest first: a factor of the row, which a small sigma would take to 0.
            exponent -= exponent.max(axis=1, keepdims=True)
        kernel = np.exp(exponent)
        if normalise == "sum":
            kernel /= kernel.sum(axis=1, keepdims=True)
        out[low : low + _ROWS] = kernel
    return out


def kmeans(rows: Floats, clusters: int, seed: int) -> Floats:
    """Find the centres (K, D) of K clusters by Lloyd's algorithm, seeded as k-means++.

    The result is a function of rows and seed. The algorithm ends when no row changes its cluster,
    or after `MOST_SWEEPS` sweeps. A cluster that loses all its rows starts again at the row that is
    furthest from its centre. O(rows K D) per sweep.
    Arthur and Vassilvitskii, SODA 2007.

    >>> rows = np.array([[0.0, 0.1], [1.0, 0.0], [0.0, 0.3], [0.8, 0.0]])
    >>> sorted(kmeans(rows, 2, seed=7).round(3).tolist())
    [[0.0, 0.2], [0.9, 0.0]]
    """
    if not 2 <= clusters <= len(rows):
        raise ConfigError(
            f"arms must be in [2, {len(rows)}], the number of rows to cluster, got {clusters}.",
            rule="problems.arms.not-clusters",
        )
    if not 0 <= seed < 2**63:
        raise ConfigError(
            f"seed of a clustering must be in [0, 2^63), got {seed}. Choose another.",
            rule="problems.cluster_seed.out-of-range",
        )
    centres = _seeded(rows, clusters, seed)
    label = np.full(len(rows), -1)
    for _ in range(MOST_SWEEPS):
        before, (label, distance) = label, _nearest(rows, centres)
        if (label == before).all():
            break
        sizes = np.bincount(label, minlength=clusters)
        sums = np.stack(
            [np.bincount(label, column, minlength=clusters) for column in rows.T], axis=1
        )
        centres = sums / np.maximum(sizes, 1)[:, None]
        empty = np.flatnonzero(sizes == 0)
        centres[empty] = rows[np.argsort(-distance, kind="stable")[: len(empty)]]
    return centres


def _seeded(rows: Floats, clusters: int, seed: int) -> Floats:
    """Draw centres as k-means++ does: rows, by their squared distance from the nearest centre."""
    centres = np.empty((clusters, rows.shape[1]))
    distance = np.ones(len(rows))
    for k in range(clusters):
        reached = np.cumsum(distance)
        if not reached[-1] > 0:
            raise ConfigError(
                f"arms must be at most {k}, the number of different rows, got {clusters}. Ask for "
                "fewer.",
                rule="problems.arms.more-than-rows",
            )
        u = float(uniform(np.uint64(seed), INSTANCE, _SEEDING, k, 0))
        row = min(int(np.searchsorted(reached, u * reached[-1], side="right")), len(rows) - 1)
        centres[k] = rows[row]
        new = ((rows - centres[k]) ** 2).sum(axis=1)
        distance = new if k == 0 else np.minimum(distance, new)
    return centres


def _distances(rows: Floats, centres: Floats) -> Floats:
    """Return squared distances (rows, K)."""
    squares = (rows**2).sum(axis=1)[:, None] + (centres**2).sum(axis=1)[None, :]
    return np.asarray(np.maximum(squares - 2.0 * (rows @ centres.T), 0.0))


def _nearest(rows: Floats, centres: Floats) -> tuple[Ints, Floats]:
    """Return the number of each row's nearest centre, and the squared distance to it."""
    label, distance = np.empty(len(rows), np.int64), np.empty(len(rows))
    for low in range(0, len(rows), _ROWS):
        squares = _distances(rows[low : low + _ROWS], centres)
        label[low : low + _ROWS] = squares.argmin(axis=1)
        distance[low : low + _ROWS] = squares.min(axis=1)
    return label, distance
