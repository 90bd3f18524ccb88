"""Arrays of a record: their types, shapes and rules."""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import numpy.typing as npt

from posse.core import check as rules
from posse.core.errors import DataError

if TYPE_CHECKING:
    from posse.results.record import RunRecord

Scalar = TypeVar("Scalar", bound=np.generic)

STATUSES = ("finished", "interrupted", "failed")
_ID = re.compile(r"[0-9a-z][0-9a-z-]{0,62}[0-9a-z]")


def floats(values: npt.ArrayLike, dimensions: int, name: str) -> npt.NDArray[np.float64]:
    """Copy into a read-only float64 array of finite numbers."""
    array = _array(values, dimensions, name, np.float64)
    if not np.isfinite(array).all():
        raise DataError(f"{name} must be finite, got NaN or infinity. Record only the steps that every run reached.")
    return array


def integers(values: npt.ArrayLike, dimensions: int, name: str) -> npt.NDArray[np.int64]:
    """Copy into a read-only int64 array; a fraction is refused, not rounded."""
    given = np.asarray(values)
    if given.size and given.dtype.kind not in "iu":
        raise DataError(f"{name} must hold integers, got {given.dtype}. Convert it with astype('int64').")
    return _array(given, dimensions, name, np.int64)


def _array(values: npt.ArrayLike, dimensions: int, name: str, dtype: type[Scalar]) -> npt.NDArray[Scalar]:
    try:
        array = np.array(values, dtype=dtype, order="C")
    except (TypeError, ValueError, OverflowError) as error:
        raise DataError(f"{name} must be an array of {np.dtype(dtype)}: {error}.") from error
    if array.size == 0 and array.ndim < dimensions:
        array = array.reshape((0,) * dimensions)  # [] means "no runs", whatever the axes
    if array.ndim != dimensions:
        raise DataError(f"{name} must have {dimensions} dimension(s), got shape {array.shape}.")
    array.flags.writeable = False
    return array


def same(a: npt.NDArray[np.generic] | None, b: npt.NDArray[np.generic] | None) -> bool:
    """Tell whether two arrays are equal bit for bit: type, shape and every byte (so -0.0 is not 0.0)."""
    if a is None or b is None:
        return a is b
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def check(record: RunRecord) -> None:
    """Refuse a record whose parts do not fit each other."""
    rules.one_of(STATUSES, status=record.status)
    _words(record)
    _shapes(record)
    _parties(record)
    runs, points = len(record.total), record.steps.size
    if record.seeds and len(record.seeds) != runs:
        raise DataError(f"expected {runs} world seeds, one a run, got {len(record.seeds)}. Give all, or none.")
    if any(not 0 <= seed < 2**64 for seed in record.seeds):
        raise DataError("world seeds must be in [0, 2^64).")
    if points and (record.steps[0] < 0 or (np.diff(record.steps) <= 0).any()):
        raise DataError("steps must increase and not be negative.")
    if (record.pulls < 0).any():
        raise DataError(f"pulls must not be negative, got {int(record.pulls.min())}.")
    if not np.isfinite(record.total).all():
        raise DataError("total must be finite, got NaN or infinity.")
    _times(record)


def _shapes(record: RunRecord) -> None:
    runs, points = len(record.total), record.steps.size
    wanted = {"reward": (runs, points), "regret": (runs, points), "pulls": (runs, record.pulls.shape[1])}
    wanted |= dict.fromkeys(("party_total", "party_regret"), (runs, len(record.parties)))
    for name, expected in wanted.items():
        array = getattr(record, name)
        # Without a run the other axis says nothing.
        if array is None or array.shape == expected or array.shape[0] == runs == 0:
            continue
        raise DataError(
            f"{name} must have shape {expected} for {runs} totals and {points} steps, got {array.shape}. "
            "Give one row a run and one column a step (an arm for pulls, a party for what parties earned)."
        )


def _parties(record: RunRecord) -> None:
    twice = [name for name in dict.fromkeys(record.parties) if record.parties.count(name) > 1]
    if twice or not all(record.parties):
        got = f"'{twice[0]}' twice" if twice else "an empty one"
        raise DataError(f"parties must have names of their own, got {got}. Give each another name.")


def _words(record: RunRecord) -> None:
    if not _ID.fullmatch(record.id) or record.id == "last":
        raise DataError(f"id must be 2 to 64 of a-z, 0-9 and '-', and not 'last', got {record.id!r}. Use new_id().")
    for name in ("kind", "level", "version"):
        if not getattr(record, name):
            raise DataError(f"{name} must not be empty.")
    try:
        when = datetime.fromisoformat(record.created)
    except ValueError as error:
        raise DataError(f"created must be an ISO time, got {record.created!r}.") from error
    if when.tzinfo is None:
        raise DataError(f"created must carry a time zone, got {record.created!r}. Write it in UTC, ending in +00:00.")


def _times(record: RunRecord) -> None:
    for name, value in {"seconds": record.seconds, **record.role_seconds}.items():
        if not (value >= 0 and np.isfinite(value)):
            raise DataError(f"seconds must be finite and not negative, got {value} for {name}.")
