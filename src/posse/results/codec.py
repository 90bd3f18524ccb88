"""Arrays and records as bytes: a readable header and zlib, never pickle."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from posse.core.errors import PosseError, StoreError
from posse.results.record import ARRAYS, RunRecord, Traffic

_MAGIC = b"posse-array-1"
_TYPES = {"<f8": np.dtype("<f8"), "<i8": np.dtype("<i8")}


def pack(array: npt.NDArray[np.generic]) -> bytes:
    """Write an array as `posse-array-1 <dtype> <shape>`, a newline, and zlib-compressed little-endian bytes.

    >>> pack(np.zeros((2, 3))).partition(b"\\n")[0]
    b'posse-array-1 <f8 2,3'
    """
    kind = "<" + array.dtype.str[1:]
    if kind not in _TYPES:
        raise TypeError(f"only float64 and int64 arrays are stored, got {array.dtype}")
    body = np.ascontiguousarray(array, dtype=_TYPES[kind]).tobytes()
    sides = ",".join(str(side) for side in array.shape)
    return b"%s %s %s\n" % (_MAGIC, kind.encode(), sides.encode()) + zlib.compress(body)


def unpack(blob: bytes) -> npt.NDArray[np.generic]:
    """Read what `pack` wrote; a blob that is cut, altered or longer than its header says is a `ValueError`.

    Never inflates more than the header promises, so a small blob cannot fill the memory.
    """
    header, newline, body = blob.partition(b"\n")
    parts = header.split(b" ")
    if not newline or len(parts) != 3 or parts[0] != _MAGIC or parts[1].decode("latin-1") not in _TYPES:
        raise ValueError("no array header")
    dtype = _TYPES[parts[1].decode()]
    shape = tuple(int(side) for side in parts[2].split(b",")) if parts[2] else ()
    size = math.prod(shape) * dtype.itemsize
    inflate = zlib.decompressobj()
    try:
        data = inflate.decompress(body, size + 1)
    except zlib.error as error:
        raise ValueError(f"does not inflate: {error}") from error
    if len(data) != size or not inflate.eof:
        raise ValueError(f"holds {len(data)} of {size} bytes")
    native = np.frombuffer(data, dtype=dtype).reshape(shape)
    return native.astype(dtype.newbyteorder("="))


def arrays_of(record: RunRecord) -> dict[str, bytes]:
    """Pack the arrays of a record; a regret that is not known is absent."""
    arrays = {name: getattr(record, name) for name in ARRAYS}
    return {name: pack(array) for name, array in arrays.items() if array is not None}


def text_of(record: RunRecord) -> str:
    """Write all other fields as JSON (with NaN and Infinity where they occur, so that nothing is lost)."""
    return json.dumps(record.fields(), ensure_ascii=False, separators=(",", ":"))


def build(text: str, blobs: Mapping[str, bytes], where: str) -> RunRecord:
    """Rebuild a record from its parts, or say which part is damaged; `where` names the run and its file."""
    arrays: dict[str, npt.NDArray[np.generic]] = {}
    for name, blob in blobs.items():
        try:
            arrays[name] = unpack(blob)
        except ValueError as error:
            raise StoreError(
                f"{where} is damaged: its array '{name}' {error}. Delete the run, or restore a copy."
            ) from error
    try:
        values = json.loads(text)
        values["traffic"] = tuple(Traffic(**hop) for hop in values["traffic"])
        return RunRecord(**{**values, **arrays})
    except (ValueError, TypeError, KeyError, AttributeError, PosseError) as error:
        raise StoreError(f"{where} is damaged: {error}. Delete the run, or restore a copy.") from error
