"""Which columns of a table a problem may mean, by their names and by what they hold."""

from __future__ import annotations

import csv
import io
import shlex
from collections.abc import Mapping, Sequence

from posse.core.errors import ConfigError
from posse.problems.tables.names import fit
from posse.problems.tables.table import Look, Table

EVERY = "*"
"""Means every column of numbers that nothing else needs: a table with one column per arm."""
BAR = "|"
"""Separates columns of a table with one column per arm."""


def suggest_columns(table: Table, needed: Sequence[tuple[str, bool]]) -> dict[str, str]:
    """Return the columns of a table that may be the needed ones; only those of other names.

    Args:
        table: The table; its first rows are read.
        needed: Names of columns, and whether they hold numbers.
    """
    free = {column: look for column, look in table.looks().items() if look.cells}
    places = {name: table.place(table.options.column(name)) for name, _ in needed}
    headers = {name: table.header[place] for name, place in places.items() if place is not None}
    chosen = {name: header for name, header in headers.items() if free.pop(header, None)}
    for name, numbers in needed:
        column = None if name in chosen else _best(name, numbers, free)
        if column is not None:
            del free[column]
            chosen[name] = column
    return {name: column for name, column in chosen.items() if column.lower() != name}


def _best(name: str, numbers: bool, looks: Mapping[str, Look]) -> str | None:
    """Return the free column that fits a name best."""
    kinds = ("number", "truth") if numbers else ("category", "text", "truth", "number")
    able = {column: look for column, look in looks.items() if look.kind in kinds}
    best = max(able, key=lambda column: fit(column, name), default="")
    if fit(best, name):
        return best
    # Without a known name: words that are repeated for items, the only numbers for ratings.
    candidates: list[str] = []
    if name == "item":
        candidates = [column for column, look in able.items() if look.kind == "category"][:1]
    elif name == "rating":
        candidates = measures(able)
    return candidates[0] if len(candidates) == 1 else None


def measures(looks: Mapping[str, Look]) -> list[str]:
    """Return the columns that may hold ratings: numbers or truth, and no identifiers."""
    numbers = [column for column, look in looks.items() if look.kind in ("number", "truth")]
    return [column for column in numbers if not is_identifier(column, looks[column])]


def is_identifier(column: str, look: Look) -> bool:
    """Return whether a column of numbers identifies people or rows."""
    if fit(column, "user") or fit(column, "row"):
        return True
    # Ratings are repeated. Whole numbers that are never repeated are those of rows.
    distinct = set(look.cells)
    return 5 < len(look.cells) == len(distinct) and all(map(str.isdecimal, distinct))


def columns_text(columns: Mapping[str, str]) -> str:
    """Return columns as the setting is written.

    >>> columns_text({"item": "Shop", "rating": "Stars, 1 to 5"})
    'item=Shop,"rating=Stars, 1 to 5"'
    """
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(f"{name}={to}" for name, to in columns.items())
    return text.getvalue()


def as_flag(columns: Mapping[str, str]) -> str:
    """Return columns as a flag.

    >>> as_flag({"item": "Shop", "rating": "Stars (1-5)"})
    "--columns 'item=Shop,rating=Stars (1-5)'"
    """
    return f"--columns {shlex.quote(columns_text(columns))}"


def read_pairs(value: object, field: str, example: str) -> dict[str, str]:
    """Read pairs of names: a table, or text such as item=shop,rating=stars.

    A pair with a comma is quoted, as in CSV files.

    >>> read_pairs('item=shop,"rating=Stars, 1 to 5"', "columns", "")
    {'item': 'shop', 'rating': 'Stars, 1 to 5'}
    """
    if isinstance(value, Mapping):
        return {str(name): str(each) for name, each in value.items()}
    texts = value if isinstance(value, list | tuple) else [value]
    (cells,) = csv.reader([",".join(map(str, texts))], skipinitialspace=True)
    pairs = [cell.partition("=") for cell in cells]
    names = {name.strip(): column.strip() for name, _, column in pairs}
    if len(names) < len(pairs) or "" in {*names, *names.values()}:
        raise ConfigError(
            f"{field} must be pairs like {example}, got {value!r}. Give each name once.",
            rule=f"problems.{field}.not-pairs",
        )
    return names


def read_columns_setting(value: object) -> dict[str, str]:
    """Read the setting `columns`; empty for None."""
    return {} if value is None else read_pairs(value, "columns", "item=shop,rating=stars")
