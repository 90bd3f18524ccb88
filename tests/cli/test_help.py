"""Help of every command at 80 columns: as the snapshot says, with whole names, by --help and by -h.

After a change of a command or a flag: POSSE_SNAPSHOTS=write, and run this file once.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from posse.cli.app import app
from tests.kit.commands import Call, one_line

SNAPSHOT = Path(__file__).parent / "help.json"


def commands(
    command: Any, context: Any = None, path: tuple[str, ...] = ()
) -> Iterator[tuple[str, ...]]:
    """Every command and group, by its words."""
    yield path
    if hasattr(command, "list_commands"):
        made = type(command).context_class(
            command, parent=context, info_name=path[-1] if path else "posse"
        )
        for name in command.list_commands(made):
            below = command.get_command(made, name)
            if below is not None and not below.hidden:
                yield from commands(below, made, (*path, name))


def words(text: str) -> str:
    """Text without frames and line ends, which differ between versions of the libraries that draw
    them.
    """
    return " ".join(re.sub("[─│╭╮╰╯┃━]", " ", text).split())


def test_help_of_every_command_is_as_known_and_fits_80_columns(posse: Call) -> None:
    shown = {}
    for path in commands(get_command(app)):
        out = posse(*path, "--help", COLUMNS="80").out
        assert all(len(line) <= 80 for line in out.splitlines()), path
        assert "…" not in out, path  # a name that is cut
        shown[" ".join(("posse", *path))] = words(out)
    assert len(shown) > 60
    if os.environ.get("POSSE_SNAPSHOTS") == "write":
        SNAPSHOT.write_text(
            json.dumps(shown, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
        )
    known = json.loads(SNAPSHOT.read_text(encoding="utf-8"))
    assert list(shown) == list(known)
    for name, text in shown.items():
        assert text == known[name], (
            f"{name}: POSSE_SNAPSHOTS=write pytest {Path(__file__).name} takes the new one"
        )


@pytest.mark.parametrize(
    "path", [(), ("run",), ("run", "samba"), ("compare",), ("audit",), ("runs", "list"), ("ca",)]
)
def test_h_is_help(posse: Call, path: tuple[str, ...]) -> None:
    assert posse(*path, "-h").out == posse(*path, "--help").out


def test_one_suggestion_is_made_once(posse: Call) -> None:
    for words_given in (
        ("rn",),
        ("rnu",),
        ("run", "smaba"),
        ("runs", "lst"),
        ("budget", "sampledd"),
        ("run", "samba", "--polcy", "ucb"),
        ("simulate", "--ownrs", "3"),
    ):
        assert one_line(posse(*words_given)).count("Did you mean") == 1


def test_one_data_set_is_found_by_its_name(posse: Call) -> None:
    found = json.loads(posse("problems", "--data", "movielens", "--json").out)
    assert {one["name"] for one in found["samba"]["data"]} == {"embedded:movielens", "movielens"}
    unknown = one_line(posse("problems", "--data", "zzz"))
    assert "no data set 'zzz'. Known: " in unknown
    known = unknown.partition("Known: ")[2].rstrip(".\n").split(", ")
    assert len(known) == len(set(known))
