"""A table in memory in place of a file: a frame of pandas, polars or pyarrow, rows as dictionaries,
columns as lists.

Anything with `columns` and `[column]` will do; a lazy frame is collected. A frame is copied to text
when it is given and read like a CSV file, so that a value means the same in both; errors give its
rows, counted from 1. No library of frames is imported.
"""

from __future__ import annotations

import csv
import hashlib
import io
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest
from typing import Any

from posse.core.check import require
from posse.core.errors import DataError
from posse.problems.datasets.files import Document, FilePath, read_bytes, read_document


@dataclass(frozen=True, eq=False)
class Frame:
    """A copy of a table, with the name that errors give it; equal to another of the same content.

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
    text: bytes
    """Header and rows as CSV."""
    rows: int

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the content, as hex."""
        return hashlib.sha256(self.text).hexdigest()

    def document(self) -> Document:
        """Return it as a file would be read."""
        return Document(self.name, self.text, frame=True)

    def described(self) -> dict[str, object]:
        """What a record keeps of it: its size, and a digest of its content."""
        return {"frame": [self.rows, len(self.names)], "digest": self.digest}

    def __repr__(self) -> str:
        return f"Frame({self.name!r}, {self.rows} rows, {len(self.names)} columns)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Frame) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.digest)


def as_frame(value: object, name: str) -> Frame | None:
    """Copy a table; None for what is none.

    >>> as_frame({"item": ["heat", "heat"], "rating": [4, 5]}, "data").text
    b'item,rating\\nheat,4\\nheat,5\\n'
    >>> as_frame("ratings.csv", "data") is None
    True
    """
    if isinstance(value, Frame):
        return value
    columns = _columns(value)
    if columns is None:
        return None
    names = [str(column) for column, _ in columns]
    twice = next((word for i, word in enumerate(names) if word in names[:i]), None)
    if twice is not None:
        raise DataError(f"{name}: column '{twice}' stands there more than once. Rename one.")
    cells = [[_text(cell) for cell in column] for _, column in columns]
    if len({len(column) for column in cells}) > 1:
        sizes = ", ".join(
            f"{word} {len(column)}" for word, column in zip(names, cells, strict=True)
        )
        raise DataError(f"{name}: columns must be of one length, got {sizes}. Complete them.")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    writer.writerows(zip_longest(*cells))
    return Frame(name, tuple(names), text.getvalue().encode(), len(cells[0]) if cells else 0)


COLUMNAR = (".parquet", ".pq", ".arrow", ".feather", ".ipc")
"""Suffixes of files that hold a frame; they need the extra `frames`."""


def read_table(source: FilePath | Frame) -> Document:
    """Read a text file, or a frame as if it were one; a Parquet or Arrow file is a frame."""
    if isinstance(source, Frame):
        return source.document()
    if os.path.splitext(source)[1].lower() in COLUMNAR:
        return read_columnar(source).document()
    return read_document(source)


def read_columnar(path: FilePath) -> Frame:
    """Read a Parquet or Arrow file."""
    name = os.fspath(path)
    arrow = require("pyarrow", extra="frames")
    data = arrow.BufferReader(read_bytes(path))
    form = "parquet" if name.lower().endswith((".parquet", ".pq")) else "feather"
    try:
        table = require(f"pyarrow.{form}", extra="frames").read_table(data)
    except (arrow.ArrowException, OSError) as error:
        raise DataError(
            f"{name} is no Parquet or Arrow file ({str(error).splitlines()[0]}). Write it again."
        ) from None
    frame = as_frame(table, name)
    assert frame is not None
    return frame


def name_of_source(source: FilePath | Frame) -> str:
    """Name a file or a frame in words."""
    return source.name if isinstance(source, Frame) else os.path.basename(os.fspath(source))


def _columns(value: Any) -> list[tuple[object, Sequence[object]]] | None:
    """Return names and columns of what holds some; None for anything else."""
    # A lazy frame of polars is a query that has not run yet.
    if hasattr(value, "collect") and hasattr(value, "collect_schema"):
        value = value.collect()
    if isinstance(value, Mapping):
        if not value or not all(map(_is_column, value.values())):
            return None
        return [(name, _listed(value[name])) for name in value]
    if isinstance(value, list | tuple):
        return _columns_of_rows(value)
    if isinstance(value, str | os.PathLike | type) or not hasattr(value, "__getitem__"):
        return None
    headed = getattr(value, "column_names", None) or getattr(value, "columns", None)
    if headed is None:
        return None
    names = list(headed)
    if len(set(names)) != len(names):
        return [(name, ()) for name in names]  # the caller refuses them by name
    return [(name, _listed(value[name])) for name in names]


def _columns_of_rows(
    rows: Sequence[Any],
) -> list[tuple[object, Sequence[object]]] | None:
    """Return the columns of rows that are dictionaries, a missing cell as None."""
    if not rows or not all(isinstance(row, Mapping) for row in rows):
        return None
    names = dict.fromkeys(name for row in rows for name in row)
    return [(name, [row.get(name) for row in rows]) for name in names]


def _is_column(value: object) -> bool:
    return (
        not isinstance(value, str | bytes | Mapping | os.PathLike)
        and hasattr(value, "__len__")
        and (isinstance(value, Sequence) or any(hasattr(value, way) for way in _WAYS))
    )


_WAYS = ("to_pylist", "to_list", "tolist")
"""How columns of pyarrow, of pandas and polars, and of numpy give Python's own values."""


def _listed(column: Any) -> Sequence[Any]:
    way = next((way for way in _WAYS if hasattr(column, way)), None)
    values = list(column) if way is None else getattr(column, way)()
    return values if isinstance(values, list) else list(values)


def _text(cell: Any) -> str:
    """Write a cell as a CSV file would hold it; what is missing is empty, and a line end is a
    blank.
    """
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return ""
    if isinstance(cell, bool):
        return str(int(cell))
    return " ".join(str(cell).splitlines())
