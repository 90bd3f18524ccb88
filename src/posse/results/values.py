"""What a record may store: plain values that JSON can express, and arrays with their bytes."""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from posse.core.check import ensure
from posse.core.errors import DataError

JSON: TypeAlias = "bool | int | float | str | Sequence[JSON] | Mapping[str, JSON] | None"
"""A value of JSON. The containers are read-only types, so that a `dict[str, int]` is a `JSON`."""

Scalar = TypeVar("Scalar", bound=np.generic)

_MAGIC = b"posse-array-1"
_HEADER = re.compile(rb"posse-array-1 (<f8|<i8) ((?:\d+(?:,\d+)*)?)")
_COLOUR = re.compile(r"#[0-9a-fA-F]{6}")
_TYPES = {"<f8": np.dtype("<f8"), "<i8": np.dtype("<i8")}


def plain(value: object, where: str) -> JSON:
    """Copy a value into dicts, lists and scalars.

    Tuples become lists and numpy scalars become Python numbers, so that a record is equal to itself
    after a round trip.

    Raises:
        DataError: JSON cannot express the value. The message and the field name its key.

    >>> plain({"arms": (1, 2)}, "config")
    {'arms': [1, 2]}
    >>> plain({"k": {1, 2}}, "config")
    Traceback (most recent call last):
    ...
    posse.core.errors.DataError: [P200] config.k must be a JSON value, got set. Use a list, dict,
    string or number.
    """
    if isinstance(value, str):
        return _text(value, where)
    if isinstance(value, float):
        # numpy's float64 is a float: the constructor drops the subclass, whose repr differs.
        return float(value)
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, Mapping):
        return plain_dict(value, where)
    if isinstance(value, list | tuple):
        return [plain(item, f"{where}[{i}]") for i, item in enumerate(value)]
    if hasattr(value, "tolist"):  # a numpy scalar or array
        return plain(value.tolist(), where)
    raise DataError(
        f"{where} must be a JSON value, got {type(value).__name__}. Use a list, dict, string or "
        "number.",
        rule="results.value.not-json",
        field=where,
    )


def plain_dict(value: Mapping[str, object], where: str) -> dict[str, JSON]:
    """Copy a mapping of plain values; its own keys must be strings."""
    copied: dict[str, JSON] = {}
    for key, item in value.items():
        ensure(
            isinstance(key, str),
            f"{where} must have strings as keys, got {key!r}. Write it as a string.",
            rule="results.key.not-a-string",
            field=where,
        )
        copied[_text(key, where)] = plain(item, f"{where}.{key}")
    return copied


def as_table(value: JSON) -> Mapping[str, JSON]:
    """Return a value if it is a table; otherwise an empty table."""
    return value if isinstance(value, Mapping) else {}


def as_list(value: JSON) -> Sequence[JSON]:
    """Return a value if it is a list; otherwise an empty list."""
    return value if isinstance(value, list | tuple) else []


def all_names(tables: Iterable[Mapping[str, object]]) -> list[str]:
    """Return the names in tables, each once, in order.

    >>> all_names([{"a": 1}, {"b": 2, "a": 3}])
    ['a', 'b']
    """
    return list(dict.fromkeys(chain.from_iterable(tables)))


def strict(value: JSON) -> JSON:
    """Replace NaN and infinity, which JSON cannot express, by null.

    >>> strict({"ratio": float("nan"), "runs": [1, 2.5]})
    {'ratio': None, 'runs': [1, 2.5]}
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [strict(item) for item in value]
    return value


def flat(value: JSON, name: str = "") -> list[tuple[str, JSON]]:
    """Flatten nested tables into pairs of a dotted name and a value; lists stay whole.

    >>> flat({"policy": {"name": "ucb"}, "arms": [1, 2], "seed": None})
    [('policy.name', 'ucb'), ('arms', [1, 2]), ('seed', None)]
    """
    if not isinstance(value, Mapping):
        return [(name, value)]
    prefix = f"{name}." if name else ""
    pairs = []
    for key, item in value.items():
        pairs += flat(item, prefix + key)
    return pairs


def is_colour(value: object) -> bool:
    """Return whether a value is a colour that may be put into the style of a page."""
    return isinstance(value, str) and _COLOUR.fullmatch(value) is not None


def _text(value: str, where: str) -> str:
    # Half of a surrogate pair is a Python string and no Unicode text: no file or database takes it.
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise DataError(
                f"{where} must be Unicode text, got {value!r}. Decode it with errors='replace'.",
                rule="results.text.not-unicode",
                field=where,
            ) from error
    return str(value)


def floats(values: npt.ArrayLike, dimensions: int, name: str) -> npt.NDArray[np.float64]:
    """Copy into a read-only float64 array of finite numbers."""
    array = _array(values, dimensions, name, np.dtype(np.float64))
    ensure(
        np.isfinite(array).all(),
        f"{name} must be finite, got NaN or infinity. Record only the steps that every run reached.",
        rule=f"results.{name}.not-finite",
    )
    return array


def integers(values: npt.ArrayLike, dimensions: int, name: str) -> npt.NDArray[np.int64]:
    """Copy into a read-only int64 array. A fraction raises an error and is not rounded."""
    array: npt.NDArray[np.generic] = _array(values, dimensions, name, None)
    ensure(
        array.dtype.kind in "iu" or not array.size,
        f"{name} must hold integers, got {array.dtype}. Convert it with astype('int64').",
        rule=f"results.{name}.not-integers",
    )
    whole_numbers = array.astype(np.int64)
    whole_numbers.flags.writeable = False
    return whole_numbers


def _array(
    values: npt.ArrayLike, dimensions: int, name: str, dtype: np.dtype[Scalar] | None
) -> npt.NDArray[Scalar]:
    try:
        array: npt.NDArray[Scalar] = np.array(values, dtype=dtype, order="C")
    except (TypeError, ValueError, OverflowError) as error:
        raise DataError(
            f"{name} must be an array of numbers: {error}.", rule=f"results.{name}.not-an-array"
        ) from error
    if array.size == 0 and array.ndim < dimensions:
        array = array.reshape((0,) * dimensions)  # [] means "no runs" on every axis
    ensure(
        array.ndim == dimensions,
        f"{name} must have {dimensions} dimension(s), got shape {array.shape}.",
        rule=f"results.{name}.wrong-dimensions",
    )
    array.flags.writeable = False
    return array


def same(a: npt.NDArray[np.generic] | None, b: npt.NDArray[np.generic] | None) -> bool:
    """Return whether two arrays are equal in type, shape and every byte (-0.0 is not 0.0)."""
    if a is None or b is None:
        return a is b
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def pack(array: npt.NDArray[np.generic]) -> bytes:
    """Write an array as `posse-array-1 <dtype> <shape>`, a newline, and zlib-compressed
    little-endian bytes.

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
    """Read what `pack` wrote; a blob that is cut, altered or longer than its header says is a
    `ValueError`.

    Never inflates more than the header promises, so a small blob cannot fill the memory.
    """
    header, _, body = blob.partition(b"\n")
    match = _HEADER.fullmatch(header)
    if match is None:
        raise ValueError("no array header")
    dtype = _TYPES[match[1].decode()]
    sides = match[2].split(b",") if match[2] else []
    shape = tuple(int(side) for side in sides)
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
