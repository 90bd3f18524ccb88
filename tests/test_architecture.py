"""docs/architecture.md follows three actions through the files, as they are."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest

import posse
from posse.cli import main

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "architecture.md"
PACKAGE = ROOT / "src" / "posse"
ROW = re.compile(r"^\| `(\S+\.py)` \| `(\S+)` \|", re.MULTILINE)
NAME = re.compile(r"`([a-z_]+(?:/[a-z_]+)*(?:\.py)?)`")


def section(title: str) -> str:
    """The text of the page below a heading, up to the next one."""
    _, _, rest = PAGE.read_text(encoding="utf-8").partition(f"\n## {title}\n")
    assert rest, f"the page has no section '{title}'"
    return rest.partition("\n## ")[0]


def calls_of(action: Callable[[], object]) -> list[tuple[str, str]]:
    """File and function of all first calls in the package while `action` runs, in order."""
    calls: dict[tuple[str, str], None] = {}

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        # Bodies of modules and classes run at import and are no calls.
        if event != "call" or not code.co_flags & inspect.CO_OPTIMIZED:
            return
        if code.co_filename.startswith(f"{PACKAGE}/") and not code.co_name.startswith("<"):
            calls.setdefault(
                (Path(code.co_filename).relative_to(PACKAGE).as_posix(), code.co_qualname)
            )

    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(None)
    return list(calls)


def check_order(text: str, calls: list[tuple[str, str]]) -> None:
    """Every function in the table is called, in the order of the table."""
    rows = ROW.findall(text)
    assert len(rows) >= 5
    assert [row for row in rows if row not in calls] == []
    assert sorted(rows, key=calls.index) == rows


def check_files(text: str, calls: list[tuple[str, str]]) -> None:
    """The files of the section are those that the action enters."""
    assert set(NAME.findall(text)) >= {file for file, _ in calls}


def test_a_strict_step_enters_the_files_of_the_page_in_their_order() -> None:
    run = posse.start(
        posse.Samba(policy="thompson", data="embedded:movielens", owners=10, horizon=200, seed=7)
    )
    run.advance(15)  # past set-up and the first pulls, into the middle of a block of scores
    calls = calls_of(run.step)
    text = section("A step of samba at level strict")
    check_order(text, calls)
    check_files(text, calls)


def test_a_federated_round_enters_the_files_of_the_page_in_their_order() -> None:
    run = posse.start(posse.FedContextual(data="digits", horizon=3))
    run.step()
    calls = calls_of(run.step)
    text = section("A federated round")
    check_order(text, calls)
    check_files(text, calls)


def test_a_run_with_a_report_enters_the_folders_of_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = "run samba --owners 10 --horizon 200 --report r.html"
    monkeypatch.setenv("POSSE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["posse", *words.split()])

    def command() -> None:
        with pytest.raises(SystemExit) as stop:
            main()
        assert not stop.value.code

    calls = calls_of(command)
    text = section(f"`posse {words}`")
    check_order(text, calls)
    listed = set(NAME.findall(text))
    entered = {Path(file).parent.as_posix() for file, _ in calls}
    assert {folder for folder in entered if not covered(folder, listed)} == set()


def covered(folder: str, listed: set[str]) -> bool:
    """Whether the page lists this folder or one that contains it."""
    parents = [folder, *(parent.as_posix() for parent in Path(folder).parents)]
    return any(parent in listed for parent in parents)
