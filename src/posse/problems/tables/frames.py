"""Tables in memory: frames of pandas, polars or pyarrow, rows as dictionaries, columns as lists.

Anything with `columns` and `[column]` will do; a lazy frame is collected. Columns are copied when
the frame is given, and read by column. Errors count its rows from 1. No library of frames
is imported.
"""

from __future__ import annotations

import csv
import hashlib
import io
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from posse.core.check import first_repeated, require
from posse.core.errors import DataError
from posse.problems.tables.cells import ArrowCells, Cells, NumpyCells, ObjectCells
from posse.problems.tables.text import FilePath, read_bytes

COLUMNAR = (".parquet", ".pq", ".arrow", ".feather", ".ipc")
"""Suffixes of files that hold a frame; they need the extra `frames`."""
INDEX = "index"
"""Name of the column of an index without a name."""
KEYS = frozenset(("item", "name", "row", "client", "label", "arm", "agent", "supplier"))
"""Columns that name the subject of a row. A frame without one of them may have it as its index."""
_LISTING = ("to_pylist", "to_list", "tolist")
"""Methods of pyarrow, of pandas and polars, and of numpy that return Python's own values."""


@dataclass(frozen=True, eq=False)
class Frame:
    """A copy of a table, with its name in errors; equal to another of the same content.

    >>> frame = as_frame(
    ...     [{"name": "clinic a", "mean": 0.25}, {"name": "clinic b", "mean": 0.75}], "data"
    ... )
    >>> frame
    Frame('data', 2 rows, 2 columns)
    >>> frame.described()["frame"]
    [2, 2]
    """

    name: str
    names: tuple[str, ...]
    columns: tuple[Cells, ...]
    rows: int

    @property
    def text(self) -> bytes:
        """The frame as CSV, of which its digest is taken."""
        stream = io.StringIO()
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(self.names)
        writer.writerows(zip(*(column.texts() for column in self.columns), strict=True))
        return stream.getvalue().encode()

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the content, as hex."""
        return hashlib.sha256(self.text).hexdigest()

    def described(self) -> dict[str, object]:
        """Return what a record stores: size, and a digest of the content."""
        return {"frame": [self.rows, len(self.names)], "digest": self.digest}

    def __repr__(self) -> str:
        return f"Frame({self.name!r}, {self.rows} rows, {len(self.names)} columns)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Frame) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)


def as_frame(value: object, name: str) -> Frame | None:
    """Copy a table; None for anything that is no table.

    >>> as_frame({"item": ["heat", "heat"], "rating": [4, 5]}, "data").text
    b'item,rating\\nheat,4\\nheat,5\\n'
    >>> as_frame("ratings.csv", "data") is None
    True
    """
    if isinstance(value, Frame):
        return value
    columns = _columns_of(value)
    if columns is None:
        return None
    names = tuple(str(column) for column, _ in columns)
    if len(set(names)) < len(names):
        raise DataError(
            f"{name}: column '{first_repeated(names)}' is listed more than once. Rename one.",
            rule="problems.columns.twice-in-frame",
        )
    sizes = [len(column) for _, column in columns]
    if len(set(sizes)) > 1:
        lengths = ", ".join(f"{word} {size}" for word, size in zip(names, sizes, strict=True))
        raise DataError(
            f"{name}: columns must be of one length, got {lengths}. Complete them.",
            rule="problems.columns.lengths",
        )
    cells = tuple(_copied(column) for _, column in columns)
    return Frame(name, names, cells, max(sizes, default=0))


def read_columnar(path: FilePath) -> Frame:
    """Read a Parquet or Arrow file."""
    name = os.fspath(path)
    arrow = require("pyarrow", extra="frames")
    source = arrow.BufferReader(read_bytes(path))
    try:
        if name.lower().endswith((".parquet", ".pq")):
            table = _read_parquet(source)
        else:
            table = require("pyarrow.feather", extra="frames").read_table(source)
    except (arrow.ArrowException, OSError) as error:
        raise DataError(
            f"{name} is no Parquet or Arrow file ({str(error).splitlines()[0]}). Write it again.",
            rule="problems.file.not-columnar",
        ) from None
    frame = as_frame(table, name)
    assert frame is not None
    return frame


def _read_parquet(source: Any) -> Any:
    """Read a Parquet file; each word of a column is read once."""
    parquet = require("pyarrow.parquet", extra="frames")
    schema = parquet.read_schema(source)
    source.seek(0)
    words = [field.name for field in schema if str(field.type) in ("string", "large_string")]
    return parquet.read_table(source, read_dictionary=words)


def _columns_of(value: Any) -> list[tuple[object, Any]] | None:
    """Return names and columns of a table; None for anything else."""
    # A lazy frame of polars is a query that has not run yet.
    if hasattr(value, "collect") and hasattr(value, "collect_schema"):
        value = value.collect()
    if isinstance(value, Mapping):
        is_table = value and all(map(_is_column, value.values()))
        return list(value.items()) if is_table else None
    if isinstance(value, list | tuple):
        return _columns_of_rows(value)
    headed = getattr(value, "column_names", getattr(value, "columns", None))
    if isinstance(value, type) or headed is None or not hasattr(value, "__getitem__"):
        return None
    names = list(headed)
    if len(set(names)) != len(names):
        return [(name, ()) for name in names]  # the caller raises an error with their names
    return [*_index_of(value, names), *((name, value[name]) for name in names)]


def _columns_of_rows(rows: Sequence[Any]) -> list[tuple[object, Any]] | None:
    """Return the columns of rows that are dictionaries; a missing cell is None."""
    if not rows or not all(isinstance(row, Mapping) for row in rows):
        return None
    names = dict.fromkeys(name for row in rows for name in row)
    return [(name, [row.get(name) for row in rows]) for name in names]


def _index_of(frame: Any, names: Sequence[object]) -> Iterator[tuple[object, Any]]:
    """Yield the index of a frame of pandas as columns, if no column names the subject of a row.

    An index that only numbers the rows is left out.
    """
    index: Any = getattr(frame, "index", None)
    if not hasattr(index, "get_level_values") or KEYS & {str(name).lower() for name in names}:
        return
    for level, name in enumerate(index.names):
        values = index.get_level_values(level)
        if name is not None or values.dtype.kind not in "iu":
            yield INDEX if name is None else name, values


def _is_column(value: object) -> bool:
    if isinstance(value, str | bytes | Mapping | os.PathLike):
        return False
    return isinstance(value, Sequence) or _listing(value) is not None


def _listing(column: Any) -> Callable[[], list[object]] | None:
    """Return the method that gives Python's own values; None without one, or without a length."""
    ways = [getattr(column, way) for way in _LISTING if hasattr(column, way)]
    return ways[0] if ways and hasattr(column, "__len__") else None


def _copied(column: Any) -> Cells:
    """Return a copy of a column. A column of pyarrow needs no copy: it cannot change."""
    if hasattr(column, "dictionary_encode") and hasattr(column, "chunks"):
        return ArrowCells(column)
    dtype = getattr(column, "dtype", None)
    if isinstance(dtype, np.dtype) and dtype.kind in "biuf":
        return NumpyCells(np.array(column))
    listing = _listing(column)
    return ObjectCells(list(column) if listing is None else listing())
