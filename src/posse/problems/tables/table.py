"""Tables: named columns of cells, from a text file, a Parquet or Arrow file, or a frame."""

from __future__ import annotations

import io
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from posse.core.check import require, suggestion
from posse.problems.requirements import Ints, Mask
from posse.problems.tables.cells import (
    TRUTH,
    ArrowCells,
    Cells,
    NumpyCells,
    TextCells,
    has_comma,
    is_missing,
    is_number,
    with_point,
)
from posse.problems.tables.frames import COLUMNAR, Frame, read_columnar
from posse.problems.tables.names import KNOWN
from posse.problems.tables.options import BadRows, ReadOptions
from posse.problems.tables.text import (
    BLOCK,
    Document,
    FilePath,
    Layout,
    looks_like_data,
    other_delimiter,
    read_document,
    read_layout,
    row_blocks,
)

if TYPE_CHECKING:
    import pyarrow

Source = Path | Frame
"""A file or a frame with a table."""

LOOK = 4 * BLOCK
"""Rows that show the kind of a column."""
MOST = 50
"""Most words of a category: a column of names or free text is none."""
CHUNK = 1 << 28
"""Bytes that pyarrow reads at once: numpy takes an array of one chunk without a copy."""
LARGE = 1 << 20
"""Bytes of a text file that pyarrow reads faster than Python, with its import counted."""

_DATE = re.compile(
    r"\d{4}-\d{1,2}-\d{1,2}([T ]\d{1,2}:\d{2}(:\d{2}([.,]\d+)?)?\s*(Z|[+-]\d{2}:?\d{2})?)?"
    r"|\d{1,2}[./]\d{1,2}[./]\d{2,4}"
)


class TableBlock(NamedTuple):
    """Some rows of a table."""

    lines: Sequence[int] | Ints
    """Where each row is in its source."""
    cells: Mapping[str, Cells]
    """Columns, by their names in the table."""
    blank: Mask | None = None
    """Rows in which no column has anything; None without such rows."""


class Look(NamedTuple):
    """The content of the first rows of a column."""

    kind: str
    """number, truth (yes and no), date, category (words that are repeated) or text."""
    cells: tuple[str, ...]
    """Cells that are not missing."""
    words: tuple[str, ...]
    """Cells that are no numbers either."""


class Table(ABC):
    """Named columns of cells."""

    name: str
    """Its name in errors."""
    options: ReadOptions
    header: tuple[str, ...]
    header_place: str
    """Name of the header line in errors."""
    decimal: str
    """Decimal mark of its numbers."""

    @abstractmethod
    def blocks(self, numbers: Mapping[str, bool], bad: BadRows) -> Iterator[TableBlock]:
        """Yield the rows in blocks.

        Args:
            numbers: The columns to read, and whether each holds numbers.
            bad: Gets the rows that are not as wide as the header.
        """

    @abstractmethod
    def sample(self) -> dict[str, list[str]]:
        """Return the first rows as text, by column."""

    def place(self, column: str) -> int | None:
        """Return the place of a column; None if no column, or more than one, has this name.

        A name as it is written comes first: a table may have both 'Rating' and 'rating'.
        """
        lower = column.lower()
        places = [i for i, name in enumerate(self.header) if name == column]
        places = places or [i for i, name in enumerate(self.header) if name.lower() == lower]
        return places[0] if len(places) == 1 else None

    def looks(self) -> dict[str, Look]:
        """Return the likely content of each column, by the first rows."""
        return {name: look(cells, self.decimal) for name, cells in self.sample().items()}

    def no_column(self, name: str) -> tuple[str, str]:
        """Return why a column is not there, and the last word of the rule that this breaks."""
        same = [other for other in self.header if other.lower() == name.lower()]
        if len(same) > 1:
            return f"column '{name}' is there more than once. Rename the others.", "ambiguous"
        return f"no column '{name}' in the header.{suggestion(name, self.header)}", "missing"


