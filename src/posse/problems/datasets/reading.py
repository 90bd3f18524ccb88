"""How a user's own table is read: its encoding, its decimal mark, and what becomes of rows that
cannot be read.

What a file does not say for certain is asked for and not guessed. Settings say it once; it holds
for all tables that are read while they load (`reading`).
"""

from __future__ import annotations

import codecs
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from posse.core.errors import ConfigError, DataError

PLACES = 5
"""Bad rows that are named for each remedy; all are counted."""

_MARKS = {codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
_GROUPS = r"[-+]?\d{1,3}(?:\.\d{3})+"
_COMMA = re.compile(rf"(?:[-+]?\d+|{_GROUPS}),\d+")
_GROUPED = re.compile(rf"{_GROUPS}(?:,\d+)?")
_MISSING = ("na", "n/a", "#n/a", "null", "none", "?", "-", "--", ".")


@dataclass
class Reading:
    """What was said about the tables, and what was dropped while they were read."""

    encoding: str = ""
    decimal: str = "."
    skip_bad: bool = False
    dropped: list[str] = field(default_factory=list)
    """A sentence a table: how many rows were dropped, and the first few places."""
    watch: Callable[[float], None] | None = None
    """Called with the part of a table that is read."""


_CURRENT: ContextVar[Reading | None] = ContextVar("posse_reading", default=None)


def current() -> Reading:
    """Return what holds for tables that are read now."""
    return _CURRENT.get() or Reading()


@contextmanager
def reading(encoding: str = "", decimal: str = ".", skip_bad: bool = False) -> Iterator[Reading]:
    """Say how tables are read in this block; it collects what is dropped."""
    with _set(Reading(encoding, decimal, skip_bad, watch=current().watch)) as made:
        yield made


@contextmanager
def watching(watch: Callable[[float], None]) -> Iterator[None]:
    """Call `watch` with the part of each table that is read, in this block."""
    with _set(replace(current(), watch=watch)):
        yield


@contextmanager
def _set(made: Reading) -> Iterator[Reading]:
    token = _CURRENT.set(made)
    try:
        yield made
    finally:
        _CURRENT.reset(token)


def check_encoding(encoding: str) -> None:
    """Raise if Python knows no such encoding."""
    try:
        codecs.lookup(encoding or "utf-8")
    except LookupError:
        raise ConfigError(
            f"unknown encoding '{encoding}'. Give one such as latin-1, cp1252 or utf-16."
        ) from None


def encoding_of(start: bytes) -> str:
    """Return the encoding of a file that begins so: the one that was given, that of its byte order
    mark, else UTF-8.
    """
    return current().encoding or _MARKS.get(start[:2], "utf-8-sig")


def as_utf8(name: str, data: bytes) -> bytes:
    """Return text as UTF-8: by the encoding that was given, or by a byte order mark, which leaves
    no doubt.

    >>> as_utf8("r.csv", "item,mark".encode("utf-16"))
    b'item,mark'
    """
    encoding = current().encoding or _MARKS.get(data[:2], "")
    if not encoding:
        return data
    try:
        return data.decode(encoding).encode()
    except UnicodeDecodeError as error:
        row = data.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"{name}, row {row} is not text in {encoding}. Give another --encoding."
        ) from None


def pointed(cell: str, frame: bool = False) -> str:
    """Write a number that has a decimal comma with a point; blank where its points are no thousands
    groups.

    A frame holds numbers as they are, with points, and commas in text alone.

    >>> [pointed(cell) for cell in ("4,5", "-1.000,5", "1.000", "0.7")], pointed("0.7", frame=True)
    (['4.5', '-1000.5', '1000', ''], '0.7')
    """
    word = cell.strip()
    if "." not in word:
        return word.replace(",", ".")
    if frame:
        return word
    return word.replace(".", "").replace(",", ".") if _GROUPED.fullmatch(word) else ""


def has_comma(cell: str) -> bool:
    """Whether a cell looks like a number with a decimal comma."""
    return _COMMA.fullmatch(cell.strip()) is not None


