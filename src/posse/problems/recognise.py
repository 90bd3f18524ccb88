"""The likely kind of a user's table, and the settings that read it.

A table is recognised by its columns: first by the names that problems use, then by synonyms, and
last by the kind of the cells. A guess is shown to the user and never used silently.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from posse.core.errors import DataError
from posse.problems.arms.tables import is_list, wide_columns
from posse.problems.datasets.reviews import holds_records
from posse.problems.tables.cells import has_comma, is_number, number_of
from posse.problems.tables.frames import COLUMNAR, Frame
from posse.problems.tables.mapping import BAR, measures, suggest_columns
from posse.problems.tables.names import fit
from posse.problems.tables.options import ReadOptions
from posse.problems.tables.schema import ColumnError
from posse.problems.tables.table import Table, open_table
from posse.problems.tables.text import likely_encoding, looks_like_data, read_bytes

Needed = tuple[tuple[str, bool], ...]
"""Names of columns, and whether they hold numbers."""

NEEDED: Mapping[str, Needed] = {
    "log": (("arm", False), ("reward", True), ("probability", True)),
    "offers": (("agent", False), ("supplier", False), ("cost", True), ("capacity", True)),
    "qualities": (("supplier", False), ("quality", True)),
    "clients": (("client", False), ("label", False)),
    "features": (("row", False),),
}
"""Kinds of tables, other than ratings and means, by the columns that each needs."""
MEANS: Needed = (("name", False), ("mean", True))
RATINGS: Needed = (("item", False), ("rating", True))
TITLES: Mapping[str, str] = {
    "ratings": "ratings, one per row",
    "wide": "ratings, one column per arm",
    "means": "means of arms",
    "owners": "ratings, one file per owner",
    "reviews": "reviews of games or places",
    "log": "a log of decisions",
    "offers": "offers of suppliers to agents",
    "qualities": "qualities of suppliers",
    "clients": "samples of clients",
    "features": "features or rewards, with a column row",
}
"""Kinds of tables in words."""


@dataclass(frozen=True)
class Recognised:
    """The likely kind of a table."""

    kind: str
    """One of `TITLES`."""
    encoding: str
    decimal: str
    columns: Mapping[str, str]
    """Names of the needed columns in the table, if it has other names for them."""

    def settings(self) -> dict[str, object]:
        """Return the settings that read the table, without those that have their default."""
        values = {"encoding": self.encoding, "decimal": self.decimal, "columns": dict(self.columns)}
        return {name: value for name, value in values.items() if value not in ("", ".", {})}


def recognise(source: Path | Frame, options: ReadOptions | None = None) -> Recognised:
    """Recognise a table.

    Args:
        source: A file or a frame.
        options: Options that the user has set; these are not guessed.

    Raises:
        ColumnError: It fits no kind.
    """
    options = options or ReadOptions()
    if isinstance(source, Path) and _is_reviews(source):
        return Recognised("reviews", "", ".", {})
    options = _readable(source, options)
    table = open_table(source, options)
    kind, columns = _kind(table)
    return Recognised(kind, options.encoding, options.decimal, {**columns, **dict(options.columns)})


def _is_reviews(path: Path) -> bool:
    return path.is_file() and path.suffix.lower() not in COLUMNAR and holds_records(path)


def _readable(source: Path | Frame, options: ReadOptions) -> ReadOptions:
    """Return options with the encoding and the decimal mark of a file."""
    if isinstance(source, Path) and not options.encoding:
        try:
            open_table(source, options)
        except DataError as error:
            if not error.rule.startswith("problems.encoding."):
                raise
            options = replace(options, encoding=likely_encoding(read_bytes(source)))
    if options.decimal == "." and _has_decimal_commas(open_table(source, options)):
        options = replace(options, decimal=",")
    return options


def _has_decimal_commas(table: Table) -> bool:
    """Return whether a column of numbers has decimal commas, and none has decimal points."""
    looks = table.looks().values()
    cells = [cell for look in looks if look.kind == "number" for cell in look.cells]
    if any("." in cell and is_number(cell) for cell in cells):
        return False
    return any(map(has_comma, cells))


def _kind(table: Table) -> tuple[str, dict[str, str]]:
    """Return the kind of a table, and the names of the columns that this kind needs."""
    for kind, needed in NEEDED.items():
        if _covers(table, {}, needed):
            return kind, {}
    if is_list(table):
        return "means", {}
    if looks_like_data(table.header):
        raise ColumnError(
            f"{table.name} has no header: its first row looks like data. Add a header line.",
            {},
            rule="problems.columns.no-header",
        )
    if wide_columns(table):
        return "wide", {}
    for kind in ("log", "means", "ratings", "wide", *NEEDED):
        columns = _guess(table, kind)
        if columns is not None:
            return kind, columns
    raise ColumnError(
        f"{table.name} fits no kind of problem: its columns are {', '.join(table.header[:12])}. "
        "Give --columns item=...,rating=... with the columns that name the arms and hold the "
        "ratings.",
        {},
        rule="problems.columns.no-kind",
    )


def _guess(table: Table, kind: str) -> dict[str, str] | None:
    """Return the likely columns of a kind; None if the table does not have all of them."""
    if kind == "wide":
        arms = measures(table.looks())
        user = suggest_columns(table, [("user", False)])
        return {"item": BAR.join(arms), **user} if len(arms) > 1 else None
    if kind == "means":
        means = suggest_columns(table, MEANS)
        return means if _covers(table, means, MEANS) and _are_means(table, means) else None
    if kind == "ratings":
        ratings = suggest_columns(table, (*RATINGS, ("user", False)))
        return ratings if _covers(table, ratings, RATINGS) else None
    columns = suggest_columns(table, NEEDED[kind])
    return columns if _covers(table, columns, NEEDED[kind]) else None


def _covers(table: Table, columns: Mapping[str, str], needed: Needed) -> bool:
    """Return whether a table has all needed columns, by their own names or by other ones."""
    options = table.options
    return all(
        name in columns or table.place(options.column(name)) is not None for name, _ in needed
    )


def _are_means(table: Table, columns: Mapping[str, str]) -> bool:
    """Return whether columns are names of arms and their means: no name twice, all in [0, 1]."""
    name, mean = (_header(table, columns, each) for each, _ in MEANS)
    looks = table.looks()
    values = [number_of(cell.replace(",", ".")) for cell in looks[mean].cells]
    names = looks[name].cells
    differ = len(set(names)) == len(names)
    return fit(mean, "mean") > 0 and differ and all(0 <= value <= 1 for value in values)


def _header(table: Table, columns: Mapping[str, str], name: str) -> str:
    place = table.place(columns.get(name, table.options.column(name)))
    assert place is not None
    return table.header[place]


def similar_names(names: Sequence[str]) -> list[tuple[str, ...]]:
    """Return groups of names that differ only in case or spaces.

    >>> similar_names(["Blue", "blue ", "Red"])
    [('Blue', 'blue ')]
    """
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault("".join(name.split()).casefold(), []).append(name)
    return [tuple(group) for group in groups.values() if len(group) > 1]
