"""MNIST: the facts of the real files, and one clear line for each way a file can be wrong."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from posse.problems.contexts.images import mnist
from posse.problems.datasets.files import known_files
from posse.problems.datasets.mnist import HOME, load_mnist, read_idx, read_mnist
from tests.kit.rules import refused

Write = Callable[[str, bytes], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def written(name: str, content: bytes) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path

    return written


@pytest.fixture
def real(data_dir: Path) -> Path:
    for name in known_files():
        if not name.endswith("-ubyte"):
            continue
        if not (data_dir / "mnist" / f"{name}.gz").exists():
            pytest.skip(f"no mnist/{name}.gz in {data_dir}; see the README of the data folder")
    return data_dir


def idx(*shape: int, values: bytes | None = None) -> bytes:
    sizes = b"".join(size.to_bytes(4, "big") for size in shape)
    content = bytes(i % 10 for i in range(int(np.prod(shape)))) if values is None else values
    return bytes((0, 0, 8, len(shape))) + sizes + content


# --- the real files -------------------------------------------------------------------------------


def test_facts(real: Path) -> None:
    train, test = load_mnist(real), load_mnist(real, "test")
    assert (len(train.labels), len(test.labels)) == (60_000, 10_000)
    assert train.pixels.shape == (60_000, 784)
    assert round(float(train.pixels.mean()) / 255, 5) == 0.13066
    assert train.labels[:5].tolist() == [5, 0, 4, 1, 9]
    assert test.labels[:5].tolist() == [7, 2, 1, 0, 4]
    assert np.bincount(train.labels).min() == 5421


def test_rows_of_both_parts_share_their_components(
    real: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train, test = mnist(real), mnist(real, "test")
    assert (train.rows.shape, test.rows.shape) == ((60_000, 20), (10_000, 20))
    assert np.linalg.norm(train.rows, axis=1) == pytest.approx(1.0, abs=1e-12)
    assert (train.name, test.name) == ("mnist", "mnist (test)")
    # Classes lie alike in both parts: with components of its own, a part could have an axis turned
    # round.
    one, other = (
        np.stack([part.rows[part.labels == c].mean(axis=0) for c in range(10)])
        for part in (train, test)
    )
    assert np.abs(one - other).max() < 0.1
    assert ((one[:, None] - other[None]) ** 2).sum(axis=2).argmin(axis=1).tolist() == list(
        range(10)
    )
    monkeypatch.setenv("POSSE_DATA", str(real))
    assert mnist() is train


# --- files of any kind ----------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["mnist/", "", "MNIST/raw/"])
@pytest.mark.parametrize("packed", [True, False])
def test_files_are_found_and_unpacked(
    write: Write, tmp_path: Path, place: str, packed: bool
) -> None:
    for name, content in (
        ("t10k-images-idx3-ubyte", idx(3, 2, 2)),
        ("t10k-labels-idx1-ubyte", idx(3)),
    ):
        write(
            f"{place}{name}{'.gz' if packed else ''}", gzip.compress(content) if packed else content
        )
    images = load_mnist(tmp_path, "test", verify=False)
    assert images.pixels.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 0, 1]]
    assert images.labels.tolist() == [0, 1, 2]
    with refused("problems.file.not-the-known-one"):
        load_mnist(tmp_path, "test")


def test_a_missing_file_says_where_to_get_it(tmp_path: Path) -> None:
    with refused("problems.data_dir.file-missing") as caught:
        load_mnist(tmp_path)
    assert HOME in str(caught.value)


def test_a_missing_folder_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("POSSE_DATA", raising=False)
    with refused("problems.data_dir.not-set"):
        mnist()
    with refused("problems.part.unknown"):
        load_mnist("anywhere", "trian")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "problems.mnist.not-bytes"),
        (b"row,a\n1,2\n", "problems.mnist.not-bytes"),
        (idx(4), "problems.mnist.not-bytes"),
        (bytes((0, 0, 13, 3)) + idx(1, 1, 1)[4:], "problems.mnist.not-bytes"),
        (idx(2, 2, 2)[:-1], "problems.mnist.truncated"),
        (idx(2, 2, 2) + b"\0", "problems.mnist.truncated"),
        (gzip.compress(idx(2, 2, 2), mtime=0)[:-9], "problems.file.not-gzip"),
        (b"\x1f\x8b" + bytes(30), "problems.file.not-gzip"),
    ],
)
def test_broken_files_are_refused_in_one_line(write: Write, content: bytes, says: str) -> None:
    path = write("images", content)
    with refused(says) as caught:
        read_idx(path, 3)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_must_belong_together(write: Write) -> None:
    images = write("images", idx(3, 2, 2))
    with refused("problems.mnist.lengths"):
        read_mnist(images, write("labels", idx(2)))
    with refused("problems.mnist.not-digits"):
        read_mnist(images, write("labels", idx(3, values=bytes((1, 12, 2)))))
