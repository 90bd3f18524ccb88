"""Numbered items and what they are called, as MovieLens and Steam keep them: ids in one file, names in another."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from posse.core.errors import DataError
from posse.problems.datasets.columns import Columns


def name_of(table: Columns, key: str, name: str) -> dict[str, str]:
    """Map id to name; an id on two rows is refused.

    >>> from posse.problems.datasets.columns import Document, read_columns
    >>> table = read_columns(Document("films.csv", b"id,title\\n7,Heat\\n3,Alien"), words=["id", "title"])
    >>> name_of(table, "id", "title")
    {'7': 'Heat', '3': 'Alien'}
    """
    table.check_distinct(key)
    return {table.words[key][row]: table.words[name][row] for row in range(len(table.line))}


def by_number(table: Columns, column: str) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """Put numbered items in the order of their numbers; give their ids, and the position of each row's item.

    >>> from posse.problems.datasets.columns import Document, read_columns
    >>> ids, position = by_number(read_columns(Document("r.csv", b"id\\n10\\n9\\n10"), words=["id"]), "id")
    >>> ids, position.tolist()
    (('9', '10'), [1, 0, 1])
    """
    ids = table.words[column]
    for code, item in enumerate(ids.distinct):
        if not (item.isascii() and item.isdecimal()):
            row = int(np.argmax(ids.code == code))
            raise DataError(f"{table.place(row, column)}: '{item}' is not a whole number. Number the items 1, 2, ...")
    order = sorted(range(len(ids.distinct)), key=lambda code: int(ids.distinct[code]))
    position = np.empty(len(order), np.int64)
    position[order] = np.arange(len(order))
    return tuple(ids.distinct[code] for code in order), position[ids.code]
