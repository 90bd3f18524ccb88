"""Handwritten characters, 62 classes, grey images of 28 x 28 pixels: EMNIST, and federated EMNIST
by writer.

EMNIST by class, test part: 116,323 characters. Eight lossless .webp mosaics of tiles, row by row,
and `test.json`: `files` in order, `id` the class of each tile, `mapping` the character of each
class (its Unicode number). Tiles are upright, strokes light on black. Origin: NIST Special Database
19. Cohen, Afshar, Tapson, van Schaik: EMNIST: an extension of MNIST to handwritten letters, 2017.

Federated EMNIST, two forms, for a machine with internet, neither shipped:

- TensorFlow Federated's `emnist_all.sqlite` (3,400 writers; 671,585 samples in split `all_train`,
  77,483 in `all_test`; https://storage.googleapis.com/tff-datasets-public/emnist_all.sqlite.lzma),
  examples with `label` (integer) and `pixels` (784 floats in [0, 1]): what the published figures
  were made with;
- the parquet files of `flwrlabs/femnist` (what flwr-datasets downloads), columns `image` (PNG
  bytes), `writer_id`, `character`.

Labels are 0-9, A-Z, a-z in both, and strokes are dark on white, as distributed. Neither form has a
published digest to check: what is checked is the format, every value of it. Caldas et al.: LEAF: a
benchmark for federated settings, 2018.
"""

from __future__ import annotations

import io
import json
import string
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posse.core.check import require
from posse.core.errors import DataError
from posse.problems.datasets.files import find, read_known
from posse.problems.populations.population import Population, names_of
from posse.problems.populations.splits import dirichlet, natural, population
from posse.problems.tables.text import FilePath
from reproduction.loaders import PINS, tff

HOME = (
    "https://www.nist.gov/itl/products-and-services/emnist-dataset (cut into mosaics of 28 x 28 "
    "tiles)"
)
FOLDER = "emnist-byclass-test"
SAMPLES_A_CLIENT = 197
"""Average of the federated EMNIST by writer, after which clients are counted where no number is
given.
"""


@dataclass(frozen=True, eq=False)
class Characters:
    """Images, the class of each, and the character of each class."""

    images: NDArray[np.uint8]
    """(n, 28, 28)"""
    labels: NDArray[np.int32]
    classes: tuple[str, ...]


def load_emnist(data_dir: FilePath | None = None, verify: bool = True) -> Characters:
    """Find the folder of mosaics and read it; 91 MB."""
    return read_mosaics(find_emnist(data_dir), verify)


def find_emnist(data_dir: FilePath | None = None) -> Path:
    """Find the table of the mosaics, which lie beside it."""
    return find((f"{FOLDER}/test.json", "test.json"), HOME, data_dir)


def emnist_population(
    data_dir: FilePath | None = None,
    clients: int | None = None,
    alpha: float = 0.3,
    seed: int = 0,
    verify: bool = True,
) -> Population:
    """Split EMNIST over Dirichlet clients, as many as give 197 samples each if left out."""
    read = load_emnist(data_dir, verify)
    count = max(1, round(len(read.labels) / SAMPLES_A_CLIENT)) if clients is None else clients
    return population(
        "emnist", read.images, read.labels, read.classes, dirichlet(read.labels, count, alpha, seed)
    )


def read_mosaics(file: FilePath, verify: bool = True) -> Characters:
    """Read `test.json` and the mosaics beside it; needs the extra `data` (Pillow)."""
    path = Path(file)
    index = _index(path, read_known(path, HOME, verify, PINS))
    width, height = int(index["width"]), int(index["height"])
    labels = np.asarray(index["id"], np.int32)
    images = np.empty((len(labels), height, width), np.uint8)
    done = 0
    for name in index["files"]:
        mosaic = path.parent / str(name)
        tiles = _tiles(mosaic, read_known(mosaic, HOME, verify, PINS), width, height)[
            : len(labels) - done
        ]
        images[done : done + len(tiles)] = tiles
        done += len(tiles)
    if done != len(labels):
        raise DataError(
            f"{path} names {len(labels)} tiles, got {done} in its mosaics. Download them again."
        )
    return Characters(images, labels, tuple(chr(code) for code in index["mapping"]))


def _index(path: Path, data: bytes) -> dict[str, Any]:
    try:
        index: dict[str, Any] = json.loads(data)
        missing = [key for key in ("width", "height", "files", "mapping", "id") if key not in index]
    except (ValueError, TypeError) as error:
        raise DataError(f"{path} is not JSON ({error}). Download it again.") from None
    if missing:
        raise DataError(
            f"{path} must name width, height, files, mapping and id, got no {missing[0]}. Download "
            "it."
        )
    return index


