"""`posse runs`: the records on this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from operator import itemgetter
from pathlib import Path
from typing import Annotated

import typer

from posse.cli import flags
from posse.cli.keep import open_store
from posse.cli.screen import details, in_terminal, print_json, remark, say, table
from posse.cli.screen import show as show_document
from posse.core.errors import ConfigError, StoreError
from posse.results import Record, Row, RunRow, Store, differences
from posse.results import export as export_records
from posse.results import report as write_report
from posse.results.document import document
from posse.results.export import (
    ALSO,
    Scalar,
    aligned,
    column,
    data_of,
    filtered,
    ordered,
    split,
    summary_rows,
)
from posse.results.words import UNKNOWN, common, count, number, plural, seconds, words_of

LISTED = (
    "system",
    "policy",
    "level",
    "horizon",
    "runs",
    "data",
    "party",
    "version",
    "status",
    "seeds",
)
"""Settings that are not in the column `settings`."""
STORED = (
    "record",
    "kind",
    "policy",
    "level",
    "arms",
    "horizon",
    "runs",
    "total_mean",
    "party",
    "label",
    "data",
    "created",
)
"""Columns of a list by their names in `results.export.ALSO`, where they are filtered."""
OPTIONAL = ("made (UTC)", "data", "settings")
"""Columns that a list too wide for the terminal leaves out, in this order."""
QUIET = 10.0
"""Seconds without a heartbeat after which the list shows it."""

Limit = Annotated[
    int, typer.Option(help="Most runs to list; 0 lists all.", min=0, metavar="INTEGER")
]


def list_runs(
    *,
    limit: Limit = 20,
    kind: str | None = None,
    where: list[str] = flags.NONE_GIVEN,
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
    store = open_store()
    queries = any((where, sort, columns))
    rows = store.list(None if queries else limit or None, kind)
    if json and not columns:
        # Programs get the order of 0.1, by the time of creation. A list on the screen begins with the
        # run that was saved last: 'last' in other commands.
        rows.sort(key=lambda row: (row.created, row.id), reverse=True)
    heads = store.heads(row.id for row in rows)  # damaged runs have none
    if queries:
        figures = figures_of(store, heads)
        print_query(Query(where, _names(sort), _names(columns)), figures, rows, heads, limit, json)
    elif json:
        figures_by_id = {row["record"]: row for row in figures_of(store, heads)}
        facts = {row.id: facts_of(row, heads.get(row.id)) for row in rows}
        print_json([{**facts[id], "figures": figures_by_id.get(id, {})} for id in facts])
    elif rows:
        print_list(rows, heads)
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
    remark(f"deleted {count(store.delete(ids), 'run')}.")


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
    records = list(map(open_store().get, ids))
    remark(f"wrote {write_report(records, out)}")


# Lists and queries ----------------------------------------------------------------------------------


def figures_of(store: Store, heads: Mapping[str, Record]) -> list[Row]:
    """Return one row per run: every setting and every figure; of damaged curves, the head's."""
    records = dict(heads)
    for id in heads:
        with suppress(StoreError):
            records[id] = store.get(id)
    return aligned(summary_rows(records.values()))


# A list -------------------------------------------------------------------------------------------


def print_list(
    rows: Sequence[RunRow], heads: Mapping[str, Record], figures: Sequence[Row] = ()
) -> None:
    """Print one line per run.

    Args:
        rows: The runs.
        heads: Their records, without those of damaged runs.
        figures: Further columns, one row per run.
    """
    nouns = common(head.words for head in heads.values())
    headings = {"arms": plural(nouns.arm), "horizon": plural(nouns.step)}
    settings = dict(zip(heads, map(_shown_settings, differences(heads.values())), strict=True))
    lines = [_line(row, heads.get(row.id), settings.get(row.id, "")) for row in rows]
    for line, figure in zip(lines, figures, strict=False):
        line |= {name: _cell(value) for name, value in figure.items()}
    if len({row.kind for row in rows}) == 1:
        for line in lines:
            line["system"] = ""
    names = [name for name in lines[0] if any(line[name] for line in lines)]
    first_number = names.index("arms")
    table(
        [headings.get(name, name) for name in names],
        [itemgetter(*names)(line) for line in lines],
        numeric=range(first_number, first_number + 4),
        optional=OPTIONAL,
        spare=(headings["arms"], "runs"),
    )


def _shown_settings(settings: Mapping[str, str]) -> str:
    """Return the settings in which a run differs, without those of other columns."""
    texts = []
    for name, value in settings.items():
        if name not in LISTED:
            texts.append(f"{name.removeprefix('policy.')} {value}")
    return ", ".join(texts)


