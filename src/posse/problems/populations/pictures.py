"""Images of a user's own as a population: from a folder, an idx, .npz or Parquet file, without
writing Python.

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
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from posse.core.check import require
from posse.core.errors import ConfigError, DataError
from posse.problems.datasets.mnist import read_idx
from posse.problems.populations.population import Population
from posse.problems.populations.splits import dirichlet, natural, population

ENDS = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".gif", ".tif", ".tiff")
SIDE = 28
"""Pixels of a side where images differ in size."""
_IMAGES, _LABELS = ("images", "image", "x"), ("labels", "label", "y")
_CLIENTS = ("clients", "client", "writer", "writer_id")


class Pictures(NamedTuple):
    """Images, the label of each in words, and who made it where that is known."""

    images: NDArray[np.uint8]
    labels: Sequence[str]
    owners: Sequence[str] | None


def holds_images(path: Path) -> bool:
    """Whether a path is of images: a folder that is no prepared population, an idx, an .npz or
    Parquet of them.
    """
    if path.is_dir():
        return not (path / "population.json").exists()
    if path.suffix == ".npz":
        try:
            with np.load(path, allow_pickle=False) as arrays:
                return "header" not in arrays.files and _first(arrays.files, _IMAGES) is not None
        except (OSError, ValueError, BadZipFile):
            return False
    if path.suffix == ".parquet":
        return _has_pictures(path)
    return "-idx3-" in path.name or ".idx3-" in path.name


def _has_pictures(path: Path) -> bool:
    """Whether a Parquet file has a column of encoded images: bytes, or a struct with them; any
    other is a table.
    """
    try:
        schema = require("pyarrow.parquet", extra="frames").read_schema(path)
    except (OSError, ValueError):
        return False
    name = _first(schema.names, _IMAGES)
    if name is None:
        return False
    return str(schema.field(name).type).startswith(("binary", "large_binary", "struct"))


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
    """Read images as clients: those of the source, or of a Dirichlet split (10 by default)."""
    if path.is_dir():
        pictures = _folder(path, side)
    elif path.suffix == ".npz":
        pictures = _arrays(path, side)
    elif path.suffix == ".parquet":
        pictures = _parquet(path, side, label, client)
    else:
        pictures = _idx(path, side)
    names = sorted(set(pictures.labels))
    arms = tuple(sorted(names, key=int) if all(name.isdecimal() for name in names) else names)
    if len(arms) < 2:
        raise DataError(
            f"{path} must have images of two labels at least, got {len(arms)}. Check where the "
            "labels are.",
            rule="problems.images.one-label",
        )
    place = {name: at for at, name in enumerate(arms)}
    labels = np.array([place[name] for name in pictures.labels], np.int64)
    split = (
        dirichlet(labels, clients or 10, alpha, seed)
        if pictures.owners is None
        else natural(pictures.owners)
    )
    return population(path.name, pictures.images, labels, arms, split)


def _square(pictures: Sequence[Any], side: int | None, where: str) -> NDArray[np.uint8]:
    """Scale grey pictures to squares of one size: the given one, theirs where all are the same even
    square, or 28.
    """
    if not pictures:
        raise DataError(
            f"{where} holds no images. Their names end in {', '.join(ENDS)}.",
            rule="problems.images.none",
        )
    (width, height), *others = {picture.size for picture in pictures}
    same = not others and width == height and width % 2 == 0
    pixels = side or (width if same else SIDE)
    if not _is_side(pixels):
        raise ConfigError(
            f"side must be an even number of at least 6 pixels, got {pixels}. Choose another.",
            rule="problems.side.not-even",
        )
    return np.stack([np.asarray(picture.resize((pixels, pixels))) for picture in pictures])


def _is_side(pixels: int) -> bool:
    return pixels >= 6 and pixels % 2 == 0


def _folder(path: Path, side: int | None) -> Pictures:
    image = require("PIL.Image", extra="data")
    files = sorted(one for one in path.rglob("*") if one.suffix.lower() in ENDS and one.is_file())
    depths = {len(one.relative_to(path).parts) for one in files}
    if not files or depths not in ({2}, {3}):
        got = "no images" if not files else "images at other depths"
        raise DataError(
            f"{path} must hold images as LABEL/file or CLIENT/LABEL/file, got {got}. Order them so.",
            rule="problems.images.wrong-folders",
        )
    opened = []
    for one in files:
        try:
            with image.open(one) as picture:
                opened.append(picture.convert("L"))
        except (OSError, ValueError) as error:
            raise DataError(
                f"{one} is not a whole image ({error}). Repair it, or take it away.",
                rule="problems.images.not-an-image",
            ) from None
    owners = [one.parts[-3] for one in files] if depths == {3} else None
    return Pictures(_square(opened, side, str(path)), [one.parts[-2] for one in files], owners)


def _idx(path: Path, side: int | None) -> Pictures:
    labels_file = path.with_name(path.name.replace("images", "labels").replace("idx3", "idx1"))
    if labels_file == path or not labels_file.exists():
        raise DataError(
            f"the labels of {path} must be next to it as {labels_file.name}, and do not. Put "
            "them there.",
            rule="problems.images.no-labels-file",
        )
    images, labels = read_idx(path, 3, verify=False), read_idx(labels_file, 1, verify=False)
    if len(images) != len(labels):
        raise DataError(
            f"{path.name} has {len(images)} images and {labels_file.name} {len(labels)} labels. Match "
            "them.",
            rule="problems.images.lengths",
        )
    return Pictures(_sized(images, side, str(path)), _texts(labels), None)


def _arrays(path: Path, side: int | None) -> Pictures:
    with np.load(path, allow_pickle=False) as arrays:
        image_name, label_name = _first(arrays.files, _IMAGES), _first(arrays.files, _LABELS)
        if image_name is None or label_name is None:
            raise DataError(
                f"{path} must have labels next to images, got {', '.join(arrays.files)}. Name them "
                "labels.",
                rule="problems.images.no-labels",
            )
        client_name = _first(arrays.files, _CLIENTS)
        images, labels = arrays[image_name], arrays[label_name]
        owners = None if client_name is None else _texts(arrays[client_name])
    if images.ndim == 4 and images.shape[-1] == 1:
        images = images[..., 0]
    if images.dtype != np.uint8 or images.ndim not in (3, 4) or labels.shape != (len(images),):
        raise DataError(
            f"{path}: images must be bytes of shape (n, height, width) or (n, height, width, 3), "
            "and labels one each, "
            f"got {images.dtype} {images.shape} and {labels.shape}. Convert them.",
            rule="problems.images.wrong-arrays",
        )
    return Pictures(
        _sized(images, side, str(path)),
        _texts(labels),
        owners,
    )


def _sized(images: NDArray[np.uint8], side: int | None, where: str) -> NDArray[np.uint8]:
    """Leave even squares as they are; scale others."""
    size = side or images.shape[1]
    if images.shape[1:] == (size, size) and _is_side(size):
        return images
    image = require("PIL.Image", extra="data")
    return _square([image.fromarray(each).convert("L") for each in images], side, where)


def _texts(values: NDArray[np.generic]) -> list[str]:
    return list(map(str, values.tolist()))


def _parquet(path: Path, side: int | None, label: str, client: str | None) -> Pictures:
    image, parquet = require("PIL.Image", extra="data"), require("pyarrow.parquet", extra="frames")
    try:
        table = parquet.read_table(path)
    except (OSError, ValueError) as error:
        raise DataError(
            f"{path} is no whole Parquet file ({error}).", rule="problems.images.not-parquet"
        ) from None
    name = _first(table.column_names, _IMAGES)
    label_name = _first(table.column_names, (label, "character", *_LABELS))
    if name is None or label_name is None:
        raise DataError(
            f"{path} must have columns image and {label}, got {', '.join(table.column_names)}. "
            "Name them so.",
            rule="problems.images.no-columns",
        )
    opened = []
    try:
        for cell in table[name].to_pylist():
            data = cell["bytes"] if isinstance(cell, dict) else cell
            opened.append(image.open(io.BytesIO(data)).convert("L"))
    except (OSError, TypeError, ValueError) as error:
        raise DataError(
            f"{path}: column {name} must hold encoded images ({error}).",
            rule="problems.images.not-encoded",
        ) from None
    client_name = None if client is None else _first(table.column_names, (client, *_CLIENTS))
    return Pictures(
        _square(opened, side, str(path)),
        list(map(str, table[label_name].to_pylist())),
        None if client_name is None else list(map(str, table[client_name].to_pylist())),
    )


def _first(names: Sequence[str], choices: Sequence[str]) -> str | None:
    return next((name for name in choices if name in names), None)
