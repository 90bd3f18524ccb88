"""The columns of a delimited text file, read in one pass; every error names row and column.

A row number is the line in the file, the header being line 1: what an editor and a spreadsheet
show. Rows are converted a block at a time, so that a file of millions of ratings needs no list of
all its words.
"""

from __future__ import annotations

import csv
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, compress, islice
from typing import TYPE_CHECKING, NamedTuple, TextIO, cast

import numpy as np
from numpy.typing import NDArray

from posse.core import check
from posse.core.errors import ConfigError, DataError
from posse.problems.datasets.files import Document
from posse.problems.datasets.reading import BadRows, Rule, current, is_missing, pointed, unfit

if TYPE_CHECKING:
    from io import BytesIO


@dataclass(frozen=True, eq=False)
class Words:
    """A column of words: the distinct ones in order of appearance, and which of them each row
    holds.
    """

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

    def check_distinct(self, column: str) -> None:
        """Refuse a word that stands on two rows."""
        words = self.words[column]
        if len(words.distinct) == len(words.code):
            return
        _, first = np.unique(words.code, return_index=True)
        row = int(np.setdiff1d(np.arange(len(words.code)), first)[0])
        raise DataError(
            f"{self.place(row, column)}: '{words[row]}' stands on row "
            f"{self.line[first[words.code[row]]]} too. "
            "Keep one, or rename it."
        )


def read_columns(
    document: Document,
    words: Sequence[str] = (),
    numbers: Sequence[str] = (),
    optional: Sequence[str] = (),
    delimiter: str | None = None,
    header: Sequence[str] | None = None,
    categories: Sequence[str] = (),
    rules: Sequence[Rule] = (),
) -> Columns:
    """Read columns of words and of finite numbers; `categories` are words too, and a cell such as
    N/A is bad there.

    A row that breaks one of the `rules` is bad too, and reported with those that cannot be read.
    `optional` columns of words are read where the file has them. `header` names the columns of a
    file that has no header line. Without `delimiter`, the one that separates the header is used.

    >>> table = read_columns(
    ...     Document("r.csv", b"item;rating\\nheat;4\\nheat;5"), words=["item"], numbers=["rating"]
    ... )
    >>> table.words["item"].distinct, table.numbers["rating"].tolist()
    (('heat',), [4.0, 5.0])
    >>> read_columns(
    ...     Document("r.csv", b"item,rating\\nheat,four"), words=["item"], numbers=["rating"]
    ... )
    Traceback (most recent call last):
    ...
    posse.core.errors.DataError: [P200] r.csv, row 2, column 'rating': 'four' is not a number. Write
    it like 4.5.
    """
    with document.open() as stream:
        plan = layout(
            stream, document, [*words, *categories, *numbers], optional, delimiter, header
        )
        reading = [*words, *categories, *(name for name in optional if name in plan.position)]
        index: dict[str, defaultdict[str, int]] = {name: _index() for name in reading}
        codes: defaultdict[str, list[NDArray[np.int64]]] = defaultdict(list)
        values: defaultdict[str, list[NDArray[np.float64]]] = defaultdict(list)
        lines: list[NDArray[np.int64]] = []
        bad, watch = BadRows(document.name), current().watch
        for numbered, rows in blocks(stream, plan, bad):
            if watch is not None:
                watch(cast("BytesIO", stream.buffer).tell() / len(document.data))
            block = _read_block(numbered, rows, reading, numbers, categories, plan, bad)
            block = _keep(rules, block, bad)
            lines.append(np.array(block.lines, np.int64))
            for name, cells in block.cells.items():
                number = index[name]
                codes[name].append(np.array([number[cell] for cell in cells], np.int64))
            for name, figures in block.figures.items():
                values[name].append(figures)
    bad.settle(sum(map(len, lines)))
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


def _cells(
    rows: Sequence[Sequence[str]], names: Sequence[str], plan: Layout
) -> dict[str, list[str]]:
    return {name: [row[plan.position[name]].strip() for row in rows] for name in names}


def _figures(
    rows: Sequence[Sequence[str]], names: Sequence[str], plan: Layout
) -> dict[str, NDArray[np.float64]] | None:
    """Read columns of numbers; None where one of their cells holds none."""
    made = {}
    for name in names:
        cells = [plan.number(row[plan.position[name]]) for row in rows]
        try:
            made[name] = np.fromiter(map(float, cells), np.float64, len(cells))
        except ValueError:
            return None
        # float() reads '1_000' as a thousand; in a data file an underscore is a slip.
        if not np.isfinite(made[name]).all() or "_" in "".join(cells):
            return None
    return made


