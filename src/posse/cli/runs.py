"""`posse runs`: the records on this machine."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from posse.cli import flags
from posse.cli.screen import details, print_json, remark, say, table
from posse.cli.screen import show as show_document
from posse.core.errors import ConfigError, StoreError

if TYPE_CHECKING:
    from posse.results.export import Row, Scalar
    from posse.results.record import Record
    from posse.results.store import RunRow, Store

Limit = Annotated[int, typer.Option(help="At most this many; 0 for all.", min=0, metavar="INTEGER")]
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
"""What a list shows in separate columns, or not at all."""
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
"""What these columns are called where they are filtered (`results.export.ALSO`)."""
MOST = 4
"""Further settings that it shows at most, where they differ."""
QUIET = 10.0
"""Seconds without a heartbeat after which the list shows it."""


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
    from posse.results.store import Store

    store = Store()
    query = Query(where or [], _names(sort), _names(group), _names(columns))
    is_plain_list = query == Query([], [], [], [])
    rows = store.list((limit or None) if is_plain_list else None, kind)
    if not query.group and not query.columns:
        # A pair is saved so that its protected run is 'last'; the list has the newer one first.
        rows.sort(key=lambda row: (row.created, row.id), reverse=True)
    heads = store.heads(row.id for row in rows)  # damaged runs have none
    if not is_plain_list:
        _print_query(query, _figures(store, heads), rows, heads, limit, json)
    elif json:
        figures = {row["record"]: row for row in _figures(store, heads)}
        print_json(
            [{**_facts(row, heads.get(row.id)), "figures": figures.get(row.id, {})} for row in rows]
        )
    elif not rows:
        _print_nothing(store, kind)
    else:
        _print_list(rows, heads)
        if len(rows) == limit < len(store):
            remark(f"the last {limit} of {len(store):,} runs; --limit 0 lists all.")


def _print_nothing(store: Store, kind: str | None) -> None:
    kinds = ", ".join(sorted({row.kind for row in store.list()}))
    if kinds:
        say(f"No runs of '{kind}' in {store.path}. It has runs of: {kinds}.")
    else:
        say(f"No runs yet in {store.path}. Make one with: posse demo")


def _names(text: str | None) -> list[str]:
    return [name.strip() for name in (text or "").split(",") if name.strip()]


def _figures(store: Store, heads: Mapping[str, Record]) -> list[Row]:
    """Return one row per run: every setting and every figure; of damaged curves, the head's."""
    from posse.results.export import aligned, summary_rows

    records = dict(heads)
    for id in heads:
        with suppress(StoreError):
            records[id] = store.get(id)
    return aligned(summary_rows(records.values()))


# A list -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Column:
    """A column of the list."""

    name: str
    cells: Sequence[str]
    optional: bool = False
    """Whether it is left out of a list that is too wide."""


def _print_list(
    rows: Sequence[RunRow],
    heads: Mapping[str, Record],
    requested: Mapping[str, Sequence[str]] | None = None,
) -> None:
    """Print one line per run.

    Args:
        rows: The runs.
        heads: Their records, without those of damaged runs.
        requested: Cells of further columns that the user asked for, by name.
    """
    from posse.results.words import Vocabulary, common, plural

    nouns = common(head.words for head in heads.values()) if heads else Vocabulary()
    arms = plural(nouns.arm)
    cells = [_cells(row, heads.get(row.id)) for row in rows]

    def column(name: str, heading: str = "", *, optional: bool = False) -> Column:
        return Column(heading or name, [each[name] for each in cells], optional)

    columns = [column("id"), column("system"), column("policy"), column("level")]
    if len({row.kind for row in rows}) == 1:
        del columns[1]
    columns += [column("arms", arms), column("horizon", plural(nouns.step))]
    columns += [column("runs"), column("earned")]
    requested = requested or {}
    columns += [Column(name, texts) for name, texts in requested.items()]
    columns += [each for each in (column("party"), column("label")) if any(each.cells)]
    columns += _varied_settings(rows, heads, (*LISTED, *requested))
    columns.append(column("data", optional=True))
    columns += _differences(rows, heads, columns)
    columns.append(column("made", "made (UTC)", optional=True))
    names = [each.name for each in columns]
    numbers = names.index(arms)
    table(
        names,
        list(zip(*(each.cells for each in columns), strict=True)),
        numeric=range(numbers, numbers + 4),
        optional=sum(each.optional for each in columns),
        spare=(arms, "runs"),
    )


