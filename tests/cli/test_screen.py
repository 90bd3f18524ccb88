"""How it looks: narrow terminals, colours, progress."""

from __future__ import annotations

import io
import re
import sys
import time

import pytest

from posse.cli import progress, screen
from posse.cli.progress import Doing
from posse.results import Store
from tests.kit.commands import Call
from tests.kit.records import example_record


@pytest.mark.parametrize("columns", ["40", "80"])
@pytest.mark.parametrize(
    "command",
    [
        ["runs", "list"],
        ["runs", "show", "last"],
        ["policies"],
        ["problems"],
        [],
    ],
)
def test_nothing_is_wider_than_the_terminal(posse: Call, columns: str, command: list[str]) -> None:
    Store().save(example_record(id="0a-first"))
    outcome = posse(*command, COLUMNS=columns)
    assert outcome.code == 0
    assert "…" not in outcome.out
    assert max(len(line) for line in outcome.out.splitlines()) <= int(columns)


def test_a_narrow_table_keeps_ids_whole(posse: Call) -> None:
    Store().save(example_record(id="0123456789-abcd"))
    assert "0123456789-abcd" in posse("runs", "list", COLUMNS="40").out


def test_no_colour_when_asked(posse: Call) -> None:
    assert "\x1b[" not in posse("policies", NO_COLOR="1", COLUMNS="80").out
    assert "\x1b[3" not in posse("policies", NO_COLOR="1", FORCE_COLOR="1", COLUMNS="80").out


def test_quick_work_is_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    with Doing("something") as doing:
        doing.at(0.5)
    assert stream.getvalue() == ""


def said(stream: io.StringIO, text: str) -> None:
    """Wait until a text is written."""
    end = time.monotonic() + 240
    while text not in stream.getvalue():
        assert time.monotonic() < end, stream.getvalue()
        time.sleep(0.01)


def test_lines_away_from_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(progress, "FIRST_LINE", 0.05)
    monkeypatch.setattr(progress, "NEXT_LINE", 30.0)
    with Doing("something") as doing:
        doing.at(0.5)
        said(stream, "\n")
    (line,) = stream.getvalue().splitlines()
    assert re.fullmatch(r"something: 50 %, about \d+ s left", line)  # as long as it took so far


def test_a_bar_on_a_terminal_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(progress, "QUIET_SECONDS", 0.05)
    with Doing("something [odd]") as doing:
        doing.at(0.25)
        said(stream, "25%")
    assert "something [odd]" in stream.getvalue()
    assert "25%" in stream.getvalue()
    assert stream.getvalue().endswith("\x1b[2K")


@pytest.mark.parametrize(("columns", "lines"), [(30, 3), (15, 3), (11, 3), (10, 4)])
def test_a_table_narrows_its_gaps_before_it_becomes_blocks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], columns: int, lines: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    screen.table(("one", "two", "six"), [("aaa", "bbb", "ccc")])
    shown = capsys.readouterr().out.splitlines()
    assert len(shown) == lines
    assert max(len(line) for line in shown) <= columns
    assert "bbb" in "".join(shown)