class FrameTable(Table):
    """A frame as a table; its rows are counted without the header."""

    def __init__(self, frame: Frame, options: ReadOptions) -> None:
        self.name = self.header_place = frame.name
        self.options = options
        self.header = tuple(name.strip() for name in frame.names)
        self.decimal = options.decimal
        self._frame = frame

    def blocks(self, numbers: Mapping[str, bool], bad: BadRows) -> Iterator[TableBlock]:
        """Yield all rows as one block."""
        rows = self._frame.rows
        if not rows:
            return
        blank = np.ones(rows, np.bool_)
        for column in self._frame.columns:
            if blank.any():
                blank &= column.blank()
        cells = dict(zip(self.header, self._frame.columns, strict=True))
        columns = {name: cells[name] for name in numbers}
        yield TableBlock(np.arange(1, rows + 1), columns, blank if blank.any() else None)

    def sample(self) -> dict[str, list[str]]:
        """Return the first rows as text."""
        columns = zip(self.header, self._frame.columns, strict=True)
        return {name: cells.texts(LOOK) for name, cells in columns}


class TextTable(Table):
    """A text file as a table; its rows are counted as lines of the file."""

    def __init__(
        self, document: Document, options: ReadOptions, header: Sequence[str] | None = None
    ) -> None:
        self.name = document.name
        self.options = options
        self.decimal = options.decimal
        self.document = document
        """The file."""
        names = KNOWN | {name.lower() for name in options.columns.values()}
        with document.open() as stream:
            self.layout = read_layout(stream, document.name, options, names, header)
        self.header = self.layout.header
        self.header_place = f"{self.name}, row {self.layout.skipped}"

    def rename(self, header: tuple[str, ...]) -> None:
        """Give the columns other names than the header line does."""
        self.header = header
        self.layout = replace(self.layout, header=header)

    def blocks(self, numbers: Mapping[str, bool], bad: BadRows) -> Iterator[TableBlock]:
        """Yield rows in blocks: one from pyarrow, or many from Python's own reader."""
        watch = self.options.watch or (lambda share: None)
        block = self._read_by_arrow(numbers)
        if block is not None:
            yield block
            watch(1.0)
            return
        places = {name: self.header.index(name) for name in numbers}
        with self._open() as stream:
            for lines, rows in row_blocks(stream, self.layout, bad):
                watch(cast("io.BytesIO", stream.buffer).tell() / len(self.document.data))
                columns = {
                    name: TextCells([row[place] for row in rows]) for name, place in places.items()
                }
                yield TableBlock(lines, columns)

    def sample(self) -> dict[str, list[str]]:
        """Return the first rows as text."""
        with self._open() as stream:
            ignored = BadRows(self.name, self.options)
            blocks = islice(row_blocks(stream, self.layout, ignored), LOOK // BLOCK)
            rows = [row for _, some in blocks for row in some]
        return {name: [row[i].strip() for row in rows] for i, name in enumerate(self.header)}

    def no_column(self, name: str) -> tuple[str, str]:
        """Return why a column is not there; the header may have another delimiter, or be data."""
        other = other_delimiter(self.layout)
        if other is not None:
            return (
                f"no column '{name}' when split at {self.layout.delimiter!r}: the header is the "
                f"single word '{self.header[0]}'. Set delimiter={other!r}, or leave it out."
            ), "not-split"
        reason, rule = super().no_column(name)
        if rule == "missing" and looks_like_data(self.header):
            reason += " The first row looks like data: add a header line."
        return reason, rule

    def _open(self) -> io.TextIOWrapper:
        """Open the document at its first row of data, after the rows that the layout skips."""
        stream = self.document.open()
        for _ in range(self.layout.skipped + bool(self.layout.unread)):
            stream.readline()
        return stream

    def _read_by_arrow(self, numbers: Mapping[str, bool]) -> TableBlock | None:
        """Read a large plain file by pyarrow.

        None if it is not installed, or if it might read anything otherwise than Python's reader:
        rows with quotes, blank lines, other line ends, or cells that are no finite numbers.
        """
        data = self.document.data
        plain = len(data) >= LARGE and self.decimal == "." and b'"' not in data
        if not plain or len(set(self.header)) < len(self.header) or not find_spec("pyarrow"):
            return None
        start = 0
        for _ in range(self.layout.skipped):
            start = data.find(b"\n", start) + 1
        table = _arrow_table(memoryview(data)[start:], self.layout, numbers)
        # A blank line, or another line end, makes another number of rows.
        rows = data.count(b"\n", start) + (not data.endswith(b"\n"))
        if table is None or table.num_rows != rows:
            return None
        cells: dict[str, Cells] = {name: ArrowCells(table[name]) for name in numbers}
        for name in filter(numbers.__getitem__, numbers):
            values = cells[name].numbers(self.decimal)
            if not np.isfinite(values).all():
                return None
            cells[name] = NumpyCells(values)
        first = self.layout.skipped + 1
        return TableBlock(np.arange(first, first + rows), cells)


def _arrow_table(
    data: memoryview, layout: Layout, numbers: Mapping[str, bool]
) -> pyarrow.Table | None:
    """Read columns by pyarrow; None if a row has another width or a cell is no number."""
    arrow = require("pyarrow", extra="frames")
    reader = require("pyarrow.csv", extra="frames")
    types = {
        name: arrow.float64() if number else arrow.string() for name, number in numbers.items()
    }
    try:
        table: pyarrow.Table = reader.read_csv(
            arrow.BufferReader(data),
            read_options=reader.ReadOptions(
                column_names=list(layout.header),
                block_size=min(len(data), CHUNK),
            ),
            parse_options=reader.ParseOptions(delimiter=layout.delimiter, quote_char=False),
            convert_options=reader.ConvertOptions(
                column_types=types,
                include_columns=list(numbers),
                null_values=[],
                check_utf8=False,  # a `Document` is UTF-8
            ),
        )
    except arrow.ArrowException:
        return None
    return table


def open_table(
    source: FilePath | Frame | Document,
    options: ReadOptions | None = None,
    header: Sequence[str] | None = None,
) -> Table:
    """Open a table; a `Schema` reads its rows.

    Args:
        source: A frame, or a file: CSV, Parquet or Arrow.
        options: How it is read.
        header: Names of the columns of a text file without a header line.
    """
    options = options or ReadOptions()
    if isinstance(source, Frame):
        return FrameTable(source, options)
    if isinstance(source, Document):
        return TextTable(source, options, header)
    if os.path.splitext(source)[1].lower() in COLUMNAR:
        return FrameTable(read_columnar(source), options)
    return TextTable(read_document(source, options), options, header)


def name_of_source(source: FilePath | Frame) -> str:
    """Return the name of a file or a frame."""
    return source.name if isinstance(source, Frame) else os.path.basename(os.fspath(source))


def look(cells: Sequence[str], decimal: str) -> Look:
    """Return the content of some cells of a column; most of the cells decide its kind.

    >>> look(["1", "2", "x"], ".").kind, look(["a", "b", "a", "b"], ".").kind
    ('number', 'category')
    """
    filled = tuple(cell.strip() for cell in cells if not is_missing(cell))
    # A number with another decimal mark makes a column of bad numbers, not a category.
    words = tuple(cell for cell in filled if not _is_some_number(cell, decimal))
    dates = sum(_DATE.fullmatch(cell) is not None for cell in filled)
    # Words of a category appear twice on average.
    kinds = {
        "date": 2 * dates > len(filled),
        "number": 2 * len(words) <= len(filled),
        "truth": all(word.lower() in TRUTH for word in filled),
        "category": len(set(words)) <= min(MOST, len(words) // 2),
        "text": True,
    }
    return Look(next(kind for kind, fits in kinds.items() if fits), filled, words)


def _is_some_number(cell: str, decimal: str) -> bool:
    if is_number(cell) or has_comma(cell):
        return True
    return decimal == "," and is_number(with_point(cell))
