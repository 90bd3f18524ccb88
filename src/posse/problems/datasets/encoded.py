"""Tables of contexts: numbers as they are, categories one-hot, dates left out.

What a column holds is read from its first rows, where most of them say it: dates; numbers (others
are then bad rows); else a category where words come back: twice on average, and at most `MOST` of
them; other words are refused. Cells such as N/A have no say.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from posse.core.errors import DataError
from posse.problems.datasets.columns import (
    Columns,
    Layout,
    blocks,
    finite,
    layout,
    other_columns,
    read_columns,
)
from posse.problems.datasets.files import Document
from posse.problems.datasets.reading import BadRows, Rule, current, has_comma, is_missing, is_number

MOST = 50
"""Words of a category at most: a column of names or free text is none."""
LOOK = 4
"""Blocks of rows that are looked at."""

_DATE = re.compile(
    r"\d{4}-\d{1,2}-\d{1,2}([T ]\d{1,2}:\d{2}(:\d{2}([.,]\d+)?)?\s*(Z|[+-]\d{2}:?\d{2})?)?"
    r"|\d{1,2}[./]\d{1,2}[./]\d{2,4}"
)


def read_encoded(
    document: Document,
    words: Sequence[str],
    delimiter: str | None = None,
    *,
    numbers: Sequence[str] = (),
    features: Sequence[str] = (),
    ignored: Sequence[str] = (),
    rules: Sequence[Rule] = (),
) -> tuple[Columns, tuple[str, ...], NDArray[np.float64]]:
    """Read columns of words and of numbers, and all others as features: names and values, (rows,
    features).

    With `features` they are these, in this order: the columns must be theirs by name, and words
    known. Columns that are `ignored` may stand beside them.

    >>> rows = (
    ...     f"{i},0.{i},{town},2024-05-0{i}"
    ...     for i, town in enumerate(("Bern", "Chur", "Bern", "Chur"), 1)
    ... )
    >>> _, names, values = read_encoded(
    ...     Document("v.csv", "\\n".join(["row,age,town,seen", *rows]).encode()), ["row"]
    ... )
    >>> names, values[:2].tolist()
    (('age', 'town=Bern', 'town=Chur'), [[0.1, 1.0, 0.0], [0.2, 0.0, 1.0]])
    """
    mark, others = other_columns(document, [*words, *numbers], delimiter)
    kinds = (
        _fitting(document, others, mark, features, ignored)
        if features
        else _kinds(document, others, mark)
    )
    figures, categories, dates, beside = (
        [name for name in others if kinds[name] == kind]
        for kind in ("number", "category", "date", "ignored")
    )
    if not figures and not categories:
        raise DataError(
            f"{document.name}: no column but dates ({', '.join(dates)}). Add numbers or categories."
        )
    learnt = [_known_words(name, features) for name in categories] if features else []
    table = read_columns(
        document,
        words,
        [*numbers, *figures],
        delimiter=mark,
        categories=categories,
        rules=[*rules, *learnt],
    )
    if dates:
        current().dropped.append(f"{document.name}: dates were left out ({', '.join(dates)}).")
    if beside:
        current().dropped.append(
            f"{document.name}: columns that are no features were left out ({', '.join(beside)})."
        )
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
                    f"{document.name}, column '{name}': a category has at most {MOST} different "
                    "words, got "
                    f"{len(column.distinct):,}. Group them, or delete the column."
                )
            for word in sorted(column.distinct):
                names.append(f"{name}={word}")
                columns.append((column.code == column.distinct.index(word)).astype(np.float64))
    if features:
        found, none = dict(zip(names, columns, strict=True)), np.zeros(len(table.line))
        names, columns = list(features), [found.get(name, none) for name in features]
    return table, tuple(names), np.stack(columns, axis=1)


def _fitting(
    document: Document,
    names: Sequence[str],
    delimiter: str,
    features: Sequence[str],
    ignored: Sequence[str],
) -> dict[str, str]:
    """Say what each column holds by the features that are wanted; refuse others but dates, and
    missing ones.
    """
    kinds, covered, strangers = {}, [], []
    for name in names:
        own = (
            [name] if name in features else [one for one in features if one.startswith(f"{name}=")]
        )
        covered += own
        if own:
            kinds[name] = "number" if own == [name] else "category"
        elif name.lower() in ignored:
            kinds[name] = "ignored"
        elif _looked(document, [name], delimiter)[name][0] == "date":
            kinds[name] = "date"
        else:
            strangers.append(f"'{name}'")
    learnt = f"It learnt {', '.join(features[:8])}{', ...' if len(features) > 8 else ''}"
    if strangers:
        one = len(strangers) == 1
        raise DataError(
            f"{document.name}: column{'' if one else 's'} {', '.join(strangers)} "
            f"{'is' if one else 'are'} no feature"
            f"{'' if one else 's'} of the model. {learnt}: delete {'it' if one else 'them'}."
        )
    if lost := next((one for one in features if covered.count(one) != 1), None):
        raise DataError(
            f"{document.name}: the model's feature '{lost}' must come from one column, got "
            f"{covered.count(lost)}. "
            f"{learnt}: give these columns."
        )
    return kinds


def _known_words(name: str, features: Sequence[str]) -> Rule:
    """Return the rule that the words of a category are those of the features."""
    known = frozenset(features)
    return Rule(
        name,
        lambda words: np.array([f"{name}={word}" in known for word in words], np.bool_),
        lambda word: f"the model never learnt '{word}'",
        "Correct it, or leave the row out.",
    )


def _kinds(document: Document, names: Sequence[str], delimiter: str) -> dict[str, str]:
    """Say of each column whether it holds numbers, dates or a category; refuse one that holds other
    words.
    """
    kinds = {}
    for name, (kind, words) in _looked(document, names, delimiter).items():
        if kind == "text":
            many = f"{len(set(words))} different words in {len(words)} rows are no category"
            raise DataError(
                f"{document.name}, column '{name}': '{words[0]}' is not a number, and "
                f"{many if len(words) > 1 else 'one word is no category'}: words of one come twice "
                "on average, and are "
                f"at most {MOST}. Write numbers, group the words, or delete the column."
            )
        kinds[name] = kind
    return kinds


def _looked(
    document: Document, names: Sequence[str], delimiter: str
) -> dict[str, tuple[str, list[str]]]:
    """Look at the first rows: what a column holds, and those of its cells that are words."""
    with document.open() as stream:
        plan = layout(stream, document, names, (), delimiter, None)
        rows = [
            row
            for _, some in islice(blocks(stream, plan, BadRows(document.name)), LOOK)
            for row in some
        ]
    return {name: _kind([row[plan.position[name]].strip() for row in rows], plan) for name in names}


def _kind(cells: Sequence[str], plan: Layout) -> tuple[str, list[str]]:
    known = [cell for cell in cells if not is_missing(cell)]
    words = [
        cell
        for cell in known
        # A number with another decimal mark makes a column of bad numbers, not a category.
        if not (is_number(cell) or has_comma(cell) or finite(plan.number(cell)))
    ]
    if 2 * sum(_DATE.fullmatch(cell) is not None for cell in known) > len(known):
        return "date", words
    if 2 * len(words) <= len(known):
        return "number", words
    return "category" if len(set(words)) <= min(MOST, len(words) // 2) else "text", words
