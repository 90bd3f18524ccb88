import csv
import errno
import importlib
import json
import os
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow.parquet as pq
import pytest

from posse.core.errors import DataError, MissingExtraError
from posse.core.files import open_whole
from posse.results import Record, export, rows, summary_rows, to_arrow, to_pandas, to_polars
from tests.kit.records import example_record


@pytest.fixture
def records() -> list[Record]:
    """Two records: a simulation with the largest seeds there are, and a deployment without seeds or
    known means.
    """
    simulated = example_record(id="sim", runs=3, seeds=(0, 2**63 + 1, 2**64 - 1))
    return [
        simulated,
        example_record(id="real", policy='say "hi", ünï', runs=2, seeds=(), regret=None),
    ]


def test_rows_are_the_arrays_in_long_form(records: list[Record]) -> None:
    long = list(rows(records))
    assert len(long) == 5 * records[0].steps.size
    got = np.array([row["reward"] for row in long if row["record"] == "sim"]).reshape(3, -1)
    assert got.tolist() == records[0].reward.tolist()
    assert {row["seed"] for row in long if row["run"] == 2} == {2**64 - 1}
    assert {row["regret"] for row in long if row["record"] == "real"} == {None}
    alone = list(rows(records[0]))
    assert {row["label"] for row in alone} == {"ucb (standard)"}
    assert [{**row, "label": ""} for row in alone] == [
        {**row, "label": ""} for row in long if row["record"] == "sim"
    ]


def test_every_format_holds_the_same_values(records: list[Record], tmp_path: Path) -> None:
    expected = [dict(row) for row in rows(records)]
    assert to_arrow(records).to_pylist() == expected
    assert to_polars(records).to_dicts() == expected
    assert pq.read_table(export(records, tmp_path / "a.parquet")).to_pylist() == expected
    frame = to_pandas(records)
    assert frame["seed"].dtype == pd.UInt64Dtype()
    assert frame.astype(object).where(frame.notna(), None).to_dict("records") == expected


def test_csv_gives_back_every_bit(records: list[Record], tmp_path: Path) -> None:
    export(records, tmp_path / "a.csv")
    with (tmp_path / "a.csv").open(newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    for line, row in zip(lines, rows(records), strict=True):
        assert line["label"] == row["label"]
        assert float(line["reward"]) == row["reward"]
        assert (float(line["regret"]) if line["regret"] else None) == row["regret"]
        assert (int(line["seed"]) if line["seed"] else None) == row["seed"]
    assert pl.read_csv(tmp_path / "a.csv")["step"].to_list() == [
        row["step"] for row in rows(records)
    ]


def test_json_holds_everything(records: list[Record], tmp_path: Path) -> None:
    body = json.loads(export(records, tmp_path / "a.JSON").read_text(encoding="utf-8"))
    first, second = body["records"]
    assert first["pulls"] == records[0].pulls.tolist()
    assert first["config"] == records[0].config
    assert second["regret"] is None


def test_html_is_the_report(records: list[Record], tmp_path: Path) -> None:
    assert (
        export(records[0], tmp_path / "a.html")
        .read_text(encoding="utf-8")
        .startswith("<!doctype html>")
    )


def test_summary_has_one_row_a_record(records: list[Record]) -> None:
    first, second = summary_rows(records)
    assert first["total_mean"] == pytest.approx(np.mean(records[0].total))
    assert first["regret_mean"] == pytest.approx(records[0].regret[:, -1].mean())  # type: ignore[index]
    assert (second["record"], second["regret_mean"]) == ("real", None)


@pytest.mark.parametrize("name", ["a.xlsx", "a", ".csv"])
def test_unknown_suffixes_are_refused_with_the_known_ones(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError, match=r"Known: \.csv, \.html, \.json, \.parquet"):
        export(example_record(), tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_not_exported(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nothing to write"):
        export([], tmp_path / "a.csv")


def test_a_full_disk_leaves_the_old_file_and_no_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.csv"
    path.write_text("old")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(
        DataError, match=r"cannot write .*a\.csv: no space left on the disk"
    ) as error:
        export(example_record(), path)
    assert "\n" not in str(error.value)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_an_interrupted_writer_leaves_nothing(tmp_path: Path) -> None:
    def interrupted() -> None:
        with open_whole(tmp_path / "a.csv") as file:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list(tmp_path.iterdir()) == []


def test_places_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match="the folder does not exist"):
        export(example_record(), tmp_path / "none" / "a.csv")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(DataError, match="it is a folder"):
        export(example_record(), tmp_path / "folder.csv")
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="is a file, not a folder"):
        export(example_record(), tmp_path / "file" / "a.csv")

    def denied(*args: object, **kwargs: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "open", denied)
    with pytest.raises(DataError, match="permission denied"):
        export(example_record(), tmp_path / "a.csv")


def test_a_link_is_followed_not_replaced(tmp_path: Path) -> None:
    target, link = tmp_path / "target.csv", tmp_path / "link.csv"
    target.write_text("old")
    link.symlink_to(target)
    export(example_record(), link)
    assert link.is_symlink()
    assert target.read_text().startswith("record,label")


@pytest.mark.parametrize(
    ("missing", "call", "says"),
    [
        ("pyarrow", to_arrow, r"pip install .*\[frames\]"),
        ("pandas", to_pandas, "pip install pandas"),
        ("polars", to_polars, "pip install polars"),
    ],
)
def test_a_missing_library_is_named(
    monkeypatch: pytest.MonkeyPatch, missing: str, call: object, says: str
) -> None:
    real = importlib.import_module

    def absent(name: str, package: str | None = None) -> object:
        if name.partition(".")[0] == missing:
            raise ImportError(name)
        return real(name, package)

    monkeypatch.setattr(importlib, "import_module", absent)
    with pytest.raises(MissingExtraError, match=says):
        call(example_record())  # type: ignore[operator]


def test_one_row_a_record_has_one_column_a_parameter_and_a_figure() -> None:
    records = [
        example_record(
            id=f"0r-{i}",
            config={"policy": {"name": "ucb", "parameters": {"tau": i}}, "horizon": 200},
            summary=more,
        )
        for i, more in enumerate(({"missed": 3}, {"missed": "none", "chance_reward": 0.5}))
    ]
    frame = to_pandas(records, curves=False)
    assert frame["policy.tau"].tolist() == [0, 1]
    assert frame["total_mean"].tolist() == [record.total_mean for record in records]
    assert frame["missed"].tolist() == ["3", "none"]
    assert to_polars(records, curves=False)["chance_reward"].to_list() == [None, 0.5]
