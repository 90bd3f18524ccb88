"""Features from a table: numbers as they are, categories one-hot, dates left out.

The first rows decide the kind of a column. A cell without a number makes a bad row in a column of
numbers. Words are a category if each appears twice on average, and at most `MOST` are different.
Other words are an error.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from posse.core.errors import DataError
from posse.problems.tables.cells import Fault, Numbers
from posse.problems.tables.schema import Column, Records, Schema, category, numbers
from posse.problems.tables.table import MOST, Look, Table


class Encoded(NamedTuple):
    """The columns that a problem needs, and all other columns as features."""

    records: Records
    names: tuple[str, ...]
    values: Numbers
    """(rows, features)"""


def other_columns(table: Table, columns: Sequence[Column]) -> list[str]:
    """Return the names of the columns that a problem does not need by name.

    >>> from posse.problems.tables.schema import words
    >>> from posse.problems.tables.table import open_table
    >>> from posse.problems.tables.text import Document
    >>> table = open_table(Document("clinic.csv", b"row;age;dose\\nann;0.3;0.4"))
    >>> other_columns(table, [words("row")])
    ['age', 'dose']
    """
    needed = set(Schema(*columns).find(table).values())
    others = [name for name in table.header if name not in needed]
    if not others:
        names = " and ".join(f"'{column.name}'" for column in columns)
        raise DataError(
            f"{table.header_place}: no column but {names} in the header. Add the numbers.",
            rule="problems.columns.no-numbers",
        )
    if "" in others:
        raise DataError(
            f"{table.header_place}: a column has no name in the header. Name it, or delete it.",
            rule="problems.columns.unnamed",
        )
    return others


def read_encoded(
    table: Table,
    columns: Sequence[Column],
    *,
    features: Sequence[str] = (),
    ignored: Sequence[str] = (),
) -> Encoded:
    """Read the columns that a problem needs, and all other columns as features.

    Args:
        table: The table.
        columns: Columns that a problem needs; they are no features.
        features: The features of a model, in this order: the other columns must be theirs by name,
            and their words known.
        ignored: Columns, in lower case, that the table may have in addition to these features.

    >>> from posse.problems.tables.schema import words
    >>> from posse.problems.tables.table import open_table
    >>> from posse.problems.tables.text import Document
    >>> text = "row,age,town\\n1,0.1,Bern\\n2,0.2,Chur\\n3,0.3,Bern\\n4,0.4,Chur"
    >>> encoded = read_encoded(open_table(Document("v.csv", text.encode())), [words("row")])
    >>> encoded.names, encoded.values[:2].tolist()
    (('age', 'town=Bern', 'town=Chur'), [[0.1, 1.0, 0.0], [0.2, 0.0, 1.0]])
    """
    others = other_columns(table, columns)
    looks = {name: look for name, look in table.looks().items() if name in others}
    if features:
        kinds = _kinds_of_model(table, looks, features, ignored)
    else:
        kinds = {name: _kind(table, name, look) for name, look in looks.items()}
    needed = [_needed(name, kind, features) for name, kind in kinds.items() if kind in _READ]
    if not needed:
        raise DataError(
            f"{table.name}: no column but dates ({', '.join(kinds)}). Add numbers or categories.",
            rule="problems.columns.dates-only",
        )
    records = Schema(*columns, *needed).read(table)
    for left_out, what in _LEFT_OUT.items():
        names = [name for name, kind in kinds.items() if kind == left_out]
        if names:
            table.options.note(f"{table.name}: {what} were left out ({', '.join(names)}).")
    values: dict[str, Numbers] = {}
    for column in needed:
        if column.numbers:
            values[column.name] = records.numbers[column.name]
        else:
            values |= _one_hot(records, column.name, limited=not features)
    zeros = np.zeros(len(records))
    order = tuple(features) or tuple(values)
    return Encoded(records, order, np.stack([values.get(name, zeros) for name in order], axis=1))


_READ = ("number", "category")
_LEFT_OUT = {"date": "dates", "ignored": "columns that are no features"}
"""Kinds of columns that are not read, and their names in a note."""


def _needed(name: str, kind: str, features: Sequence[str]) -> Column:
    """Return the column that a feature is read from."""
    if kind == "number":
        return numbers(name)
    if not features:
        return category(name)
    vocabulary = frozenset(features)

    def fault(word: str) -> Fault | None:
        if f"{name}={word}" in vocabulary:
            return None
        return f"the model never learnt '{word}'", "Correct it, or leave the row out."

    return category(name, fault)


def _one_hot(records: Records, name: str, *, limited: bool) -> dict[str, Numbers]:
    """Return a column of 0 and 1 for each word of a category."""
    words = records.words[name]
    if limited and len(words.distinct) > MOST:
        raise DataError(
            f"{records.file}, column '{name}': a category has at most {MOST} different words, got "
            f"{len(words.distinct):,}. Group them, or delete the column.",
            rule="problems.features.too-many-words",
        )
    codes = sorted(range(len(words.distinct)), key=words.distinct.__getitem__)
    return {
        f"{name}={words.distinct[code]}": (words.code == code).astype(np.float64) for code in codes
    }


def _kind(table: Table, name: str, look: Look) -> str:
    """Return the kind of a column; raise if it has words that are no category."""
    if look.kind == "text":
        words = look.words
        raise DataError(
            f"{table.name}, column '{name}': '{words[0]}' is not a number, and the column is no "
            f"category (words: {len(words)}, different: {len(set(words))}). A category has each "
            f"word twice on average, and at most {MOST} different words. Write numbers, group the "
            "words, or delete the column.",
            rule="problems.features.text",
        )
    return "category" if look.kind == "truth" else look.kind


def _kinds_of_model(
    table: Table, looks: Mapping[str, Look], features: Sequence[str], ignored: Sequence[str]
) -> dict[str, str]:
    """Return the kind of each column, by the features of a model."""
    kinds: dict[str, str] = {}
    sources: Counter[str] = Counter()
    for name, look in looks.items():
        words = [feature for feature in features if feature.startswith(f"{name}=")]
        if name in features:
            kinds[name] = "number"
            sources[name] += 1
        elif words:
            kinds[name] = "category"
            sources.update(words)
        elif name.lower() in ignored:
            kinds[name] = "ignored"
        elif look.kind == "date":
            kinds[name] = "date"
    more = ", ..." if len(features) > 8 else ""
    learnt = f"The model learnt {', '.join(features[:8])}{more}"
    unknown = [f"'{name}'" for name in looks if name not in kinds]
    if unknown:
        raise DataError(
            f"{table.name}: the model has no feature {', '.join(unknown)}. {learnt}: delete other "
            "columns.",
            rule="problems.features.unknown",
        )
    for feature in features:
        if sources[feature] != 1:
            raise DataError(
                f"{table.name}: the feature '{feature}' of the model must come from one column, "
                f"got {sources[feature]}. {learnt}: give these columns.",
                rule="problems.features.missing",
            )
    return kinds
