"""Columns of cells, as their source holds them: text of a file, Python objects, numpy or Arrow.

A cell means the same in each of them. A number is finite and is written like 4.5; a cell without
text, `None` and NaN are missing.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from posse.problems.requirements import Floats, Ints, Mask

if TYPE_CHECKING:
    import pyarrow

Numbers = Floats
Fault = tuple[str, str]
"""What is wrong with a cell, and what to do about it."""

_GROUPS = r"[-+]?\d{1,3}(?:\.\d{3})+"
_COMMA = re.compile(rf"(?:[-+]?\d+|{_GROUPS}),\d+")
_POINTS = re.compile(r"[-+]?[\d,]*\.[\d.,]*")
_GROUPED = re.compile(rf"{_GROUPS}(?:,\d+)?")
_MISSING = ("na", "n/a", "#n/a", "null", "none", "?", "-", "--", ".", "<na>")

TRUTH = {
    **dict.fromkeys(("true", "yes", "y", "t", "ja", "wahr", "oui", "vrai", "on"), 1.0),
    **dict.fromkeys(("false", "no", "n", "f", "nein", "falsch", "non", "faux", "off"), 0.0),
}
"""Words for a success or a failure, and the reward that they are."""


class WordIndex(dict[str, int]):
    """Numbers words in the order in which they appear, and records the faults of words."""

    def __init__(self, check: Callable[[str], Fault | None]) -> None:
        super().__init__()
        self.faults: dict[int, Fault] = {}
        self._check = check

    def __missing__(self, word: str) -> int:
        code = self[word] = len(self)
        fault = self._check(word)
        if fault is not None:
            self.faults[code] = fault
        return code


class Cells(ABC):
    """The cells of one column. Methods that a class does not override use the text of a cell."""

    @abstractmethod
    def texts(self, most: int | None = None) -> list[str]:
        """Return the first cells, or all, as a CSV file would hold them."""

    def text(self, row: int) -> str:
        """Return a cell as text."""
        return self._all_texts[row]

    def codes(self, index: WordIndex) -> Ints:
        """Return the number of each cell's word in an index; add new words to the index."""
        cells = self.texts()
        return np.fromiter(map(index.__getitem__, map(str.strip, cells)), np.int64, len(cells))

    def numbers(self, decimal: str) -> Numbers:
        """Return the number in each cell; NaN where a cell has none.

        A frame has numbers with points, and decimal commas only in text.
        """
        cells = self.texts()
        if decimal == ",":
            cells = [cell if "." in cell else cell.replace(",", ".") for cell in cells]
        return numbers_of(cells)

    def blank(self) -> Mask:
        """Return which cells are empty."""
        return np.array([not text.strip() for text in self.texts()], np.bool_)

    @cached_property
    def _all_texts(self) -> list[str]:
        return self.texts()


@dataclass(frozen=True, eq=False)
class TextCells(Cells):
    """Cells of a text file."""

    cells: list[str]

    def texts(self, most: int | None = None) -> list[str]:
        """Return cells as they are."""
        return self.cells if most is None else self.cells[:most]

    def numbers(self, decimal: str) -> Numbers:
        """Return the numbers; with a decimal comma, points separate thousands."""
        return numbers_of(list(map(with_point, self.cells)) if decimal == "," else self.cells)


@dataclass(frozen=True, eq=False)
class ObjectCells(Cells):
    """Cells that are Python objects."""

    cells: list[object]

    def texts(self, most: int | None = None) -> list[str]:
        """Return cells as text."""
        return [text_of(cell) for cell in self.cells[:most]]

    def numbers(self, decimal: str) -> Numbers:
        """Return the numbers."""
        if {type(cell) for cell in self.cells} <= {int, float, bool}:
            with suppress(OverflowError):  # the text of such a number is infinite
                return np.array(self.cells, np.float64)
        return super().numbers(decimal)


@dataclass(frozen=True, eq=False)
class NumpyCells(Cells):
    """Cells that are numbers or truth values in a numpy array."""

    cells: NDArray[np.generic]

    def texts(self, most: int | None = None) -> list[str]:
        """Return numbers as text."""
        return [text_of(value) for value in self.cells[:most].tolist()]

    def codes(self, index: WordIndex) -> Ints:
        """Number the words; each different number is written once."""
        distinct, first, code = np.unique(self.cells, return_index=True, return_inverse=True)
        order = np.argsort(first)
        place = np.empty(len(order), np.int64)
        place[order] = [index[text_of(value)] for value in distinct[order].tolist()]
        return place[code]

    def numbers(self, decimal: str) -> Numbers:
        """Return the numbers."""
        return self.cells.astype(np.float64, copy=False)

    def blank(self) -> Mask:
        """Return which cells are NaN."""
        return np.isnan(self.numbers("."))