def _cells(row: RunRow, head: Record | None) -> dict[str, str]:
    """Return what a list shows of one run; of a damaged one, what the store's index has."""
    from posse.results import words
    from posse.results.export import data_of

    cells = {
        "id": row.id,
        "system": row.kind,
        "policy": row.policy,
        "level": _level(row, head),
        "arms": str(row.arms or words.UNKNOWN),
        "horizon": f"{row.horizon:,}",
        "runs": str(row.runs or words.UNKNOWN),
        "earned": words.number(row.total_mean),
        "party": row.party,
        "label": "",
        "data": row.problem,
        "made": row.created[:16].replace("T", " "),
    }
    if head is not None:
        cells["earned"] = head.words.priced(cells["earned"])
        cells["label"] = head.own_label
        cells["data"] = data_of(head)
    return cells


def _varied_settings(
    rows: Sequence[RunRow], heads: Mapping[str, Record], others: Sequence[str]
) -> list[Column]:
    """Return columns of settings in which the runs differ, and which the list lacks."""
    from posse.results import differences

    settings = dict(zip(heads, differences(heads.values()), strict=True))
    names = dict.fromkeys(name for own in settings.values() for name in own)
    chosen = [name for name in names if name not in others][:MOST]
    return [
        Column(
            name.removeprefix("policy."),
            [settings.get(row.id, {}).get(name, "") for row in rows],
            optional=True,
        )
        for name in chosen
    ]


def _differences(
    rows: Sequence[RunRow], heads: Mapping[str, Record], columns: Sequence[Column]
) -> list[Column]:
    """Return a column with what distinguishes runs of which the others show the same."""
    from posse.results import differences

    lines = list(zip(*(column.cells for column in columns), strict=True))
    same: dict[tuple[str, ...], list[str]] = {}
    for row, line in zip(rows, lines, strict=True):
        if row.id in heads:
            same.setdefault(line[1:], []).append(row.id)
    texts: dict[str, str] = {}
    for ids in same.values():
        if len(ids) == 1:
            continue
        for id, own in zip(ids, differences([heads[id] for id in ids]), strict=True):
            texts[id] = ", ".join(
                f"{name.removeprefix('policy.')} {own[name]}" for name in own if name not in LISTED
            )
    if not any(texts.values()):
        return []
    return [Column("more", [texts.get(row.id, "") for row in rows], optional=True)]


def _facts(row: RunRow, head: Record | None) -> dict[str, object]:
    """Return a row with what its record adds; a damaged one adds nothing."""
    facts: dict[str, object] = asdict(row)
    if head is None:
        return {**facts, "label": "", "protection": row.level, "state": row.status, "settings": {}}
    state = head.state if row.time is None else f"{row.status}, {row.progress}"
    names = {"label": head.own_label, "protection": head.protection, "state": state}
    return {**facts, **names, "settings": head.settings()}


def _level(row: RunRow, head: Record | None) -> str:
    """Return the level of a run, and its state if it is not finished."""
    from posse.results.words import seconds

    facts = _facts(row, head)
    if row.status == "finished":
        return str(facts["protection"])
    state = facts["state"]
    if row.age is not None and row.age > QUIET:
        state = f"{state}, last heartbeat {seconds(row.age)} ago"
    return f"{facts['protection']} ({state})"


# A query ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Query:
    """What a list was filtered, sorted and grouped by, and the columns it shows."""

    where: list[str]
    sort: list[str]
    group: list[str]
    columns: list[str]


def _print_query(
    query: Query,
    figures: list[Row],
    rows: Sequence[RunRow],
    heads: Mapping[str, Record],
    limit: int,
    json: bool,
) -> None:
    """Print the runs that a query selects; the limit is on what is left."""
    from posse.results import words
    from posse.results.export import filtered, grouped, ordered

    headings = _headings(heads)
    selected = filtered(figures, query.where, headings)
    if query.group:
        selected = grouped(selected, query.group, headings)
    if query.sort:
        selected = ordered(selected, query.sort, headings)
    total = len(selected)
    selected = selected[: limit or None]
    columns = _columns_of_query(query, selected, headings)
    if json:
        if query.columns:
            selected = [{name: row.get(name) for name in columns} for row in selected]
        print_json(selected)
        return
    if columns:
        _print_columns(columns, selected, headings)
    elif selected:
        _print_selected(query, figures, selected, rows, heads)
    left_out = f" of {total:,}; --limit 0 lists all" if total > len(selected) else ""
    remark(f"{words.count(len(selected), 'row')}{left_out}.")


