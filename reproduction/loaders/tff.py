"""Databases of TensorFlow Federated: SQLite with one serialised `tf.train.Example` a row, read
without TensorFlow.

Tables, as distributed: `examples(split_name TEXT, client_id TEXT, serialized_example_proto BLOB)`,
with an index on (split_name, client_id), and `client_metadata(client_id, split_name,
num_examples)`. They come compressed (.lzma): `xz --format=lzma --decompress FILE`. Rows are read
client by client; memory holds one client.
"""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from posse.core.errors import DataError
from posse.problems.tables.text import FilePath

Feature = list[bytes] | NDArray[np.float32] | list[int]
Example = dict[str, Feature]

_SQLITE = b"SQLite format 3\x00"


def clients(path: FilePath, split: str) -> Iterator[tuple[str, list[Example]]]:
    """Give every client of a split with its examples, in the order of the clients' names."""
    file = Path(path)
    _check_file(file)
    database = sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True)
    try:
        found = database.execute(
            "SELECT client_id, serialized_example_proto FROM examples WHERE split_name = ? ORDER "
            "BY client_id, rowid",
            (split,),
        )
        some = False
        for client, rows in groupby(found, key=lambda row: str(row[0])):
            some = True
            yield client, [read_example(bytes(row[1])) for row in rows]
        if not some:
            known = [
                str(row[0]) for row in database.execute("SELECT DISTINCT split_name FROM examples")
            ]
            raise DataError(
                f"{file} has no split '{split}'. Known: {', '.join(sorted(known)) or 'none'}."
            )
    except sqlite3.DatabaseError as error:
        raise DataError(
            f"{file} is not a database of TensorFlow Federated ({error}). Download it again."
        ) from None
    finally:
        database.close()


def read_example(data: bytes) -> Example:
    """Read a `tf.train.Example`: a map from names to lists of bytes, of floats or of integers.

    >>> read_example(b"\\n\\x10\\n\\x0e")
    Traceback (most recent call last):
    ...
    posse.core.errors.DataError: [P200] an example is not a whole tf.train.Example (truncated).
    Download the file again.
    >>> read_example(b"\\n\\x10\\n\\x0e\\n\\x05label\\x12\\x05\\x1a\\x03\\n\\x01\\x07")
    {'label': [7]}
    """
    try:
        return {
            _only(entry, 1).decode(): _feature(_only(entry, 2))
            for features in _fields(data, 1)
            for entry in _fields(features, 1)
        }
    except (IndexError, ValueError, struct.error) as error:
        why = "truncated" if isinstance(error, IndexError | struct.error) else error
        raise DataError(
            f"an example is not a whole tf.train.Example ({why}). Download the file again."
        ) from None


def text(example: Example, name: str) -> str:
    """Give a feature that is one text."""
    value = example.get(name)
    if not isinstance(value, list) or len(value) != 1 or not isinstance(value[0], bytes):
        raise DataError(
            f"an example must have one text '{name}', got {value!r:.60}. Download the file again."
        )
    return value[0].decode("utf-8", "replace")


def _feature(data: bytes) -> Feature:
    for number, value in _messages(data):
        if number == 1:
            return _fields(value, 1)
        if number == 2:
            return np.frombuffer(b"".join(_fields(value, 1)), "<f4")
        if number == 3:
            return [_signed(part) for packed in _fields(value, 1) for part in _varints(packed)]
    return []


def _only(data: bytes, number: int) -> bytes:
    return _fields(data, number)[0]


def _fields(data: bytes, number: int) -> list[bytes]:
    return [value for found, value in _messages(data) if found == number]


def _messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Split a message into (field, bytes); numbers that stand alone are given as they would be
    packed.
    """
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        if kind == 2:
            size, at = _varint(data, at)
            end = at + size
        elif kind == 0:
            end = _varint(data, at)[1]
        elif kind in (1, 5):
            end = at + (8 if kind == 1 else 4)
        else:
            raise ValueError(f"wire type {kind}")
        if end > len(data):
            raise IndexError(end)
        yield key >> 3, data[at:end]
        at = end


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _varints(data: bytes) -> Iterator[int]:
    at = 0
    while at < len(data):
        value, at = _varint(data, at)
        yield value


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _check_file(file: Path) -> None:
    try:
        with file.open("rb") as stream:
            start = stream.read(len(_SQLITE))
    except OSError as error:
        raise DataError(f"cannot read {file}: {error.strerror}. Check the path.") from None
    if start != _SQLITE:
        packed = (
            ": decompress it first (xz --format=lzma --decompress)"
            if file.suffix == ".lzma"
            else ""
        )
        raise DataError(f"{file} is not an SQLite database{packed}. Give the .sqlite file.")
