"""Where the columns of a delimited text file are: its delimiter, its header, and what stands above it."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TextIO

from posse.core import check
from posse.core.errors import ConfigError, DataError

DELIMITERS = (",", ";", "\t", "|")


@dataclass(frozen=True)
class Layout:
    """How to split the rows of a file, and which column stands where."""

    file: str
    delimiter: str
    width: int
    position: dict[str, int]
    skipped: int
    unread: str = ""

    def lines(self, stream: TextIO) -> Iterator[str]:
        """The lines that hold rows."""
        return chain([self.unread] if self.unread else [], stream)


def first_line(stream: TextIO, file: str) -> tuple[str, int]:
    """Read up to the first line that is neither blank nor a # comment; give it and its number.

    >>> import io
    >>> first_line(io.StringIO("# a comment\\n\\nname,mean\\n"), "means.csv")
    ('name,mean\\n', 3)
    """
    for number, line in enumerate(iter(stream.readline, ""), start=1):
        if line.strip() and not line.startswith("#"):
            return line, number
    raise DataError(f"{file} holds comments only. Add a header line and rows.")


def layout(
    stream: TextIO,
    file: str,
    required: Sequence[str],
    optional: Sequence[str],
    delimiter: str | None,
    header: Sequence[str] | None,
) -> Layout:
    """Find the required columns, in any order, and the optional ones that are there."""
    if delimiter is not None and (len(delimiter) != 1 or delimiter in '"\r\n'):
        raise ConfigError(f"delimiter must be one character, not a quote or a line end, got {delimiter!r}.")
    line, number = first_line(stream, file)
    if header is not None:
        position = {name: i for i, name in enumerate(header)}
        return Layout(file, delimiter or ",", len(header), position, number - 1, unread=line)
    tried = (delimiter,) if delimiter is not None else DELIMITERS
    found = {mark: _split(line, mark) for mark in tried}
    best = max(tried, key=lambda mark: (sum(_at(name, found[mark]) is not None for name in required), len(found[mark])))
    names = found[best]
    position = {}
    for name in (*required, *optional):
        at = _at(name, names)
        if at is not None:
            position[name] = at
        elif name in required:
            raise DataError(_missing(file, number, name, names, best, line))
    return Layout(file, best, len(names), position, number)


def _split(line: str, delimiter: str) -> tuple[str, ...]:
    return tuple(cell.strip() for cell in next(csv.reader([line.rstrip("\r\n")], delimiter=delimiter)))


def _at(name: str, names: Sequence[str]) -> int | None:
    # As written first: a file may hold both 'Rating' and 'rating'.
    exact = [i for i, other in enumerate(names) if other == name]
    places = exact or [i for i, other in enumerate(names) if other.lower() == name.lower()]
    return places[0] if len(places) == 1 else None


def _missing(file: str, number: int, name: str, names: Sequence[str], delimiter: str, line: str) -> str:
    start = f"{file}, row {number}"
    if sum(other.lower() == name.lower() for other in names) > 1:
        return f"{start}: column '{name}' stands there more than once. Rename the others."
    other = next((mark for mark in DELIMITERS if len(_split(line, mark)) > 1), None)
    if len(names) == 1 and other is not None:
        return (
            f"{start}: no column '{name}' when split at {delimiter!r}: the header is the single word '{names[0]}'. "
            f"Set delimiter={other!r}, or leave it out."
        )
    data = any(cell.lstrip("-").replace(".", "", 1).isdecimal() for cell in names)
    header = " The first row looks like data: add a header line." if data else ""
    return f"{start}: no column '{name}' in the header.{check.nearest(name, tuple(names))}{header}"