class _Block(NamedTuple):
    """Some rows of a file: their lines, and their columns of words and of numbers."""

    lines: Sequence[int]
    cells: dict[str, list[str]]
    figures: dict[str, NDArray[np.float64]]


def _read_block(
    lines: Sequence[int],
    rows: Sequence[list[str]],
    words: Sequence[str],
    numbers: Sequence[str],
    categories: Sequence[str],
    plan: Layout,
    bad: BadRows,
) -> _Block:
    """Read the columns of a block of rows, without the rows that cannot be read."""
    cells, figures = _cells(rows, words, plan), _figures(rows, numbers, plan)
    missing = any(is_missing(cell) for name in categories for cell in set(cells[name]))
    if figures is None or missing or any("" in column for column in cells.values()):
        lines, rows = _readable(lines, rows, words, numbers, plan, bad, categories)
        cells, figures = _cells(rows, words, plan), _figures(rows, numbers, plan)
        assert figures is not None
    return _Block(lines, cells, figures)


def _keep(rules: Sequence[Rule], block: _Block, bad: BadRows) -> _Block:
    """Keep the rows that follow all rules; of another one note the first that it breaks."""
    lines, cells, figures = block
    kept = np.ones(len(lines), np.bool_)
    for rule in rules:
        values = figures[rule.column] if rule.column in figures else cells[rule.column]
        fits = rule.fits(values)
        for row in np.flatnonzero(kept & ~fits).tolist():
            bad.add(lines[row], f", column '{rule.column}': {rule.wrong(values[row])}", rule.remedy)
        kept &= fits
    if kept.all():
        return block
    return _Block(
        list(compress(lines, kept)),
        {name: list(compress(column, kept)) for name, column in cells.items()},
        {name: column[kept] for name, column in figures.items()},
    )


def _readable(
    lines: Sequence[int],
    rows: Sequence[list[str]],
    words: Sequence[str],
    numbers: Sequence[str],
    plan: Layout,
    bad: BadRows,
    categories: Sequence[str],
) -> tuple[list[int], list[list[str]]]:
    """Leave out the rows that cannot be read, and note what is wrong with the first such cell of
    each.
    """
    kept: list[tuple[int, list[str]]] = []
    for line, row in zip(lines, rows, strict=True):
        empty = next((name for name in words if not row[plan.position[name]].strip()), None)
        wrong = next(
            (name for name in numbers if not finite(plan.number(row[plan.position[name]]))), None
        )
        missing = next((name for name in categories if is_missing(row[plan.position[name]])), None)
        if empty is not None:
            bad.add(line, f", column '{empty}' is empty", "Fill it, or delete the row.")
        elif wrong is not None:
            fault, remedy = unfit(row[plan.position[wrong]])
            bad.add(line, f", column '{wrong}': {fault}", remedy)
        elif missing is not None:
            word = row[plan.position[missing]].strip()
            bad.add(
                line,
                f", column '{missing}': '{word}' is missing",
                "Give a word, or delete the row.",
            )
        else:
            kept.append((line, row))
    return [line for line, _ in kept], [row for _, row in kept]


def finite(cell: str) -> bool:
    """Whether a cell holds a finite number.

    >>> [finite(cell) for cell in ("4.5", " -1e3 ", "nan", "inf", "1_000", "four", "")]
    [True, True, False, False, False, False, False]
    """
    try:
        return bool(np.isfinite(float(cell))) and "_" not in cell
    except ValueError:
        return False


DELIMITERS = (",", ";", "\t", "|")
SEPARATOR = re.compile('"?sep=([^"])"?[,;]*', re.IGNORECASE)
"""The line that Excel puts above a header."""


@dataclass(frozen=True)
class Layout:
    """How to split the rows of a file, and which column stands where."""

    file: str
    delimiter: str
    width: int
    position: dict[str, int]
    skipped: int
    """Lines above the rows."""
    unread: str = ""
    names: tuple[str, ...] = ()
    """All columns of the header."""
    uncounted: int = 0
    """Lines that do not count as rows: the header of a frame."""
    decimal: str = "."

    def number(self, cell: str) -> str:
        """Write a number with a decimal point, where decimal commas were announced."""
        return pointed(cell, frame=bool(self.uncounted)) if self.decimal == "," else cell

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


