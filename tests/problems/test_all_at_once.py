"""Bad values of every kind are reported together with unreadable ones, each remedy once, and
`skip_bad` drops them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import posse
from posse.core.errors import DataError
from posse.problems.arms.tables import read_means, read_ratings
from posse.problems.contexts.contexts import read_block, read_features, read_rewards
from posse.problems.markets.settings import OFFERED, read_market
from posse.problems.tables.frames import as_frame
from posse.problems.tables.options import ReadOptions
from posse.problems.tables.schema import Schema, read_encoded
from posse.problems.tables.table import open_table
from posse.results.logs import read_logs

QUALITIES = [{"supplier": "oak", "quality": 0.5}]


def offers(path: Path, options: ReadOptions) -> Any:
    return read_market(path, as_frame(QUALITIES, "qualities"), alpha=0.1, options=options)


def qualities(path: Path, options: ReadOptions) -> Any:
    names = ("oak", "elm")
    rows = [{"agent": "north", "supplier": name, "cost": 1, "capacity": 2} for name in names]
    frame = as_frame(rows, "offers")
    assert frame is not None
    return read_market(frame, path, alpha=0.1, options=options)


def words(path: Path, options: ReadOptions) -> Any:
    return read_encoded(open_table(path, options), [], features=("town=Bern", "age"))


READERS: dict[str, tuple[Callable[[Path, ReadOptions], Any], str, list[str], str]] = {
    "means": (
        lambda path, options: read_means(path, options=options),
        "name,mean\na,0.5\nb,0.4\n",
        ["c,1.5", "d,-1", "e,x", "f,N/A"],
        "got 1.5",
    ),
    "list of means": (
        lambda path, options: read_means(path, options=options),
        "0.5\n0.4\n",
        ["1.5", "-1", "x", "nan"],
        "got 1.5",
    ),
    "ratings": (
        lambda path, options: read_ratings(path, scale=(1, 5), options=options),
        "item,rating\na,1\nb,5\n",
        ["a,0", "b,6", "a,x", "b,"],
        "got 0",
    ),
    "rewards": (
        lambda path, options: read_rewards(path, options=options),
        "row,a,b\n1,0,1\n2,1,0\n",
        ["3,1.5,0", "4,0,-1", "5,x,0", "6,0,N/A"],
        "got 1.5",
    ),
    "norms": (
        lambda path, options: read_block(path, 1.0, options=options),
        "row,x,y\n1,0,1\n2,1,0\n",
        ["3,1,1", "4,2,0"],
        "got 1.41421",
    ),
    "offers": (
        offers,
        "agent,supplier,cost,capacity\na,oak,1,2\n",
        ["b,oak,-1,2", "c,oak,-2,2", "d,oak,1,-1", "e,oak,1,-5", "f,oak,1,2.5", "g,oak,1,x"],
        "got -1",
    ),
    "qualities": (
        qualities,
        "supplier,quality\noak,0.5\nelm,1\n",
        ["ash,1.5", "fir,-1", "yew,x"],
        "got 1.5",
    ),
    "an agent's offers": (
        lambda path, options: Schema(*OFFERED).read(open_table(path, options)),
        "supplier,cost,capacity\noak,1,2\n",
        ["elm,-1,2", "fir,-2,2", "ash,1,2.5", "yew,1,x"],
        "got -1",
    ),
    "logs": (
        lambda path, options: read_logs(path, options=options),
        "arm,reward,probability,x\na,1,0.5,1\nb,0,0.5,2\n",
        ["a,1,0,1", "b,1,1.5,1", "a,,0.5,1", "b,N/A,0.5,1"],
        "got 0",
    ),
    "words of a model": (
        words,
        "town,age\nBern,1\n",
        ["Genf,1", "Chur,1", "Bern,x"],
        "the model never learnt 'Genf'",
    ),
}


@pytest.mark.parametrize("name", READERS)
def test_bad_values_of_every_kind_are_reported_at_once_and_dropped_on_request(
    tmp_path: Path, name: str
) -> None:
    read, good, bad, first = READERS[name]
    file = tmp_path / "table.csv"
    file.write_text(good + "\n".join(bad) + "\n")
    total = good.count("\n") - (not good[0].isdigit()) + len(bad)
    with pytest.raises(DataError) as caught:
        read(file, ReadOptions())
    assert caught.value.rule == "problems.rows.several-bad"
    text = str(caught.value)
    assert f"{len(bad)} of {total} rows are bad" in text
    assert first in text
    line = good.count("\n")
    assert all(f"ow {line + i}" in text for i in range(1, len(bad) + 1)), text
    assert text.count("Correct it") <= 1
    options = ReadOptions(skip_bad=True)
    read(file, options)
    (said,) = options.notes
    assert f"{len(bad)} of {total} rows were dropped as bad" in said
    assert "Correct it" not in said


def test_a_remedy_stands_once_and_fits_the_fault(tmp_path: Path) -> None:
    file = tmp_path / "r.csv"
    file.write_text("item;rating\na;4,5\nb;3,5\na;2,5\nb;1\n")
    with pytest.raises(DataError) as caught:
        read_ratings(file)
    assert str(caught.value).count("give --decimal ,") == 1
    file.write_text("item,rating,x\na,4\nb,3\na,2,1\nb,1,1,1\n")
    with pytest.raises(DataError) as caught:
        read_ratings(file)
    text = str(caught.value)
    assert "row 3, column 3: expected 3 columns as in the header, got 2. Complete the row." in text
    assert text.count("Quote a field that holds ','.") == 1
    file.write_text("item,rating\na,x\nb,y\n")
    with pytest.raises(DataError) as caught:
        read_ratings(file)
    assert "skip-bad" not in str(caught.value)  # no row would be left


def test_a_row_dropped_from_one_party_s_file_leaves_the_others_too(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("row,x\n1,0.1\n2,0.2\n3,0.3\n")
    (tmp_path / "b.csv").write_text("row,y\n1,0.1\n2,old\n3,0.3\n")
    (tmp_path / "pays.csv").write_text("row,p,q\n1,0,1\n2,0,1\n3,0,7\n")
    options = ReadOptions(skip_bad=True)
    files = {"a": tmp_path / "a.csv", "b": tmp_path / "b.csv"}
    contexts = read_features(files, tmp_path / "pays.csv", options=options)
    assert contexts.features.tolist() == [[0.1, 0.1]]
    assert (
        f"{tmp_path / 'a.csv'}: 2 rows were left out that another file does not have."
        in options.notes
    )


def test_a_lazy_frame_of_polars_is_collected(recwarn: pytest.WarningsRecorder) -> None:
    rows = {"name": ["a", "b"], "mean": [0.5, 0.25]}
    assert posse.Samba(data=pl.LazyFrame(rows), horizon=20).load().arms.means.tolist() == [
        0.5,
        0.25,
    ]
    assert not [one for one in recwarn if "Performance" in type(one.message).__name__]


def test_the_line_of_excel_that_names_the_separator_is_read(tmp_path: Path) -> None:
    file = tmp_path / "means.csv"
    for line in ("sep=;", "SEP=;", '"sep=;"'):
        file.write_text(f"{line}\r\nname;mean\r\na;0.5\r\nb;0.25\r\n")
        assert posse.Samba(data=file, horizon=20).load().arms.means.tolist() == [0.5, 0.25]
    file.write_text("sep=\t\nname\tmean\na\t0.5\nb\t0.25\n")
    assert posse.Samba(data=file, horizon=20).load().arms.means.tolist() == [0.5, 0.25]
    file.write_text("sep=;\nname;mean\na;0.5\nb;x\n")
    with pytest.raises(DataError, match="row 4, column 'mean': 'x' is not a number"):
        posse.Samba(data=file, horizon=20).load()


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_without_a_mark_is_named(tmp_path: Path, encoding: str) -> None:
    file = tmp_path / "means.csv"
    file.write_text("name,mean\na,0.5\nb,0.25\n", encoding=encoding)
    with pytest.raises(
        DataError, match=f"looks like text in UTF-16 without a mark. Give --encoding {encoding}"
    ):
        posse.Samba(data=file, horizon=20).load()
    assert len(posse.Samba(data=file, horizon=20, encoding=encoding).load().arms) == 2
