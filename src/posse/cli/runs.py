"""`posse runs`: the records on this machine."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from posse.cli import flags
from posse.cli.screen import heading, print_json, remark, say, table
from posse.core.errors import ConfigError, StoreError

if TYPE_CHECKING:
    from posse.results.export import Row
    from posse.results.record import Record
    from posse.results.store import RunRow, Store

app = typer.Typer(
    help="List, show, delete, export and report the runs on this machine.",
    callback=flags.help_when_alone, invoke_without_command=True,
)  # fmt: skip

Limit = Annotated[int, typer.Option(help="At most this many; 0 for all.", min=0, metavar="INTEGER")]
Kind = Annotated[str | None, typer.Option(help="Only runs of this system.", metavar="TEXT")]
Where = Annotated[
    list[str] | None,
    typer.Option(
        "--where", help="Only where this holds: policy=ucb, horizon>=1000, label~trial. Repeat it.", metavar="CONDITION"
    ),
]
Sort = Annotated[
    str | None, typer.Option(help="Sort by columns: NAME,NAME,...; -NAME the largest first.", metavar="NAMES")
]
Group = Annotated[str | None, typer.Option(help="One row a group: NAME,NAME,...; numbers are means.", metavar="NAMES")]
Shown = Annotated[str | None, typer.Option("--columns", help="Show these columns: NAME,NAME,...", metavar="NAMES")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Parties = Annotated[bool, typer.Option("--parties", help="What each party earned, not the curves (.csv, .parquet).")]
Out = Annotated[Path, typer.Option("--out", "-o", help="File: .csv, .parquet, .json or .html.", metavar="FILE")]
Page = Annotated[Path, typer.Option("--out", "-o", help="Where to write the page.", metavar="FILE")]

LISTED = ("system", "policy", "level", "horizon", "runs", "data", "party", "version", "status", "seeds")
"""What a list shows in columns of its own, or not at all."""
MOST = 4
"""Further settings that it shows at most, where they differ."""
QUIET = 10.0
"""Seconds without a heartbeat after which it says so."""


@app.command("list")
def list_runs(
    limit: Limit = 20, kind: Kind = None, where: Where = None, sort: Sort = None, group: Group = None,
    shown: Shown = None, json: flags.Json = False,
) -> None:  # fmt: skip
    """List the runs, the last one first; those that are running too, and settings in which they differ."""
    from posse.results import differences, words
    from posse.results.store import Store
    from posse.results.words import Vocabulary, common

    store = Store()
    if where or sort or group or shown:
        _query(store, limit, kind, where or (), sort, group, shown, json)
        return
    # A pair is saved so that its protected run is 'last'; in the list the newer of the two comes first.
    rows = sorted(store.list(limit or None, kind), key=lambda row: (row.created, row.id), reverse=True)
    heads = store.heads(row.id for row in rows)  # without damaged ones, of which `posse runs show` says more
    if json:
        figures = {row["record"]: row for row in _figures(store, heads)}
        print_json([{**_facts(row, heads.get(row.id)), "figures": figures.get(row.id, {})} for row in rows])
        return
    if not rows:
        say(f"No runs yet in {store.path}. Make one with: posse demo")
        return
    settings = dict(zip(heads, differences(heads.values()), strict=True))
    names = [name for name in dict.fromkeys(name for one in settings.values() for name in one) if name not in LISTED]
    nouns = {row.id: heads[row.id].words if row.id in heads else Vocabulary() for row in rows}
    also = [what for what in ("party", "label") if any(_facts(row, heads.get(row.id))[what] for row in rows)]
    lines = []
    for row in rows:
        facts, own = _facts(row, heads.get(row.id)), settings.get(row.id, {})
        lines.append((
            row.id, row.policy, _level(row, str(facts["protection"]), str(facts["state"])),
            f"{row.arms or words.UNKNOWN}",
            f"{row.horizon:,}", f"{row.runs or words.UNKNOWN}", nouns[row.id].priced(words.number(row.total_mean)),
            *(str(facts[what]) for what in also), *(own.get(name, "") for name in names[:MOST]), row.problem,
            row.created[:16].replace("T", " "),
        ))  # fmt: skip
    shared = common(nouns.values())
    columns = ["id", "policy", "level", words.plural(shared.arm), words.plural(shared.step), "runs", "earned", *also]
    columns += [name.removeprefix("policy.") for name in names[:MOST]]
    table([*columns, "data", "made (UTC)"], lines, numeric=(3, 4, 5, 6), optional=2 + len(names[:MOST]))
    if len(rows) == limit < len(store):
        remark(f"the last {limit} of {len(store):,} runs; --limit 0 lists all.")


def _figures(store: Store, heads: Mapping[str, Record]) -> list[Row]:
    """Load runs and give a row each: every setting and every figure; of damaged curves, what the head says."""
    from posse.results.export import aligned, summary_rows

    records = dict(heads)
    for id in heads:
        with suppress(StoreError):
            records[id] = store.get(id)
    return aligned(summary_rows(records.values()))


def _query(
    store: Store, limit: int, kind: str | None, where: Sequence[str], sort: str | None, group: str | None,
    shown: str | None, json: bool,
) -> None:  # fmt: skip
    """Filter, sort and group the runs as a frame would; the limit is on what is left."""
    from posse.results import words
    from posse.results.export import column, filtered, grouped, ordered

    heads = store.heads(row.id for row in store.list(None, kind))  # damaged ones are left out
    rows = filtered(_figures(store, heads), where)
    rows = grouped(rows, _names(group)) if group else rows
    rows = ordered(rows, _names(sort)) if sort else rows
    many, rows = len(rows), rows[: limit or None]
    columns = [column(name, rows) for name in _names(shown)] if shown else _told(rows, group, where, sort)
    if json:
        print_json([{name: row.get(name) for name in columns} if shown else row for row in rows])
        return
    numeric = [i for i, name in enumerate(columns) if all(isinstance(row.get(name), int | float) for row in rows)]
    cells = [
        [words.UNKNOWN if (x := row.get(name)) is None
         else words.words_of(x) if isinstance(x, str | bool) else words.number(x) for name in columns]
        for row in rows
    ]  # fmt: skip
    table(columns, cells, numeric=numeric)
    remark(f"{words.count(len(rows), 'row')}{f' of {many:,}; --limit 0 lists all' if many > len(rows) else ''}.")


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _told(rows: Sequence[Row], group: str | None, where: Sequence[str], sort: str | None) -> list[str]:
    """Choose columns: what a list always shows, and what was asked for."""
    from posse.results.export import ALSO

    first = [
        *(_names(group) if group else ("id",)),
        *(("records",) if group else ("policy", "level", "horizon", "runs")),
    ]
    asked = [re.split("[!=<>~]", one)[0].strip() for one in where] if not group else []
    asked += [name.removeprefix("-") for name in _names(sort or "")]
    known = {name for row in rows for name in row}
    wanted = [ALSO.get(name, name) for name in (*first, *asked, "total_mean", "total_error", "seconds")]
    spelled = (
        next((f for f in (n, n.replace("-", "_"), f"policy.{n}", f"config.{n}") if f in known), "") for n in wanted
    )
    return list(dict.fromkeys(name for name in spelled if name))


def _facts(row: RunRow, head: Record | None) -> dict[str, object]:
    """Give a row with what its record adds; a damaged one adds nothing."""
    if head is None:
        return {**asdict(row), "label": "", "protection": row.level, "state": row.status, "settings": {}}
    state = head.state if row.time is None else f"{row.status}, {row.progress}"
    names = {"label": head.own_label, "protection": head.protection, "state": state}
    return {**asdict(row), **names, "settings": head.settings()}


def _level(row: RunRow, protection: str, state: str) -> str:
    from posse.results.words import seconds

    if row.status == "finished":
        return protection
    quiet = f", last heartbeat {seconds(row.age)} ago" if row.age is not None and row.age > QUIET else ""
    return f"{protection} ({state}{quiet})"


@app.command()
def show(id: flags.One, json: flags.Json = False, brief: flags.Brief = False) -> None:
    """Show one run: what was earned, what it cost, what leaks."""
    from posse.cli import tables
    from posse.results import words
    from posse.results.store import Store

    record = Store().get(id)
    if json:
        print_json(record.document())
        return
    heading(f"{record.id}: {tables.describe(record)}")
    facts = [("label", record.own_label), ("kind", record.kind), ("party", record.party), ("status", record.state)]
    facts += [("made", record.created), ("run", record.run_id if record.run_id != record.id else "")]
    say(" · ".join(f"{name} {value}" for name, value in facts if value))
    tables.first([record])
    say("")
    tables.earned_and_cost([record])
    for sentence in record.warnings:
        say(f"Warning: {sentence}", style="yellow")
    if brief:
        tables.folded(record)
        return
    if record.arms:
        heading(words.plural(record.words.pull).capitalize())
        tables.pulls(record)
    if record.traffic:
        heading("Traffic")
        rows = [(hop.hop, f"{hop.messages:,}", words.size(hop.bytes)) for hop in record.traffic]
        table(("from -> to", "messages", "bytes"), rows, numeric=(1, 2))
    if record.role_seconds:
        heading("CPU time by role")
        table(("role", "time"), [(r, words.seconds(s)) for r, s in record.role_seconds.items()], numeric=(1,))
    tables.details(record)
    if view := record.summary.get("view"):
        say(f"View recorded: {view} (what it shows: posse audit {record.id})")


@app.command()
def delete(ids: flags.Ids, yes: Yes = False) -> None:
    """Delete runs; one unknown id, and none is deleted."""
    from posse.results import words
    from posse.results.store import Store

    store = Store()
    # Resolved before asking, so that the question names what would go.
    names = list(dict.fromkeys(store.get(id).id for id in ids)) if not yes else ids
    if not yes:
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise ConfigError("delete asks before it deletes, and this is not a terminal. Pass --yes to delete.")
        if not typer.confirm(f"Delete {', '.join(names)}?", err=True):
            remark("nothing was deleted.")
            raise typer.Exit(1)
    remark(f"deleted {words.count(store.delete(names), 'run')}.")


@app.command()
def export(ids: flags.Ids, out: Out, parties: Parties = False) -> None:
    """Write runs to a file; its suffix says how."""
    from posse.results import export as export_records
    from posse.results.store import Store

    store = Store()
    remark(f"wrote {export_records([store.get(id) for id in ids], out, parties=parties)}")


@app.command()
def report(ids: flags.Ids, out: Page = Path("posse-report.html")) -> None:
    """Write one HTML page about one run or several."""
    from posse.results import report as write_report
    from posse.results.store import Store

    store = Store()
    remark(f"wrote {write_report([store.get(id) for id in ids], out)}")
