"""What ships with Posse: `posse policies` and `posse problems`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import typer

from posse.cli import flags
from posse.cli.progress import Doing
from posse.cli.screen import heading, print_json, say, table
from posse.core.check import suggestion
from posse.core.errors import ConfigError
from posse.core.listing import Listing
from posse.policies.arms.checks import check as check_policy
from posse.policies.arms.registry import policy as load_policy
from posse.policies.listing import listing as list_policies
from posse.problems.listing import listing as list_problems
from posse.systems.base import AnySystem
from posse.systems.registry import systems

Lists = Mapping[str, Listing]


def policies(*, check: str | None = None, json: flags.Json = False) -> None:
    """List the policies of every system, or check your own.

    Options:
        check (MODULE:CLASS): Check your own policy: module:Class or file.py:Class.

    Examples:
        posse policies
        posse policies --check mine.py:Mine
    """
    if check is not None:
        _check(check, json)
        return
    _show_lists("policies", _lists(lambda system: list_policies(system.about.policies)), json)
    if not json:
        say(
            "\nYour own: subclass posse.policies.Policy, then: posse policies --check "
            "file.py:Class",
            style="dim",
        )


def _check(where: str, json: bool) -> None:
    policy = load_policy(where)
    with Doing(f"checking {where}"):
        report = check_policy(policy)
    if json:
        results = [
            {"name": each.name, "passed": each.passed, "reason": each.reason}
            for each in report.results
        ]
        print_json({"policy": where, "passed": report.passed, "results": results})
    else:
        verdict = "may run in a federation" if report.passed else "refused"
        heading(f"{type(policy).__name__}: {verdict}")
        rows = []
        for each in report.results:
            rows.append((each.name, "ok" if each.passed else f"FAILED: {each.reason}"))
        table(("check", "result"), rows)
    if not report.passed:
        raise typer.Exit(1)


def problems(*, data: str = "", data_dir: Path | None = None, json: flags.Json = False) -> None:
    """List the data that every system can learn from, and whether the files are there.

    Options:
        data (NAME): Only data with this in their name, such as movielens.
        data_dir (PATH): Folder of the data sets; else the one that POSSE_DATA names.

    Examples:
        posse problems --data movielens
        posse problems show embedded:movielens
    """
    with Doing("reading the data sets"):
        lists = _lists(lambda system: list_problems(system.about.problems, data_dir))
    if data:
        lists = _named_like(data, lists)
    _show_lists("data", lists, json)


def _named_like(data: str, lists: Lists) -> Lists:
    """Return the rows whose name contains a word; refuse a word that no name contains."""
    matches = {}
    known: list[str] = []
    for system, listing in lists.items():
        known += ", ".join(row[0] for row in listing.rows).split(", ")
        match = listing.named_like(data)
        if match.rows:
            matches[system] = match
    if not matches:
        choices = tuple(dict.fromkeys(known))
        raise ConfigError(
            f"no data set '{data}'.{suggestion(data, choices)}", rule="cli.data.unknown"
        )
    return matches


def _lists(listing_of: Callable[[AnySystem], Listing | None]) -> Lists:
    """Return the list of each system that has one, by the name of the system."""
    lists = {}
    for system in systems():
        listing = listing_of(system)
        if listing is not None:
            lists[system.name] = listing
    return lists


def _show_lists(what: str, lists: Lists, json: bool) -> None:
    if json:
        print_json({system: {what: listing.entries} for system, listing in lists.items()})
        return
    for system, listing in lists.items():
        heading(f"{listing.title} ({system})")
        table(listing.columns, listing.rows, numeric=listing.numeric)
        for note in listing.notes:
            say(note, style="dim")
