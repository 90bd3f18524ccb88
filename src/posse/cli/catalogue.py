"""What ships with Posse: `posse policies` and `posse problems`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from posse.cli import flags
from posse.cli.progress import Doing
from posse.cli.screen import heading, print_json, say, table
from posse.core.check import suggestion
from posse.core.errors import ConfigError
from posse.systems.registry import systems

if TYPE_CHECKING:
    from posse.core.listing import Listing

    Lists = Mapping[str, Listing | None]


def policies(*, check: str | None = None, json: flags.Json = False) -> None:
    """List the policies of every system, or check your own.

    Options:
        check (MODULE:CLASS): Check your own policy: module:Class or file.py:Class.

    Examples:
        posse policies
        posse policies --check mine.py:Mine
    """
    from posse.policies.listing import listing

    if check is not None:
        _check(check, json)
        return
    lists = {each.name: listing(each.about.policies) for each in systems()}
    _show_lists("policies", lists, json)
    if not json:
        say(
            "\nYour own: subclass posse.policies.Policy, then: posse policies --check "
            "file.py:Class",
            style="dim",
        )


def _check(where: str, json: bool) -> None:
    from posse.policies.arms.registry import policy as load_policy

    policy = load_policy(where)
    with Doing(f"checking {where}"):
        from posse.policies.arms.checks import check

        report = check(policy)
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
    from posse.problems.listing import listing

    with Doing("reading the data sets"):
        lists = {each.name: listing(each.about.problems, data_dir) for each in systems()}
    if data:
        lists = _named_like(data, lists)
    _show_lists("data", lists, json)


def _named_like(data: str, lists: Lists) -> Lists:
    """Return the rows whose name contains a word; refuse a word that no name contains."""
    listings = {name: listing for name, listing in lists.items() if listing is not None}
    matches = {name: listing.named_like(data) for name, listing in listings.items()}
    if any(listing.rows for listing in matches.values()):
        return {name: listing for name, listing in matches.items() if listing.rows}
    names = ", ".join(row[0] for listing in listings.values() for row in listing.rows)
    choices = tuple(dict.fromkeys(names.split(", ")))
    raise ConfigError(f"no data set '{data}'.{suggestion(data, choices)}", rule="cli.data.unknown")


def _show_lists(what: str, lists: Mapping[str, Listing | None], json: bool) -> None:
    """Print the list of each system that has one."""
    present = {name: listing for name, listing in lists.items() if listing is not None}
    if json:
        print_json({name: {what: listing.entries} for name, listing in present.items()})
        return
    for name, listing in present.items():
        heading(f"{listing.title} ({name})")
        table(listing.columns, listing.rows, numeric=listing.numeric)
        for note in listing.notes:
            say(note, style="dim")
