"""A user's own images as a population: from a folder, or an idx, .npz or Parquet file.

| source | labels | clients |
|---|---|---|
| a folder: `LABEL/file.png`, or `CLIENT/LABEL/file.png` | names of folders | names of folders, or a Dirichlet split |
| an idx file (`...images-idx3-ubyte`, also `.gz`) | the file with `labels-idx1` in its name | a Dirichlet split |
| an .npz with `images` (or `x`) and `labels` (or `y`) | that array | its array `clients`, or a Dirichlet split |
| a Parquet file with a column of encoded images | column `label` | column `client`, or a Dirichlet split |

Images become grey bytes, squares of one size. Pillow is needed for files of images, pyarrow for
Parquet.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from zipfile import BadZipFile

import numpy as np

from posse.core.check import require
from posse.core.errors import ConfigError, DataError
from posse.problems.datasets.mnist import read_pair
from posse.problems.populations.population import Population
from posse.problems.populations.splits import dirichlet, natural, population
from posse.problems.requirements import Bytes

if TYPE_CHECKING:
    from PIL.Image import Image

ENDS = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".gif", ".tif", ".tiff")
SIDE = 28
"""Pixels of a side if images differ in size."""
LEAST_SIDE = 6
_IMAGES, _LABELS = ("images", "image", "x"), ("labels", "label", "y")
_CLIENTS = ("clients", "client", "writer", "writer_id")


class Pictures(NamedTuple):
    """Images, the label of each, and who made it if that is known."""

    images: Bytes | Sequence[Image]
    """Bytes of shape (n, height, width) or (n, height, width, 3), or images of Pillow."""
    labels: Sequence[object]
    owners: Sequence[object] | None


def holds_images(path: Path) -> bool:
    """Return whether a path is of images, and not a prepared population or a table."""
    if path.is_dir():
        return not (path / "population.json").exists()
    if path.suffix == ".npz":
        return _has_array(path)
    if path.suffix == ".parquet":
        return _has_encoded_images(path)
    return "-idx3-" in path.name or ".idx3-" in path.name


def _has_array(path: Path) -> bool:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return "header" not in arrays.files and _first(arrays.files, _IMAGES) is not None
    except (OSError, ValueError, BadZipFile):
        return False


def _has_encoded_images(path: Path) -> bool:
    """Return whether a Parquet file has a column of encoded images: bytes, or a struct."""
    try:
        schema = require("pyarrow.parquet", extra="frames").read_schema(path)
    except (OSError, ValueError):
        return False
    name = _first(schema.names, _IMAGES)
    kind = "" if name is None else str(schema.field(name).type)
    return kind.startswith(("binary", "large_binary", "struct"))


def read_pictures(
    path: Path,
    *,
    clients: int | None = None,
    alpha: float = 0.3,
    seed: int = 0,
    side: int | None = None,
    label: str = "label",
    client: str | None = "client",
) -> Population:
    """Read images as clients: those of the source, or of a Dirichlet split (10 by default).

    Args:
        path: A folder, or an idx, .npz or Parquet file.
        clients: Number of Dirichlet clients.
        alpha: How similar Dirichlet clients are.
        seed: Seed of the split.
        side: Pixels of a side; by default the images' own if all are one even square, else 28.
        label: Column of labels of a Parquet file.
        client: Column of clients of a Parquet file; None for a Dirichlet split.
    """
    if path.is_dir():
        pictures = _folder(path)
    elif path.suffix == ".npz":
        pictures = _arrays(path)
    elif path.suffix == ".parquet":
        pictures = _parquet(path, label, client)
    else:
        pictures = _idx(path)
    images = _squares(pictures.images, side, str(path))
    names = list(map(str, pictures.labels))
    all_numbers = all(map(str.isdecimal, names))
    arms = tuple(sorted(set(names), key=int if all_numbers else str))
    if len(arms) < 2:
        raise DataError(
            f"{path} must have images of two labels at least, got {len(arms)}. Check where the "
            "labels are.",
            rule="problems.images.one-label",
        )
    place = {name: number for number, name in enumerate(arms)}
    labels = np.array([place[name] for name in names], np.int64)
    if pictures.owners is None:
        split = dirichlet(labels, clients or 10, alpha, seed)
    else:
        split = natural(list(map(str, pictures.owners)))
    return population(path.name, images, labels, arms, split)


def _squares(images: Bytes | Sequence[Image], side: int | None, where: str) -> Bytes:
    """Scale images to grey squares of one even size: the given one, their own, or 28."""
    if isinstance(images, np.ndarray):
        size = side or images.shape[1]
        if images.shape[1:] == (size, size) and size % 2 == 0 and size >= LEAST_SIDE:
            return images
        image = require("PIL.Image", extra="data")
        images = [image.fromarray(each).convert("L") for each in images]
    if not images:
        raise DataError(
            f"{where} holds no images. Their names end in {', '.join(ENDS)}.",
            rule="problems.images.none",
        )
    (width, height), *others = {picture.size for picture in images}
    same = not others and width == height and width % 2 == 0
    pixels = side or (width if same else SIDE)
    if pixels < LEAST_SIDE or pixels % 2:
        raise ConfigError(
            f"side must be an even number of at least {LEAST_SIDE} pixels, got {pixels}. Choose "
            "another.",
            rule="problems.side.not-even",
        )
    return np.stack([np.asarray(picture.resize((pixels, pixels))) for picture in images])


def _open_images(sources: Mapping[str, object]) -> list[Image]:
    """Open images as grey ones.

    Args:
        sources: Paths or streams of encoded images, by their names in errors.
    """
    image = require("PIL.Image", extra="data")
    images = []
    for name, source in sources.items():
        try:
            with image.open(source) as picture:
                images.append(picture.convert("L"))
        except (OSError, ValueError) as error:
            raise DataError(
                f"{name} is not a whole image ({error}). Repair it, or take it away.",
                rule="problems.images.not-an-image",
            ) from None
    return images


def _folder(path: Path) -> Pictures:
    files = sorted(
        file for file in path.rglob("*") if file.suffix.lower() in ENDS and file.is_file()
    )
    depths = {len(file.relative_to(path).parts) for file in files}
    if depths not in ({2}, {3}):
        got = "images at other depths" if files else "no images"
        raise DataError(
            f"{path} must hold images as LABEL/file or CLIENT/LABEL/file, got {got}. Move them.",
            rule="problems.images.wrong-folders",
        )
    labels = [file.parts[-2] for file in files]
    owners = [file.parts[-3] for file in files] if depths == {3} else None
    return Pictures(_open_images({str(file): file for file in files}), labels, owners)


def _idx(path: Path) -> Pictures:
    labels_file = path.with_name(path.name.replace("images", "labels").replace("idx3", "idx1"))
    if labels_file == path or not labels_file.exists():
        raise DataError(
            f"there is no file {labels_file.name} with labels next to {path}. Put it there.",
            rule="problems.images.no-labels-file",
        )
    images, labels = read_pair(path, labels_file, verify=False)
    return Pictures(images, labels.tolist(), None)


def _arrays(path: Path) -> Pictures:
    with np.load(path, allow_pickle=False) as arrays:
        image_name, label_name, client_name = (
            _first(arrays.files, names) for names in (_IMAGES, _LABELS, _CLIENTS)
        )
        if image_name is None or label_name is None:
            raise DataError(
                f"{path} must have labels next to images, got {', '.join(arrays.files)}. Name them "
                "labels.",
                rule="problems.images.no-labels",
            )
        images, labels = arrays[image_name], arrays[label_name]
        owners = None if client_name is None else arrays[client_name].tolist()
    if images.ndim == 4 and images.shape[-1] == 1:
        images = images[..., 0]
    if images.dtype != np.uint8 or images.ndim not in (3, 4) or labels.shape != (len(images),):
        raise DataError(
            f"{path}: images must be bytes of shape (n, height, width) or (n, height, width, 3), "
            f"with one label each, got {images.dtype} {images.shape} and {labels.shape} labels. "
            "Convert them.",
            rule="problems.images.wrong-arrays",
        )
    return Pictures(images, labels.tolist(), owners)


def _parquet(path: Path, label: str, client: str | None) -> Pictures:
    parquet = require("pyarrow.parquet", extra="frames")
    try:
        table = parquet.read_table(path)
    except (OSError, ValueError) as error:
        raise DataError(
            f"{path} is no whole Parquet file ({error}).", rule="problems.images.not-parquet"
        ) from None
    columns = table.column_names
    image_name = _first(columns, _IMAGES)
    label_name = _first(columns, (label, "character", *_LABELS))
    client_name = None if client is None else _first(columns, (client, *_CLIENTS))
    if image_name is None or label_name is None:
        raise DataError(
            f"{path} must have columns image and {label}, got {', '.join(columns)}. Rename them.",
            rule="problems.images.no-columns",
        )
    cells = table[image_name].to_pylist()
    encoded = [cell["bytes"] if isinstance(cell, dict) else cell for cell in cells]
    images = {
        f"{path}: column {image_name}, row {row}": io.BytesIO(data or b"")
        for row, data in enumerate(encoded, 1)
    }
    owners = None if client_name is None else table[client_name].to_pylist()
    return Pictures(_open_images(images), table[label_name].to_pylist(), owners)


def _first(names: Sequence[str], choices: Sequence[str]) -> str | None:
    return next((name for name in choices if name in names), None)
