"""Tables of contexts: numbers as they are, categories one-hot, dates left out.

What a column holds is read from its first rows, where most of them say it: dates; numbers (others are then bad rows);
else a category where words come back: twice on average, and at most `MOST` of them. Cells such as N/A have no say.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from posse.core.errors import DataError
from posse.problems.datasets.columns import Columns, Layout, blocks, finite, layout, other_columns, read_columns
from posse.problems.datasets.files import Document
from posse.problems.datasets.reading import BadRows, current, has_comma, is_missing

MOST = 50
"""Words of a category at most: a column of names or free text is none."""
LOOK = 4
"""Blocks of rows that are looked at."""

_DATE = re.compile(
    r"\d{4}-\d{1,2}-\d{1,2}([T ]\d{1,2}:\d{2}(:\d{2}([.,]\d+)?)?\s*(Z|[+-]\d{2}:?\d{2})?)?"
    r"|\d{1,2}[./]\d{1,2}[./]\d{2,4}"
)


def read_encoded(
    document: Document, words: Sequence[str], delimiter: str | None = None, *, numbers: Sequence[str] = (),
    features: Sequence[str] = (),
) -> tuple[Columns, tuple[str, ...], NDArray[np.float64]]:  # fmt: skip
    """Read columns of words and of numbers, and all others as features: names and values, (rows, features).

    With `features` they are these, in this order: the columns must be theirs by name, and words known.

    >>> rows = (f"{i},0.{i},{town},2024-05-0{i}" for i, town in enumerate(("Bern", "Chur", "Bern", "Chur"), 1))
    >>> _, names, values = read_encoded(Document("v.csv", "\\n".join(["row,age,town,seen", *rows]).encode()), ["row"])
    >>> names, values[:2].tolist()
    (('age', 'town=Bern', 'town=Chur'), [[0.1, 1.0, 0.0], [0.2, 0.0, 1.0]])
    """
    mark, others = other_columns(document, [*words, *numbers], delimiter)
    kinds = _fitting(document, others, mark, features) if features else _kinds(document, others, mark)
    figures, categories, dates = (
        [name for name in others if kinds[name] == kind] for kind in ("number", "category", "date")
    )
    if not figures and not categories:
        raise DataError(f"{document.name}: no column but dates ({', '.join(dates)}). Add numbers or categories.")
    table = read_columns(document, words, [*numbers, *figures], delimiter=mark, categories=categories)
    for name in categories if features else ():
        table = _known_words(table, name, features)
    if dates:
        current().dropped.append(f"{document.name}: dates were left out ({', '.join(dates)}).")
    names: list[str] = []
    columns: list[NDArray[np.float64]] = []
    for name in others:
        if kinds[name] == "number":
            names.append(name)
            columns.append(table.numbers[name])
        elif kinds[name] == "category":
            column = table.words[name]
            if not features and len(column.distinct) > MOST:
                raise DataError(
                    f"{document.name}, column '{name}': a category has at most {MOST} different words, got "
                    f"{len(column.distinct):,}. Group them, or delete the column."
                )
            for word in sorted(column.distinct):
                names.append(f"{name}={word}")
                columns.append((column.code == column.distinct.index(word)).astype(np.float64))
    if features:
        found, none = dict(zip(names, columns, strict=True)), np.zeros(len(table.line))
        names, columns = list(features), [found.get(name, none) for name in features]
    return table, tuple(names), np.stack(columns, axis=1)


def _fitting(document: Document, names: Sequence[str], delimiter: str, features: Sequence[str]) -> dict[str, str]:
    """Say what each column holds by the features that are wanted; refuse others but dates, and missing ones."""
    kinds, covered = {}, []
    for name in names:
        own = [name] if name in features else [one for one in features if one.startswith(f"{name}=")]
        covered += own
        kinds[name] = "number" if own == [name] else "category"
        if not own and _kinds(document, [name], delimiter)[name] != "date":
            raise DataError(f"{document.name}: column '{name}' is no feature of the model. Delete or rename it.")
        kinds[name] = kinds[name] if own else "date"
    if lost := next((one for one in features if covered.count(one) != 1), None):
        raise DataError(
            f"{document.name}: the model's feature '{lost}' must come from one column, got {covered.count(lost)}. "
            f"It learnt {', '.join(features[:8])}{', ...' if len(features) > 8 else ''}: give these columns."
        )
    return kinds


def _known_words(table: Columns, name: str, features: Sequence[str]) -> Columns:
    """Return the rows whose word of a category is one of the features; the others are bad."""
    column = table.words[name]
    known = np.array([f"{name}={word}" in features for word in column.distinct])
    return table.fitting(
        known[column.code],
        lambda row: f", column '{name}': the model never learnt '{column[row]}'. Correct it, or leave the row out.",
    )


def _kinds(document: Document, names: Sequence[str], delimiter: str) -> dict[str, str]:
    """Say of each column whether it holds numbers, dates or a category."""
    with document.open() as stream:
        plan = layout(stream, document, names, (), delimiter, None)
        rows = [row for _, some in islice(blocks(stream, plan, BadRows(document.name)), LOOK) for row in some]
    kinds = {name: _kind([row[plan.position[name]].strip() for row in rows], plan) for name in names}
    if current().skip_bad and (text := [name for name in names if kinds[name] == "text"]):
        raise DataError(
            f"{document.name}, column '{text[0]}': words that differ from row to row are neither numbers nor a "
            "category. Delete the column."
        )
    return {name: "number" if kind == "text" else kind for name, kind in kinds.items()}


def _kind(cells: Sequence[str], plan: Layout) -> str:
    known = [cell for cell in cells if not is_missing(cell)]
    if 2 * sum(_DATE.fullmatch(cell) is not None for cell in known) > len(known):
        return "date"
    words = [cell for cell in known if not _looks_like_number(cell) and not finite(plan.number(cell))]
    if 2 * len(words) <= len(known):
        return "number"
    return "category" if len(set(words)) <= min(MOST, len(words) // 2) else "text"


def _looks_like_number(cell: str) -> bool:
    """Whether it is a number, or would be with another decimal mark: such a column is refused, and no category."""
    try:
        float(cell)
    except ValueError:
        return has_comma(cell)
    return True
