"""A user's own images from folders, idx, .npz and Parquet files become clients, without a line of
Python.
"""

from __future__ import annotations

import gzip
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from posse.problems.populations.settings import PopulationSettings
from tests.kit.rules import refused

RNG = np.random.default_rng(1)
IMAGES = RNG.integers(0, 256, (24, 8, 8)).astype(np.uint8)
LABELS = np.array(["cat", "dog", "owl"] * 8)
OWNERS = np.array([f"phone-{at % 4}" for at in range(24)])


def encoded(image: Any) -> bytes:
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(image).save(file, "PNG")
    return file.getvalue()


def folder(place: Path, *, owned: bool) -> Path:
    for at, (image, label, owner) in enumerate(zip(IMAGES, LABELS, OWNERS, strict=True)):
        home = place / (f"{owner}/{label}" if owned else label)
        home.mkdir(parents=True, exist_ok=True)
        (home / f"{at:02d}.png").write_bytes(encoded(image))
    return place


def idx(place: Path) -> Path:
    numbers = np.array([["cat", "dog", "owl"].index(one) for one in LABELS], np.uint8)
    for name, array in (
        ("train-images-idx3-ubyte.gz", IMAGES),
        ("train-labels-idx1-ubyte.gz", numbers),
    ):
        head = bytes((0, 0, 8, array.ndim)) + b"".join(
            size.to_bytes(4, "big") for size in array.shape
        )
        (place / name).write_bytes(gzip.compress(head + array.tobytes()))
    return place / "train-images-idx3-ubyte.gz"


def arrays(place: Path, **more: Any) -> Path:
    np.savez(place / "mine.npz", images=IMAGES, labels=LABELS, **more)
    return place / "mine.npz"


def parquet(place: Path, owned: bool) -> Path:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    cells = [{"bytes": encoded(image), "path": None} for image in IMAGES]
    columns = {
        "image": cells,
        "label": LABELS.tolist(),
        **({"client": OWNERS.tolist()} if owned else {}),
    }
    pq.write_table(pa.table(columns), place / "mine.parquet")
    return place / "mine.parquet"


@pytest.mark.parametrize("kind", ["folder", "npz", "parquet"])
@pytest.mark.parametrize("owned", [True, False])
def test_every_source_gives_the_same_images(kind: str, owned: bool, tmp_path: Path) -> None:
    make = {
        "folder": lambda: folder(tmp_path / "pictures", owned=owned),
        "npz": lambda: arrays(tmp_path, **({"clients": OWNERS} if owned else {})),
        "parquet": lambda: parquet(tmp_path, owned),
    }[kind]
    made = PopulationSettings(
        data=str(make()), **({} if owned else {"clients": 3, "alpha": 0.5})
    ).population()
    assert made.arms == ("cat", "dog", "owl")
    assert made.clients == (4 if owned else 3)
    expected = {(image.tobytes(), label) for image, label in zip(IMAGES, LABELS, strict=True)}
    found = zip(np.asarray(made.inputs), np.asarray(made.labels), strict=True)
    assert {(image.tobytes(), made.arms[label]) for image, label in found} == expected
    if owned:
        assert [made.client_name(at) for at in range(4)] == [f"phone-{at}" for at in range(4)]


def test_idx_files_beside_their_labels(tmp_path: Path) -> None:
    made = PopulationSettings(data=str(idx(tmp_path)), clients=4).population()
    assert (made.arms, made.clients, np.asarray(made.inputs).shape) == (
        ("0", "1", "2"),
        4,
        (24, 8, 8),
    )
    (tmp_path / "train-labels-idx1-ubyte.gz").unlink()
    with refused("problems.images.no-labels-file"):
        PopulationSettings(data=str(tmp_path / "train-images-idx3-ubyte.gz")).population()


def test_images_are_scaled_where_asked_or_where_they_differ(tmp_path: Path) -> None:
    place = folder(tmp_path / "pictures", owned=False)
    assert np.asarray(PopulationSettings(data=str(place), side=16).population().inputs).shape == (
        24,
        16,
        16,
    )
    (place / "cat" / "wide.png").write_bytes(encoded(np.zeros((5, 9), np.uint8)))
    assert np.asarray(PopulationSettings(data=str(place)).population().inputs).shape == (25, 28, 28)
    with refused("problems.side.not-even"):
        PopulationSettings(data=str(place), side=7).population()


def test_mistakes_are_said(tmp_path: Path) -> None:
    place = folder(tmp_path / "pictures", owned=False)
    (place / "cat" / "broken.png").write_bytes(b"no image")
    with refused("problems.images.not-an-image"):
        PopulationSettings(data=str(place)).population()
    (tmp_path / "empty").mkdir()
    with refused("problems.images.wrong-folders"):
        PopulationSettings(data=str(tmp_path / "empty")).population()
    np.savez(tmp_path / "floats.npz", images=IMAGES / 255, labels=LABELS)
    with refused("problems.images.wrong-arrays"):
        PopulationSettings(data=str(tmp_path / "floats.npz")).population()
    np.savez(tmp_path / "none.npz", images=IMAGES)
    with refused("problems.images.no-labels"):
        PopulationSettings(data=str(tmp_path / "none.npz")).population()
    with refused("problems.side.no-effect"):
        PopulationSettings(side=8)
