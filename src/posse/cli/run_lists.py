"""Lists of stored runs: one line per run, or what a query selects."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
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
"""Settings that have a column of their own, or none."""
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
"""Names of these columns where they are filtered (`results.export.ALSO`)."""
OPTIONAL = ("made (UTC)", "data", "settings")
"""Columns that a list too wide for the terminal leaves out, in this order."""
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
    columns: dict[str, Sequence[str]] = {
        "id": [row.id for row in rows],
        "system": [row.kind for row in rows],
        "policy": [row.policy for row in rows],
        "level": [_level(row, heads.get(row.id)) for row in rows],
        arms: [str(row.arms or UNKNOWN) for row in rows],
        plural(nouns.step): [f"{row.horizon:,}" for row in rows],
        "runs": [str(row.runs or UNKNOWN) for row in rows],
        "earned": [_earned(row, heads.get(row.id)) for row in rows],
        **requested,
        "party": [row.party for row in rows],
        "label": [heads[row.id].own_label if row.id in heads else "" for row in rows],
        "settings": _different_settings(rows, heads, requested),
        "data": [data_of(heads[row.id]) if row.id in heads else row.problem for row in rows],
        "made (UTC)": [row.created[:16].replace("T", " ") for row in rows],
    }
    if len(set(columns["system"])) == 1:
        del columns["system"]
    names = [name for name, cells in columns.items() if any(cells)]
    first_number = names.index(arms)
    table(
        names,
        zip(*(columns[name] for name in names), strict=True),
        numeric=range(first_number, first_number + 4),
        optional=OPTIONAL,
        spare=(arms, "runs"),
    )


def _earned(row: RunRow, head: Record | None) -> str:
    text = number(row.total_mean)
    return text if head is None else head.words.priced(text)


def _different_settings(
    rows: Sequence[RunRow], heads: Mapping[str, Record], others: Collection[str]
) -> list[str]:
    """Return the settings of each run in which the runs differ, without those of other columns."""
    hidden = {*LISTED, *others}
    tables = dict(zip(heads, differences(heads.values()), strict=True))
    texts = []
    for row in rows:
        own = tables.get(row.id, {})
        names = [name for name in own if name not in hidden]
        texts.append(", ".join(f"{name.removeprefix('policy.')} {own[name]}" for name in names))
    return texts


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
    columns = _columns(query, selected, headings)
    if json:
        if query.columns:
            selected = [{name: row.get(name) for name in columns} for row in selected]
        print_json(selected)
        return
    if columns:
        is_number = {name: all(map(_is_number, _values(selected, name))) for name in columns}
        table(
            list(columns.values()),
            zip(*(_cells(selected, name) for name in columns), strict=True),
            numeric=[place for place, name in enumerate(columns) if is_number[name]],
        )
    elif selected:
        words = [split(condition)[0] for condition in query.where] + _without_minus(query.sort)
        names = dict.fromkeys(column(word, figures, headings) for word in words)
        requested = {name: _cells(selected, name) for name in names if name not in STORED}
        by_id = {row.id: row for row in rows}
        ids = [str(row["record"]) for row in selected]
        print_list([by_id[id] for id in ids], {id: heads[id] for id in ids}, requested)
    text = count(len(selected), "row")
    if total > len(selected):
        text += f" of {total:,}; --limit 0 lists all"
    remark(f"{text}.")


def _columns(query: Query, rows: Sequence[Row], headings: Mapping[str, str]) -> dict[str, str]:
    """Return the columns that a query shows, each with its heading; empty for a list of runs."""
    if query.columns:
        words = {column(word, rows, headings): word for word in query.columns}
        # A heading is the word that was given for a column, or its own longer name.
        return {name: word if word in headings else name for name, word in words.items()}
    if not query.group:
        return {}
    keys = list(rows[0]) if rows else ["records"]
    grouped_by = keys[: keys.index("records") + 1]
    sorted_by = [column(name, rows, headings) for name in _without_minus(query.sort)]
    names = dict.fromkeys((*grouped_by, *sorted_by, "total_mean", "total_error", "seconds"))
    short = {name: word for word, name in ALSO.items()}
    return {name: short.get(name, name) for name in names if name in keys}


def _without_minus(names: Sequence[str]) -> list[str]:
    return [name.removeprefix("-") for name in names]


def _values(rows: Sequence[Row], name: str) -> list[Scalar]:
    return [row.get(name) for row in rows]


def _is_number(value: Scalar) -> bool:
    return isinstance(value, int | float)


def _cells(rows: Sequence[Row], name: str) -> list[str]:
    cells = []
    for value in _values(rows, name):
        cells.append(words_of(value) if isinstance(value, str | bool) else number(value))
    return cells


def _headings(heads: Mapping[str, Record]) -> dict[str, str]:
    """Return words for columns: the headings of a list, which name steps and arms as the systems
    of its runs do.
    """
    headings = {}
    for head in heads.values():
        headings[plural(head.words.step)] = "horizon"
        headings[plural(head.words.arm)] = "arms"
    return {**headings, **ALSO}
