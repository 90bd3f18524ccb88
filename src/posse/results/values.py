"""Plain values that a record may hold, and how they become strict JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from posse.core.errors import DataError

JSON: TypeAlias = "bool | int | float | str | Sequence[JSON] | Mapping[str, JSON] | None"
"""What JSON can say. Read-only containers, so that a `dict[str, int]` is accepted where a `JSON` is."""


def plain(value: object, where: str) -> JSON:
    """Copy a value into dicts, lists and scalars, or name the key that JSON cannot say.

    Tuples become lists and numpy scalars become Python numbers, so that a record is equal to itself after a round trip.

    >>> plain({"arms": (1, 2)}, "config")
    {'arms': [1, 2]}
    >>> plain({"k": {1, 2}}, "config")
    Traceback (most recent call last):
    ...
    posse.core.errors.DataError: [P200] config.k must be a JSON value, got set. Use a list, dict, string or number.
    """
    if isinstance(value, str):
        return _text(value, where)
    if value is None or isinstance(value, bool | int | float):
        # numpy's float64 is a float: the constructor drops the subclass, whose repr differs.
        return float(value) if isinstance(value, float) else value
    if isinstance(value, Mapping):
        return {_key(key, where): plain(item, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, f"{where}[{i}]") for i, item in enumerate(value)]
    if hasattr(value, "tolist"):  # a numpy scalar or array
        return plain(value.tolist(), where)
    raise DataError(f"{where} must be a JSON value, got {type(value).__name__}. Use a list, dict, string or number.")


def plain_dict(value: Mapping[str, object], where: str) -> dict[str, JSON]:
    """Copy a mapping of plain values; its own keys must be strings."""
    return {_key(key, where): plain(item, f"{where}.{key}") for key, item in value.items()}


def strict(value: JSON) -> JSON:
    """Replace NaN and infinity, which JSON cannot say, by null.

    >>> strict({"ratio": float("nan"), "runs": [1, 2.5]})
    {'ratio': None, 'runs': [1, 2.5]}
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: strict(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [strict(item) for item in value]
    return value


def _text(value: str, where: str) -> str:
    # Half of a surrogate pair is a Python string and no Unicode text: no file or database takes it.
    if any("\ud800" <= c <= "\udfff" for c in value):
        raise DataError(f"{where} must be Unicode text, got {value!r}. Decode it with errors='replace'.")
    return str(value)


def _key(key: object, where: str) -> str:
    if not isinstance(key, str):
        raise DataError(f"{where} must have strings as keys, got {key!r}. Write it as a string.")
    return _text(key, where)
