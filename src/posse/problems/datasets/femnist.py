"""Federated EMNIST: 62 classes of characters, split by who wrote them.

Two forms, for a machine with internet, neither shipped:

- TensorFlow Federated's `emnist_all.sqlite` (3,400 writers; 671,585 samples in split `all_train`, 77,483 in `all_test`;
  https://storage.googleapis.com/tff-datasets-public/emnist_all.sqlite.lzma), examples with `label` (integer) and
  `pixels` (784 floats in [0, 1]): what the published figures were made with;
- the parquet files of `flwrlabs/femnist` (what flwr-datasets downloads), columns `image` (PNG bytes), `writer_id`,
  `character`.

Labels are 0-9, A-Z, a-z in both, and strokes are dark on white, as distributed. Neither form has a published digest
to check: what is checked is the format, every value of it. Caldas et al.: LEAF: a benchmark for federated settings,
2018.
"""

from __future__ import annotations

import io
import string
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from posse.core.errors import DataError
from posse.core.extras import require
from posse.problems.datasets import tff
from posse.problems.datasets.document import FilePath
from posse.problems.datasets.locate import find
from posse.problems.populations import Population
from posse.problems.prepared import load
from posse.problems.prepared_writer import Writer
from posse.problems.ragged import names_of
from posse.problems.splits import natural, population

HOME = "https://storage.googleapis.com/tff-datasets-public/emnist_all.sqlite.lzma"
CLASSES = tuple(string.digits + string.ascii_uppercase + string.ascii_lowercase)
SIDE = 28

_FILES = ("femnist/emnist_all.sqlite", "emnist_all.sqlite", "femnist", "femnist/data")


def femnist_population(data_dir: FilePath | None = None, split: str = "all_train") -> Population:
    """Find the database or the parquet files and read them whole: 0.5 GB for the training split."""
    return read_femnist(find(_FILES, HOME, data_dir), split)


def read_femnist(path: FilePath, split: str = "all_train") -> Population:
    """Read a database of TensorFlow Federated, a parquet file or a folder of them (which have no `split`)."""
    file = Path(path)
    if file.is_dir() or file.suffix == ".parquet":
        return _parquet(file)
    names, sizes, pixels, labels = [], [], [], []
    for name, images, digits in _writers(file, split):
        names.append(name)
        sizes.append(len(digits))
        pixels.append(images)
        labels.append(digits)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return Population("femnist", CLASSES, offsets, np.concatenate(pixels), np.concatenate(labels), names_of(names))


def prepare_femnist(path: FilePath, folder: FilePath, split: str = "all_train") -> Population:
    """Write a database of TensorFlow Federated to a prepared folder, a writer at a time, and map it."""
    with Writer(Path(folder), "femnist", CLASSES) as out:
        for name, images, labels in _writers(Path(path), split):
            out.add([len(labels)], images, labels, names_of([name]))
    return load(folder)


def _writers(file: Path, split: str) -> Iterator[tuple[str, NDArray[np.uint8], NDArray[np.int32]]]:
    for name, examples in tff.clients(file, split):
        pixels = np.stack([_pixels(example.get("pixels"), name) for example in examples])
        labels = [_label(example.get("label"), name) for example in examples]
        yield name, np.rint(pixels * 255).astype(np.uint8).reshape(-1, SIDE, SIDE), np.array(labels, np.int32)


def _pixels(value: object, writer: str) -> NDArray[np.float32]:
    if not isinstance(value, np.ndarray) or value.shape != (SIDE * SIDE,):
        raise DataError(f"an example must have {SIDE * SIDE} pixels, got {value!r:.40} of writer {writer}.")
    # Not (0 <= x <= 1) refuses NaN as well.
    if not ((value >= 0) & (value <= 1)).all():
        raise DataError(f"pixels must be in [0, 1], got {value.min()} to {value.max()} of writer {writer}. Scale them.")
    return value


def _label(value: object, writer: str) -> int:
    if not isinstance(value, list) or len(value) != 1 or not isinstance(value[0], int):
        raise DataError(f"an example must have one label, got {value!r:.40} of writer {writer}.")
    return value[0]


def _parquet(path: Path) -> Population:
    files = sorted(path.rglob("*.parquet")) if path.is_dir() else [path]
    if not files:
        raise DataError(f"no .parquet file in {path}. Give the folder that flwr-datasets downloaded.")
    reader = require("pyarrow.parquet", extra="frames")
    images: list[NDArray[np.uint8]] = []
    labels: list[int] = []
    writers: list[str] = []
    for file in files:
        try:
            parts = reader.ParquetFile(file)
            missing = [name for name in ("image", "writer_id", "character") if name not in parts.schema_arrow.names]
        except (OSError, ValueError) as error:
            raise DataError(f"{file} is not a parquet file ({error}). Download it again.") from None
        if missing:
            raise DataError(f"{file}: no column '{missing[0]}', got {', '.join(parts.schema_arrow.names)}.")
        for batch in parts.iter_batches(columns=["image", "writer_id", "character"]):
            images.extend(_decoded(row["bytes"], file) for row in batch["image"].to_pylist())
            labels.extend(batch["character"].to_pylist())
            writers.extend(batch["writer_id"].to_pylist())
    return population("femnist", np.stack(images), np.array(labels), CLASSES, natural(np.array(writers)))


def _decoded(data: bytes, file: Path) -> NDArray[np.uint8]:
    try:
        with require("PIL.Image", extra="data").open(io.BytesIO(data)) as image:
            pixels: NDArray[np.uint8] = np.asarray(image.convert("L"))
    except (OSError, ValueError, TypeError) as error:
        raise DataError(f"{file} holds an image that cannot be read ({error}). Download it again.") from None
    if pixels.shape != (SIDE, SIDE):
        raise DataError(f"images must be {SIDE} x {SIDE} pixels, got {pixels.shape} in {file}. Resize them.")
    return pixels
