"""Handwritten digits: MNIST, its writers (QMNIST), and scikit-learn's small digits.

MNIST: 60,000 + 10,000 grey images of 28 x 28 pixels. The four files in the idx format, compressed
or not. Mirrors compress them differently, so that size and sha256 are those of the content. Terms:
free use. LeCun, Bottou, Bengio, Haffner: Gradient-based learning applied to document recognition,
Proceedings of the IEEE 86(11), 1998.

QMNIST: its label files line up with MNIST row by row and name who wrote each digit. An idx file of
32-bit integers, big-endian: 0x0c02, rows, columns, the values; columns are digit, NIST series,
writer, and five more. 539 writers of the images to train on, 19 to 131 images each. Terms:
BSD-style. Yadav, Bottou: Cold case: the lost MNIST digits, 2019.

scikit-learn's digits: 1,797 images of 8 x 8 pixels, ten classes, no file needed.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from posse.core import check
from posse.core.errors import DataError
from posse.problems.datasets.files import find, read_known
from posse.problems.populations.population import Population
from posse.problems.populations.splits import dirichlet, natural, population
from posse.problems.tables.text import FilePath

HOME = "https://ossci-datasets.s3.amazonaws.com/mnist/"
CLASSES = tuple(str(digit) for digit in range(10))
Part = Literal["train", "test"]

_PREFIX = {"train": "train", "test": "t10k"}
_UNSIGNED_BYTE = 0x08


@dataclass(frozen=True, eq=False)
class Images:
    """Images as rows of grey values 0 to 255, and the digit that each shows."""

    pixels: NDArray[np.uint8]
    labels: NDArray[np.int64]


def load_mnist(
    data_dir: FilePath | None = None, part: Part = "train", verify: bool = True
) -> Images:
    """Find the two files of a part and read them: 60,000 images to train on, 10,000 to test
    with.
    """
    return read_mnist(*find_mnist(data_dir, part), verify)


def find_mnist(data_dir: FilePath | None = None, part: Part = "train") -> tuple[Path, Path]:
    """Find the images and the labels of a part."""
    check.one_of(tuple(_PREFIX), part=part)
    images, labels = (f"{_PREFIX[part]}-{what}-ubyte" for what in ("images-idx3", "labels-idx1"))
    folders = ("mnist", "", "MNIST/raw")
    return _find(images, folders, HOME, data_dir), _find(labels, folders, HOME, data_dir)


def read_mnist(images: FilePath, labels: FilePath, verify: bool = True) -> Images:
    """Read images and their labels from two idx files that belong together."""
    pixels, digits = read_idx(images, 3, verify), read_idx(labels, 1, verify)
    if len(pixels) != len(digits):
        raise DataError(
            f"files do not match: {os.fspath(images)} has {len(pixels)} images and "
            f"{os.fspath(labels)} "
            f"{len(digits)} labels. Give two files of one part.",
            rule="problems.mnist.lengths",
        )
    if digits.size and digits.max() > 9:
        row = int((digits > 9).argmax())
        raise DataError(
            f"{os.fspath(labels)}: labels must be digits, got {digits[row]} at position {row + 1}.",
            rule="problems.mnist.not-digits",
        )
    return Images(pixels.reshape(len(pixels), -1), digits.astype(np.int64))


def read_idx(path: FilePath, dimensions: int, verify: bool = True) -> NDArray[np.uint8]:
    """Read an idx file of unsigned bytes: 0, 0, type, dimensions, the sizes as 4 bytes each, the
    values.
    """
    name, data = os.fspath(path), read_known(path, HOME, verify)
    start = 4 + 4 * dimensions
    if len(data) < start or data[:4] != bytes((0, 0, _UNSIGNED_BYTE, dimensions)):
        raise DataError(
            f"{name} is not an idx file of bytes in {dimensions} dimensions: it begins with "
            f"{data[:4].hex(' ') or 'nothing'}. Get it from {HOME}.",
            rule="problems.mnist.not-bytes",
        )
    shape = tuple(int.from_bytes(data[at : at + 4], "big") for at in range(4, start, 4))
    if len(data) - start != math.prod(shape):
        raise DataError(
            f"{name} says {' x '.join(map(str, shape))} values and holds {len(data) - start}. Get "
            f"it again from {HOME}.",
            rule="problems.mnist.truncated",
        )
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape)


def _find(file: str, folders: tuple[str, ...], home: str, data_dir: FilePath | None) -> Path:
    return find((f"{file}.gz", file), home, data_dir, folders)


QMNIST_HOME = "https://github.com/facebookresearch/qmnist"
COLUMNS = 8
DIGIT, WRITER = 0, 2


def find_writers(data_dir: FilePath | None = None, part: Part = "train") -> Path:
    """Find who wrote the images of a part."""
    folders = ("qmnist-writers", "", "qmnist")
    return _find(f"qmnist-{part}-labels-idx2-int", folders, QMNIST_HOME, data_dir)


def mnist_writers(
    data_dir: FilePath | None = None, part: Part = "train", verify: bool = True
) -> Population:
    """MNIST with its real writers as clients; images are those of MNIST, (n, 28, 28)."""
    images = load_mnist(data_dir, part, verify)
    file = find_writers(data_dir, part)
    table, name = read_labels(file, verify), file.name.removesuffix(".gz")
    if len(table) < len(images.labels):
        raise DataError(
            f"{name} must have a row for each of {len(images.labels)} images, got {len(table)}. Download "
            "it again.",
            rule="problems.writers.too-few",
        )
    table = table[: len(images.labels)]
    differ = np.flatnonzero(table[:, DIGIT] != images.labels)
    if len(differ):
        raise DataError(
            f"{name} must line up with MNIST row by row, got another digit in row {differ[0] + 1}. "
            "Download both again.",
            rule="problems.writers.other-digits",
        )
    square = images.pixels.reshape(len(images.labels), 28, -1)
    called = "mnist by writer" if part == "train" else "mnist by writer (test)"
    return population(called, square, images.labels, CLASSES, natural(table[:, WRITER]))


def read_labels(path: FilePath, verify: bool = True) -> NDArray[np.int64]:
    """Read extended labels, (rows, 8)."""
    name, data = os.fspath(path), read_known(path, QMNIST_HOME, verify)
    if len(data) < 12 or data[:4] != b"\x00\x00\x0c\x02":
        raise DataError(
            f"{name} is not an idx file of integers in 2 dimensions: it begins with "
            f"{data[:4].hex(' ')}.",
            rule="problems.writers.not-integers",
        )
    rows, columns = (int.from_bytes(data[at : at + 4], "big") for at in (4, 8))
    if columns != COLUMNS or len(data) - 12 != 4 * rows * columns:
        raise DataError(
            f"{name} must hold {COLUMNS} integers a row, got {rows} x {columns} in "
            f"{len(data) - 12} bytes. "
            f"Get it again from {QMNIST_HOME}.",
            rule="problems.writers.shape",
        )
    return np.frombuffer(data, ">i4", offset=12).reshape(rows, columns).astype(np.int64)


DIGIT_CLIENTS = 60


def digits_population(
    clients: int = DIGIT_CLIENTS, alpha: float = 0.3, seed: int = 0
) -> Population:
    """Split the digits over Dirichlet clients; needs the extra `data`. Grey values 0 to 16 become 0
    to 255.

    >>> digits_population().describe()["samples"]
    1797
    """
    images, labels = (
        check.require("sklearn.datasets", extra="data").load_digits()[key]
        for key in ("images", "target")
    )
    pixels = np.rint(images * (255 / 16)).astype(np.uint8)
    return population("digits", pixels, labels, CLASSES, dirichlet(labels, clients, alpha, seed))
