"""Tables as people have them: bad rows, decimal commas, encodings, dates, categories, Parquet and
Arrow.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pytest
from typer.testing import CliRunner

import posse
from posse.cli.app import app
from posse.core.errors import ConfigError, DataError
from posse.problems.arms.settings import ProblemSettings
from posse.problems.contexts.contexts import read_block
from posse.problems.populations.splits import read_population
from posse.problems.tables.frames import as_frame
from posse.problems.tables.options import ReadOptions
from posse.problems.tables.schema import Schema, numbers, read_encoded, words
from posse.problems.tables.table import open_table
from posse.problems.tables.text import Document

RATINGS = Schema(words("item"), numbers("rating"))
MIXED = "item;rating\nheat;4,5\nheat;x\nalien;N/A\nalien;2,0\nalien\n;3\nheat;1,5\nalien;5,0\n"


def means(data: object, **more: object) -> list[float]:
    settings = posse.Samba(data=data, threshold=3, horizon=20, **more)
    return list(settings.load().arms.means)


def test_all_bad_rows_are_reported_at_once_with_counts_and_places(tmp_path: Path) -> None:
    file = tmp_path / "r.csv"
    file.write_text("item,rating\n" + "heat,4\n" * 3 + "heat,four\n" * 7 + "heat\n")
    with pytest.raises(
        DataError, match=r"r\.csv: 8 of 11 rows are bad\. Row 5, column 'rating': 'four'"
    ) as caught:
        means(file)
    text = str(caught.value)
    assert text.count("ow ") == 6  # five places of one reason, one of another
    assert (
        "row 9, column 'rating': 'four' is not a number; and 2 more. Write it like 4.5. Row 12, "
        "column 2" in text
    )
    assert "Or drop them with --skip-bad" in text
    file.write_text("item,rating\nheat,4\nheat,four\n")
    with pytest.raises(
        DataError,
        match=r"r\.csv, row 3, column 'rating': 'four' is not a number\. Write it like 4\.5\. Or drop ",
    ):
        means(file)


def test_a_file_of_movielens_names_the_setting_that_reads_it(tmp_path: Path) -> None:
    file = tmp_path / "u.data"
    file.write_text("196\t242\t3\t881250949\n")
    with pytest.raises(
        DataError, match=f"MovieLens is read with --data movielens --data-dir '{tmp_path}'"
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
    table = open_table(Document("r.csv", file.read_bytes()), ReadOptions(decimal=","))
    assert RATINGS.read(table).numbers["rating"].tolist() == [4.5, 1000.5]


def test_encodings_are_read_by_their_mark_or_by_name(tmp_path: Path) -> None:
    file = tmp_path / "r.csv"
    text = "item,rating\ncafé,4\nthé,1\n"
    for encoding in ("utf-8", "utf-8-sig", "utf-16"):
        file.write_text(text, encoding=encoding)
        assert means(file) == [1.0, 0.0], encoding
    file.write_text(text, encoding="latin-1")
    with pytest.raises(
        DataError, match=r"row 2 holds byte 0xe9, which is not UTF-8.*--encoding cp1252"
    ):
        means(file)
    assert posse.Samba(
        data=file, threshold=3, horizon=20, encoding="latin-1"
    ).load().arms.names == ("café", "thé")
    with pytest.raises(ConfigError, match="unknown encoding 'utf-88'"):
        posse.Samba(data=file, threshold=3, encoding="utf-88")
    file.write_bytes(b"\xff\xfeitem")
    with pytest.raises(DataError, match=r"not text in utf-16|expected columns"):
        means(file, encoding="utf-16")


def test_columnar_files_and_frames_are_taken_where_a_csv_is(tmp_path: Path) -> None:
    frame = pd.DataFrame({"item": ["a", "b", "a"], "rating": [1.0, 5.0, 4.5]})
    frame.to_parquet(tmp_path / "r.parquet")
    pyarrow.feather.write_feather(pa.Table.from_pandas(frame), tmp_path / "r.arrow")
    sources = (
        tmp_path / "r.parquet",
        tmp_path / "r.arrow",
        frame,
        pl.from_pandas(frame),
        pa.Table.from_pandas(frame),
    )
    assert [means(source) for source in sources] == [[1.0, 0.5]] * 5 or [
        means(s) for s in sources
    ] == [[0.5, 1.0]] * 5
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
    options = ReadOptions()
    block = read_block(file, 1.0, scale=True, options=options)
    assert block.names == ("age", "town=Bern", "town=Chur")
    assert options.notes == [f"{file}: dates were left out (seen)."]
    file.write_text("row,age\nann,0.3\nbob,old\n")
    with pytest.raises(DataError, match="row 3, column 'age': 'old' is not a number"):
        read_block(file, 1.0)


def features(text: str, **how: Any) -> tuple[tuple[str, ...], list[list[float]]]:
    table = open_table(Document("v.csv", text.encode()), ReadOptions(**how))
    _, names, values = read_encoded(table, [words("row")])
    return names, values.tolist()


def rows_of(*cells: str, mark: str = ";", head: str = "row;x") -> str:
    return "\n".join([head, *(f"{i}{mark}{cell}" for i, cell in enumerate(cells))])


def test_points_are_thousands_groups_or_refused_where_decimals_have_commas() -> None:
    assert features(rows_of("0,5", "-1.000,5", "12.000"), decimal=",") == (
        ("x",),
        [[0.5], [-1000.5], [12000.0]],
    )
    for cell in ("0.7", "1.00", "1.0000", "1000.000"):
        with pytest.raises(
            DataError, match=f"row 3, column 'x': '{cell}' has a point that separates no thousands"
        ):
            features(rows_of("0,5", cell), decimal=",")
    with pytest.raises(DataError, match="4 of 4 rows are bad"):
        features(rows_of("0.5", "0.7", "0.5", "0.7"), decimal=",")
    text = rows_of("0,5;12.05.2024", "1,5;13.05.2024", head="row;x;seen")
    options = ReadOptions(decimal=",")
    dated = open_table(Document("v.csv", text.encode()), options)
    assert read_encoded(dated, [words("row")]).names == ("x",)
    assert options.notes == ["v.csv: dates were left out (seen)."]


def test_numbers_of_a_frame_keep_their_points_beside_decimal_commas(tmp_path: Path) -> None:
    frame = pd.DataFrame({"item": ["a", "b", "a"], "rating": [2.5, 5.0, 4.5]})
    frame.to_parquet(tmp_path / "r.parquet")
    for source in (frame, tmp_path / "r.parquet"):
        arms = posse.Samba(data=source, threshold=3, horizon=20, decimal=",").load().arms
        assert dict(zip(arms.names, arms.means, strict=True)) == {"a": 0.5, "b": 1.0}
    frame = as_frame({"item": ["a", "b"], "rating": ["2,5", "1e-05"]}, "data")
    assert frame is not None
    table = open_table(frame, ReadOptions(decimal=","))
    assert RATINGS.read(table).numbers["rating"].tolist() == [2.5, 1e-5]


def test_decimal_commas_that_nobody_announced_are_no_categories() -> None:
    for cells in (("0,5", "1,5", "2,5"), ("1.000,5", "2.000,5"), ("1", "0,5")):
        with pytest.raises(DataError, match="or give --decimal , for decimal commas"):
            features(rows_of(*cells * 4))


def test_what_most_cells_hold_decides_a_column() -> None:
    assert features(rows_of("A", "B", "A", "B", "1"), skip_bad=True)[0] == ("x=1", "x=A", "x=B")
    names, values = features(rows_of("1", "2", "3", "x"), skip_bad=True)
    assert (names, values) == (("x",), [[1.0], [2.0], [3.0]])
    dated = [f"{i};2024-05-0{i}" for i in range(1, 5)]
    assert features(rows_of(*dated, "5;unknown", head="row;x;seen"))[0] == ("x",)
    for skip_bad in (False, True):
        with pytest.raises(
            DataError,
            match=r"'ann' is not a number, and the column is not a category",
        ):
            features(rows_of("ann", "bob", "cy", "4"), skip_bad=skip_bad)
    with pytest.raises(DataError, match=r"3 of 4 rows are bad\..*'nan' is not a finite number"):
        features(rows_of("1", "nan", "nan", "nan"))


def test_a_missing_word_is_a_bad_row_in_a_category_too() -> None:
    text = rows_of("A", "B", "n/a", "A", "B")
    with pytest.raises(
        DataError, match=r"row 4, column 'x': 'n/a' is missing\. Give a word, or delete the row"
    ):
        features(text)
    assert features(text, skip_bad=True) == (("x=A", "x=B"), [[1, 0], [0, 1], [1, 0], [0, 1]])


def test_words_of_a_category_are_counted_in_the_whole_file() -> None:
    with pytest.raises(
        DataError, match="column 'x': a category has at most 50 different words, got 101"
    ):
        features(rows_of(*["A"] * 3000, *(f"w{i}" for i in range(100))))


def test_the_screen_says_what_was_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r.csv").write_text("item,rating\nheat,4\nalien,1\nheat,x\n")
    words = "simulate samba --data r.csv --threshold 3 --horizon 20 --runs 1 --skip-bad --no-save"
    done = CliRunner().invoke(app, words.split())
    assert done.exit_code == 0, done.output
    assert "warning: r.csv: 1 of 3 rows were dropped as bad" in " ".join(done.output.split())


def test_a_parquet_table_of_clients_is_a_table(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {"client": ["ann", "bob"] * 3, "x": [0.5, 1.0, 2.0] * 2, "label": ["wait", "treat"] * 3}
    )
    frame.to_parquet(tmp_path / "visits.parquet")
    settings = posse.FedContextual(data=str(tmp_path / "visits.parquet"))
    assert settings.population_kind == "own"
    made = settings.population()
    assert (made.arms, made.clients, made.inputs.shape) == (("treat", "wait"), 2, (6, 1))  # type: ignore[union-attr]


def test_whoever_waits_is_told_how_far_a_table_is_read(tmp_path: Path) -> None:
    file = tmp_path / "r.csv"
    file.write_text("item,rating\n" + "heat,4\nalien,1\n" * 4000)
    shares: list[float] = []
    settings = ProblemSettings(data=file, threshold=3)
    settings.watch_reading(shares.append)
    settings.arms()
    assert len(shares) > 10
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


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
    done = subprocess.run(
        [sys.executable, "-c", LOAD, str(file)], capture_output=True, text=True, check=True
    )
    arms, kilobytes = map(int, done.stdout.split())
    print(f"{kilobytes / 1e3:,.0f} MB")
    assert arms == 997
    assert kilobytes < 1_500_000
