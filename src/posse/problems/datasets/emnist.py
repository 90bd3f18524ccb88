"""EMNIST by class, test part: 116,323 characters, grey images of 28 x 28 pixels, 62 classes, no writers.

Eight lossless .webp mosaics of tiles, row by row, and `test.json`: `files` in order, `id` the class of each tile,
`mapping` the character of each class (its Unicode number). Tiles are upright, strokes light on black. Origin: NIST
Special Database 19. Cohen, Afshar, Tapson, van Schaik: EMNIST: an extension of MNIST to handwritten letters, 2017.
"""

from __future__ import annotations

import hashlib
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posse.core.errors import DataError
from posse.core.extras import require
from posse.problems.datasets.document import FilePath, read_bytes
from posse.problems.datasets.locate import find
from posse.problems.populations import Population
from posse.problems.splits import dirichlet, population

HOME = "https://www.nist.gov/itl/products-and-services/emnist-dataset (cut into mosaics of 28 x 28 tiles)"
FOLDER = "emnist-byclass-test"
SAMPLES_A_CLIENT = 197
"""Average of the federated EMNIST by writer, after which clients are counted where no number is given."""

SHA256 = {
    "X_test_0_to_16128.webp": "0e413f4196363ee451fa9589e64adc0c29edb3e3ec0ac8743e715ac0bfe00787",
    "X_test_16129_to_32257.webp": "99dec7b5cb928e057dfe3209687e69bac68a317b2f57390ac32cbcf845c65459",
    "X_test_32258_to_48386.webp": "c52a7f82ba45d288e1ac25b8bab69934691a38499cd8a932c44ca28f005bc246",
    "X_test_48387_to_64515.webp": "4887b7ea0c3af1c35b7882a571d9b6a18a78a4a14b4cafae57acb0befd81af01",
    "X_test_64516_to_80644.webp": "f1751a8de8c810eec3d063bd0bf783b2a527146caad14bac7dff334e1ec5461b",
    "X_test_80645_to_96773.webp": "77c13c0725cf7fd32d696f264e38c7e3ac43bc401bb884df6018e02112d5a072",
    "X_test_96774_to_112902.webp": "42c84e24fbe955643e1eb335a959060c78cca926c2b28e9ceff424ad81c93a95",
    "X_test_112903_to_116322.webp": "f653a84706346a63615839e32bfdc9d11d4855b5a5f864c5472722fc96b0e5e6",
    "test.json": "b2d4f5349865e3e808b93c432df28358dea9a46b63e8da1bc9916726d89a56da",
}


@dataclass(frozen=True, eq=False)
class Characters:
    """Images, the class of each, and the character of each class."""

    images: NDArray[np.uint8]
    """(n, 28, 28)"""
    labels: NDArray[np.int32]
    classes: tuple[str, ...]


def load_emnist(data_dir: FilePath | None = None, verify: bool = True) -> Characters:
    """Find the folder of mosaics and read it; 91 MB."""
    return read_mosaics(find((f"{FOLDER}/test.json", "test.json"), HOME, data_dir), verify)


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
    return population("emnist", read.images, read.labels, read.classes, dirichlet(read.labels, count, alpha, seed))


def read_mosaics(index: FilePath, verify: bool = True) -> Characters:
    """Read `test.json` and the mosaics beside it; needs the extra `data` (Pillow)."""
    path = Path(index)
    told = _index(path, _known(path, verify))
    width, height = int(told["width"]), int(told["height"])
    labels = np.asarray(told["id"], np.int32)
    images = np.empty((len(labels), height, width), np.uint8)
    done = 0
    for name in told["files"]:
        file = path.parent / str(name)
        tiles = _tiles(file, _known(file, verify), width, height)[: len(labels) - done]
        images[done : done + len(tiles)] = tiles
        done += len(tiles)
    if done != len(labels):
        raise DataError(f"{path} names {len(labels)} tiles, got {done} in its mosaics. Download them again.")
    return Characters(images, labels, tuple(chr(code) for code in told["mapping"]))


def _index(path: Path, data: bytes) -> dict[str, Any]:
    try:
        told: dict[str, Any] = json.loads(data)
        missing = [key for key in ("width", "height", "files", "mapping", "id") if key not in told]
    except (ValueError, TypeError) as error:
        raise DataError(f"{path} is not JSON ({error}). Download it again.") from None
    if missing:
        raise DataError(f"{path} must name width, height, files, mapping and id, got no {missing[0]}. Download it.")
    return told


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
            f"{file} must be tiles of {width} x {height}, got {pixels.shape[1]} x {pixels.shape[0]} pixels."
        )
    down, across = pixels.shape[0] // height, pixels.shape[1] // width
    return pixels.reshape(down, height, across, width).swapaxes(1, 2).reshape(-1, height, width)


def _known(path: Path, verify: bool) -> bytes:
    data = read_bytes(path)
    expected = SHA256.get(path.name)
    found = hashlib.sha256(data).hexdigest()
    if verify and expected is not None and found != expected:
        raise DataError(
            f"{path} is not the known file: expected sha256 {expected[:12]}..., found {found[:12]}.... "
            "Download it again, or pass verify=False to use it as it is."
        )
    return data
