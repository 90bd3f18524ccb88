"""`posse policies` and `posse problems`: what every system ships, and whether your policy may be federated."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from posse.cli import options
from posse.cli.progress import Doing
from posse.cli.screen import heading, print_json, say, table
from posse.cli.tables import section

Check = Annotated[
    str | None,
    typer.Option("--check", help="Check a policy of yours: module:Class or file.py:Class.", metavar="MODULE:CLASS"),
]
Folder = Annotated[
    Path | None, typer.Option("--data-dir", help="Folder of the data sets; else the one that POSSE_DATA names.")
]


def policies(check: Check = None, json: options.Json = False) -> None:
    """List the policies of every system, or check your own."""
    from posse.protocols.registry import systems

    if check is not None:
        _check(check, json)
        return
    lists = {system.name: listed for system in systems() if (listed := system.policies()) is not None}
    if json:
        print_json({name: listed.data or listed.plain() for name, listed in lists.items()})
        return
    for listed in lists.values():
        section(listed)
    say("\nYour own: subclass posse.policies.Policy, then: posse policies --check file.py:Class", style="dim")


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
        heading(f"{type(policy).__name__}: {'may run in a federation' if report.passed else 'refused'}")
        table(("check", "result"), [(r.name, "ok" if r.passed else f"FAILED: {r.reason}") for r in report.results])
    if not report.passed:
        raise typer.Exit(1)


def problems(folder: Folder = None, json: options.Json = False) -> None:
    """List the data that every system can learn from, and whether the files are there."""
    from posse.protocols.registry import systems

    with Doing("reading the data sets"):
        lists = {system.name: listed for system in systems() if (listed := system.problems(folder)) is not None}
    if json:
        print_json({name: listed.data or listed.plain() for name, listed in lists.items()})
        return
    for listed in lists.values():
        section(listed)
