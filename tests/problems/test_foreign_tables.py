"""Tables as people have them are read unedited, with one command or one question."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import pytest
from typer.testing import CliRunner

import posse
from posse.cli.app import app
from posse.core.errors import DataError
from posse.problems.arms.settings import ProblemSettings
from posse.problems.recognise import recognise, similar_names
from posse.problems.summary import summarise
from posse.problems.tables.frames import as_frame
from posse.problems.tables.schema import ColumnError


class Foreign(NamedTuple):
    """A table, and what is right about it."""

    lines: list[str]
    settings: dict[str, object]
    arms: dict[str, int]
    """Ratings of each arm."""
    encoding: str = "utf-8"
    end: str = "\n"


STARS = (1, 5, 4, 2, 3, 5, 1, 4, 2, 5, 3, 1)

TABLES: dict[str, Foreign] = {
    "semicolons": Foreign(
        ["Shop;Stars;Comment", *(f"{'NS'[i % 2]};{s};note {i}" for i, s in enumerate(STARS))],
        {"columns": {"item": "Shop", "rating": "Stars"}},
        {"N": 6, "S": 6},
    ),
    "decimal commas": Foreign(
        ["Laden;Note", *(f"{'NS'[i % 2]};{s},5" for i, s in enumerate(STARS))],
        {"decimal": ",", "columns": {"item": "Laden", "rating": "Note"}},
        {"N": 6, "S": 6},
    ),
    "Windows-1252": Foreign(
        ["Filiale,Bewertung", *(f"{('Köln', 'Bonn')[i % 2]},{s}" for i, s in enumerate(STARS))],
        {"encoding": "cp1252", "columns": {"item": "Filiale", "rating": "Bewertung"}},
        {"Köln": 6, "Bonn": 6},
        encoding="cp1252",
    ),
    "Stars (1-5)": Foreign(
        ["Restaurant,Stars (1-5)", *(f"Café {i % 3},{s}" for i, s in enumerate(STARS))],
        {"columns": {"item": "Restaurant", "rating": "Stars (1-5)"}},
        {"Café 0": 4, "Café 1": 4, "Café 2": 4},
    ),
    "clicked": Foreign(
        ["banner,clicked", *(f"b{i % 2},{i % 3 // 2}" for i in range(12))],
        {"columns": {"item": "banner", "rating": "clicked"}},
        {"b0": 6, "b1": 6},
    ),
    "variant": Foreign(
        [
            "timestamp,variant,converted,revenue",
            *(
                f"2026-01-{i + 1:02d} 10:30,{'AB'[i % 2]},{('yes', 'no')[i % 3 // 2]},{i}.50"
                for i in range(12)
            ),
        ],
        {"columns": {"item": "variant", "rating": "converted"}},
        {"A": 6, "B": 6},
    ),
    "user_id and dates": Foreign(
        [
            "user_id,date,product_id,score",
            *(f"{100 + i % 5},{i + 1:02d}.03.2026,P{i % 3},{s}" for i, s in enumerate(STARS)),
        ],
        {"columns": {"item": "product_id", "rating": "score", "user": "user_id"}},
        {"P0": 4, "P1": 4, "P2": 4},
    ),
    "wide": Foreign(
        [
            "customer,Blue,Green,Red",
            *(f"c{i},{s},{'' if i % 2 else s},{6 - s}" for i, s in enumerate(STARS)),
        ],
        {"columns": {"item": "Blue|Green|Red", "user": "customer"}},
        {"Blue": 12, "Green": 6, "Red": 12},
    ),
    "Excel": Foreign(
        [
            "\ufeffsep=;",
            "Produkt;Sterne;Gekauft am",
            *(f'"Tee; {i % 2}";{s};{i + 1}.03.2026 14:05' for i, s in enumerate(STARS)),
        ],
        {"columns": {"item": "Produkt", "rating": "Sterne"}},
        {"Tee; 0": 6, "Tee; 1": 6},
        end="\r\n",
    ),
}


def write(folder: Path, name: str) -> Path:
    table = TABLES[name]
    file = folder / "table.csv"
    text = table.end.join(table.lines) + table.end
    file.write_bytes(text.encode(table.encoding))
    return file


@pytest.mark.parametrize("name", TABLES)
def test_a_foreign_table_is_recognised(tmp_path: Path, name: str) -> None:
    table = TABLES[name]
    file = write(tmp_path, name)
    assert recognise(file).settings() == table.settings
    summary = summarise([file])
    assert {arm.name: arm.count for arm in summary.arms} == table.arms
    assert (summary.dropped, summary.similar) == ((), [])


@pytest.mark.parametrize("name", TABLES)
def test_the_command_that_check_prints_runs(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POSSE_STORE", str(tmp_path / "store"))
    file = write(tmp_path, name)
    checked = CliRunner().invoke(app, ["check", str(file)])
    assert checked.exit_code == 0, checked.output
    assert len(checked.output.splitlines()) <= 25
    command = shlex.split(checked.output.splitlines()[-1])
    assert command[:4] == ["posse", "run", "samba", "--data"]
    words = ["simulate", *command[2:], "--horizon", "20", "--runs", "1", "--no-save", "--json"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize("name", TABLES)
def test_one_question_in_a_terminal_is_enough(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(tmp_path, name)
    monkeypatch.setattr("posse.cli.systems.in_terminal", lambda: True)
    words = ["simulate", "samba", "--data", str(file), "--horizon", "20", "--runs", "1"]
    done = CliRunner().invoke(app, [*words, "--no-save"], input="\n")
    assert done.exit_code == 0, done.output
    assert done.output.count("[Y/n]") == 1
    refused = CliRunner().invoke(app, [*words, "--no-save"], input="n\n")
    assert refused.exit_code == 2


@pytest.mark.parametrize(
    "name", [name for name in TABLES if "encoding" not in TABLES[name].settings]
)
def test_the_error_suggests_the_columns(tmp_path: Path, name: str) -> None:
    file = write(tmp_path, name)
    more = {key: TABLES[name].settings[key] for key in ("decimal",) if key in TABLES[name].settings}
    with pytest.raises(ColumnError) as caught:
        ProblemSettings(data=file, threshold=3, **more).arms()
    assert caught.value.columns == TABLES[name].settings["columns"]
    assert "--columns" in caught.value.text


def test_a_frame_with_an_index_is_read() -> None:
    shops = ["N", "S"] * 6
    named = pd.DataFrame({"stars": STARS}, index=pd.Index(shops, name="shop"))
    unnamed = pd.DataFrame({"stars": STARS}, index=shops)
    for frame, item in ((named, "shop"), (unnamed, "index")):
        with pytest.raises(ColumnError) as caught:
            ProblemSettings(data=frame, threshold=3).arms()
        assert caught.value.columns == {"item": item, "rating": "stars"}
        settings = posse.Samba(data=frame, threshold=3, columns=caught.value.columns, horizon=20)
        assert settings.load().arms.names == ("N", "S")
    numbered = pd.DataFrame({"stars": STARS, "shop": shops})
    frame_of_numbers = as_frame(numbered, "data")
    assert frame_of_numbers is not None
    assert frame_of_numbers.names == ("stars", "shop")  # an index that only counts is no column


def test_columns_are_a_setting_like_others(tmp_path: Path) -> None:
    file = write(tmp_path, "Stars (1-5)")
    text = 'item=Restaurant,"rating=Stars (1-5)"'
    (tmp_path / "run.toml").write_text(
        f'data = "{file}"\nthreshold = 3\n[columns]\nitem = "Restaurant"\nrating = "Stars (1-5)"\n'
    )
    by_text = posse.Samba(data=file, threshold=3, columns=text, horizon=20)
    by_file = posse.Samba.make({"horizon": 20}, file=tmp_path / "run.toml")
    assert by_text.load().arms.means.tolist() == by_file.load().arms.means.tolist()
    assert by_text.resolved()["columns"] == {"item": "Restaurant", "rating": "Stars (1-5)"}
    assert "columns" not in posse.Samba().resolved()  # records and digests of 0.1 stay as they are


def test_names_that_differ_only_in_case_or_spaces_are_listed(tmp_path: Path) -> None:
    file = tmp_path / "r.csv"
    rows = [("Blue", 1), ("blue", 5), ("Red", 4), ("R ed", 2)] * 3
    file.write_text("item,rating\n" + "".join(f"{name},{value}\n" for name, value in rows))
    summary = summarise([file])
    assert {frozenset(names) for names in summary.similar} == {
        frozenset(("Blue", "blue")),
        frozenset(("Red", "R ed")),
    }
    assert similar_names(["a", "b"]) == []
    done = CliRunner().invoke(app, ["check", str(file), "--json"])
    assert json.loads(done.output)["similar"]


def test_bad_rows_are_listed_and_the_command_drops_them(tmp_path: Path) -> None:
    file = tmp_path / "r.csv"
    file.write_text("item,rating\na,1\nb,5\na,N/A\nb,x\na,4\n")
    summary = summarise([file])
    assert "--skip-bad" in summary.command
    assert "2 of 5 rows were dropped as bad" in summary.dropped[0]


def test_other_kinds_of_tables_are_recognised(tmp_path: Path) -> None:
    headers = {
        "log": ("variant,outcome,propensity\nA,1,0.5\nB,0,0.5\n", ("posse", "evaluate")),
        "means": ("arm,conversion rate\na,0.1\nb,0.2\n", ("posse", "run", "samba")),
        "clients": ("client,age,label\nann,1,x\nbob,2,y\nann,3,x\n", ("posse", "run")),
    }
    for kind, (text, start) in headers.items():
        file = tmp_path / f"{kind}.csv"
        file.write_text(text)
        summary = summarise([file])
        assert summary.kind == kind
        assert summary.command[: len(start)] == start
        if kind != "clients":
            done = CliRunner().invoke(app, list(summary.command[1:]))
            assert done.exit_code == 0 or kind == "means", done.output


def test_spreadsheets_are_refused_with_the_remedy(tmp_path: Path) -> None:
    file = tmp_path / "ratings.xlsx"
    file.write_bytes(b"PK\x03\x04" + b"\0" * 50)
    for read in (lambda: ProblemSettings(data=file, threshold=3).arms(), lambda: summarise([file])):
        with pytest.raises(DataError) as caught:
            read()
        assert caught.value.rule == "problems.file.spreadsheet"
        assert "CSV" in caught.value.text


def test_a_table_of_no_kind_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "names.csv"
    file.write_text("first,last\nann,a\nbob,b\n")
    with pytest.raises(ColumnError) as caught:
        summarise([file])
    assert caught.value.rule == "problems.columns.no-kind"


@pytest.mark.parametrize("form", ["list", "folder", "pattern"])
def test_one_file_per_owner(tmp_path: Path, form: str) -> None:
    folder = tmp_path / "shops"
    folder.mkdir()
    for name, values in (("north", "1 5 4"), ("south", "2 2 5")):
        text = "".join(f"{value}\n" for value in values.split())
        (folder / f"{name}.csv").write_text(f"rating\n{text}")
    data = {
        "list": [folder / "north.csv", folder / "south.csv"],
        "folder": folder,
        "pattern": f"{folder}/*.csv",
    }[form]
    settings = posse.Samba(data=data, threshold=3, horizon=20)
    arms = settings.load().arms
    assert dict(zip(arms.names, arms.means.tolist(), strict=True)) == {
        "north": pytest.approx(2 / 3),
        "south": pytest.approx(1 / 3),
    }
    assert [path.name for path in settings.files()] == ["north.csv", "south.csv"]
    again = posse.Samba(**{**settings.resolved(), "means": None})
    assert again.load().arms.names == arms.names


def test_several_files_after_one_flag(tmp_path: Path) -> None:
    for name in ("north", "south"):
        (tmp_path / f"{name}.csv").write_text("clicked\n1\n0\n1\n")
    files = [str(tmp_path / f"{name}.csv") for name in ("north", "south")]
    words = ["simulate", "samba", "--data", *files, "--columns", "rating=clicked"]
    done = CliRunner().invoke(app, [*words, "--horizon", "20", "--runs", "1", "--no-save"])
    assert done.exit_code == 0, done.output
    summary = summarise([Path(file) for file in files])
    assert summary.kind == "owners"
    assert summary.command[3:6] == ("--data", *files)
    assert dict(summary.flags) == {"columns": {"rating": "clicked"}}
