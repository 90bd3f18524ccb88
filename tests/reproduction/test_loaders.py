"""Loaders of the figures: the facts of the real files, small files in the formats of those that are
not here, and what is prepared for the package to read.
"""

from __future__ import annotations

import io
import json
import sqlite3
import struct
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from posse.core.errors import DataError
from posse.problems.populations.population import Population, Ragged
from posse.problems.populations.prepared import load
from posse.problems.populations.settings import PopulationSettings
from reproduction.loaders import emnist, questions, tff
from tests.reproduction.conftest import Reproduce

Feature = Sequence[bytes] | Sequence[int] | Sequence[float]


def present(data_dir: Path, name: str) -> Path:
    if not (data_dir / name).exists():
        pytest.skip(f"no {name} in {data_dir}; see the README of the data folder")
    return data_dir


# --- the real files -------------------------------------------------------------------------------


def test_last_mosaic_of_emnist(data_dir: Path, tmp_path: Path) -> None:
    folder = present(data_dir, "emnist-byclass-test") / "emnist-byclass-test"
    told = json.loads((folder / "test.json").read_bytes())
    last = told["files"][-1]
    (tmp_path / last).symlink_to(folder / last)
    (tmp_path / "test.json").write_text(
        json.dumps(told | {"files": [last], "id": told["id"][112_903:]})
    )
    read = emnist.read_mosaics(tmp_path / "test.json", verify=False)
    assert (read.images.shape, len(read.classes)) == ((3420, 28, 28), 62)
    assert "".join(read.classes) == "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
    assert (
        read.images[:, 0].mean() < 2 < 60 < read.images[:, 10:18, 10:18].mean()
    )  # strokes in the middle, on black
    # A one is thin and a zero is not: tiles and labels line up.
    ink = [read.images[read.labels == digit].mean() for digit in (0, 1)]
    assert ink[0] > 1.5 * ink[1]


@pytest.mark.long
def test_emnist(data_dir: Path) -> None:
    whole = emnist.emnist_population(present(data_dir, "emnist-byclass-test"), alpha=0.3, seed=1)
    assert (whole.samples, whole.clients, len(whole.arms), whole.largest) == (116_323, 590, 62, 198)
    counts = np.bincount(np.asarray(whole.labels))
    assert (counts.min(), counts.max()) == (317, 6330)
    assert np.asarray(whole.inputs).shape == (116_323, 28, 28)


def test_stackexchange(data_dir: Path) -> None:
    whole = questions.stackexchange_population(present(data_dir, "stackexchange"))
    assert (whole.samples, whole.clients, len(whole.arms), len(whole.vocabulary)) == (
        1672,
        696,
        50,
        10_000,
    )
    assert isinstance(whole.labels, Ragged)
    counts = np.bincount(whole.labels.values)
    assert (np.diff(counts) <= 0).all()  # the most frequent first
    assert (counts[0], counts[49]) == (130, 20)
    assert whole.vocabulary[:3] == ("the", "a", "to")
    assert round(float((whole.sizes() == 1).mean()), 2) == 0.67


# --- mosaics --------------------------------------------------------------------------------------


