"""Every mistake a user can make is one clear line and exit code 2, before anything is written."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from posse.results import store
from tests.kit.commands import SMALL, Call, one_line

FLAGS = [
    (["--owners", "1"], "[P100] owners must be at least 2, got 1"),
    (["--means", "0.5"], "at least 2 arms, got 1"),
    (
        ["--owners", "5", "--budget", "4"],
        "budget must be at least the number of owners, got 4 for 5",
    ),
    (["--policy", "epsilon-greedy", "--epsilon", "1.5"], "epsilon must be in [0, 1], got 1.5"),
    (["--policy", "epsilon-greedy", "--epsilon", "-0.1"], "epsilon must be in [0, 1], got -0.1"),
    (["--policy", "softmax", "--tau", "0"], "tau must be in (0, 20], got 0.0"),
    (["--policy", "pursuit", "--beta", "0"], "beta must be in (0, 1], got 0.0"),
    (["--policy", "pursuit", "--beta", "1.5"], "beta must be in (0, 1], got 1.5"),
    (["--policy", "ucbb"], "unknown policy 'ucbb'. Did you mean 'ucb'?"),
    (["--policy", "ucb", "--tau", "0.1"], "policy 'ucb' has no parameter 'tau'"),
    (["--data", "nowhere.csv"], "[P200] there is no data file 'nowhere.csv'"),
    (["--data", "movielenss"], "there is no data file 'movielenss'. Did you mean 'movielens'?"),
    (
        ["--data", "."],
        "data must be a file or a folder with one table per owner, got the folder '.'",
    ),
    (["--data", "jester"], "POSSE_DATA"),
    (["--data", "jester", "--means", "0.1,0.2"], "means and data both name the arms"),
    (["--means", "0.1,0.2", "--threshold", "3"], "threshold applies to ratings"),
    (["--data", "jester", "--items", "a", "--items", "b", "--owners", "3"], "got 3 for 2 items"),
    (["--budget", "0"], "got 0 for 10 owners. Raise it to 10 or more"),
    (["--owners", "101"], "has 100 means, got arms=101"),
    (["--policy", "epsilon-greedy", "--epsilon", "nan"], "epsilon must be a finite number"),
    (["--means", "0.2,nan"], "means.1 must be a finite number"),
    (["--level", "top"], "level must be 'strict' or 'paper', got 'top'"),
    (["--level", "standard"], "level 'standard' was removed in Posse 0.2. Use level 'strict'"),
    (["--no-mask"], "can be switched off at level 'paper' only, got mask off"),
    (["--budget", "many"], "horizon must be a valid integer"),
    (["--runs", "0"], "runs must be at least 1"),
    (["--seed", "-1"], "seed must be in [0, 2^63)"),
    (["--bugdet", "9"], "No such option"),
    (["--budget"], "'--budget' requires an argument"),
    (["surplus"], "unexpected extra argument"),
    (["--label", " "], "label must not be empty"),
    (["--config", "missing.toml"], "there is no configuration file missing.toml"),
    (["--report", "no-such-folder/report.html"], "does not exist. Create it first"),
    (["--report", "."], "it is a folder"),
]


@pytest.mark.parametrize(("flags", "says"), FLAGS, ids=[" ".join(flags) for flags, _ in FLAGS])
def test_a_wrong_flag(posse: Call, home: Path, flags: list[str], says: str) -> None:
    assert says in one_line(posse("run", "samba", *flags))
    assert not home.exists()


def test_an_unknown_option_suggests_the_nearest(posse: Call) -> None:
    line = one_line(posse("run", "samba", "--bugdet", "9"))
    assert "--bugdet" in line
    assert "--budget" in line


def test_an_unknown_command_suggests_the_nearest(posse: Call) -> None:
    assert "Did you mean 'compare'" in one_line(posse("compar"))
    assert "No such option" in one_line(posse("--wrong"))


DATA = [
    ("name,mean\na,0.5\nb,high\n", [], ("row 3", "mean", "high")),
    ("name,mean\na,0.5\nb,nan\n", [], ("row 3", "mean")),
    ("name,mean\na,0.5\nb,0.6\n", ["--owners", "3"], ("has 2 arms, got owners=3",)),
    ("item,rating\na,1\nb,four\n", ["--threshold", "3"], ("row 3", "rating", "four")),
    ("item,rating\na,1\nb,4\n", [], ("ratings need a threshold",)),
    (
        "item,rating\na,1\nb,4\n",
        ["--threshold", "2", "--items", "a,b"],
        ("no item 'a,b'", "Repeat --items"),
    ),
    ("film,stars\na,1\nb,4\n", [], ("item,rating", "name,mean", "'film,stars'")),
]


@pytest.mark.parametrize(("text", "flags", "says"), DATA)
def test_a_malformed_data_file(
    posse: Call, text: str, flags: list[str], says: tuple[str, ...]
) -> None:
    Path("data.csv").write_text(text)
    line = one_line(posse("run", "samba", "--data", "data.csv", *flags))
    for part in says:
        assert part in line


TOML = [
    ("bugdet = 9", "unknown setting 'bugdet'. Did you mean 'budget'?"),
    ("budget = ", "run.toml is not TOML"),
    ('policy = "epsilon-greedy"\nepsilon = nan', "epsilon must be a finite number, got nan"),
    ("budget = 2.5", "budget must be a valid integer"),
]


@pytest.mark.parametrize(("text", "says"), TOML)
def test_a_wrong_file_of_settings(posse: Call, text: str, says: str) -> None:
    Path("run.toml").write_text(text)
    assert says in one_line(posse("run", "samba", "--config", "run.toml"))


def test_a_damaged_store_is_told_before_the_run(posse: Call, home: Path) -> None:
    home.mkdir()
    (home / "runs.sqlite").write_bytes(b"garbage " * 1000)
    assert "[P300]" in one_line(posse("run", "samba", *SMALL))
    assert "is not a run store" in one_line(posse("runs", "list"))


def test_a_home_that_is_a_file(posse: Call, home: Path) -> None:
    home.write_text("")
    assert "a part of the path is a file" in one_line(posse("run", "--plain", *SMALL))


def test_a_locked_store_loses_no_result(posse: Call, home: Path) -> None:
    posse("runs", "list")
    other = sqlite3.connect(home / "runs.sqlite", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    try:
        outcome = posse("run", "--plain", *SMALL, "--runs", "2")
    finally:
        other.close()
    assert outcome.code == 2
    assert "reward per step" in outcome.out
    assert "Saved" not in outcome.out
    assert outcome.err.splitlines()[-1].startswith("error: [P300]")
    assert "locked by another process" in outcome.err
    assert "No runs yet" in posse("runs", "list").out


def test_no_space_left_keeps_nothing(posse: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    posse("runs", "list")
    connect = store.connect

    def full(path: Path, timeout: float) -> sqlite3.Connection:
        db = connect(path, timeout)
        db.execute(f"PRAGMA max_page_count = {path.stat().st_size // 4096}")
        return db

    with monkeypatch.context() as patch:
        patch.setattr(store, "connect", full)
        outcome = posse(
            "run", "--plain", "--owners", "50", "--budget", "400", "--runs", "50", "--json"
        )
    assert outcome.code == 2
    assert "no space left" in outcome.err
    assert "No runs yet" in posse("runs", "list").out


def test_compare_needs_two_of_one_sort(posse: Call) -> None:
    assert "at least 2 runs, got 0" in one_line(posse("compare"))
    assert "at least 2 runs, got 1" in one_line(posse("compare", "--policy", "ucb"))
    assert "--budget" in one_line(posse("compare", "a", "b", "--budget", "5"))
    assert "given twice" in one_line(posse("compare", "--policy", "ucb", "--policy", "ucb"))
    assert "'ucb' has no parameter 'tau'" in one_line(
        posse("compare", "--policy", "ucb", "--policy", "thompson", "--tau", "1")
    )
    assert "unknown policy 'thomson'" in one_line(
        posse("compare", "--policy", "ucb", "--policy", "thomson")
    )
    assert "must end in" in one_line(
        posse("compare", "--policy", "ucb", "--policy", "thompson", "--figure", "a.gif")
    )