def _tiles(file: Path, data: bytes, width: int, height: int) -> NDArray[np.uint8]:
    """Cut a mosaic into its tiles, row by row."""
    image = require("PIL.Image", extra="data")
    try:
        with image.open(io.BytesIO(data)) as mosaic:
            pixels = np.asarray(mosaic.convert("RGB").getchannel(0))
    except (OSError, ValueError) as error:
        raise DataError(f"{file} is not a whole image ({error}). Download it again.") from None
    if pixels.shape[0] % height or pixels.shape[1] % width:
        raise DataError(
            f"{file} must be tiles of {width} x {height}, got {pixels.shape[1]} x "
            f"{pixels.shape[0]} pixels."
        )
    down, across = pixels.shape[0] // height, pixels.shape[1] // width
    return pixels.reshape(down, height, across, width).swapaxes(1, 2).reshape(-1, height, width)


FEMNIST_HOME = "https://storage.googleapis.com/tff-datasets-public/emnist_all.sqlite.lzma"
CLASSES = tuple(string.digits + string.ascii_uppercase + string.ascii_lowercase)
SIDE = 28

FEMNIST_FILES = ("femnist/emnist_all.sqlite", "emnist_all.sqlite", "femnist", "femnist/data")


def femnist_population(data_dir: FilePath | None = None, split: str = "all_train") -> Population:
    """Find the database or the parquet files and read them whole: 0.5 GB for the training split."""
    return read_femnist(find_femnist(data_dir), split)


def find_femnist(data_dir: FilePath | None = None) -> Path:
    """Find the database, or the folder of parquet files."""
    return find(FEMNIST_FILES, FEMNIST_HOME, data_dir)


def read_femnist(path: FilePath, split: str = "all_train") -> Population:
    """Read a database of TensorFlow Federated, a parquet file or a folder of them (which have no
    `split`).
    """
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
    return Population(
        "femnist", CLASSES, offsets, np.concatenate(pixels), np.concatenate(labels), names_of(names)
    )


def _writers(file: Path, split: str) -> Iterator[tuple[str, NDArray[np.uint8], NDArray[np.int32]]]:
    for name, examples in tff.clients(file, split):
        pixels = np.stack([_pixels(example.get("pixels"), name) for example in examples])
        labels = [_label(example.get("label"), name) for example in examples]
        yield (
            name,
            np.rint(pixels * 255).astype(np.uint8).reshape(-1, SIDE, SIDE),
            np.array(labels, np.int32),
        )


def _pixels(value: object, writer: str) -> NDArray[np.float32]:
    if not isinstance(value, np.ndarray) or value.shape != (SIDE * SIDE,):
        raise DataError(
            f"an example must have {SIDE * SIDE} pixels, got {value!r:.40} of writer {writer}."
        )
    # Not (0 <= x <= 1) refuses NaN as well.
    if not ((value >= 0) & (value <= 1)).all():
        raise DataError(
            f"pixels must be in [0, 1], got {value.min()} to {value.max()} of writer {writer}. "
            "Scale them."
        )
    return value


def _label(value: object, writer: str) -> int:
    if not isinstance(value, list) or len(value) != 1 or not isinstance(value[0], int):
        raise DataError(f"an example must have one label, got {value!r:.40} of writer {writer}.")
    return value[0]


def _parquet(path: Path) -> Population:
    files = sorted(path.rglob("*.parquet")) if path.is_dir() else [path]
    if not files:
        raise DataError(
            f"no .parquet file in {path}. Give the folder that flwr-datasets downloaded."
        )
    reader = require("pyarrow.parquet", extra="frames")
    images: list[NDArray[np.uint8]] = []
    labels: list[int] = []
    writers: list[str] = []
    for file in files:
        try:
            parts = reader.ParquetFile(file)
            missing = [
                name
                for name in ("image", "writer_id", "character")
                if name not in parts.schema_arrow.names
            ]
        except (OSError, ValueError) as error:
            raise DataError(f"{file} is not a parquet file ({error}). Download it again.") from None
        if missing:
            raise DataError(
                f"{file}: no column '{missing[0]}', got {', '.join(parts.schema_arrow.names)}."
            )
        for batch in parts.iter_batches(columns=["image", "writer_id", "character"]):
            images.extend(_decoded(row["bytes"], file) for row in batch["image"].to_pylist())
            labels.extend(batch["character"].to_pylist())
            writers.extend(batch["writer_id"].to_pylist())
    return population(
        "femnist", np.stack(images), np.array(labels), CLASSES, natural(np.array(writers))
    )


def _decoded(data: bytes, file: Path) -> NDArray[np.uint8]:
    try:
        with require("PIL.Image", extra="data").open(io.BytesIO(data)) as image:
            pixels: NDArray[np.uint8] = np.asarray(image.convert("L"))
    except (OSError, ValueError, TypeError) as error:
        raise DataError(
            f"{file} holds an image that cannot be read ({error}). Download it again."
        ) from None
    if pixels.shape != (SIDE, SIDE):
        raise DataError(
            f"images must be {SIDE} x {SIDE} pixels, got {pixels.shape} in {file}. Resize them."
        )
    return pixels
