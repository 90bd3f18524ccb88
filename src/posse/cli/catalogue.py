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
from posse.systems.registry import systems

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from posse.core.listing import Listing
    from posse.systems.base import AnySystem

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

    if check is not None:
        _check(check, json)
        return
    _show_lists("policies", _lists(lambda system: listing(system.about.policies)), json)
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
        print_json(
            {
                "policy": where,
                "passed": report.passed,
                "results": results,
                "warnings": report.warnings,
            }
        )
    else:
        heading(
            f"{type(policy).__name__}: {'may run in a federation' if report.passed else 'refused'}"
        )
        table(
            ("check", "result"),
            [(r.name, "ok" if r.passed else f"FAILED: {r.reason}") for r in report.results],
        )
        for warning in report.warnings:
            say(f"Warning: {warning}")
    if not report.passed:
        raise typer.Exit(1)


def problems(data: Data = None, folder: Folder = None, json: flags.Json = False) -> None:
    """List the data that every system can learn from, and whether the files are there.

    Examples:
        posse problems --data movielens
        posse problems show embedded:movielens
    """
    from posse.problems.listing import listing

    with Doing("reading the data sets"):
        lists = _lists(lambda system: listing(system.about.problems, folder))
    _show_lists("data", lists if data is None else _named_like(data, lists), json)


def _named_like(data: str, lists: Mapping[str, Listing]) -> dict[str, Listing]:
    """Return the rows whose name contains a word; refuse a word that no name contains."""
    matches = {system: _rows_like(data.lower(), listing) for system, listing in lists.items()}
    if not any(listing.rows for listing in matches.values()):
        names = [row[0] for listing in lists.values() for row in listing.rows]
        choices = tuple(dict.fromkeys(", ".join(names).split(", ")))
        raise ConfigError(
            f"no data set '{data}'.{suggestion(data, choices)}", rule="cli.data.unknown"
        )
    return {system: listing for system, listing in matches.items() if listing.rows}


def _rows_like(word: str, listing: Listing) -> Listing:
    rows = tuple(row for row in listing.rows if word in row[0].lower())
    labels = tuple(f"{row[0]}:" for row in rows)
    return replace(
        listing,
        rows=rows,
        entries=tuple(entry for entry in listing.entries if word in entry["name"].lower()),
        notes=tuple(note for note in listing.notes if note.startswith(labels)),
    )


def _show_lists(what: str, lists: Mapping[str, Listing], json: bool) -> None:
    if json:
        print_json({system: {what: listing.entries} for system, listing in lists.items()})
        return
    for system, listing in lists.items():
        heading(f"{listing.title} ({system})")
        table(listing.columns, listing.rows, numeric=listing.numeric)
        for note in listing.notes:
            say(note, style="dim")


def _lists(listing_of: Callable[[AnySystem], Listing | None]) -> dict[str, Listing]:
    """Return the list of each system that has one, by the name of the system."""
    lists = {}
    for system in systems():
        listing = listing_of(system)
        if listing is not None:
            lists[system.name] = listing
    return lists
