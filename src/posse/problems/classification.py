"""Classification as a contextual bandit: arms are classes, and the right one pays 1.

Images are projected on their first principal components, and every row is scaled to norm 1, as in Hannun, Knott,
Sengupta, van der Maaten: Privacy-preserving multi-party contextual bandits, 2019, section 5 (MNIST, 20 components).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from posse.core.errors import ConfigError, DataError
from posse.core.extras import require
from posse.problems.contexts import Bounds, Contexts, scale_blocks, split
from posse.problems.datasets.document import FilePath
from posse.problems.datasets.locate import data_folder
from posse.problems.datasets.mnist import CLASSES, Part, load_mnist

COMPONENTS = 20

_ROWS = 4096
"""Rows worked on at a time, so that no copy of all images in floats is made."""


@dataclass(frozen=True, eq=False)
class Projection:
    """Principal components: x -> (x - mean) axes."""

    mean: NDArray[np.float64]
    """(pixels,)"""
    axes: NDArray[np.float64]
    """(pixels, components), the direction of largest variance first; each axis has its largest entry positive."""
    explained: float
    """Share of the variance that the components keep."""

    def unit(self, images: NDArray[np.generic]) -> NDArray[np.float64]:
        """Project rows and scale each to norm 1; a row at the mean itself stays 0."""
        out = np.empty((len(images), self.axes.shape[1]))
        for low in range(0, len(images), _ROWS):
            rows = (images[low : low + _ROWS].astype(np.float64) - self.mean) @ self.axes
            norms = np.linalg.norm(rows, axis=1, keepdims=True)
            out[low : low + _ROWS] = rows / np.where(norms > 0, norms, 1.0)
        return out


def principal(images: NDArray[np.generic], components: int = COMPONENTS) -> Projection:
    """Find the first principal components, by the eigenvectors of the covariance.

    For grey values the sums are whole numbers below 2^53, so that the covariance does not depend on the order of
    addition; only the eigenvectors carry the rounding of the machine's linear algebra. O(rows pixels^2).

    >>> found = principal(np.array([[0, 0], [1, 1], [2, 2], [3, 3]]), components=1)
    >>> found.axes.round(3).tolist(), found.mean.tolist()
    ([[0.707], [0.707]], [1.5, 1.5])
    """
    count, width = images.shape
    if not 1 <= components <= width:
        raise ConfigError(f"components must be in [1, {width}], the number of features, got {components}.")
    products, sums = np.zeros((width, width)), np.zeros(width)
    for low in range(0, count, _ROWS):
        rows = images[low : low + _ROWS].astype(np.float64)
        products += rows.T @ rows
        sums += rows.sum(axis=0)
    scatter = count * products - np.outer(sums, sums)
    values, vectors = np.linalg.eigh(scatter)
    axes = vectors[:, ::-1][:, :components]
    largest = axes[np.abs(axes).argmax(axis=0), np.arange(components)]
    total = float(np.trace(scatter))
    if not total > 0:
        raise DataError(f"features must vary, got {count} equal rows. Give rows that differ.")
    explained = float(values[::-1][:components].sum()) / total
    return Projection(sums / count, np.ascontiguousarray(axes * np.where(largest < 0, -1.0, 1.0)), explained)


@dataclass(frozen=True, eq=False)
class Labelled:
    """Rows of norm 1, and the class of each."""

    name: str
    rows: NDArray[np.float64]
    labels: NDArray[np.int64]
    classes: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(self.rows) != len(self.labels):
            raise DataError(f"expected one label a row, got {len(self.labels)} for {len(self.rows)} rows.")
        wrong = np.flatnonzero((self.labels < 0) | (self.labels >= len(self.classes)))
        if len(wrong):
            raise DataError(
                f"labels must be in [0, {len(self.classes)}), the number of classes, got {self.labels[wrong[0]]} in "
                f"row {wrong[0] + 1}. Number the classes from 0."
            )
        for array in (self.rows, self.labels):
            array.flags.writeable = False

    def __len__(self) -> int:
        return len(self.rows)

    def first(self, rows: int | None) -> Labelled:
        """Keep the first rows only; all without a number."""
        if rows is None:
            return self
        if not 1 <= rows <= len(self):
            raise DataError(f"rows must be in [1, {len(self)}], as many as {self.name} has, got {rows}. Ask for fewer.")
        return Labelled(self.name, self.rows[:rows], self.labels[:rows], self.classes)

    def contexts(
        self, parties: Sequence[str], counts: Sequence[int] | None = None, bounds: Bounds = "joint"
    ) -> Contexts:
        """Make the bandit: an arm a class, which pays 1 where it is the label and 0 elsewhere."""
        means = np.zeros((len(self), len(self.classes)))
        means[np.arange(len(self)), self.labels] = 1.0
        return shared(self.name, self.rows, self.classes, means, parties, counts, bounds)


def shared(
    name: str,
    rows: NDArray[np.float64],
    arms: tuple[str, ...],
    means: NDArray[np.float64],
    parties: Sequence[str],
    counts: Sequence[int] | None = None,
    bounds: Bounds = "joint",
) -> Contexts:
    """Split rows of norm at most 1 over parties; with declared bounds each scales its block into its own."""
    blocks = split(rows.shape[1], parties, counts, bounds)
    features = scale_blocks(rows, blocks) if bounds == "declared" else rows
    return Contexts(name, features, blocks, arms, means, joint_norm_checked=bounds == "joint")


def labelled(
    name: str,
    images: NDArray[np.generic],
    labels: ArrayLike,
    components: int = COMPONENTS,
    classes: Sequence[str] | None = None,
) -> Labelled:
    """Project images (the first axis counts them) on their own principal components; classes are numbered from 0."""
    images = images.reshape(len(images), -1)
    if not np.isfinite(images.sum(dtype=np.float64)):
        raise DataError(f"features of {name} must be finite numbers, got NaN or infinity. Correct them.")
    numbers = np.array(labels, np.int64)
    count = int(numbers.max(initial=0)) + 1
    names = tuple(classes) if classes is not None else tuple(str(number) for number in range(count))
    return Labelled(name, principal(images, components).unit(images), numbers, names)


@lru_cache(maxsize=4)
def digits(components: int = COMPONENTS) -> Labelled:
    """scikit-learn's digits: 1,797 images of 8 x 8 pixels, ten classes; needs the extra `data`, and no file.

    >>> rows = digits()
    >>> rows.rows.shape, rows.classes[:3]
    ((1797, 20), ('0', '1', '2'))
    """
    pixels, labels = require("sklearn.datasets", extra="data").load_digits(return_X_y=True)
    return labelled("digits", pixels, labels, components, CLASSES)


def mnist(
    data_dir: FilePath | None = None, part: Part = "train", components: int = COMPONENTS, verify: bool = True
) -> Labelled:
    """MNIST from `data_dir`, else from the folder that POSSE_DATA names; computed once a process.

    The components are those of the images to train on, for both parts: a test image is seen as a trained bandit would
    see it.
    """
    return _mnist(str(data_folder(data_dir).resolve()), part, components, verify)


@lru_cache(maxsize=4)
def _mnist(folder: str, part: Part, components: int, verify: bool) -> Labelled:
    images = load_mnist(Path(folder), part, verify)
    name = "mnist" if part == "train" else "mnist (test)"
    return Labelled(name, _mnist_axes(folder, components, verify).unit(images.pixels), images.labels, CLASSES)


@lru_cache(maxsize=4)
def _mnist_axes(folder: str, components: int, verify: bool) -> Projection:
    return principal(load_mnist(Path(folder), "train", verify).pixels, components)
