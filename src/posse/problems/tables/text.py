"""Text files: their encoding, the line that names their columns, and their rows.

A row number is the line in the file, with the header as line 1: what an editor and a spreadsheet
show. Rows are read in blocks, so that a file of millions of ratings needs no list of all its words.
"""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import TextIO

from posse.core.errors import DataError
from posse.problems.requirements import Requirement, check_all
from posse.problems.tables.cells import is_number
from posse.problems.tables.options import BadRows, ReadOptions

FilePath = str | os.PathLike[str]

DELIMITERS = (",", ";", "\t", "|")
BLOCK = 1 << 9
"""Rows of a block. Larger blocks are slower: Python's garbage collector looks at more new lists."""

_NO_TEXT = (b"\xd0\xcf\x11\xe0", b"PK\x03\x04")
"""First bytes of old spreadsheets, and of archives such as .xlsx."""
_MARKS = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
_SEPARATOR = re.compile('"?sep=([^"])"?[,;]*', re.IGNORECASE)
"""The line that Excel writes above a header."""
_LINE_END = re.compile("\r\n|\r|\n")


@dataclass(frozen=True)
class Document:
    """A text file in UTF-8, and its name in errors.

    >>> Document("means.csv", b"name,mean").open().read()
    'name,mean'
    >>> Document("means.csv", b"")
    Traceback (most recent call last):
    ...
    posse.core.errors.DataError: [P200] means.csv is empty. Write or download it again.
    """

    name: str
    data: bytes

    def __post_init__(self) -> None:
        check_all(self, _DOCUMENT)
        if self.data.isascii():
            return
        try:
            self.data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise DataError(
                f"{self.name}, row {_row_at(self.data, error.start)} holds byte "
                f"0x{self.data[error.start]:02x}, which is not UTF-8. Save the file as UTF-8, or "
                f"give its encoding, such as --encoding {likely_encoding(self.data)}.",
                rule="problems.encoding.not-utf",
            ) from None

    def open(self) -> io.TextIOWrapper:
        """Open as a stream of lines, without the byte order mark that some editors put first."""
        return io.TextIOWrapper(io.BytesIO(self.data), encoding="utf-8-sig", newline="")


_DOCUMENT: tuple[Requirement[Document], ...] = (
    Requirement(
        "problems.file.empty",
        lambda document: document.data and not document.data.isspace(),
        lambda document: f"{document.name} is empty. Write or download it again.",
        DataError,
    ),
    Requirement(
        "problems.file.spreadsheet",
        lambda document: not document.data.startswith(_NO_TEXT),
        lambda document: (
            f"{document.name} is a spreadsheet (such as .xlsx) or an archive, not text. In Excel: "
            "File, Save as, 'CSV UTF-8'."
        ),
        DataError,
    ),
    Requirement(
        "problems.encoding.wide",
        lambda document: not _wide_encoding(document.data),
        lambda document: (
            f"{document.name} looks like text in UTF-16 without a mark. Give --encoding "
            f"{_wide_encoding(document.data)}."
        ),
        DataError,
    ),
    Requirement(
        "problems.file.binary",
        lambda document: 0 not in document.data,
        lambda document: (
            f"{document.name}, row {_row_at(document.data, document.data.find(0))} holds a zero "
            "byte: a binary file, not text. Give a CSV."
        ),
        DataError,
    ),
)


def _row_at(data: bytes, position: int) -> int:
    """Return the number of the line that holds a byte."""
    return data.count(b"\n", 0, position) + 1


def likely_encoding(data: bytes) -> str:
    """Return the likely encoding of text that is not UTF-8.

    Windows-1252 has letters where Latin-1 has control characters, and no meaning for a few bytes.
    """
    wide = _wide_encoding(data)
    if wide:
        return wide
    try:
        data.decode("cp1252")
    except UnicodeDecodeError:
        return "latin-1"
    return "cp1252"


