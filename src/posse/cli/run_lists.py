"""Lists of stored runs: one line per run, or what a query selects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from posse.cli.screen import print_json, remark, table
from posse.core.errors import StoreError
from posse.results import differences
from posse.results.export import (
    ALSO,
    aligned,
    column,
    data_of,
    filtered,
    grouped,
    ordered,
    split,
    summary_rows,
)
from posse.results.words import UNKNOWN, common, count, number, plural, seconds, words_of

if TYPE_CHECKING:
    from posse.results.export import Row, Scalar
    from posse.results.record import Record
    from posse.results.store import RunRow, Store

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


def figures_of(store: Store, heads: Mapping[str, Record]) -> list[Row]:
    """Return one row per run: every setting and every figure; of damaged curves, the head's."""
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


def print_list(
    rows: Sequence[RunRow],
    heads: Mapping[str, Record],
    requested: Mapping[str, Sequence[str]],
) -> None:
    """Print one line per run.

    Args:
        rows: The runs.
        heads: Their records, without those of damaged runs.
        requested: Cells of further columns that the user asked for, by name.
    """
    nouns = common(head.words for head in heads.values())
    arms = plural(nouns.arm)
    cells = [_cells(row, heads.get(row.id)) for row in rows]

    def cells_of(name: str, heading: str = "", *, optional: bool = False) -> Column:
        return Column(heading or name, [each[name] for each in cells], optional)

    columns = [cells_of("id"), cells_of("system"), cells_of("policy"), cells_of("level")]
    if len({row.kind for row in rows}) == 1:
        del columns[1]
    columns += [cells_of("arms", arms), cells_of("horizon", plural(nouns.step))]
    columns += [cells_of("runs"), cells_of("earned")]
    columns += [Column(name, texts) for name, texts in requested.items()]
    columns += [each for each in (cells_of("party"), cells_of("label")) if any(each.cells)]
    columns += _varied_settings(rows, heads, (*LISTED, *requested))
    columns.append(cells_of("data", optional=True))
    columns += _differences(rows, heads, columns)
    columns.append(cells_of("made", "made (UTC)", optional=True))
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
    cells = {
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
    """What a list was filtered, sorted and grouped by, and the columns it shows."""

    where: list[str]
    sort: list[str]
    group: list[str]
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
    text = count(len(selected), "row")
    if total > len(selected):
        text += f" of {total:,}; --limit 0 lists all"
    remark(f"{text}.")


def _columns_of_query(
    query: Query, rows: Sequence[Row], headings: Mapping[str, str]
) -> dict[str, str]:
    """Return the columns that a query shows, each with its heading; empty for a list of runs."""
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
    numeric = [number for number, name in enumerate(columns) if _is_numeric(name, rows)]
    # A heading is the word that was given for a column, or its own longer name.
    names = [word if word in headings else name for name, word in columns.items()]
    cells = [[_cell(row.get(name)) for name in columns] for row in rows]
    table(names, cells, numeric=numeric)


def _is_numeric(name: str, rows: Sequence[Row]) -> bool:
    return all(isinstance(row.get(name), int | float) for row in rows)


def _print_selected(
    query: Query,
    figures: Sequence[Row],
    selected: Sequence[Row],
    rows: Sequence[RunRow],
    heads: Mapping[str, Record],
) -> None:
    """Print selected runs as a list, with columns of what they were selected by."""
    headings = _headings(heads)
    words = [split(condition)[0] for condition in query.where]
    words += [name.removeprefix("-") for name in query.sort]
    names = dict.fromkeys(column(word, figures, headings) for word in words)
    requested = {
        name: [_cell(row.get(name)) for row in selected] for name in names if name not in STORED
    }
    by_id = {row.id: row for row in rows}
    ids = [str(row["record"]) for row in selected]
    print_list([by_id[id] for id in ids], {id: heads[id] for id in ids}, requested)


def _cell(value: Scalar) -> str:
    if isinstance(value, str | bool):
        return words_of(value)
    return number(value)


def _headings(heads: Mapping[str, Record]) -> dict[str, str]:
    """Return words for columns: the headings of a list, which name steps and arms as the systems
    of its runs do.
    """
    headings = {}
    for head in heads.values():
        headings[plural(head.words.step)] = "horizon"
        headings[plural(head.words.arm)] = "arms"
    return {**headings, **ALSO}