def other_columns(
    document: Document, words: Sequence[str], delimiter: str | None = None
) -> tuple[str, list[str]]:
    """Return the delimiter of a file, and the names of the columns beside those of words, which
    must be there.

    >>> other_columns(Document("clinic.csv", b"row;age;dose\\nann;0.3;0.4"), ["row"])
    (';', ['age', 'dose'])
    """
    with document.open() as stream:
        plan = layout(stream, document, words, (), delimiter, None)
    places = set(plan.position.values())
    rest = [name for at, name in enumerate(plan.names) if at not in places]
    where = document.name if document.frame else f"{document.name}, row {plan.skipped}"
    if not rest:
        beside = " and ".join(f"'{word}'" for word in words)
        raise DataError(f"{where}: no column beside {beside} in the header. Add the numbers.")
    if "" in rest:
        raise DataError(f"{where}: a column has no name in the header. Name it, or delete it.")
    return plan.delimiter, rest


def layout(
    stream: TextIO,
    document: Document,
    required: Sequence[str],
    optional: Sequence[str],
    delimiter: str | None,
    header: Sequence[str] | None,
) -> Layout:
    """Find the required columns, in any order, and the optional ones that are there."""
    file = document.name
    if delimiter is not None and (len(delimiter) != 1 or delimiter in '"\r\n'):
        raise ConfigError(
            f"delimiter must be one character, not a quote or a line end, got {delimiter!r}."
        )
    line, number = (stream.readline(), 1) if document.frame else first_line(stream, file)
    if header is None and not document.frame and (said := SEPARATOR.fullmatch(line.rstrip("\r\n"))):
        delimiter = delimiter or said[1]
        line, below = first_line(stream, file)
        number += below
    if header is not None:
        position = {name: i for i, name in enumerate(header)}
        return Layout(
            file,
            delimiter or ",",
            len(header),
            position,
            number - 1,
            unread=line,
            decimal=current().decimal,
        )
    delimiter = "," if document.frame else delimiter
    marks = DELIMITERS[1:] if current().decimal == "," else DELIMITERS
    tried = (delimiter,) if delimiter is not None else marks
    found = {mark: _split(line, mark) for mark in tried}
    best = max(
        tried,
        key=lambda mark: (
            sum(_at(name, found[mark]) is not None for name in required),
            len(found[mark]),
        ),
    )
    names = found[best]
    position = {}
    for name in (*required, *optional):
        at = _at(name, names)
        if at is not None:
            position[name] = at
        elif name in required:
            raise DataError(
                _missing(
                    file if document.frame else f"{file}, row {number}", name, names, best, line
                )
            )
    return Layout(
        file,
        best,
        len(names),
        position,
        number,
        names=names,
        uncounted=int(document.frame),
        decimal=current().decimal,
    )


def _split(line: str, delimiter: str) -> tuple[str, ...]:
    return tuple(
        cell.strip() for cell in next(csv.reader([line.rstrip("\r\n")], delimiter=delimiter))
    )


def _at(name: str, names: Sequence[str]) -> int | None:
    # As written first: a file may hold both 'Rating' and 'rating'.
    exact = [i for i, other in enumerate(names) if other == name]
    places = exact or [i for i, other in enumerate(names) if other.lower() == name.lower()]
    return places[0] if len(places) == 1 else None


def _missing(start: str, name: str, names: Sequence[str], delimiter: str, line: str) -> str:
    if sum(other.lower() == name.lower() for other in names) > 1:
        return f"{start}: column '{name}' stands there more than once. Rename the others."
    other = next((mark for mark in DELIMITERS if len(_split(line, mark)) > 1), None)
    if len(names) == 1 and other is not None:
        return (
            f"{start}: no column '{name}' when split at {delimiter!r}: the header is the single "
            f"word '{names[0]}'. "
            f"Set delimiter={other!r}, or leave it out."
        )
    data = any(cell.lstrip("-").replace(".", "", 1).isdecimal() for cell in names)
    header = " The first row looks like data: add a header line." if data else ""
    return (
        f"{start}: no column '{name}' in the header.{check.suggestion(name, tuple(names))}{header}"
    )


# Fewer new lists than make Python's garbage collector look at them: larger blocks read two million
# rows more slowly.
_BLOCK = 1 << 9
_LINE_END = re.compile("\r\n|\r|\n")