def mosaic(folder: Path, tiles: int = 5, across: int = 3, **changes: object) -> Path:
    side, down = 4, -(-tiles // across)
    pixels = np.zeros((down * side, across * side), np.uint8)
    for tile in range(tiles):
        row, column = divmod(tile, across)
        pixels[row * side : (row + 1) * side, column * side : (column + 1) * side] = 10 * tile + 1
    Image.fromarray(pixels).convert("RGB").save(folder / "X.webp", lossless=True)
    told = {
        "width": side,
        "height": side,
        "files": ["X.webp"],
        "mapping": [48, 65, 97],
        "id": [0, 1, 2, 1, 0][:tiles],
    }
    (folder / "test.json").write_text(json.dumps(told | changes))
    return folder / "test.json"


def test_tiles_are_read_row_by_row(tmp_path: Path) -> None:
    read = emnist.read_mosaics(mosaic(tmp_path), verify=False)
    assert read.images[:, 1, 1].tolist() == [1, 11, 21, 31, 41]
    assert (read.labels.tolist(), read.classes) == ([0, 1, 2, 1, 0], ("0", "A", "a"))


def test_bad_mosaics(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"names 9 tiles, got 6 in its mosaics"):
        emnist.read_mosaics(mosaic(tmp_path, id=[0] * 9), verify=False)
    with pytest.raises(DataError, match="must be tiles of 5 x 5, got 12 x 8 pixels"):
        emnist.read_mosaics(mosaic(tmp_path, width=5, height=5), verify=False)
    index = mosaic(tmp_path)
    (tmp_path / "X.webp").write_bytes(b"RIFF")
    with pytest.raises(DataError, match="is not a whole image"):
        emnist.read_mosaics(index, verify=False)
    with pytest.raises(DataError, match="is not the known file: expected sha256 b2d4f5349865"):
        emnist.read_mosaics(index)
    index.write_text("{}")
    with pytest.raises(
        DataError, match="must name width, height, files, mapping and id, got no width"
    ):
        emnist.read_mosaics(index, verify=False)
    index.write_text("no")
    with pytest.raises(DataError, match="is not JSON"):
        emnist.read_mosaics(index, verify=False)


# --- posts ----------------------------------------------------------------------------------------

POSTS = """<?xml version="1.0"?><posts>
<row Id="1" PostTypeId="1" OwnerUserId="7" Title="Hops &amp;amp; malt"
 Body="&lt;p&gt;Hops?&lt;/p&gt;" Tags="&lt;hops&gt;&lt;malt&gt;"/>
<row Id="2" PostTypeId="2" OwnerUserId="8" Body="&lt;p&gt;An answer&lt;/p&gt;"/>
<row Id="3" PostTypeId="1" Title="Yeast" Body="It's alive" Tags="|hops|"/>
<row Id="4" PostTypeId="1" OwnerUserId="7" Title="No body" Tags="&lt;malt&gt;"/>
</posts>"""


def test_posts(tmp_path: Path) -> None:
    file = tmp_path / "brew-2020-Posts.xml"
    file.write_text(POSTS)
    first, second = questions.read_posts(file)
    assert (first.user, first.words, first.tags) == (
        "brew/7",
        ("hops", "malt", "hops"),
        ("hops", "malt"),
    )
    assert (second.user, second.words, second.tags) == (
        "brew/question-3",
        ("yeast", "it's", "alive"),
        ("hops",),
    )
    whole = questions.questions_population([first, second], words=2, tags=2)
    assert (whole.vocabulary, whole.arms) == (("hops", "alive"), ("hops", "malt"))
    assert whole.gather([0, 1], pad=1).y.tolist() == [[[1, 1]], [[1, 0]]]
    file.write_text("<posts><row/></posts>")
    with pytest.raises(DataError, match="holds no question with a body"):
        questions.read_posts(file)
    file.write_text("<posts>")
    with pytest.raises(DataError, match="is not whole XML"):
        questions.read_posts(file)


# --- databases of TensorFlow Federated ------------------------------------------------------------


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def field(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def example(features: Mapping[str, Feature]) -> bytes:
    """A tf.train.Example, field by field as its definition has it."""
    entries = b""
    for name, values in features.items():
        if isinstance(values[0], bytes):
            kind = field(
                1, b"".join(field(1, value) for value in values if isinstance(value, bytes))
            )
        elif isinstance(values[0], int):
            kind = field(3, field(1, b"".join(varint(int(value)) for value in values)))
        else:
            kind = field(2, field(1, struct.pack(f"<{len(values)}f", *values)))
        entries += field(1, field(1, name.encode()) + field(2, kind))
    return field(1, entries)


def database(path: Path, rows: Sequence[tuple[str, str, bytes]]) -> Path:
    made = sqlite3.connect(path)
    made.execute(
        "CREATE TABLE examples (split_name TEXT, client_id TEXT, serialized_example_proto BLOB)"
    )
    made.execute("CREATE INDEX idx_examples_client_id_split ON examples (split_name, client_id)")
    made.executemany("INSERT INTO examples VALUES (?, ?, ?)", rows)
    made.commit()
    made.close()
    return path


def test_examples() -> None:
    read = tff.read_example(example({"a": [3, -2, 300], "b": [b"x", b""], "c": [0.5, -1.0]}))
    assert (read["a"], read["b"], np.asarray(read["c"]).tolist()) == (
        [3, -2, 300],
        [b"x", b""],
        [0.5, -1.0],
    )
    with pytest.raises(DataError, match=r"not a whole tf.train.Example"):
        tff.read_example(example({"a": [3]})[:-2])


def written(label: int, ink: float) -> bytes:
    return example({"label": [label], "pixels": [ink] * 784})


def test_femnist_of_tff(tmp_path: Path) -> None:
    rows = [
        ("all_train", "w2", written(61, 1.0)),
        ("all_test", "w1", written(5, 0.5)),
        ("all_train", "w1", written(0, 0.0)),
        ("all_train", "w2", written(10, 0.2)),
    ]
    path = database(tmp_path / "emnist_all.sqlite", rows)
    whole = emnist.read_femnist(path)
    assert (whole.clients, whole.sizes().tolist(), len(whole.arms)) == (2, [1, 2], 62)
    assert [whole.client_name(i) for i in range(2)] == ["w1", "w2"]
    x, y, _ = whole.gather([1], pad=2)
    assert y.tolist() == [[61, 10]]
    assert np.asarray(x)[0, :, 3, 3].tolist() == [255, 51]
    assert emnist.femnist_population(tmp_path).samples == 3
    with pytest.raises(DataError, match=r"has no split 'train'. Known: all_test, all_train"):
        emnist.read_femnist(path, "train")


@pytest.mark.parametrize(
    ("blob", "message"),
    [
        (written(62, 0.5), r"labels must be in \[0, 62\), the number of the arms, got 62"),
        (written(1, float("nan")), "pixels must be in"),
        (written(1, 1.5), r"pixels must be in \[0, 1\], got 1.5 to 1.5 of writer w"),
        (example({"label": [1], "pixels": [0.5]}), "an example must have 784 pixels"),
        (example({"pixels": [0.5] * 784}), "an example must have one label"),
        (b"\xff", "not a whole tf.train.Example"),
    ],
)
def test_bad_femnist(tmp_path: Path, blob: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        emnist.read_femnist(database(tmp_path / "emnist_all.sqlite", [("all_train", "w", blob)]))


def test_bad_databases(tmp_path: Path) -> None:
    packed = tmp_path / "emnist_all.sqlite.lzma"
    packed.write_bytes(b"]\x00\x00\x80\x00")
    with pytest.raises(DataError, match=r"decompress it first \(xz --format=lzma --decompress\)"):
        emnist.read_femnist(packed)
    made = sqlite3.connect(tmp_path / "other.sqlite")
    made.execute("CREATE TABLE things (x)")
    made.commit()
    made.close()
    with pytest.raises(
        DataError, match=r"is not a database of TensorFlow Federated \(no such table: examples\)"
    ):
        emnist.read_femnist(tmp_path / "other.sqlite")
    with pytest.raises(DataError, match="cannot read"):
        emnist.read_femnist(tmp_path / "none.sqlite")


def test_femnist_of_flower(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")

    def png(ink: int) -> bytes:
        out = io.BytesIO()
        Image.fromarray(np.full((28, 28), ink, np.uint8)).save(out, "PNG")
        return out.getvalue()

    columns = {
        "image": [{"bytes": png(ink), "path": None} for ink in (9, 8, 7)],
        "writer_id": ["f0001_41", "f0000_14", "f0001_41"],
        "hsf_id": [0, 0, 0],
        "character": [36, 10, 3],
    }
    (tmp_path / "data").mkdir()
    parquet.write_table(pyarrow.table(columns), tmp_path / "data" / "train-00000-of-00001.parquet")
    whole = emnist.read_femnist(tmp_path / "data")
    assert (whole.clients, whole.client_name(0), whole.sizes().tolist()) == (2, "f0000_14", [1, 2])
    assert whole.gather([1], pad=2).y.tolist() == [[36, 3]]
    assert np.asarray(whole.inputs)[:, 0, 0].tolist() == [8, 9, 7]
    parquet.write_table(pyarrow.table({"image": [1]}), tmp_path / "one.parquet")
    with pytest.raises(DataError, match="no column 'writer_id', got image"):
        emnist.read_femnist(tmp_path / "one.parquet")
    (tmp_path / "none").mkdir()
    with pytest.raises(DataError, match=r"no \.parquet file in"):
        emnist.read_femnist(tmp_path / "none")


def sentence(tokens: str, title: str, tags: str) -> bytes:
    return example(
        {
            "tokens": [tokens.encode()],
            "title": [title.encode()],
            "tags": [tags.encode()],
            "score": [1],
        }
    )


def overflow(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    rows = [
        ("train", "u2", sentence("the sql the join", "a join", "sql|join")),
        ("train", "u1", sentence("css here", "css", "css|html")),
        ("train", "u2", sentence("never seen", "words", "other")),
        ("test", "u1", sentence("the", "the", "sql")),
    ]
    database(folder / "stackoverflow.sqlite", rows)
    (folder / "stackoverflow.word_count").write_text("the 9\njoin 5\ncss 4\nrare 1\n")
    (folder / "stackoverflow.tag_count").write_text(json.dumps({"css": 3, "sql": 7, "join": 1}))
    return folder


def test_stackoverflow(tmp_path: Path) -> None:
    made = questions.prepare_stackoverflow(
        overflow(tmp_path / "so"), tmp_path / "prepared", words=3, tags=2
    )
    assert (made.arms, made.vocabulary, made.clients) == (("sql", "css"), ("the", "join", "css"), 2)
    x, y, mask = made.gather([1, 0], pad=2)
    assert x.words[0, 0].tolist() == [0, 1]  # type: ignore[union-attr]
    np.testing.assert_allclose(x.weights[0, 0], [2 / np.sqrt(8)] * 2, rtol=1e-6)  # type: ignore[union-attr]
    assert y.tolist() == [[[1, 0], [0, 0]], [[0, 1], [0, 0]]]
    assert mask.tolist() == [[True, True], [True, False]]
    assert load(tmp_path / "prepared").client_name(1) == "u2"
    capped = questions.prepare_stackoverflow(
        tmp_path / "so", tmp_path / "capped", words=3, tags=2, cap=1
    )
    assert capped.sizes().tolist() == [1, 1]


def test_counts_of_stackoverflow_come_in_archives(tmp_path: Path) -> None:
    folder = overflow(tmp_path / "so")
    for what in ("word_count", "tag_count"):
        plain = folder / f"stackoverflow.{what}"
        with tarfile.open(folder / f"{plain.name}.tar.bz2", "w:bz2") as archive:
            archive.add(plain, plain.name)
        plain.unlink()
    made = questions.prepare_stackoverflow(folder, tmp_path / "p", words=3, tags=2, verify=False)
    assert made.vocabulary == ("the", "join", "css")
    with pytest.raises(DataError, match="is not the known file: expected sha256 1dc00256d6e5"):
        questions.prepare_stackoverflow(folder, tmp_path / "q")
    (folder / "stackoverflow.word_count.tar.bz2").unlink()
    with pytest.raises(DataError, match=r"no stackoverflow\.word_count in"):
        questions.prepare_stackoverflow(folder, tmp_path / "q")
    (folder / "stackoverflow.word_count").write_text("the nine\n")
    with pytest.raises(DataError, match="row 1: expected a word and its count, got 'the nine'"):
        questions.prepare_stackoverflow(folder, tmp_path / "q", verify=False)


# --- what is prepared for the package -------------------------------------------------------------


def same(one: Population, other: Population) -> bool:
    """Whether two populations are equal, sample by sample."""

    def arrays(rows: object) -> list[object]:
        if isinstance(rows, Ragged):
            return [rows.offsets.tolist(), rows.values.tolist(), np.asarray(rows.counts).tolist()]
        return [np.asarray(rows).tolist()]

    parts = [
        (
            whole.name,
            whole.arms,
            whole.vocabulary,
            whole.offsets.tolist(),
            [whole.client_name(number) for number in range(whole.clients)],
            arrays(whole.inputs),
            arrays(whole.labels),
        )
        for whole in (one, other)
    ]
    return parts[0] == parts[1]


def prepared(path: Path) -> Population:
    """What `posse run fed-contextual --data PATH` learns from."""
    return PopulationSettings(data=str(path)).population()


def test_stackexchange_is_prepared(reproduce: Reproduce, data_dir: Path, tmp_path: Path) -> None:
    present(data_dir, "stackexchange")
    out = tmp_path / "questions.npz"
    words = ("--words", "200", "--tags", "5", "--data-dir", str(data_dir))
    outcome = reproduce("prepare", "stackexchange", str(out), *words)
    assert f"posse run fed-contextual --data {out}" in outcome.out
    assert same(prepared(out), questions.stackexchange_population(data_dir, 200, 5))
    assert "exists" in reproduce("prepare", "stackexchange", str(out), *words).err


@pytest.mark.long
def test_emnist_is_prepared(reproduce: Reproduce, data_dir: Path, tmp_path: Path) -> None:
    present(data_dir, "emnist-byclass-test")
    words = ("--clients", "50", "--alpha", "0.1", "--seed", "3", "--data-dir", str(data_dir))
    assert reproduce("prepare", "emnist", str(tmp_path / "emnist"), *words).code == 0
    assert same(prepared(tmp_path / "emnist"), emnist.emnist_population(data_dir, 50, 0.1, 3))


def test_databases_are_prepared(reproduce: Reproduce, tmp_path: Path) -> None:
    folder = overflow(tmp_path / "files")
    database(folder / "emnist_all.sqlite", [("all_train", "w", written(3, 0.2))])
    where = ("--data-dir", str(folder))
    assert reproduce("prepare", "femnist", str(tmp_path / "femnist"), *where).code == 0
    assert same(prepared(tmp_path / "femnist"), emnist.femnist_population(folder))
    words = ("--words", "3", "--tags", "2", *where)
    assert reproduce("prepare", "stackoverflow", str(tmp_path / "so"), *words).code == 0
    again = questions.prepare_stackoverflow(folder, tmp_path / "again", words=3, tags=2)
    assert same(prepared(tmp_path / "so"), again)
