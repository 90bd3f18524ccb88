"""MNIST: 60,000 + 10,000 handwritten digits, grey images of 28 x 28 pixels.

The four files in the idx format, compressed or not. Mirrors compress them differently, so that size and sha256 are
those of the content. Terms: free use. LeCun, Bottou, Bengio, Haffner: Gradient-based learning applied to document
recognition, Proceedings of the IEEE 86(11), 1998.
"""

from __future__ import annotations

import gzip
import math
import os
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from posse.core import check
from posse.core.errors import DataError
from posse.problems.datasets.document import FilePath, read_bytes
from posse.problems.datasets.locate import Pin, check_pin, find

HOME = "https://ossci-datasets.s3.amazonaws.com/mnist/"
PIXELS = 28 * 28
CLASSES = tuple(str(digit) for digit in range(10))
Part = Literal["train", "test"]

PINS = {
    "train-images-idx3-ubyte": Pin(47040016, "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"),
    "train-labels-idx1-ubyte": Pin(60008, "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"),
    "t10k-images-idx3-ubyte": Pin(7840016, "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"),
    "t10k-labels-idx1-ubyte": Pin(10008, "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"),
}
"""Size and sha256 of the uncompressed files."""

_PREFIX = {"train": "train", "test": "t10k"}
_GZIP = b"\x1f\x8b"
_UNSIGNED_BYTE = 0x08


@dataclass(frozen=True, eq=False)
class Images:
    """Images as rows of grey values 0 to 255, and the digit that each shows."""

    pixels: NDArray[np.uint8]
    labels: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.labels)


def load_mnist(data_dir: FilePath | None = None, part: Part = "train", verify: bool = True) -> Images:
    """Find the two files of a part and read them: 60,000 images to train on, 10,000 to test with."""
    check.one_of(tuple(_PREFIX), part=part)
    images, labels = (f"{_PREFIX[part]}-{what}-ubyte" for what in ("images-idx3", "labels-idx1"))
    return read_mnist(_find(images, data_dir), _find(labels, data_dir), verify)


def read_mnist(images: FilePath, labels: FilePath, verify: bool = True) -> Images:
    """Read images and their labels from two idx files that belong together."""
    pixels, digits = read_idx(images, 3, verify), read_idx(labels, 1, verify)
    if len(pixels) != len(digits):
        raise DataError(
            f"files do not match: {os.fspath(images)} has {len(pixels)} images and {os.fspath(labels)} "
            f"{len(digits)} labels. Give two files of one part."
        )
    if digits.size and digits.max() > 9:
        row = int((digits > 9).argmax())
        raise DataError(f"{os.fspath(labels)}: labels must be digits, got {digits[row]} at position {row + 1}.")
    return Images(pixels.reshape(len(pixels), -1), digits.astype(np.int64))


def read_idx(path: FilePath, dimensions: int, verify: bool = True) -> NDArray[np.uint8]:
    """Read an idx file of unsigned bytes: 0, 0, type, dimensions, the sizes as 4 bytes each, the values.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "two-labels")
    ...     _ = file.write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 2, 7, 5]))
    ...     read_idx(file, 1).tolist()
    [7, 5]
    """
    name, data = os.fspath(path), _content(path)
    pin = PINS.get(Path(path).name.removesuffix(".gz"))
    if verify and pin is not None:
        check_pin(name, data, pin, HOME)
    start = 4 + 4 * dimensions
    if len(data) < start or data[:4] != bytes((0, 0, _UNSIGNED_BYTE, dimensions)):
        raise DataError(
            f"{name} is not an idx file of bytes in {dimensions} dimensions: it begins with "
            f"{data[:4].hex(' ') or 'nothing'}. Get it from {HOME}."
        )
    shape = tuple(int.from_bytes(data[at : at + 4], "big") for at in range(4, start, 4))
    if len(data) - start != math.prod(shape):
        raise DataError(
            f"{name} says {' x '.join(map(str, shape))} values and holds {len(data) - start}. Get it again from {HOME}."
        )
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape)


def _find(file: str, data_dir: FilePath | None) -> Path:
    folders = ("mnist/", "", "MNIST/raw/")
    return find(tuple(f"{folder}{file}{end}" for folder in folders for end in (".gz", "")), HOME, data_dir)


def _content(path: FilePath) -> bytes:
    data = read_bytes(path)
    if not data.startswith(_GZIP):
        return data
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{os.fspath(path)} is not a whole gzip file ({error}). Get it again from {HOME}.") from None
