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
    pass

Limit = Annotated[
    int, typer.Option(help="Most runs to list; 0 lists all.", min=0, metavar="INTEGER")
]


def list_runs(
    *,
    limit: Limit = 20,
    kind: str | None = None,
    where: list[str] | None = None,
    sort: str = "",
    columns: str = "",
    json: flags.Json = False,
) -> None:
    """List the runs on this machine, the last one first.

    Runs that still run are listed too, with the settings in which runs differ.

    Options:
        kind (TEXT): Only runs of this system.
        where (CONDITION): Only where this holds: policy=ucb, horizon>=1000, label~trial. Repeat it.
        sort (NAMES): Sort by columns: NAME,NAME,...; -NAME the largest first.
        columns (NAMES): Show these columns: NAME,NAME,...

    Examples:
        posse runs list --where policy=ucb --sort=-total_mean
        posse runs list --columns id,policy,earned
    """
    from posse.cli import run_lists

    store = open_store()
    query = run_lists.Query(where or [], _names(sort), _names(columns))
    is_query = bool(query.where or query.sort or query.columns)
    rows = store.list(None if is_query else limit or None, kind)
    if not query.columns:
        # A pair is saved so that its protected run is 'last'; the list has the newer one first.
        rows.sort(key=lambda row: (row.created, row.id), reverse=True)
    heads = store.heads(row.id for row in rows)  # damaged runs have none
    if is_query:
        run_lists.print_query(query, run_lists.figures_of(store, heads), rows, heads, limit, json)
    elif json:
        figures = {row["record"]: row for row in run_lists.figures_of(store, heads)}
        facts = {row.id: run_lists.facts_of(row, heads.get(row.id)) for row in rows}
        print_json([{**facts[id], "figures": figures.get(id, {})} for id in facts])
    elif rows:
        run_lists.print_list(rows, heads, {})
        if len(rows) == limit < len(store):
            remark(f"the last {limit} of {len(store):,} runs; --limit 0 lists all.")
    else:
        kinds = ", ".join(sorted({row.kind for row in store.list()}))
        text = f"No runs of '{kind}' in {store.path}. It has runs of: {kinds}."
        say(text if kinds else f"No runs yet in {store.path}. Make one with: posse demo")


def _names(text: str) -> list[str]:
    return [name for name in map(str.strip, text.split(",")) if name]


def show(id: str = "last", *, json: flags.Json = False, full: flags.Full = False) -> None:
    """Show one run: what was earned, what it cost, how it was protected.

    Options:
        id (ID): An id, the beginning of an id, or 'last'.

    Examples:
        posse runs show last
        posse runs show last --full
    """
    from posse.results.document import document

    record = open_store().get(id)
    if json:
        print_json(record.document())
        return
    facts = {"label": record.own_label, "party": record.party, "run": record.run_id}
    if record.run_id == record.id:
        del facts["run"]
    texts = [f"{name} {value}" for name, value in facts.items() if value]
    say(" · ".join([record.id, *texts, f"made {record.created}"]))
    show_document(document(record), full=full)
    if not full:
        details(f"posse runs show {record.id}")
    view = record.summary.get("view")
    if view:
        say(f"View recorded: {view} (what it shows: posse audit {record.id})")


def delete(ids: list[str], *, yes: bool = False) -> None:
    """Delete runs; if one id is unknown, none is deleted.

    Options:
        ids (ID...): Ids, beginnings of ids, or 'last'.
        yes (-y): Do not ask.

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


def export(ids: list[str], *, out: Path, parties: bool = False) -> None:
    """Write runs to a file; its suffix is the format.

    Options:
        ids (ID...): Ids, beginnings of ids, or 'last'.
        out (-o FILE): File: .csv, .parquet, .json or .html.
        parties: What each party earned, not the curves (.csv, .parquet).

    Examples:
        posse runs export last --out run.json
        posse runs export ID ID --out curves.csv
    """
    from posse.results import export as export_records

    records = list(map(open_store().get, ids))
    remark(f"wrote {export_records(records, out, parties=parties)}")


def report(ids: list[str], *, out: Path = Path("posse-report.html")) -> None:
    """Write one HTML page about one run or several.

    Options:
        ids (ID...): Ids, beginnings of ids, or 'last'.
        out (-o FILE): Where to write the page.

    Examples:
        posse runs report last
        posse runs report ID ID --out page.html
    """
    from posse.results import report as write_report

    records = list(map(open_store().get, ids))
    remark(f"wrote {write_report(records, out)}")
