"""The columns of a delimited text file, read in one pass; every error names row and column.

A row number is the line in the file, the header being line 1: what an editor and a spreadsheet show.
Rows are converted a block at a time, so that a file of millions of ratings needs no list of all its words.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from posse.core.errors import DataError
from posse.problems.datasets.document import Document
from posse.problems.datasets.header import layout
from posse.problems.datasets.rows import blocks


@dataclass(frozen=True, eq=False)
class Words:
    """A column of words: the distinct ones in order of appearance, and which of them each row holds."""

    distinct: tuple[str, ...]
    code: NDArray[np.int64]

    def __getitem__(self, row: int) -> str:
        return self.distinct[int(self.code[row])]


@dataclass(frozen=True, eq=False)
class Columns:
    """The wanted columns of a file, row by row, and the line each row stands on."""

    file: str
    line: NDArray[np.int64]
    words: dict[str, Words]
    numbers: dict[str, NDArray[np.float64]]

    def place(self, row: int, column: str) -> str:
        """Name a cell in an error."""
        return f"{self.file}, row {self.line[row]}, column '{column}'"

    def check_between(self, low: float, high: float, column: str) -> None:
        """Refuse a number outside [low, high]."""
        values = self.numbers[column]
        outside = np.flatnonzero((values < low) | (values > high))
        if len(outside):
            row = int(outside[0])
            raise DataError(
                f"{self.place(row, column)}: must be in [{low:g}, {high:g}], got {values[row]:g}. Correct it."
            )

    def check_distinct(self, column: str) -> None:
        """Refuse a word that stands on two rows."""
        words = self.words[column]
        if len(words.distinct) == len(words.code):
            return
        _, first = np.unique(words.code, return_index=True)
        row = int(np.setdiff1d(np.arange(len(words.code)), first)[0])
        raise DataError(
            f"{self.place(row, column)}: '{words[row]}' stands on row {self.line[first[words.code[row]]]} too. "
            "Keep one, or rename it."
        )


def read_columns(
    document: Document,
    words: Sequence[str] = (),
    numbers: Sequence[str] = (),
    optional: Sequence[str] = (),
    delimiter: str | None = None,
    header: Sequence[str] | None = None,
) -> Columns:
    """Read columns of words and of finite numbers.

    `optional` columns of words are read where the file has them. `header` names the columns of a file that has no
    header line. Without `delimiter`, the one that separates the header is taken.

    >>> table = read_columns(Document("r.csv", b"item;rating\\nheat;4\\nheat;5"), words=["item"], numbers=["rating"])
    >>> table.words["item"].distinct, table.numbers["rating"].tolist()
    (('heat',), [4.0, 5.0])
    >>> read_columns(Document("r.csv", b"item,rating\\nheat,four"), words=["item"], numbers=["rating"])
    Traceback (most recent call last):
    ...
    posse.core.errors.DataError: [P200] r.csv, row 2, column 'rating': 'four' is not a number. Write it like 4.5.
    """
    with document.open() as stream:
        plan = layout(stream, document.name, [*words, *numbers], optional, delimiter, header)
        reading = [*words, *(name for name in optional if name in plan.position)]
        index: dict[str, defaultdict[str, int]] = {name: _index() for name in reading}
        codes: dict[str, list[NDArray[np.int64]]] = {name: [] for name in reading}
        values: dict[str, list[NDArray[np.float64]]] = {name: [] for name in numbers}
        lines: list[NDArray[np.int64]] = []
        for numbered, rows in blocks(stream, plan):
            lines.append(np.array(numbered, np.int64))
            for name in reading:
                at = plan.position[name]
                cells = [row[at].strip() for row in rows]
                number = index[name]
                codes[name].append(np.array([number[cell] for cell in cells], np.int64))
                if "" in number:
                    line = numbered[cells.index("")]
                    raise DataError(f"{plan.file}, row {line}, column '{name}' is empty. Fill it, or delete the row.")
            for name in numbers:
                at = plan.position[name]
                values[name].append(_numbers([row[at] for row in rows], numbered, name, plan.file))
    if not lines:
        raise DataError(f"{document.name} has a header and no rows. Add one row for each value.")
    return Columns(
        document.name,
        np.concatenate(lines),
        {name: Words(tuple(index[name]), np.concatenate(codes[name])) for name in reading},
        {name: np.concatenate(values[name]) for name in numbers},
    )


def _index() -> defaultdict[str, int]:
    """A dictionary that numbers words as it meets them."""
    index: defaultdict[str, int] = defaultdict()
    index.default_factory = index.__len__
    return index


def _numbers(cells: Sequence[str], lines: Sequence[int], column: str, file: str) -> NDArray[np.float64]:
    try:
        values = np.fromiter(map(float, cells), np.float64, len(cells))
    except ValueError:
        values = np.full(len(cells), np.nan)
    # float() reads '1_000' as a thousand; in a data file an underscore is a slip.
    if np.isfinite(values).all() and "_" not in "".join(cells):
        return values
    row = next(i for i, cell in enumerate(cells) if not finite(cell))
    raise DataError(f"{file}, row {lines[row]}, column '{column}': {why_not_finite(cells[row])}")


def finite(cell: str) -> bool:
    """Whether a cell holds a finite number.

    >>> [finite(cell) for cell in ("4.5", " -1e3 ", "nan", "inf", "1_000", "four", "")]
    [True, True, False, False, False, False, False]
    """
    try:
        return bool(np.isfinite(float(cell))) and "_" not in cell
    except ValueError:
        return False


def why_not_finite(cell: str) -> str:
    """Say what is wrong with a cell that should hold a number."""
    if not cell.strip():
        return "is empty. Give a number, or delete the row."
    try:
        float(cell.replace("_", "x"))
    except ValueError:
        return f"'{cell.strip()}' is not a number. Write it like 4.5."
    return f"'{cell.strip()}' is not a finite number. Give a finite one, or delete the row."