def _wide_encoding(data: bytes) -> str:
    """Return the encoding of text in UTF-16 without a mark: half of its first bytes are zero.

    >>> _wide_encoding("item,rating".encode("utf-16-le")), _wide_encoding(b"item,rating")
    ('utf-16-le', '')
    """
    start = data[:256]
    half = len(start) // 2
    even = start[::2].count(0)
    odd = start[1::2].count(0)
    if max(even, odd) < 0.8 * half or min(even, odd) > 0.05 * half:
        return ""
    return "utf-16-be" if even > odd else "utf-16-le"


@contextmanager
def file_errors(path: FilePath) -> Iterator[None]:
    """Raise a `DataError` if a file cannot be read."""
    try:
        yield
    except FileNotFoundError:
        raise DataError(
            f"no file {os.fspath(path)}. Check the path.", rule="problems.file.missing"
        ) from None
    except OSError as error:
        raise DataError(
            f"cannot read {os.fspath(path)}: {error.strerror}. Give a file you may read.",
            rule="problems.file.not-readable",
        ) from None


def read_bytes(path: FilePath) -> bytes:
    """Read a file."""
    with file_errors(path):
        return Path(path).read_bytes()


def read_document(path: FilePath, options: ReadOptions) -> Document:
    """Read a text file, in the encoding of the options or of its byte order mark."""
    name = os.fspath(path)
    data = read_bytes(path)
    encoding = options.encoding or _MARKS.get(data[:2], "")
    if not encoding or data.startswith(_NO_TEXT):
        return Document(name, data)
    try:
        return Document(name, data.decode(encoding).encode())
    except UnicodeDecodeError as error:
        raise DataError(
            f"{name}, row {_row_at(data, error.start)} is not text in {encoding}. Give another "
            "--encoding.",
            rule="problems.encoding.wrong",
        ) from None


def first_line(stream: TextIO, file: str) -> tuple[str, int]:
    """Return the first line that is neither blank nor a # comment, and its number.

    >>> first_line(io.StringIO("# a comment\\n\\nname,mean\\n"), "means.csv")
    ('name,mean\\n', 3)
    """
    for number, line in enumerate(iter(stream.readline, ""), start=1):
        if line.strip() and not line.startswith("#"):
            return line, number
    raise DataError(
        f"{file} holds comments only. Add a header line and rows.", rule="problems.file.comments"
    )


@dataclass(frozen=True)
class Layout:
    """How to split a text file into columns."""

    file: str
    delimiter: str
    header: tuple[str, ...]
    skipped: int
    """Lines above the rows."""
    unread: str = ""
    """The first row, where it was read in search of a header."""

    def lines(self, stream: TextIO) -> Iterator[str]:
        """Return the lines that hold rows."""
        return chain(filter(None, [self.unread]), stream)

    def count_names(self, column_names: frozenset[str]) -> int:
        """Return how many columns have a known name."""
        return sum(name.lower() in column_names for name in self.header)


def read_layout(
    stream: TextIO,
    file: str,
    options: ReadOptions,
    column_names: frozenset[str],
    header: Sequence[str] | None = None,
) -> Layout:
    """Read up to the first row.

    Args:
        stream: The file, from its start.
        file: Its name in errors.
        options: A `delimiter` of the options is used as it is.
        column_names: Names of columns, in lower case. The delimiter that finds most of them is used.
        header: Names of the columns of a file without a header line.
    """
    line, number = first_line(stream, file)
    if header is not None:
        return Layout(file, options.delimiter or ",", tuple(header), number - 1, unread=line)
    # With decimal commas, a comma separates columns only if nothing else does.
    delimiters: tuple[str, ...] = DELIMITERS
    if options.decimal == ",":
        delimiters = (*DELIMITERS[1:], ",")
    separator = _SEPARATOR.fullmatch(line.rstrip("\r\n"))
    if separator is not None:
        delimiters = (separator[1],)
        line, below = first_line(stream, file)
        number += below
    if options.delimiter is not None:
        delimiters = (options.delimiter,)
    layouts = [Layout(file, mark, _split(line, mark), number) for mark in delimiters]
    return max(layouts, key=lambda layout: (layout.count_names(column_names), len(layout.header)))


