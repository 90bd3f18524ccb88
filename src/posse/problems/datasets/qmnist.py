"""MNIST by writer: the label files of QMNIST line up with MNIST row by row and name who wrote each digit.

An idx file of 32-bit integers, big-endian: 0x0c02, rows, columns, the values; columns are digit, NIST series, writer,
and five more. 539 writers of the images to train on, 19 to 131 images each. Terms: BSD-style. Yadav, Bottou: Cold case:
the lost MNIST digits, 2019.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from posse.core.errors import DataError
from posse.problems.datasets.document import FilePath
from posse.problems.datasets.locate import Pin, check_pin, find
from posse.problems.datasets.mnist import CLASSES, Part, load_mnist
from posse.problems.datasets.unpacked import unpacked
from posse.problems.populations import Population
from posse.problems.splits import natural, population

HOME = "https://github.com/facebookresearch/qmnist"
COLUMNS = 8
DIGIT, WRITER = 0, 2

PINS = {
    "qmnist-train-labels-idx2-int": Pin(1920012, "bb1b6e1ec7b04fd5696f1ed50b5f58f8ef195118edd5c93c81783df9740b8ac5"),
    "qmnist-test-labels-idx2-int": Pin(1920012, "92d0ccb8c25f9c6534270fb4be7e1d24a1c6d315edfc8a638bfbd31c70f362dd"),
}
"""Size and sha256 of the uncompressed files."""


def mnist_writers(data_dir: FilePath | None = None, part: Part = "train", verify: bool = True) -> Population:
    """MNIST with its real writers as clients; images are those of MNIST, (n, 28, 28)."""
    images = load_mnist(data_dir, part, verify)
    name = f"qmnist-{part}-labels-idx2-int"
    places = tuple(f"{folder}{name}{end}" for folder in ("qmnist-writers/", "", "qmnist/") for end in (".gz", ""))
    table = read_labels(find(places, HOME, data_dir), verify)
    if len(table) < len(images):
        raise DataError(
            f"{name} must have a row for each of {len(images)} images, got {len(table)}. Download it again."
        )
    table = table[: len(images)]
    differ = np.flatnonzero(table[:, DIGIT] != images.labels)
    if len(differ):
        raise DataError(
            f"{name} must line up with MNIST row by row, got another digit in row {differ[0] + 1}. Download both again."
        )
    square = images.pixels.reshape(len(images), 28, -1)
    called = "mnist by writer" if part == "train" else "mnist by writer (test)"
    return population(called, square, images.labels, CLASSES, natural(table[:, WRITER]))


def read_labels(path: FilePath, verify: bool = True) -> NDArray[np.int64]:
    """Read extended labels, (rows, 8)."""
    name, data = os.fspath(path), unpacked(path, HOME)
    pin = PINS.get(Path(path).name.removesuffix(".gz"))
    if verify and pin is not None:
        check_pin(name, data, pin, HOME)
    if len(data) < 12 or data[:4] != b"\x00\x00\x0c\x02":
        raise DataError(f"{name} is not an idx file of integers in 2 dimensions: it begins with {data[:4].hex(' ')}.")
    rows, columns = (int.from_bytes(data[at : at + 4], "big") for at in (4, 8))
    if columns != COLUMNS or len(data) - 12 != 4 * rows * columns:
        raise DataError(
            f"{name} must hold {COLUMNS} integers a row, got {rows} x {columns} told and {len(data) - 12} bytes. "
            f"Get it again from {HOME}."
        )
    return np.frombuffer(data, ">i4", offset=12).reshape(rows, columns).astype(np.int64)
