"""Tables mean the same in every form: text read by Python or by pyarrow, Parquet, and frames."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posse.core.errors import PosseError
from posse.problems.tables import table as tables
from posse.problems.tables.frames import as_frame, read_columnar
from posse.problems.tables.options import ReadOptions
from posse.problems.tables.schema import Records, Schema, numbers, within, words
from posse.problems.tables.table import open_table
from posse.problems.tables.text import Document

SCHEMA = Schema(words("item"), numbers("rating", within(-1e300, 1e300)))

WORDS = [
    "heat",
    "alien",
    " alien ",
    "",
    "\xa0",
    "٤",
    "N/A",
    "café",
    '"quoted"',
    '"two\nlines"',
    '"',
]
NUMBERS = [
    "4",
    "4.5",
    "-1e3",
    "+2",
    " 7 ",
    "nan",
    "inf",
    "1_000",
    "0x1",
    "1e999",
    "4,5",
    "1e-400",
    ".5",
    "5.",
]
CELLS = st.sampled_from(WORDS + NUMBERS)
LINES = st.lists(st.tuples(CELLS, CELLS), max_size=8)
ENDS = st.sampled_from(["\n", "\r\n"])


def outcome(data: bytes, options: ReadOptions) -> object:
    """What a table comes to: its content, or its error."""
    try:
        records = SCHEMA.read(open_table(Document("r.csv", data), options))
    except PosseError as error:
        return error.rule, error.text
    return content(records), options.notes


def content(records: Records) -> object:
    return (
        [records.words["item"][row] for row in range(len(records))],
        records.words["item"].distinct,
        records.numbers["rating"].tolist(),
        records.line.tolist(),
    )


@settings(deadline=None, max_examples=300)
@given(LINES, ENDS, st.sampled_from([",", ";", "\t"]), st.booleans(), st.booleans())
def test_pyarrow_reads_what_python_reads(
    lines: list[tuple[str, str]], end: str, mark: str, last: bool, skip_bad: bool
) -> None:
    text = end.join(mark.join(line) for line in [("item", "rating"), *lines])
    data = (text + end * last).encode()
    outcomes = []
    for large in (0, len(data) + 1):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tables, "LARGE", large)
            outcomes.append(outcome(data, ReadOptions(skip_bad=skip_bad)))
    assert outcomes[0] == outcomes[1]


def test_pyarrow_reads_plain_large_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "LARGE", 0)
    monkeypatch.setattr(tables, "row_blocks", None)  # Python's reader is not called
    data = b"# comment\nrating;item;x\n4;b;1\n4.5;a;2\n1;b;3"
    records = SCHEMA.read(open_table(Document("r.csv", data)))
    assert content(records) == (["b", "a", "b"], ("b", "a"), [4.0, 4.5, 1.0], [3, 4, 5])


COLUMNS: dict[str, list[Any]] = {
    "whole": [4, -1, 10**15],
    "real": [0.1, float("nan"), 1e300],
    "flag": [True, False, True],
    "word": ["a", " b ", "two\nlines"],
}
TEXT = b"whole,real,flag,word\n4,0.1,1,a\n-1,,0, b \n1000000000000000,1e+300,1,two lines\n"


@pytest.mark.parametrize("form", [dict, pd.DataFrame, pl.DataFrame, pa.table])
def test_a_frame_has_the_digest_of_its_text(form: Any) -> None:
    frame = as_frame(form(COLUMNS), "data")
    assert frame is not None
    assert frame.text == TEXT
    assert frame.digest == hashlib.sha256(TEXT).hexdigest()
    assert frame == as_frame(form(COLUMNS), "other name")


def test_small_numbers_of_a_frame_have_their_own_text() -> None:
    values = np.array([0.1, 2.5], np.float32)
    frame = as_frame({"x": values, "n": np.array([3, 4], np.uint8)}, "data")
    assert frame is not None
    assert frame.text == b"x,n\n0.10000000149011612,3\n2.5,4\n"
    values[0] = 7.0
    assert b"0.1000000014" in frame.text  # a frame is a copy


def test_missing_cells_of_every_frame_are_bad_rows() -> None:
    columns = {"item": ["a", None, "b", "b"], "rating": [1.0, 2.0, None, 4.0]}
    for frame in (columns, pd.DataFrame(columns), pl.DataFrame(columns), pa.table(columns)):
        options = ReadOptions(skip_bad=True)
        copied = as_frame(frame, "data")
        assert copied is not None
        records = SCHEMA.read(open_table(copied, options))
        assert content(records) == (["a", "b"], ("a", "b"), [1.0, 4.0], [1, 4])
        assert "2 of 4 rows were dropped as bad" in options.notes[0]
        assert "row 2, column 'item': the cell is empty" in options.notes[0].replace("Row", "row")


def test_words_of_dropped_rows_are_no_words_of_the_table() -> None:
    data = b"item,rating\nbad,x\nb,2\na,1\nb,3\n"
    records = SCHEMA.read(open_table(Document("r.csv", data), ReadOptions(skip_bad=True)))
    assert content(records) == (["b", "a", "b"], ("b", "a"), [2.0, 1.0, 3.0], [3, 4, 5])


def test_parquet_is_read_by_column(tmp_path: Path) -> None:
    words_of = pa.array(["b", "a", "b", None]).dictionary_encode()
    sliced = pa.table({"item": words_of, "rating": [1, 2, 3, 4], "x": ["", None, "c", "d"]})
    pa.parquet.write_table(sliced.slice(1), tmp_path / "r.parquet")
    frame = read_columnar(tmp_path / "r.parquet")
    assert frame.text == b"item,rating,x\na,2,\nb,3,c\n,4,d\n"
    records = SCHEMA.read(open_table(tmp_path / "r.parquet", ReadOptions(skip_bad=True)))
    assert content(records) == (["a", "b"], ("a", "b"), [2.0, 3.0], [1, 2])


def test_one_column_may_be_needed_twice() -> None:
    options = ReadOptions(columns={"item": "score", "rating": "score"})
    for large in (0, 1000):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tables, "LARGE", large)
            table = open_table(Document("r.csv", b"score\n4\n5\n4"), options)
            assert content(SCHEMA.read(table))[:2] == (["4", "5", "4"], ("4", "5"))  # type: ignore[index]


def test_a_column_of_another_name_is_named_as_the_table_has_it() -> None:
    options = ReadOptions(columns={"item": "Shop", "rating": "Stars"})
    with pytest.raises(PosseError) as caught:
        SCHEMA.read(open_table(Document("r.csv", b"shop,stars\na,4\nb,x"), options))
    assert "row 3, column 'stars': 'x' is not a number" in caught.value.text
    assert caught.value.rule == "problems.rows.bad"