def _split(line: str, delimiter: str) -> tuple[str, ...]:
    cells = next(csv.reader([line.rstrip("\r\n")], delimiter=delimiter))
    return tuple(cell.strip() for cell in cells)


def other_delimiter(layout: Layout) -> str | None:
    """Return a delimiter that splits a header of one word."""
    (word, *others) = layout.header
    marks = [mark for mark in DELIMITERS if mark in word]
    return marks[0] if marks and not others else None


def looks_like_data(header: Sequence[str]) -> bool:
    """Return whether a first line holds numbers, and so is no header."""
    return any(is_number(cell) for cell in header)


def row_blocks(
    stream: TextIO, layout: Layout, bad: BadRows
) -> Iterator[tuple[Sequence[int], list[list[str]]]]:
    """Yield lines and rows of every row that is not blank.

    A row that is not as wide as the header is added to `bad` and left out.

    >>> layout = Layout("r.csv", ",", ("item", "rating"), skipped=1)
    >>> bad = BadRows("r.csv", ReadOptions())
    >>> rating = io.StringIO("heat,4\\n\\nalien,5\\n")
    >>> [(list(lines), rows) for lines, rows in row_blocks(rating, layout, bad)]
    [([2, 4], [['heat', '4'], ['alien', '5']])]
    """
    reader = csv.reader(layout.lines(stream), delimiter=layout.delimiter, strict=True)
    width = len(layout.header)
    last = layout.skipped
    while True:
        try:
            rows = list(islice(reader, BLOCK))
        except csv.Error as error:
            raise DataError(
                f"{layout.file}, row {_unreadable(stream, layout)}: cannot split into columns "
                f"({error}). Close its quotes, and double a quote inside.",
                rule="problems.row.not-split",
            ) from None
        if not rows:
            return
        lines: Sequence[int] = range(last + 1, last + 1 + len(rows))
        if layout.skipped + reader.line_num != lines[-1]:
            lines = _last_lines(rows, last)
        last = layout.skipped + reader.line_num
        if any(len(row) != width or not row[0] for row in rows):
            lines, rows = _whole_rows(lines, rows, layout, bad)
        if rows:
            yield lines, rows


def _unreadable(stream: TextIO, layout: Layout) -> int:
    """Return the line on which the row begins that cannot be split.

    An open quote swallows all lines below it.
    """
    stream.seek(0)
    for _ in range(layout.skipped):
        stream.readline()
    reader = csv.reader(stream, delimiter=layout.delimiter, strict=True)
    line = 0
    with suppress(csv.Error):
        for _ in reader:
            line = reader.line_num
    return layout.skipped + line + 1


def _last_lines(rows: list[list[str]], last: int) -> list[int]:
    """Return the line on which each row ends, where some rows have line ends in quotes."""
    lines = []
    for row in rows:
        last += 1 + sum(len(_LINE_END.findall(cell)) for cell in row)
        lines.append(last)
    return lines


def _whole_rows(
    lines: Sequence[int], rows: list[list[str]], layout: Layout, bad: BadRows
) -> tuple[list[int], list[list[str]]]:
    """Leave out blank rows, and rows of another width than the header's."""
    width = len(layout.header)
    filled = [
        (line, row) for line, row in zip(lines, rows, strict=True) if any(map(str.strip, row))
    ]
    for line, row in filled:
        if len(row) != width:
            wide = f"Quote a field that holds {layout.delimiter!r}."
            bad.add(
                line,
                f", column {min(len(row), width) + 1}: expected {width} columns as in the header, "
                f"got {len(row)}",
                wide if len(row) > width else "Complete the row.",
            )
    complete = [(line, row) for line, row in filled if len(row) == width]
    return [line for line, _ in complete], [row for _, row in complete]