@dataclass(frozen=True, eq=False)
class ArrowCells(Cells):
    """A column of pyarrow, which nobody can change."""

    column: pyarrow.ChunkedArray

    def codes(self, index: WordIndex) -> Ints:
        """Number the words."""
        if not self._kind.startswith(_ARROW_WORDS):
            return super().codes(index)
        words, codes = self._encoded
        used: list[int] | range = range(len(words))
        if self._kind.startswith("dictionary") and not _in_order(codes, len(words)):
            # It may have words in any order, and words of no row.
            distinct, first = np.unique(codes, return_index=True)
            used = distinct[np.argsort(first)].tolist()
        place = np.full(len(words), -1, np.int64)
        for number in used:
            place[number] = index[words[number]]
        if np.array_equal(place, np.arange(len(place))):
            return codes.astype(np.int64)
        return np.asarray(place[codes])

    def numbers(self, decimal: str) -> Numbers:
        """Return the numbers; nulls are NaN."""
        if not self._kind.startswith(_ARROW_NUMBERS):
            return ObjectCells(self.column.to_pylist()).numbers(decimal)
        column = self.column.cast("float64", safe=False)
        if column.num_chunks == 1 and not column.null_count:
            return np.asarray(column.chunk(0).to_numpy(), np.float64)
        return np.asarray(column.to_numpy(), np.float64)

    def texts(self, most: int | None = None) -> list[str]:
        """Return cells as a CSV file would hold them."""
        return [text_of(cell) for cell in self.column.slice(0, most).to_pylist()]

    def blank(self) -> Mask:
        """Return which cells are missing."""
        if self._kind.startswith(_ARROW_NUMBERS):
            return np.isnan(self.numbers("."))
        if self._kind.startswith(_ARROW_WORDS):
            words, codes = self._encoded
            return np.asarray(np.array([not word for word in words], np.bool_)[codes])
        return super().blank()

    @property
    def _kind(self) -> str:
        return str(self.column.type)

    @cached_property
    def _encoded(self) -> tuple[list[str], NDArray[np.int32]]:
        """Distinct words, and the number of each row's; a null has an empty word."""
        encoded = self.column.dictionary_encode().unify_dictionaries()
        if not encoded.num_chunks:
            return [], np.zeros(0, np.int32)
        words = [text_of(word).strip() for word in encoded.chunk(0).dictionary.to_pylist()]
        if encoded.null_count:
            indices = [chunk.indices.fill_null(len(words)) for chunk in encoded.chunks]
            words.append("")
        else:
            indices = [chunk.indices for chunk in encoded.chunks]
        if len(indices) == 1:
            return words, indices[0].to_numpy()
        return words, np.concatenate([chunk.to_numpy() for chunk in indices])


_ARROW_WORDS = ("string", "large_string", "dictionary<values=string", "dictionary<values=large")
_ARROW_NUMBERS = ("int", "uint", "float", "double", "halffloat")


def _in_order(codes: NDArray[np.int32], words: int) -> bool:
    """Return whether words are numbered as they first appear, and every word is in some row."""
    if not len(codes):
        return words == 0
    reached = np.maximum.accumulate(codes)
    steps = np.diff(reached)
    return bool(reached[0] == 0 and reached[-1] == words - 1 and steps.max(initial=0) <= 1)


def text_of(cell: object) -> str:
    """Write a cell as a CSV file would hold it: missing is empty, and a line end is a blank.

    >>> text_of(4.5), text_of(True), text_of(float("nan"))
    ('4.5', '1', '')
    """
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return ""
    if isinstance(cell, bool):
        return str(int(cell))
    return " ".join(str(cell).splitlines())


def numbers_of(cells: Sequence[str]) -> Numbers:
    """Read text as numbers; NaN where a text is none."""
    # float() reads '1_000' as a thousand; in a data file an underscore is a slip.
    if "_" not in "".join(cells):
        with suppress(ValueError):
            return np.fromiter(map(float, cells), np.float64, len(cells))
    return np.array([number_of(cell) for cell in cells], np.float64)


def number_of(cell: str) -> float:
    """Read a number; NaN where a cell has none.

    >>> [number_of(cell) for cell in ("4.5", " -1e3 ", "1_000", "four", "")]
    [4.5, -1000.0, nan, nan, nan]
    """
    return float(cell) if is_number(cell) and "_" not in cell else math.nan


def with_point(cell: str) -> str:
    """Write a number that has a decimal comma with a point.

    The result is empty if points in it do not separate thousands.

    >>> [with_point(cell) for cell in ("4,5", "-1.000,5", "1.000", "0.7")]
    ['4.5', '-1000.5', '1000', '']
    """
    word = cell.strip()
    if "." not in word:
        return word.replace(",", ".")
    return word.replace(".", "").replace(",", ".") if _GROUPED.fullmatch(word) else ""


def has_comma(cell: str) -> bool:
    """Return whether a cell looks like a number with a decimal comma."""
    return _COMMA.fullmatch(cell.strip()) is not None


def is_number(text: str) -> bool:
    """Return whether Python reads a text as a number, also an infinite number or NaN."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def is_missing(cell: str) -> bool:
    """Return whether a cell is empty, or has a word such as N/A."""
    word = cell.strip()
    return not word or word.lower() in _MISSING


def number_fault(cell: str, decimal: str) -> Fault:
    """Return what is wrong with a cell that should hold a number.

    >>> number_fault("4,5", ".")
    ("'4,5' is not a number", 'Write it like 4.5, or give --decimal , for decimal commas.')
    >>> number_fault("n/a", ".")
    ("'n/a' is missing", 'Give a number, or delete the row.')
    """
    word = cell.strip()
    remedy = "Give a number, or delete the row."
    if is_missing(word):
        return f"'{word}' is missing" if word else "the cell is empty", remedy
    if decimal == "," and _POINTS.fullmatch(word) and not _GROUPED.fullmatch(word):
        return f"'{word}' has a point that separates no thousands", "Write it like 4,5 or 1.000,5."
    if is_number(word.replace("_", "x")):
        return f"'{word}' is not a finite number", "Give a finite one, or delete the row."
    if decimal == ",":
        return f"'{word}' is not a number", "Write it like 4,5."
    remedy = "Write it like 4.5."
    if has_comma(word):
        remedy = "Write it like 4.5, or give --decimal , for decimal commas."
    return f"'{word}' is not a number", remedy
