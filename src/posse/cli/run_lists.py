"""Lists of stored runs: one line per run, or what a query selects."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
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
    ordered,
    split,
    summary_rows,
)
from posse.results.words import UNKNOWN, common, count, number, plural, seconds, words_of

if TYPE_CHECKING:
    from posse.results.export import Row
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
FIRST = ("id", "system", "policy", "level", "arms", "horizon", "runs", "earned")
LAST = ("party", "label", "settings", "data", "made (UTC)")
"""Columns of a list, before and after those that the user asked for."""
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
    headings = {"arms": plural(nouns.arm), "horizon": plural(nouns.step)}
    settings = _different_settings(heads, {*LISTED, *requested})
    lines = [_line(row, heads.get(row.id), settings.get(row.id, "")) for row in rows]
    columns = {name: [line[name] for line in lines] for name in FIRST}
    columns |= {name: list(cells) for name, cells in requested.items()}
    columns |= {name: [line[name] for line in lines] for name in LAST}
    if len(set(columns["system"])) == 1:
        del columns["system"]
    names = [name for name, cells in columns.items() if any(cells)]
    first_number = names.index("arms")
    table(
        [headings.get(name, name) for name in names],
        zip(*(columns[name] for name in names), strict=True),
        numeric=range(first_number, first_number + 4),
        optional=OPTIONAL,
        spare=(headings["arms"], "runs"),
    )


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


def _different_settings(heads: Mapping[str, Record], hidden: Collection[str]) -> dict[str, str]:
    """Return the settings of each run in which the runs differ, by the ids of the runs."""
    texts = {}
    for id, settings in zip(heads, differences(heads.values()), strict=True):
        shown = [name for name in settings if name not in hidden]
        texts[id] = ", ".join(f"{name.removeprefix('policy.')} {settings[name]}" for name in shown)
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
    if json:
        if columns:
            selected = [{name: row.get(name) for name in columns} for row in selected]
        print_json(selected)
        return
    if columns:
        # A heading is the word that was given for a column, or its own longer name.
        names = [word if word in headings else name for name, word in columns.items()]
        cells = [_cells(selected, name) for name in columns]
        table(names, zip(*cells, strict=True), numeric=_numeric(selected, columns))
    elif selected:
        words = [split(condition)[0] for condition in query.where]
        words += [word.removeprefix("-") for word in query.sort]
        names = [column(word, figures, headings) for word in words]
        ids = [str(row["record"]) for row in selected]
        by_id = {row.id: row for row in rows}
        requested = {name: _cells(selected, name) for name in names if name not in STORED}
        print_list([by_id[id] for id in ids], {id: heads[id] for id in ids}, requested)
    text = count(len(selected), "row")
    if len(matching) > len(selected):
        text += f" of {len(matching):,}; --limit 0 lists all"
    remark(f"{text}.")


def _numeric(rows: Sequence[Row], names: Iterable[str]) -> list[int]:
    """Return the places of columns that have only numbers."""
    places = []
    for place, name in enumerate(names):
        if all(isinstance(row.get(name), int | float) for row in rows):
            places.append(place)
    return places


def _cells(rows: Sequence[Row], name: str) -> list[str]:
    cells = []
    for row in rows:
        value = row.get(name)
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
