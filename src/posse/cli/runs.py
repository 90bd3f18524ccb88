"""`posse runs`: the records on this machine."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from posse.cli import options
from posse.cli.keep import label_of, told_of
from posse.cli.screen import heading, print_json, record_json, remark, say, table
from posse.core.errors import ConfigError, StoreError

if TYPE_CHECKING:
    from posse.results.store import Store
    from posse.results.words import Vocabulary

app = typer.Typer(help="List, show, delete, export and report the runs on this machine.")

Limit = Annotated[int, typer.Option(help="At most this many; 0 for all.", min=0, metavar="INTEGER")]
Kind = Annotated[str | None, typer.Option(help="Only runs of this system.", metavar="TEXT")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Parties = Annotated[bool, typer.Option("--parties", help="What each party earned, not the curves (.csv, .parquet).")]
Out = Annotated[Path, typer.Option("--out", "-o", help="File: .csv, .parquet, .json or .html.", metavar="FILE")]
Page = Annotated[Path, typer.Option("--out", "-o", help="Where to write the page.", metavar="FILE")]


@app.command("list")
def list_runs(limit: Limit = 20, kind: Kind = None, json: options.Json = False) -> None:
    """List the runs, the last one first."""
    from posse.results import words
    from posse.results.store import Store
    from posse.results.words import common

    store = Store()
    # A pair is saved so that its protected run is 'last'; in the list the newer of the two comes first.
    found = sorted(store.list(limit or None, kind), key=lambda row: (row.created, row.id), reverse=True)
    told = {row.id: told_of(row) for row in found}
    if json:
        print_json([{**asdict(row), **told[row.id]} for row in found])
        return
    if not found:
        say(f"No runs yet in {store.path}. Make one with: posse demo")
        return
    spoken = {row.id: _words(store, row.id) for row in found}
    said = common(spoken.values())
    labelled = any(one["label"] for one in told.values())
    rows = [
        (
            row.id, row.policy, _level(row.status, **told[row.id]), f"{row.arms}", f"{row.horizon:,}", f"{row.runs}",
            spoken[row.id].priced(words.number(row.total_mean)), *([told[row.id]["label"]] if labelled else []),
            row.problem, row.created[:16].replace("T", " "),
        )
        for row in found
    ]  # fmt: skip
    columns = ["id", "policy", "level", words.plural(said.arm), words.plural(said.step), "runs", "earned"]
    columns += ["label"] if labelled else []
    table([*columns, "data", "made (UTC)"], rows, numeric=(3, 4, 5, 6), optional=2)
    if len(found) == limit < len(store):
        remark(f"the last {limit} of {len(store):,} runs; --limit 0 lists all.")


def _words(store: Store, id: str) -> Vocabulary:
    """Give the words of a record; a damaged one has the default words, and `posse runs show` says why."""
    from posse.results.words import Vocabulary

    try:
        return store.get(id).words
    except StoreError:
        return Vocabulary()


def _level(status: str, *, protection: str, state: str, label: str) -> str:
    return protection if status == "finished" else f"{protection} ({state})"


@app.command()
def show(id: options.One, json: options.Json = False) -> None:
    """Show one run: what was earned, what it cost, what leaks."""
    from posse.cli import tables
    from posse.results import words
    from posse.results.store import Store

    record = Store().get(id)
    if json:
        print_json(record_json(record))
        return
    heading(f"{record.id}: {tables.describe(record)}")
    facts = [("label", label_of(record)), ("kind", record.kind), ("status", record.state), ("made", record.created)]
    say(" · ".join(f"{name} {value}" for name, value in facts if value))
    tables.earned_and_cost([record])
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
    for sentence in tables.shown(record, "warnings"):
        say(f"Warning: {sentence}", style="yellow")


@app.command()
def delete(ids: options.Ids, yes: Yes = False) -> None:
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
def export(ids: options.Ids, out: Out, parties: Parties = False) -> None:
    """Write runs to a file; its suffix says how."""
    from posse.results import export as export_records
    from posse.results.store import Store

    store = Store()
    remark(f"wrote {export_records([store.get(id) for id in ids], out, parties=parties)}")


@app.command()
def report(ids: options.Ids, out: Page = Path("posse-report.html")) -> None:
    """Write one HTML page about one run or several."""
    from posse.results import report as write_report
    from posse.results.store import Store

    store = Store()
    remark(f"wrote {write_report([store.get(id) for id in ids], out)}")
