"""Tables as people have them: bad rows, decimal commas, encodings, dates, categories, Parquet and Arrow."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pytest

import posse
from posse.core.errors import ConfigError, DataError
from posse.problems.contexts.features import read_block
from posse.problems.datasets.columns import read_columns
from posse.problems.datasets.files import Document
from posse.problems.datasets.reading import reading, watching
from posse.problems.populations.splits import read_population

MIXED = "item;rating\nheat;4,5\nheat;x\nalien;N/A\nalien;2,0\nalien\n;3\nheat;1,5\nalien;5,0\n"


def means(data: object, **more: object) -> list[float]:
    settings = posse.Samba(data=data, threshold=3, horizon=20, **more)
    return list(settings.load().arms.means)


def test_all_bad_rows_are_reported_at_once_with_counts_and_places(tmp_path: Path) -> None:
    file = tmp_path / "r.csv"
    file.write_text("item,rating\n" + "heat,4\n" * 3 + "heat,four\n" * 7 + "heat\n")
    with pytest.raises(DataError, match=r"r\.csv: 8 of 11 rows are bad\. Row 5, column 'rating': 'four'") as caught:
        means(file)
    text = str(caught.value)
    assert text.count("Row ") == 5
    assert "And 3 more. Correct them, or drop them with --skip-bad" in text
    file.write_text("item,rating\nheat,4\nheat,four\n")
    with pytest.raises(
        DataError, match=r"r\.csv, row 3, column 'rating': 'four' is not a number\. Write it like 4\.5\.$"
    ):
        means(file)


def test_bad_rows_are_dropped_on_request_and_the_record_says_so(tmp_path: Path) -> None:
    file = tmp_path / "r.csv"
    file.write_text(MIXED, encoding="utf-16")
    settings = posse.Samba(data=file, threshold=3, horizon=20, decimal=",", skip_bad=True).plain()
    record = posse.run(settings)
    assert record.problem["means"] == [0.5, 0.5]
    (said,) = record.warnings
    assert said.startswith(f"{file}: 4 of 8 rows were dropped as bad. Row 3, column 'rating': 'x'")
    assert "'N/A' is missing" in said
    assert record.config["skip_bad"] is True
    file.write_text("item,rating\nheat,x\n")
    with pytest.raises(DataError, match="none of its 1 rows can be read"):
        means(file, skip_bad=True)


def test_a_decimal_comma_is_asked_for_and_not_guessed(tmp_path: Path) -> None:
    file = tmp_path / "r.csv"
    file.write_text("item;rating\nheat;4,5\nalien;1.000,5\n")
    with pytest.raises(DataError, match="or give --decimal , for decimal commas"):
        means(file)
    with reading(decimal=","):
        table = read_columns(Document("r.csv", file.read_bytes()), ["item"], ["rating"])
    assert table.numbers["rating"].tolist() == [4.5, 1000.5]


def test_encodings_are_read_by_their_mark_or_by_name(tmp_path: Path) -> None:
    file = tmp_path / "r.csv"
    text = "item,rating\ncafé,4\nthé,1\n"
    for encoding in ("utf-8", "utf-8-sig", "utf-16"):
        file.write_text(text, encoding=encoding)
        assert means(file) == [1.0, 0.0], encoding
    file.write_text(text, encoding="latin-1")
    with pytest.raises(DataError, match=r"row 2 holds byte 0xe9, which is not UTF-8.*--encoding latin-1"):
        means(file)
    assert posse.Samba(data=file, threshold=3, horizon=20, encoding="latin-1").load().arms.names == ("café", "thé")
    with pytest.raises(ConfigError, match="unknown encoding 'utf-88'"):
        posse.Samba(data=file, threshold=3, encoding="utf-88")
    file.write_bytes(b"\xff\xfeitem")
    with pytest.raises(DataError, match=r"not text in utf-16|expected columns"):
        means(file, encoding="utf-16")


def test_columnar_files_and_frames_are_taken_where_a_csv_is(tmp_path: Path) -> None:
    frame = pd.DataFrame({"item": ["a", "b", "a"], "rating": [1.0, 5.0, 4.5]})
    frame.to_parquet(tmp_path / "r.parquet")
    pyarrow.feather.write_feather(pa.Table.from_pandas(frame), tmp_path / "r.arrow")
    sources = (tmp_path / "r.parquet", tmp_path / "r.arrow", frame, pl.from_pandas(frame), pa.Table.from_pandas(frame))
    assert [means(source) for source in sources] == [[1.0, 0.5]] * 5 or [means(s) for s in sources] == [[0.5, 1.0]] * 5
    (tmp_path / "bad.parquet").write_text("item,rating\na,1\n")
    with pytest.raises(DataError, match="is no Parquet or Arrow file"):
        means(tmp_path / "bad.parquet")


def test_categories_are_one_hot_and_dates_left_out(tmp_path: Path) -> None:
    file = tmp_path / "visits.csv"
    rows = "".join(
        f"c{i % 3},{i / 10},{'Bern' if i % 2 else 'Chur'},2024-05-0{i + 1},{'wait' if i % 2 else 'treat'}\n"
        for i in range(6)
    )
    file.write_text(f"client,age,town,seen,label\n{rows}")
    made = read_population(file)
    assert made.inputs.shape == (6, 3)  # type: ignore[union-attr]
    assert sorted(made.inputs[:, 1].tolist()) == [0.0, 0.0, 0.0, 1.0, 1.0, 1.0]  # type: ignore[index]
    rows = "".join(f"{i},0.{i},{('Chur', 'Bern')[i % 2]},{i}.5.2024\n" for i in range(1, 5))
    file.write_text(f"row,age,town,seen\n{rows}")
    with reading() as read:
        block = read_block(file, 1.0, scale=True)
    assert block.names == ("age", "town=Bern", "town=Chur")
    assert read.dropped == [f"{file}: dates were left out (seen)."]
    file.write_text("row,age\nann,0.3\nbob,old\n")
    with pytest.raises(DataError, match="row 3, column 'age': 'old' is not a number"):
        read_block(file, 1.0)


def test_whoever_waits_is_told_how_far_a_table_is_read(tmp_path: Path) -> None:
    file = tmp_path / "r.csv"
    file.write_text("item,rating\n" + "heat,4\nalien,1\n" * 4000)
    told: list[float] = []
    with watching(told.append):
        means(file)
    assert len(told) > 10
    assert told == sorted(told)
    assert told[-1] == 1.0


LOAD = """
import resource, sys, posse
arms = posse.Samba(data=sys.argv[1], threshold=3, horizon=1000).load().arms
print(len(arms), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.long
def test_ten_million_ratings_are_read_in_less_than_1500_mb(tmp_path: Path) -> None:
    file = tmp_path / "large.csv"
    lines = "".join(f"item-{i % 997},{i % 5 + 1}\n" for i in range(100_000)).encode()
    with file.open("wb") as out:
        out.write(b"item,rating\n")
        for _ in range(100):
            out.write(lines)
    done = subprocess.run([sys.executable, "-c", LOAD, str(file)], capture_output=True, text=True, check=True)
    arms, kilobytes = map(int, done.stdout.split())
    print(f"{kilobytes / 1e3:,.0f} MB")
    assert arms == 997
    assert kilobytes < 1_500_000
