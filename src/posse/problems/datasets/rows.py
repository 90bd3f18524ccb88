"""The rows of a delimited text file, a block at a time, each with the line it stands on."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TextIO

from posse.core.errors import DataError
from posse.problems.datasets.header import Layout

# Fewer new lists than make Python's garbage collector look at them: larger blocks read two million rows more slowly.
_BLOCK = 1 << 9
_LINE_END = re.compile("\r\n|\r|\n")


def blocks(stream: TextIO, plan: Layout) -> Iterator[tuple[Sequence[int], list[list[str]]]]:
    """Give (lines, rows) blocks of every row that is not blank; all rows are as wide as the header.

    >>> import io
    >>> plan = Layout("r.csv", ",", width=2, position={"item": 0, "rating": 1}, skipped=1)
    >>> [(list(lines), rows) for lines, rows in blocks(io.StringIO("heat,4\\n\\nalien,5\\n"), plan)]
    [([2, 4], [['heat', '4'], ['alien', '5']])]
    """
    reader = csv.reader(plan.lines(stream), delimiter=plan.delimiter, strict=True)
    done = 0
    last = plan.skipped
    while True:
        try:
            rows = list(islice(reader, _BLOCK))
        except csv.Error as error:
            raise DataError(
                f"{plan.file}, row {_unreadable(stream, plan)}: cannot split into columns ({error}). "
                "Close its quotes, and double a quote inside."
            ) from None
        if not rows:
            return
        plain = reader.line_num - done == len(rows)
        lines: Sequence[int] = range(last + 1, last + 1 + len(rows)) if plain else _lines(rows, last)
        done, last = reader.line_num, plan.skipped + reader.line_num
        if any(len(row) != plan.width or not row[0] for row in rows):
            lines, rows = _without_blanks(lines, rows, plan)
        if rows:
            yield lines, rows


def _unreadable(stream: TextIO, plan: Layout) -> int:
    """Line on which the row begins that cannot be split: an open quote swallows all lines below it."""
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


def _without_blanks(lines: Sequence[int], rows: list[list[str]], plan: Layout) -> tuple[list[int], list[list[str]]]:
    kept = [(line, row) for line, row in zip(lines, rows, strict=True) if any(map(str.strip, row))]
    for line, row in kept:
        if len(row) != plan.width:
            raise DataError(
                f"{plan.file}, row {line}, column {min(len(row), plan.width) + 1}: expected {plan.width} columns as in "
                f"the header, got {len(row)}. Quote a field that holds {plan.delimiter!r}, or complete the row."
            )
    return [line for line, _ in kept], [row for _, row in kept]
