"""What ships with Posse: `posse policies` and `posse problems`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from posse.cli import flags
from posse.cli.progress import Doing
from posse.cli.screen import heading, print_json, say, table
from posse.cli.tables import section
from posse.core.check import nearest
from posse.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from posse.results.reports.sections import Section

Check = Annotated[
    str | None,
    typer.Option(
        "--check",
        help="Check a policy of yours: module:Class or file.py:Class.",
        metavar="MODULE:CLASS",
    ),
]
Folder = Annotated[
    Path | None,
    typer.Option("--data-dir", help="Folder of the data sets; else the one that POSSE_DATA names."),
]
Data = Annotated[
    str | None,
    typer.Option(
        "--data", help="Only data whose name holds this, such as movielens.", metavar="NAME"
    ),
]


def policies(check: Check = None, json: flags.Json = False) -> None:
    """List the policies of every system, or check your own."""
    from posse.systems.registry import systems

    if check is not None:
        _check(check, json)
        return
    _show_lists({system.name: system.policies() for system in systems()}, json)
    if not json:
        say(
            "\nYour own: subclass posse.policies.Policy, then: posse policies --check "
            "file.py:Class",
            style="dim",
        )


def _check(where: str, json: bool) -> None:
    from posse.policies.arms.registry import policy as made

    policy = made(where)
    with Doing(f"checking {where}"):
        from posse.policies.arms.checks import check

        report = check(policy)
    if json:
        results = [{"name": r.name, "passed": r.passed, "reason": r.reason} for r in report.results]
        print_json({"policy": where, "passed": report.passed, "results": results})
    else:
        heading(
            f"{type(policy).__name__}: {'may run in a federation' if report.passed else 'refused'}"
        )
        table(
            ("check", "result"),
            [(r.name, "ok" if r.passed else f"FAILED: {r.reason}") for r in report.results],
        )
    if not report.passed:
        raise typer.Exit(1)


def problems(data: Data = None, folder: Folder = None, json: flags.Json = False) -> None:
    """List the data that every system can learn from, and whether the files are there."""
    from posse.systems.registry import systems

    with Doing("reading the data sets"):
        lists = {system.name: system.problems(folder) for system in systems()}
    _show_lists(lists if data is None else _named_like(data, lists), json)


def _named_like(data: str, lists: Mapping[str, Section | None]) -> dict[str, Section | None]:
    """Keep the rows whose name holds a word; refuse one that none holds."""
    kept: dict[str, Section | None] = {}
    for name, one in lists.items():
        if one is not None and (
            rows := tuple(row for row in one.rows if data.lower() in row[0].lower())
        ):
            facts = (one.data or {}).get("data", ())
            own = [fact for fact in facts if data.lower() in str(fact.get("name", "")).lower()]
            notes = tuple(
                note for note in one.notes if any(note.startswith(f"{row[0]}:") for row in rows)
            )
            kept[name] = replace(
                one, rows=rows, notes=notes, data={**one.data, "data": own} if one.data else None
            )
    if not kept:
        named = [row[0] for one in lists.values() if one is not None for row in one.rows]
        known = tuple(
            dict.fromkeys(name for names in named for name in names.split(", "))
        )  # some name several files
        raise ConfigError(f"no data set '{data}'.{nearest(data, known)}")
    return kept


def _show_lists(lists: Mapping[str, Section | None], json: bool) -> None:
    listed = {name: one for name, one in lists.items() if one is not None}
    if json:
        print_json({name: one.data or one.plain() for name, one in listed.items()})
        return
    for one in listed.values():
        section(one)
