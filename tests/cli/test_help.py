"""Help of every command at 80 columns: as the snapshot says, with whole names, by --help and by -h.

After a change of a command or a flag: POSSE_SNAPSHOTS=write, and run this file once.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from posse.cli.app import COMMANDS, PANELS, app
from posse.cli.groups import OLD, build, rename
from posse.cli.help import summary
from tests.kit.commands import Call, call, one_line

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


@pytest.fixture(scope="module")
def pages() -> dict[tuple[str, ...], str]:
    """The help page of every command at 80 columns."""
    paths = commands(get_command(app))
    return {path: call(*path, "--help", COLUMNS="80").out for path in paths}


def test_help_of_every_command_is_as_known_and_fits_80_columns(
    pages: dict[tuple[str, ...], str],
) -> None:
    assert len(pages) > 60
    for path, out in pages.items():
        assert all(len(line) <= 80 for line in out.splitlines()), path
        assert "…" not in out, path  # a name that is cut
    shown = {" ".join(("posse", *path)): words(out) for path, out in pages.items()}
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


def test_a_help_page_has_at_most_24_lines_and_examples(pages: dict[tuple[str, ...], str]) -> None:
    for path, out in pages.items():
        assert len(out.splitlines()) <= (24 if path else 45), path
        assert "Examples:" in out, path


def test_18_commands_are_at_the_top_in_panels(pages: dict[tuple[str, ...], str]) -> None:
    top = {path[0] for path in pages if path}
    assert top == set(PANELS)
    assert len(top) <= 18
    titles = [*dict.fromkeys(PANELS.values())]
    shown = [line.removesuffix(":") for line in pages[()].splitlines()]
    assert [line for line in shown if line in titles] == titles


@pytest.mark.parametrize("name", [name for name in COMMANDS if COMMANDS[name].target])
def test_the_list_of_all_commands_has_the_text_of_each(name: str) -> None:
    """The list is printed without importing a command."""
    assert summary(build(name, COMMANDS[name]).help) == summary(COMMANDS[name].about)


def test_all_options_are_on_the_long_page(pages: dict[tuple[str, ...], str]) -> None:
    root = get_command(app)
    for path in (("run", "samba"), ("sweep", "fed-contextual"), ("party",), ("devices", "up")):
        command: Any = root
        context: Any = type(root).context_class(root, info_name="posse")
        for name in path:
            command = command.get_command(context, name)
        long = call(*path, "--help", "--all", COLUMNS="80").out
        assert long.count("\n") > 24
        for parameter in command.get_params(context):
            for flag in () if getattr(parameter, "hidden", False) else parameter.opts:
                assert flag in long, flag
    left_out = next(line for line in pages["run", "samba"].splitlines() if " more: " in line)
    assert left_out.endswith("more: posse run samba --help --all")


def test_examples_of_help_are_accepted(
    pages: dict[tuple[str, ...], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("typer.core.TyperCommand.invoke", lambda self, context: None)
    for path, out in pages.items():
        for line in out.partition("Examples:\n")[2].splitlines():
            program, *given = shlex.split(line)
            assert program == "posse"
            accepted = call(*given)
            assert accepted.code == 0, (path, line, accepted.err)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("simulate samba --runs 2", "run samba --runs 2 --plain"),
        ("simulate", "run --plain"),
        ("arms embedded:jester", "problems show embedded:jester"),
        ("ranges --bits 20", "check ranges --bits 20"),
        ("rates --help", "evaluate rates --help"),
        ("found --help", "federation create --help"),
        ("ca token --role owner", "federation ca token --role owner"),
        ("change party.toml", "party update party.toml"),
        ("units party.toml --user a", "party unit party.toml --user a"),
    ],
)
def test_an_old_name_runs_and_prints_the_new_one(old: str, new: str) -> None:
    assert rename(old.split()) == new.split()


def test_every_old_name_is_that_of_a_command(posse: Call, tmp_path: Path) -> None:
    for old, new in OLD.items():
        shown, again = posse(old, "--help"), posse(*new.split(), "--help")
        assert shown.code == 0
        assert f"'posse {old}' is now 'posse {new}'" in shown.err
        assert again.err == ""
        if old != "simulate":  # whose new name needs a system
            assert shown.out == again.out
    shown = posse("arms", "embedded:jester", "--json")
    assert shown.out == posse("problems", "show", "embedded:jester", "--json").out


def test_what_is_no_command_goes_to_the_default_command(posse: Call, tmp_path: Path) -> None:
    missing = posse("party", "nowhere.toml")
    assert missing.code == 2
    assert missing.err == posse("party", "start", "nowhere.toml").err
    assert "Missing argument 'FILE'" in one_line(posse("party"))
    assert "Did you mean 'start'" in one_line(posse("party", "strat"))
    assert posse("problems", "--json").code == 0
    assert "no data set 'zzz'" in one_line(posse("problems", "--data", "zzz"))


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
        ("run", "--plain", "--ownrs", "3"),
    ):
        assert one_line(posse(*words_given)).count("Did you mean") == 1


def test_one_data_set_is_found_by_its_name(posse: Call) -> None:
    found = json.loads(posse("problems", "--data", "movielens", "--json").out)
    assert {one["name"] for one in found["samba"]["data"]} == {"embedded:movielens", "movielens"}
    unknown = one_line(posse("problems", "--data", "zzz"))
    assert "no data set 'zzz'. Known: " in unknown
    known = unknown.partition("Known: ")[2].rstrip(".\n").split(", ")
    assert len(known) == len(set(known))