def _line(row: RunRow, head: Record | None, settings: str) -> dict[str, str]:
    """Return the cells of a run; those of a damaged one are what the store's index has."""
    line = {
        "id": row.id,
        "system": row.kind,
        "policy": row.policy,
        "level": _level(row, head),
        "arms": str(row.arms or UNKNOWN),
        "horizon": f"{row.horizon:,}",
        "runs": str(row.runs or UNKNOWN),
        "earned": number(row.total_mean),
        "party": row.party,
        "label": "",
        "settings": settings,
        "data": row.problem,
        "made (UTC)": row.created[:16].replace("T", " "),
    }
    if head is not None:
        earned = head.words.priced(line["earned"])
        line |= {"earned": earned, "label": head.own_label, "data": data_of(head)}
    return line


def facts_of(row: RunRow, head: Record | None) -> dict[str, object]:
    """Return a row with what its record adds; a damaged one adds nothing."""
    facts: dict[str, object] = asdict(row)
    if head is None:
        return {**facts, "label": "", "protection": row.level, "state": row.status, "settings": {}}
    state = head.state if row.time is None else f"{row.status}, {row.progress}"
    names = {"label": head.own_label, "protection": head.protection, "state": state}
    return {**facts, **names, "settings": head.settings()}


def _level(row: RunRow, head: Record | None) -> str:
    """Return the level of a run, and its state if it is not finished."""
    facts = facts_of(row, head)
    if row.status == "finished":
        return str(facts["protection"])
    state = facts["state"]
    if row.age is not None and row.age > QUIET:
        state = f"{state}, last heartbeat {seconds(row.age)} ago"
    return f"{facts['protection']} ({state})"


# A query ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Query:
    """What a list was filtered and sorted by, and the columns it shows."""

    where: list[str]
    sort: list[str]
    columns: list[str]


def print_query(
    query: Query,
    figures: list[Row],
    rows: Sequence[RunRow],
    heads: Mapping[str, Record],
    limit: int,
    json: bool,
) -> None:
    """Print the runs that a query selects; the limit is on what is left."""
    headings = _headings(heads)
    matching = filtered(figures, query.where, headings)
    selected = ordered(matching, query.sort, headings)[: limit or None]
    columns = {column(word, selected, headings): word for word in query.columns}
    projected = selected
    if columns:
        projected = [{name: row.get(name) for name in columns} for row in selected]
    if json:
        print_json(projected)
        return
    if columns:
        # A heading is the word that was given for a column, or its own longer name.
        names = [word if word in headings else name for name, word in columns.items()]
        numeric = [place for place, name in enumerate(columns) if _is_numeric(projected, name)]
        table(names, [list(map(_cell, row.values())) for row in projected], numeric=numeric)
    elif selected:
        names = _columns_of_conditions(query, figures, headings)
        by_id = {row.id: row for row in rows}
        _print_selected([by_id[str(row["record"])] for row in selected], heads, selected, names)
    text = count(len(selected), "row")
    if len(matching) > len(selected):
        text += f" of {len(matching):,}; --limit 0 lists all"
    remark(f"{text}.")


def _print_selected(
    rows: Sequence[RunRow], heads: Mapping[str, Record], figures: Sequence[Row], names: list[str]
) -> None:
    """Print runs as a list, with further columns."""
    further = [{name: row.get(name) for name in names} for row in figures]
    print_list(rows, {row.id: heads[row.id] for row in rows}, further)


def _columns_of_conditions(
    query: Query, figures: Sequence[Row], headings: Mapping[str, str]
) -> list[str]:
    """Return the columns that runs were filtered or sorted by, and that a list lacks."""
    words = [split(condition)[0] for condition in query.where]
    words += [word.removeprefix("-") for word in query.sort]
    columns = {column(word, figures, headings) for word in words}
    return sorted(columns.difference(STORED))


def _is_numeric(rows: Sequence[Row], name: str) -> bool:
    return all(isinstance(row[name], int | float) for row in rows)


def _cell(value: Scalar) -> str:
    return words_of(value) if isinstance(value, str | bool) else number(value)


def _headings(heads: Mapping[str, Record]) -> dict[str, str]:
    """Return words for columns: the headings of a list, which name steps and arms as the systems
    of its runs do.
    """
    headings = {}
    for head in heads.values():
        headings[plural(head.words.step)] = "horizon"
        headings[plural(head.words.arm)] = "arms"
    return {**headings, **ALSO}
