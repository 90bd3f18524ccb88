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
from posse.problems.requirements import Bytes, Ints, check_entries
from posse.problems.tables.text import FilePath

HOME = "https://ossci-datasets.s3.amazonaws.com/mnist/"
CLASSES = tuple(str(digit) for digit in range(10))
Part = Literal["train", "test"]

_PREFIX = {"train": "train", "test": "t10k"}
_BYTES = np.dtype(np.uint8)
_INTEGERS = np.dtype(">i4")
_TYPES = {_BYTES: 0x08, _INTEGERS: 0x0C}
"""The byte of each type in an idx file."""


@dataclass(frozen=True, eq=False)
class Images:
    """Images as rows of grey values 0 to 255, and their digits."""

    pixels: Bytes
    labels: Ints


def load_mnist(
    data_dir: FilePath | None = None, part: Part = "train", verify: bool = True
) -> Images:
    """Find and read a part: 60,000 images to train on, or 10,000 to test with."""
    return read_mnist(*find_mnist(data_dir, part), verify)


def find_mnist(data_dir: FilePath | None = None, part: Part = "train") -> tuple[Path, Path]:
    """Find the images and the labels of a part."""
    check.one_of(tuple(_PREFIX), part=part)
    folders = ("mnist", "", "MNIST/raw")
    return (
        _find(f"{_PREFIX[part]}-images-idx3-ubyte", folders, HOME, data_dir),
        _find(f"{_PREFIX[part]}-labels-idx1-ubyte", folders, HOME, data_dir),
    )


def read_mnist(images: FilePath, labels: FilePath, verify: bool = True) -> Images:
    """Read images of digits and their labels from two idx files that belong together."""
    pixels, digits = read_pair(images, labels, verify)
    check_entries(
        digits <= 9,
        lambda place: DataError(
            f"{os.fspath(labels)}: labels must be digits, got {digits[place]} at position "
            f"{place[0] + 1}. Download it again.",
            rule="problems.mnist.not-digits",
        ),
    )
    return Images(pixels.reshape(len(pixels), -1), digits.astype(np.int64))


def read_pair(images: FilePath, labels: FilePath, verify: bool = True) -> tuple[Bytes, Bytes]:
    """Read images, (n, height, width), and their labels from two idx files."""
    pixels = read_idx(images, 3, verify)
    numbers = read_idx(labels, 1, verify)
    if len(pixels) != len(numbers):
        raise DataError(
            f"files do not match: {os.fspath(images)} has {len(pixels)} images and "
            f"{os.fspath(labels)} {len(numbers)} labels. Give two files of one part.",
            rule="problems.mnist.lengths",
        )
    return pixels, numbers


def read_idx(path: FilePath, dimensions: int, verify: bool = True) -> Bytes:
    """Read an idx file of unsigned bytes."""
    data = read_known(path, HOME, verify)
    return _idx_values(os.fspath(path), data, _BYTES, dimensions).astype(np.uint8, copy=False)


def _idx_values(
    name: str, data: bytes, kind: np.dtype[np.generic], dimensions: int
) -> NDArray[np.generic]:
    """Return the values of an idx file: 0, 0, type, dimensions, sizes of 4 bytes, the values."""
    start = 4 + 4 * dimensions
    if len(data) < start or data[:4] != bytes((0, 0, _TYPES[kind], dimensions)):
        raise DataError(
            f"{name} is not an idx file of {kind.name} in {dimensions} dimensions: it begins with "
            f"{data[:4].hex(' ') or 'nothing'}. Download it again.",
            rule="problems.mnist.not-bytes",
        )
    shape = tuple(int.from_bytes(data[at : at + 4], "big") for at in range(4, start, 4))
    if len(data) - start != kind.itemsize * math.prod(shape):
        raise DataError(
            f"{name} has a header for {' x '.join(map(str, shape))} values, and "
            f"{len(data) - start} bytes. Download it again.",
            rule="problems.mnist.truncated",
        )
    return np.frombuffer(data, kind, offset=start).reshape(shape)


def _find(file: str, folders: tuple[str, ...], home: str, data_dir: FilePath | None) -> Path:
    return find((f"{file}.gz", file), home, data_dir, folders)


QMNIST_HOME = "https://github.com/facebookresearch/qmnist"
COLUMNS = 8
DIGIT, WRITER = 0, 2


def find_writers(data_dir: FilePath | None = None, part: Part = "train") -> Path:
    """Find the file with the writers of the images of a part."""
    folders = ("qmnist-writers", "", "qmnist")
    return _find(f"qmnist-{part}-labels-idx2-int", folders, QMNIST_HOME, data_dir)


def mnist_writers(
    data_dir: FilePath | None = None, part: Part = "train", verify: bool = True
) -> Population:
    """Return MNIST with its real writers as clients; images are those of MNIST, (n, 28, 28)."""
    images = load_mnist(data_dir, part, verify)
    file = find_writers(data_dir, part)
    table = read_labels(file, verify)
    count = len(images.labels)
    if len(table) < count:
        raise DataError(
            f"{file.name} must have a row for each of {count} images, got {len(table)}. Download "
            "it again.",
            rule="problems.writers.too-few",
        )
    table = table[:count]
    check_entries(
        table[:, DIGIT] == images.labels,
        lambda row: DataError(
            f"{file.name} must have the digits of MNIST, got another digit in row {row[0] + 1}. "
            "Download both again.",
            rule="problems.writers.other-digits",
        ),
    )
    square = images.pixels.reshape(count, 28, -1)
    name = "mnist by writer" if part == "train" else "mnist by writer (test)"
    return population(name, square, images.labels, CLASSES, natural(table[:, WRITER]))


def read_labels(path: FilePath, verify: bool = True) -> Ints:
    """Read extended labels, (rows, 8)."""
    name = os.fspath(path)
    table = _idx_values(name, read_known(path, QMNIST_HOME, verify), _INTEGERS, 2)
    if table.shape[1] != COLUMNS:
        raise DataError(
            f"{name} must have {COLUMNS} integers per row, got {table.shape[1]}. Get it again from "
            f"{QMNIST_HOME}.",
            rule="problems.writers.shape",
        )
    return table.astype(np.int64)


DIGIT_CLIENTS = 60


def digits_population(
    clients: int = DIGIT_CLIENTS, alpha: float = 0.3, seed: int = 0
) -> Population:
    """Split the digits over Dirichlet clients. Grey values 0 to 16 become 0 to 255.

    This needs the extra `data`.

    >>> digits_population().describe()["samples"]
    1797
    """
    data = check.require("sklearn.datasets", extra="data").load_digits()
    pixels = np.rint(data["images"] * (255 / 16)).astype(np.uint8)
    labels = data["target"]
    return population("digits", pixels, labels, CLASSES, dirichlet(labels, clients, alpha, seed))
