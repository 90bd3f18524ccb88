"""What ships with Posse: `posse policies` and `posse problems`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from posse.cli import flags
from posse.cli.progress import Doing
from posse.cli.screen import heading, print_json, say, table
from posse.core.check import suggestion
from posse.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from posse.core.listing import Listing

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
    """List the policies of every system, or check your own.

    Examples:
        posse policies
        posse policies --check mine.py:Mine
    """
    from posse.policies.listing import listing
    from posse.systems.registry import systems

    if check is not None:
        _check(check, json)
        return
    lists = {system.name: listing(system.about.policies) for system in systems()}
    _show_lists("policies", lists, json)
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
    """List the data that every system can learn from, and whether the files are there.

    Examples:
        posse problems --data movielens
        posse problems show embedded:movielens
    """
    from posse.problems.listing import listing
    from posse.systems.registry import systems

    with Doing("reading the data sets"):
        lists = {system.name: listing(system.about.problems, folder) for system in systems()}
    _show_lists("data", lists if data is None else _named_like(data, lists), json)


def _named_like(data: str, lists: Mapping[str, Listing | None]) -> dict[str, Listing | None]:
    """Return the rows whose name contains a word; refuse a word that no name contains."""
    word = data.lower()
    matches: dict[str, Listing | None] = {}
    names: list[str] = []
    for system, listing in lists.items():
        if listing is None:
            continue
        names.extend(row[0] for row in listing.rows)
        rows = tuple(row for row in listing.rows if word in row[0].lower())
        if not rows:
            continue
        labels = tuple(f"{row[0]}:" for row in rows)
        matches[system] = replace(
            listing,
            rows=rows,
            entries=tuple(entry for entry in listing.entries if word in entry["name"].lower()),
            notes=tuple(note for note in listing.notes if note.startswith(labels)),
        )
    if not matches:
        choices = tuple(dict.fromkeys(name for text in names for name in text.split(", ")))
        raise ConfigError(
            f"no data set '{data}'.{suggestion(data, choices)}", rule="cli.data.unknown"
        )
    return matches


def _show_lists(what: str, lists: Mapping[str, Listing | None], json: bool) -> None:
    present = {system: listing for system, listing in lists.items() if listing is not None}
    if json:
        print_json({system: {what: listing.entries} for system, listing in present.items()})
        return
    for system, listing in present.items():
        heading(f"{listing.title} ({system})")
        table(listing.columns, listing.rows, numeric=listing.numeric)
        for note in listing.notes:
            say(note, style="dim")