def blocks(
    stream: TextIO, plan: Layout, bad: BadRows
) -> Iterator[tuple[Sequence[int], list[list[str]]]]:
    """Give (lines, rows) blocks of every row that is not blank; all rows are as wide as the header.

    One that is not is noted in `bad` and left out.

    >>> import io
    >>> plan = Layout("r.csv", ",", width=2, position={"item": 0, "rating": 1}, skipped=1)
    >>> rating = io.StringIO("heat,4\\n\\nalien,5\\n")
    >>> [(list(lines), rows) for lines, rows in blocks(rating, plan, BadRows("r.csv"))]
    [([2, 4], [['heat', '4'], ['alien', '5']])]
    """
    reader = csv.reader(plan.lines(stream), delimiter=plan.delimiter, strict=True)
    done = 0
    above = plan.skipped - plan.uncounted
    last = above
    while True:
        try:
            rows = list(islice(reader, _BLOCK))
        except csv.Error as error:
            raise DataError(
                f"{plan.file}, row {_unreadable(stream, plan)}: cannot split into columns "
                f"({error}). "
                "Close its quotes, and double a quote inside."
            ) from None
        if not rows:
            return
        plain = reader.line_num - done == len(rows)
        lines: Sequence[int] = (
            range(last + 1, last + 1 + len(rows)) if plain else _lines(rows, last)
        )
        done, last = reader.line_num, above + reader.line_num
        if any(len(row) != plan.width or not row[0] for row in rows):
            lines, rows = _without_blanks(lines, rows, plan, bad)
        if rows:
            yield lines, rows


def _unreadable(stream: TextIO, plan: Layout) -> int:
    """Line on which the row begins that cannot be split: an open quote swallows all lines below
    it.
    """
    stream.seek(0)
    for _ in range(plan.skipped):
        stream.readline()
    reader = csv.reader(stream, delimiter=plan.delimiter, strict=True)
    line = plan.skipped
    try:
        for _ in reader:
            line = plan.skipped + reader.line_num
    except csv.Error:
        pass
    return line + 1


def _lines(rows: list[list[str]], last: int) -> list[int]:
    """Line on which each row ends, where some rows have quoted line ends and so take several."""
    lines = []
    for row in rows:
        last += 1 + sum(len(_LINE_END.findall(cell)) for cell in row)
        lines.append(last)
    return lines


def _without_blanks(
    lines: Sequence[int], rows: list[list[str]], plan: Layout, bad: BadRows
) -> tuple[list[int], list[list[str]]]:
    kept = []
    for line, row in zip(lines, rows, strict=True):
        if len(row) == plan.width and any(map(str.strip, row)):
            kept.append((line, row))
        elif any(map(str.strip, row)):
            bad.add(
                line,
                f", column {min(len(row), plan.width) + 1}: expected {plan.width} columns as in "
                "the header, got "
                f"{len(row)}",
                f"Quote a field that holds {plan.delimiter!r}."
                if len(row) > plan.width
                else "Complete the row.",
            )
    return [line for line, _ in kept], [row for _, row in kept]


def name_of(table: Columns, key: str, name: str) -> dict[str, str]:
    """Map id to name; an id on two rows is refused.

    >>> from posse.problems.datasets.columns import Document, read_columns
    >>> table = read_columns(
    ...     Document("films.csv", b"id,title\\n7,Heat\\n3,Alien"), words=["id", "title"]
    ... )
    >>> name_of(table, "id", "title")
    {'7': 'Heat', '3': 'Alien'}
    """
    table.check_distinct(key)
    return {table.words[key][row]: table.words[name][row] for row in range(len(table.line))}


def by_number(table: Columns, column: str) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """Put numbered items in the order of their numbers; give their ids, and the position of each
    row's item.

    >>> from posse.problems.datasets.columns import Document, read_columns
    >>> ids, position = by_number(
    ...     read_columns(Document("r.csv", b"id\\n10\\n9\\n10"), words=["id"]), "id"
    ... )
    >>> ids, position.tolist()
    (('9', '10'), [1, 0, 1])
    """
    ids = table.words[column]
    for code, item in enumerate(ids.distinct):
        if not (item.isascii() and item.isdecimal()):
            row = int(np.argmax(ids.code == code))
            raise DataError(
                f"{table.place(row, column)}: '{item}' is not a whole number. Number the items 1, "
                "2, ..."
            )
    order = sorted(range(len(ids.distinct)), key=lambda code: int(ids.distinct[code]))
    position = np.empty(len(order), np.int64)
    position[order] = np.arange(len(order))
    return tuple(ids.distinct[code] for code in order), position[ids.code]
