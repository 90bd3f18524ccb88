"""The commands: list, run, claims and their mistakes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from reproduction import EXPERIMENTS, Analysis, Table, Watch
from tests.reproduction.conftest import Reproduce


@dataclass(frozen=True)
class Quick:
    """An experiment that computes nothing."""

    id: str
    title: str = "a title"
    reference: str = "a paper"
    tags: tuple[str, ...] = ("tag",)

    def run(self, small: bool, out: Path, watch: Watch) -> Analysis:
        out.mkdir(parents=True)
        watch("half of it", 0.5)
        table = Table("numbers", ("a", "b"), (("1", "2"),))
        return Analysis(f"computed, {small=}", (table,), ("a note",), (out / "rows.csv",))


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for id in list(EXPERIMENTS):
        monkeypatch.delitem(EXPERIMENTS, id)
    for id in ("one/a", "one/b", "two/a"):
        monkeypatch.setitem(EXPERIMENTS, id, Quick(id))


def test_papers_are_named_once(reproduce: Reproduce) -> None:
    out = reproduce("list").out
    for paper in (
        "Hannun, Knott",
        "Agarwal, McMahan",
        "Solanki, Kanaparthy",
        "Ciucanu, Lafourcade, Marcadet",
        "Marcadet, Ciucanu",
    ):
        assert out.count(paper) == 1
    listed = json.loads(reproduce("list", "--json").out)
    assert [one["id"] for one in listed] == list(EXPERIMENTS)


@pytest.mark.parametrize("columns", [40, 80])
def test_the_list_is_not_wider_than_the_terminal(reproduce: Reproduce, columns: int) -> None:
    lines = reproduce("list", columns=columns).out.splitlines()
    assert max(map(len, lines)) <= columns


@pytest.mark.usefixtures("quick")
def test_run(reproduce: Reproduce, tmp_path: Path) -> None:
    outcome = reproduce("run", "one/*", "--small", "--out", str(tmp_path / "figures"))
    assert outcome.code == 0
    for word in ("computed, small=True", "numbers", "a note", "rows.csv"):
        assert word in outcome.out
    assert {path.name for path in (tmp_path / "figures" / "one").iterdir()} == {"a", "b"}
    (document,) = json.loads(reproduce("run", "two/a", "--json", "--out", str(tmp_path)).out)
    assert document["tables"][0]["rows"] == [["1", "2"]]


@pytest.mark.usefixtures("quick")
def test_mistakes_are_one_line(reproduce: Reproduce, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for words, says in (
        (("run", "two/x"), "Did you mean 'two/a'"),
        (("run", "two/a", "--out", str(tmp_path / "file" / "under")), "cannot make the folder"),
        (("claims", "nothing/*"), "no claim matches nothing/*"),
        (("prepare", "emnist", "new", "--data-dir", str(tmp_path)), "emnist-byclass-test"),
        (("prepare", "study", "new", "--form", "papers"), "Did you mean 'paper'"),
    ):
        outcome = reproduce(*words)
        assert (outcome.code, outcome.err.count("\n")) == (2, 1)
        assert says in outcome.err


@pytest.mark.long
def test_ctrl_c_says_what_is_done(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "reproduction", "run", "samba/fig8a", "--out", str(tmp_path)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        while "K = 10" not in (line := process.stderr.readline()):
            assert line, "it ended before it began"
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert "0 of 1 experiments are done" in process.stderr.read()