def _columns_of_query(
    query: Query, rows: Sequence[Row], headings: Mapping[str, str]
) -> dict[str, str]:
    """Return the columns that a query shows, each with its heading; empty for a list of runs."""
    from posse.results.export import ALSO, column

    if query.columns:
        return {column(name, rows, headings): name for name in query.columns}
    if not query.group:
        return {}
    keys = list(rows[0]) if rows else ["records"]
    first = keys[: keys.index("records") + 1]
    sorted_by = [column(name.removeprefix("-"), rows, headings) for name in query.sort]
    names = dict.fromkeys((*first, *sorted_by, "total_mean", "total_error", "seconds"))
    words = {name: word for word, name in ALSO.items()}
    return {name: words.get(name, name) for name in names if any(name in row for row in rows)}


def _print_columns(
    columns: Mapping[str, str], rows: Sequence[Row], headings: Mapping[str, str]
) -> None:
    numeric = [
        number
        for number, name in enumerate(columns)
        if all(isinstance(row.get(name), int | float) for row in rows)
    ]
    # A heading is the word that was given for a column, or its own longer name.
    names = [word if word in headings else name for name, word in columns.items()]
    cells = [[_cell(row.get(name)) for name in columns] for row in rows]
    table(names, cells, numeric=numeric)


def _print_selected(
    query: Query,
    figures: Sequence[Row],
    selected: Sequence[Row],
    rows: Sequence[RunRow],
    heads: Mapping[str, Record],
) -> None:
    """Print selected runs as a list, with columns of what they were selected by."""
    from posse.results.export import column, split

    headings = _headings(heads)
    words = [split(condition)[0] for condition in query.where]
    words += [name.removeprefix("-") for name in query.sort]
    names = dict.fromkeys(column(word, figures, headings) for word in words)
    requested = {
        name: [_cell(row.get(name)) for row in selected] for name in names if name not in STORED
    }
    by_id = {row.id: row for row in rows}
    ids = [str(row["record"]) for row in selected]
    _print_list([by_id[id] for id in ids], {id: heads[id] for id in ids}, requested)


def _cell(value: Scalar) -> str:
    from posse.results import words

    if value is None:
        return words.UNKNOWN
    return words.words_of(value) if isinstance(value, str | bool) else words.number(value)


def _headings(heads: Mapping[str, Record]) -> dict[str, str]:
    """Return words for columns: the headings of a list, which name steps and arms as the systems
    of its runs do.
    """
    from posse.results.export import ALSO
    from posse.results.words import plural

    headings = {plural(head.words.step): "horizon" for head in heads.values()}
    headings |= {plural(head.words.arm): "arms" for head in heads.values()}
    return {**headings, **ALSO}


def show(id: flags.One, json: flags.Json = False, full: flags.Full = False) -> None:
    """Show one run: what was earned, what it cost, how it was protected.

    Examples:
        posse runs show last
        posse runs show last --full
    """
    from posse.results.document import document
    from posse.results.store import Store

    record = Store().get(id)
    if json:
        print_json(record.document())
        return
    names = {
        "": record.id,
        "label": record.own_label,
        "party": record.party,
        "run": record.run_id if record.run_id != record.id else "",
        "made": record.created,
    }
    say(" · ".join(f"{name} {value}".strip() for name, value in names.items() if value))
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
    from posse.results.store import Store

    store = Store()
    # Resolved before asking, so that the question names what would go.
    names = list(dict.fromkeys(store.get(id).id for id in ids)) if not yes else ids
    if not yes:
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise ConfigError(
                "delete asks before it deletes, and this is not a terminal. Pass --yes to delete.",
                rule="cli.yes.no-terminal",
            )
        if not typer.confirm(f"Delete {', '.join(names)}?", err=True):
            remark("nothing was deleted.")
            raise typer.Exit(1)
    remark(f"deleted {words.count(store.delete(names), 'run')}.")


def export(ids: flags.Ids, out: Out, parties: Parties = False) -> None:
    """Write runs to a file; its suffix is the format.

    Examples:
        posse runs export last --out run.json
        posse runs export ID ID --out curves.csv
    """
    from posse.results import export as export_records
    from posse.results.store import Store

    store = Store()
    remark(f"wrote {export_records([store.get(id) for id in ids], out, parties=parties)}")


def report(ids: flags.Ids, out: Page = Path("posse-report.html")) -> None:
    """Write one HTML page about one run or several.

    Examples:
        posse runs report last
        posse runs report ID ID --out page.html
    """
    from posse.results import report as write_report
    from posse.results.store import Store

    store = Store()
    remark(f"wrote {write_report([store.get(id) for id in ids], out)}")
