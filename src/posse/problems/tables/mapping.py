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
    """Return the columns of a table that may be the needed ones; those of other names only.

    Args:
        table: The table; its first rows are read.
        needed: Names of columns, and whether they hold numbers.
    """
    looks = table.looks()
    free = [name for name in looks if looks[name].cells]
    chosen: dict[str, str] = {}
    for name, _ in needed:
        place = table.place(table.options.column(name))
        if place is not None and table.header[place] in free:
            free.remove(table.header[place])
            chosen[name] = table.header[place]
    for name, numbers in needed:
        if name not in chosen:
            column = _best(name, numbers, {each: looks[each] for each in free})
            if column is not None:
                free.remove(column)
                chosen[name] = column
    return {name: column for name, column in chosen.items() if column.lower() != name}


def _best(name: str, numbers: bool, looks: Mapping[str, Look]) -> str | None:
    """Return the free column that fits a name best."""
    kinds = ("number", "truth") if numbers else ("category", "text", "truth", "number")
    able = {column: look for column, look in looks.items() if look.kind in kinds}
    ranked = sorted(able, key=lambda column: fit(column, name), reverse=True)
    if ranked and fit(ranked[0], name):
        return ranked[0]
    # Without a known name: words that come back for items, the only numbers for ratings.
    if name == "item":
        categories = [column for column, look in able.items() if look.kind == "category"]
        return categories[0] if categories else None
    if name == "rating":
        candidates = measures(able)
        return candidates[0] if len(candidates) == 1 else None
    return None


def measures(looks: Mapping[str, Look]) -> list[str]:
    """Return the columns that may hold ratings: numbers or truth, and no identifiers."""
    return [
        column
        for column, look in looks.items()
        if look.kind in ("number", "truth") and not is_identifier(column, look)
    ]


def is_identifier(column: str, look: Look) -> bool:
    """Return whether a column of numbers tells people or rows apart."""
    if any(fit(column, name) for name in ("user", "row")):
        return True
    # A rating comes back; whole numbers that never do are those of rows.
    distinct = set(look.cells)
    whole = all(cell.isdecimal() for cell in distinct)
    return whole and len(look.cells) > 5 and len(distinct) == len(look.cells)


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
    pairs: dict[str, str] = {}
    for text in next(csv.reader([",".join(map(str, texts))], skipinitialspace=True)):
        name, mark, each = (part.strip() for part in text.partition("="))
        if not (name and mark and each) or name in pairs:
            raise ConfigError(
                f"{field} must be pairs like {example}, got {value!r}. Give each name once.",
                rule=f"problems.{field}.not-pairs",
            )
        pairs[name] = each
    return pairs


def read_columns_setting(value: object) -> dict[str, str]:
    """Read the setting `columns`; empty for None."""
    return {} if value is None else read_pairs(value, "columns", "item=shop,rating=stars")
