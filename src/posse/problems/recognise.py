"""What a user's table seems to be, and the settings that read it.

A table is recognised by the names of its columns and by what they hold: first by the names that
problems use, then by other words for them, last by the kind of a column. A guess is shown to the
user and never taken silently.
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
from posse.problems.tables.table import Look, Table, open_table
from posse.problems.tables.text import likely_encoding, looks_like_data, read_bytes

NEEDED: Mapping[str, tuple[str, ...]] = {
    "log": ("arm", "reward", "probability"),
    "offers": ("agent", "supplier", "cost", "capacity"),
    "qualities": ("supplier", "quality"),
    "clients": ("client", "label"),
    "features": ("row",),
}
"""Kinds of tables, other than ratings and means, by the columns that each needs."""
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
    """What a table seems to be."""

    kind: str
    """One of `TITLES`."""
    encoding: str
    decimal: str
    columns: Mapping[str, str]
    """What the table calls the needed columns, if it has other names for them."""

    def settings(self) -> dict[str, object]:
        """Return the settings that read the table; those that differ from the defaults."""
        values: dict[str, object] = {}
        if self.encoding:
            values["encoding"] = self.encoding
        if self.decimal != ".":
            values["decimal"] = self.decimal
        if self.columns:
            values["columns"] = dict(self.columns)
        return values


def recognise(source: Path | Frame, options: ReadOptions | None = None) -> Recognised:
    """Recognise a table.

    Args:
        source: A file or a frame.
        options: What is known about it; what they give is not guessed.

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
    commas = False
    for look in table.looks().values():
        if look.kind != "number":
            continue
        commas = commas or any(map(has_comma, look.cells))
        if any("." in cell and is_number(cell) for cell in look.cells):
            return False
    return commas


def _kind(table: Table) -> tuple[str, dict[str, str]]:
    """Return the kind of a table, and what it calls the columns that this kind needs."""
    for kind, needed in NEEDED.items():
        if all(table.place(table.options.column(name)) is not None for name in needed):
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
    looks = table.looks()
    log = _suggested(table, "log")
    if log is not None:
        return "log", log
    means = suggest_columns(table, [("name", False), ("mean", True)])
    if _covers(table, means, ("name", "mean")) and _are_means(looks, table, means):
        return "means", means
    ratings = suggest_columns(table, [("item", False), ("rating", True), ("user", False)])
    if _covers(table, ratings, ("item", "rating")):
        return "ratings", ratings
    arms = measures(looks)
    if len(arms) > 1:
        wide = {"item": BAR.join(arms)}
        user = suggest_columns(table, [("user", False)]).get("user")
        return "wide", wide | ({"user": user} if user else {})
    for kind in NEEDED:
        columns = _suggested(table, kind)
        if columns is not None:
            return kind, columns
    raise ColumnError(
        f"{table.name} fits no kind of problem: its columns are {', '.join(table.header[:12])}. "
        "Give --columns item=...,rating=... with the columns that name the arms and hold the "
        "ratings.",
        {},
        rule="problems.columns.no-kind",
    )


_NUMBERS = ("reward", "probability", "cost", "capacity", "quality")


def _suggested(table: Table, kind: str) -> dict[str, str] | None:
    """Return the columns that a kind needs; None if the table has not all of them."""
    needed = NEEDED[kind]
    columns = suggest_columns(table, [(name, name in _NUMBERS) for name in needed])
    return columns if _covers(table, columns, needed) else None


def _covers(table: Table, columns: Mapping[str, str], needed: Sequence[str]) -> bool:
    """Return whether a table has all needed columns, by their own names or by other ones."""
    options = table.options
    return all(name in columns or table.place(options.column(name)) is not None for name in needed)


def _are_means(looks: Mapping[str, Look], table: Table, columns: Mapping[str, str]) -> bool:
    """Return whether columns are names of arms and their means: no name twice, all in [0, 1]."""
    name, mean = (_header(table, columns, each) for each in ("name", "mean"))
    if not fit(mean, "mean"):
        return False
    values = [number_of(cell.replace(",", ".")) for cell in looks[mean].cells]
    names = looks[name].cells
    return len(set(names)) == len(names) and all(0 <= value <= 1 for value in values)


def _header(table: Table, columns: Mapping[str, str], name: str) -> str:
    if name in columns:
        return columns[name]
    place = table.place(table.options.column(name))
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
