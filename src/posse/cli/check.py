"""`posse check FILE`: what Posse understands of a user's table, and the command that runs on it."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from posse.cli import flags
from posse.cli.screen import bullets, in_terminal, print_json, say, table
from posse.core.errors import PosseError

if TYPE_CHECKING:
    from posse.problems.summary import ArmSummary, Summary
    from posse.systems.base import RunSettings

S = TypeVar("S", bound="RunSettings")

SHOWN = 12
"""Arms that are listed; the best ones."""


def check(files: list[Path], *, columns: str | None = None, json: flags.Json = False) -> None:
    """Print what Posse understands of a table, and the command that runs on it.

    Options:
        files (FILE...): A table (CSV, Parquet, Arrow), or one per owner.
        columns (TEXT): Names of columns in the table: item=shop,rating=stars.
    """
    from posse.problems.summary import summarise
    from posse.problems.tables.mapping import read_columns_setting

    summary = summarise(files, read_columns_setting(columns))
    if json:
        print_json(_document(summary))
    else:
        _show(files, summary)


def _document(summary: Summary) -> dict[str, object]:
    return {
        "kind": summary.kind,
        "settings": dict(summary.flags),
        "rows": summary.rows,
        "threshold": summary.threshold,
        "arms": list(map(_arm, summary.arms)),
        "dropped": list(summary.dropped),
        "similar": [list(names) for names in summary.similar],
        "command": shlex.join(summary.command),
    }


def _arm(arm: ArmSummary) -> dict[str, Any]:
    """Return what is known of an arm; no interval without rows, or for rewards beyond [0, 1]."""
    from posse.systems.scenes import wilson_interval

    interval = None
    if arm.count and 0 <= arm.mean <= 1:
        interval = wilson_interval(arm.mean * arm.count, arm.count)
    return {"name": arm.name, "rows": arm.count, "mean": arm.mean, "interval": interval}


def _show(files: list[Path], summary: Summary) -> None:
    from posse.problems.recognise import TITLES
    from posse.problems.summary import as_flags

    name = str(files[0]) if len(files) == 1 else f"{len(files)} files"
    say(f"{name}: {TITLES[summary.kind]}", style="bold")
    facts = f"{len(summary.arms)} arms"
    if summary.rows:
        facts = f"{summary.rows:,} rows; {facts}"
    if summary.flags:
        facts += f"; read with {shlex.join(as_flags(summary.flags))}"
    say(facts)
    for names in summary.similar:
        listed = ", ".join(map(repr, names))
        say(
            f"{listed} differ only in case or spaces, and are different arms. Correct the file if "
            "they are the same.",
            style="bold red",
        )
    value = "mean"
    if summary.kind == "clients":
        value = "share of samples"
    elif summary.threshold is not None:
        value = f"share above {summary.threshold:g}"
    rows = []
    for arm in map(_arm, summary.arms[:SHOWN]):
        count = "" if arm["rows"] is None else f"{arm['rows']:,}"
        interval = "{:.3f} to {:.3f}".format(*arm["interval"]) if arm["interval"] else ""
        rows.append((arm["name"], count, f"{arm['mean']:.3f}", interval))
    table(("arm", "rows", value, "95 % interval"), rows, numeric=(1, 2, 3))
    if len(summary.arms) > SHOWN:
        say(f"and {len(summary.arms) - SHOWN} more arms")
    if summary.dropped:
        bullets(summary.dropped, style="yellow")
    typer.echo(f"\n{shlex.join(summary.command)}")  # one line, to be copied


def ask_for_settings(settings: S, error: PosseError) -> S:
    """Ask whether a table is to be read with the settings that fit it.

    Args:
        settings: Settings whose table cannot be read.
        error: Why not.

    Raises:
        PosseError: `error`, if nobody can be asked, nothing else fits, or the answer is no.
    """
    from posse.problems.data import TableSettings
    from posse.problems.summary import as_flags, summarise

    source: object = settings
    may_ask = error.rule.startswith("problems.") and in_terminal()
    if not may_ask or not isinstance(source, TableSettings):
        raise error
    try:
        summary = summarise(list(source.data_files()), source.columns)
    except PosseError:
        raise error from None
    if summary.flags:
        words = shlex.join(as_flags(summary.flags))
        typer.echo(error.text, err=True)
        if typer.confirm(f"Read it with {words}?", default=True, err=True):
            return settings.but(**summary.flags)
    raise error
