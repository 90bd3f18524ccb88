"""`posse runs`: the records on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from posse.cli import flags
from posse.cli.keep import open_store
from posse.cli.screen import details, in_terminal, print_json, remark, say
from posse.cli.screen import show as show_document
from posse.core.errors import ConfigError

if TYPE_CHECKING:
    from posse.results.store import Store

Limit = Annotated[
    int, typer.Option(help="Most runs to list; 0 lists all.", min=0, metavar="INTEGER")
]
Kind = Annotated[str | None, typer.Option(help="Only runs of this system.", metavar="TEXT")]
Where = Annotated[
    list[str] | None,
    typer.Option(
        "--where",
        help="Only where this holds: policy=ucb, horizon>=1000, label~trial. Repeat it.",
        metavar="CONDITION",
    ),
]
Sort = Annotated[
    str | None,
    typer.Option(help="Sort by columns: NAME,NAME,...; -NAME the largest first.", metavar="NAMES"),
]
Group = Annotated[
    str | None,
    typer.Option(help="One row a group: NAME,NAME,...; numbers are means.", metavar="NAMES"),
]
Shown = Annotated[
    str | None, typer.Option("--columns", help="Show these columns: NAME,NAME,...", metavar="NAMES")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Parties = Annotated[
    bool, typer.Option("--parties", help="What each party earned, not the curves (.csv, .parquet).")
]
Out = Annotated[
    Path, typer.Option("--out", "-o", help="File: .csv, .parquet, .json or .html.", metavar="FILE")
]
Page = Annotated[Path, typer.Option("--out", "-o", help="Where to write the page.", metavar="FILE")]


def list_runs(
    limit: Limit = 20,
    kind: Kind = None,
    where: Where = None,
    sort: Sort = None,
    group: Group = None,
    columns: Shown = None,
    json: flags.Json = False,
) -> None:
    """List the runs on this machine, the last one first.

    Runs that still run are listed too, with the settings in which runs differ.

    Examples:
        posse runs list --where policy=ucb --sort=-total_mean
        posse runs list --group policy,level
    """
    from posse.cli import run_lists

    store = open_store()
    query = run_lists.Query(where or [], _names(sort), _names(group), _names(columns))
    is_plain_list = query == run_lists.Query([], [], [], [])
    rows = store.list((limit or None) if is_plain_list else None, kind)
    if json and not query.group and not query.columns:
        # Programs get the order of 0.1, by the time of creation. A list on the screen begins with the
        # run that was saved last: 'last' in other commands.
        rows.sort(key=lambda row: (row.created, row.id), reverse=True)
    heads = store.heads(row.id for row in rows)  # damaged runs have none
    if not is_plain_list:
        run_lists.print_query(query, run_lists.figures_of(store, heads), rows, heads, limit, json)
    elif json:
        figures = {row["record"]: row for row in run_lists.figures_of(store, heads)}
        facts = [(row.id, run_lists.facts_of(row, heads.get(row.id))) for row in rows]
        print_json([{**own, "figures": figures.get(id, {})} for id, own in facts])
    elif not rows:
        _print_nothing(store, kind)
    else:
        run_lists.print_list(rows, heads, {})
        if len(rows) == limit < len(store):
            remark(f"the last {limit} of {len(store):,} runs; --limit 0 lists all.")


def _print_nothing(store: Store, kind: str | None) -> None:
    kinds = ", ".join(sorted({row.kind for row in store.list()}))
    if kinds:
        say(f"No runs of '{kind}' in {store.path}. It has runs of: {kinds}.")
    else:
        say(f"No runs yet in {store.path}. Make one with: posse demo")


def _names(text: str | None) -> list[str]:
    names = map(str.strip, (text or "").split(","))
    return list(filter(None, names))


def show(id: flags.One, json: flags.Json = False, full: flags.Full = False) -> None:
    """Show one run: what was earned, what it cost, how it was protected.

    Examples:
        posse runs show last
        posse runs show last --full
    """
    from posse.results.document import document

    record = open_store().get(id)
    if json:
        print_json(record.document())
        return
    facts = [record.id]
    if record.own_label:
        facts.append(f"label {record.own_label}")
    if record.party:
        facts.append(f"party {record.party}")
    if record.run_id != record.id:
        facts.append(f"run {record.run_id}")
    say(" · ".join([*facts, f"made {record.created}"]))
    show_document(document(record), full=full)
    if not full:
        details(f"posse runs show {record.id}")
    if view := record.summary.get("view"):
        say(f"View recorded: {view} (what it shows: posse audit {record.id})")


def delete(ids: flags.Ids, yes: Yes = False) -> None:
    """Delete runs; if one id is unknown, none is deleted.

    Examples:
        posse runs delete last
        posse runs delete ID ID --yes
    """
    from posse.results import words

    store = open_store()
    if not yes:
        # Resolved before asking, so that the question names what would go.
        ids = list(dict.fromkeys(store.get(id).id for id in ids))
        if not in_terminal():
            raise ConfigError(
                "delete asks before it deletes, and this is not a terminal. Pass --yes to delete.",
                rule="cli.yes.no-terminal",
            )
        if not typer.confirm(f"Delete {', '.join(ids)}?", err=True):
            remark("nothing was deleted.")
            raise typer.Exit(1)
    remark(f"deleted {words.count(store.delete(ids), 'run')}.")


def export(ids: flags.Ids, out: Out, parties: Parties = False) -> None:
    """Write runs to a file; its suffix is the format.

    Examples:
        posse runs export last --out run.json
        posse runs export ID ID --out curves.csv
    """
    from posse.results import export as export_records

    records = list(map(open_store().get, ids))
    remark(f"wrote {export_records(records, out, parties=parties)}")


def report(ids: flags.Ids, out: Page = Path("posse-report.html")) -> None:
    """Write one HTML page about one run or several.

    Examples:
        posse runs report last
        posse runs report ID ID --out page.html
    """
    from posse.results import report as write_report

    records = list(map(open_store().get, ids))
    remark(f"wrote {write_report(records, out)}")