def is_number(text: str) -> bool:
    """Say whether a field reads as a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def is_missing(cell: str) -> bool:
    """Whether a cell says that it holds nothing: blank, or a word such as N/A."""
    return not cell.strip() or cell.strip().lower() in _MISSING


def unfit(cell: str) -> tuple[str, str]:
    """Say what is wrong with a cell that should hold a number, and what to do about it.

    >>> unfit("4,5")
    ("'4,5' is not a number", 'Write it like 4.5, or give --decimal , for decimal commas.')
    >>> unfit("n/a")
    ("'n/a' is missing", 'Give a number, or delete the row.')
    """
    word = cell.strip()
    if not word:
        return "is empty", "Give a number, or delete the row."
    if word.lower() in _MISSING:
        return f"'{word}' is missing", "Give a number, or delete the row."
    if current().decimal == "," and "." in word and not _GROUPED.fullmatch(word):
        return f"'{word}' has a point that separates no thousands", "Write it like 4,5 or 1.000,5."
    try:
        float(cell.replace("_", "x"))
    except ValueError:
        commas = ", or give --decimal , for decimal commas" if has_comma(word) else ""
        return f"'{word}' is not a number", f"Write it like 4.5{commas}."
    return f"'{word}' is not a finite number", "Give a finite one, or delete the row."


class Rule(NamedTuple):
    """What the values of a column must be beside numbers or words; a row with another one is
    bad.
    """

    column: str
    fits: Callable[[Any], NDArray[np.bool_]]
    """Which of the column's values are as they must be: an array of numbers, or a list of words."""
    wrong: Callable[[object], str]
    """What is wrong with a value, in words."""
    remedy: str = "Correct it."


def must(
    column: str, fits: Callable[[Any], NDArray[np.bool_]], rule: str, remedy: str = "Correct it."
) -> Rule:
    """Return the rule that numbers of a column must be so: "be in [0, 1]"."""
    return Rule(column, fits, lambda value: f"must {rule}, got {value:.12g}", remedy)


def between(column: str, low: float, high: float, remedy: str = "Correct it.") -> Rule:
    """Return the rule that numbers of a column are in [low, high].

    >>> between("mean", 0, 1).fits(np.array([0.5, 1.5])).tolist(), between("mean", 0, 1).wrong(1.5)
    ([True, False], 'must be in [0, 1], got 1.5')
    """
    return must(
        column,
        lambda values: (values >= low) & (values <= high),
        f"be in [{low:g}, {high:g}]",
        remedy,
    )


@dataclass
class BadRows:
    """Rows of one table that cannot be read: all are counted, and the first few of each remedy are
    named.
    """

    file: str
    count: int = 0
    places: dict[str, list[tuple[int, str]]] = field(default_factory=dict)
    """By remedy: lines, and what is wrong there."""
    more: Counter[str] = field(default_factory=Counter)

    def add(self, line: int, what: str, remedy: str) -> None:
        """Note a row; `what` goes on from "row N"."""
        self.count += 1
        named = self.places.setdefault(remedy, [])
        if len(named) < PLACES:
            named.append((line, f"row {line}{what}"))
        else:
            self.more[remedy] += 1

    def settle(self, good: int) -> None:
        """Raise for all of them at once; or note what was dropped, where that was asked for and
        rows are left.
        """
        if not self.count:
            return
        if self.count == 1 and not current().skip_bad:
            ((remedy, ((_, place),)),) = self.places.items()
            raise DataError(f"{self.file}, {place}. {remedy}")
        correct = "" if any("Correct" in remedy for remedy in self.places) else " Correct them."
        if not current().skip_bad:
            drop = " Or drop them with --skip-bad (skip_bad = true)." if good else ""
            raise DataError(
                f"{self.file}: {self.count:,} of {self.count + good:,} rows are bad. "
                f"{self._named(remedies=True)}{correct}{drop}"
            )
        if not good:
            raise DataError(
                f"{self.file}: none of its {self.count:,} rows can be read. "
                f"{self._named(remedies=True)}{correct}"
            )
        current().dropped.append(
            f"{self.file}: {self.count:,} of {self.count + good:,} rows were dropped as bad. "
            f"{self._named(remedies=False)}"
        )

    def _named(self, *, remedies: bool) -> str:
        """Name places by what is to be done about them, each remedy once."""
        groups = []
        for remedy, places in sorted(self.places.items(), key=lambda group: min(group[1])):
            places.sort()
            more = f"; and {self.more[remedy]:,} more" if self.more[remedy] else ""
            text = "; ".join(place for _, place in places)
            groups.append(f"R{text[1:]}{more}.{f' {remedy}' if remedies else ''}")
        return " ".join(groups)
