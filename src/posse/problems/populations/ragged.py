"""Rows of different lengths in two flat arrays: words of texts, tags of questions, letters of
names.

Row i is `values[offsets[i] : offsets[i + 1]]`. Flat arrays can be mapped from disk, so that a
population of any size takes no memory until some of its rows are read.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from posse.core.errors import DataError
from posse.problems.requirements import Requirement, check_all, check_entries

_CHUNK = 1 << 18


@dataclass(frozen=True, eq=False)
class Ragged:
    """Rows of whole numbers, and how often each is in its row (`counts`; once if left out).

    >>> rows = Ragged.of([[3, 1], [], [2]])
    >>> len(rows), rows.longest, rows.row(0).tolist()
    (3, 2, [3, 1])
    >>> values, mask = rows.padded(np.array([2, 0]), 2)
    >>> values.tolist(), mask.tolist()
    ([[2, 0], [3, 1]], [[True, False], [True, True]])
    """

    offsets: NDArray[np.int64]
    values: NDArray[np.integer]
    counts: NDArray[np.integer] | None = None
    longest: int = -1
    """Length of the longest row; found by one pass if left out."""

    def __post_init__(self) -> None:
        check_all(self, _RAGGED)
        if self.longest < 0:
            object.__setattr__(self, "longest", largest_step(self.offsets))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @classmethod
    def of(cls, rows: Iterable[Sequence[int]], dtype: type[np.integer] = np.int32) -> Ragged:
        """Make from lists."""
        arrays = [np.asarray(row, dtype) for row in rows]
        offsets = offsets_of([len(row) for row in arrays])
        return cls(offsets, np.concatenate(arrays) if arrays else np.empty(0, dtype))

    def row(self, index: int) -> NDArray[np.integer]:
        """Return one row."""
        return np.asarray(self.values[int(self.offsets[index]) : int(self.offsets[index + 1])])

    def where(
        self, rows: NDArray[np.int64], width: int
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return positions in the flat arrays, (*rows, width), and which belong to the row."""
        start = np.asarray(self.offsets[rows])
        length = np.asarray(self.offsets[rows + 1]) - start
        check_entries(
            length <= width,
            lambda place: DataError(
                f"a row must fit its width {width}, got {length[place]} values in row "
                f"{rows[place]}. Widen it to {self.longest}.",
                rule="problems.ragged.too-wide",
            ),
        )
        column = np.arange(width)
        mask = column < length[..., None]
        return np.where(mask, start[..., None] + column, 0), mask

    def padded(
        self, rows: NDArray[np.int64], width: int
    ) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
        """Return rows padded with 0, (*rows, width), and which values are real.

        A longer row is an error.
        """
        where, mask = self.where(rows, width)
        return _values_at(self.values, where, mask).astype(np.int32), mask

    def padded_counts(self, rows: NDArray[np.int64], width: int) -> NDArray[np.float32]:
        """Return how often each value of `padded` is in its row; 0 in the padding."""
        where, mask = self.where(rows, width)
        if self.counts is None:
            return mask.astype(np.float32)
        return _values_at(self.counts, where, mask).astype(np.float32)

    def take(self, rows: ArrayLike) -> Ragged:
        """Copy some rows, in the order given."""
        chosen = np.asarray(rows, np.int64)
        start, stop = np.asarray(self.offsets[chosen]), np.asarray(self.offsets[chosen + 1])
        offsets = offsets_of(stop - start)
        at = np.repeat(start - offsets[:-1], stop - start) + np.arange(offsets[-1])
        counts = None if self.counts is None else np.asarray(self.counts[at])
        return Ragged(offsets, np.asarray(self.values[at]), counts)

    @property
    def arrays(self) -> tuple[NDArray[np.generic], ...]:
        """The flat arrays."""
        arrays = (self.offsets, self.values, self.counts)
        return tuple(array for array in arrays if array is not None)

    def part(self, low: int, high: int) -> Ragged:
        """View rows low ... high - 1."""
        first, last = int(self.offsets[low]), int(self.offsets[high])
        counts = None if self.counts is None else self.counts[first:last]
        return Ragged(
            np.asarray(self.offsets[low : high + 1]) - first, self.values[first:last], counts
        )


_RAGGED: tuple[Requirement[Ragged], ...] = (
    Requirement(
        "problems.ragged.not-a-list",
        lambda rows: rows.offsets.ndim == 1 and len(rows.offsets),
        lambda rows: (
            f"offsets must be a list that starts at 0, got shape {rows.offsets.shape}. Add the 0."
        ),
        DataError,
    ),
    Requirement(
        "problems.ragged.not-to-end",
        lambda rows: int(rows.offsets[0]) == 0 and int(rows.offsets[-1]) == len(rows.values),
        lambda rows: (
            f"offsets must run from 0 to the {len(rows.values)} values, got {rows.offsets[0]} to "
            f"{rows.offsets[-1]}. Give one offset per row, and the end."
        ),
        DataError,
    ),
    Requirement(
        "problems.ragged.counts",
        lambda rows: rows.counts is None or len(rows.counts) == len(rows.values),
        lambda rows: (
            f"counts must be one per value, got {np.size(rows.counts)} for {len(rows.values)}. "
            "Match them."
        ),
        DataError,
    ),
)


def offsets_of(sizes: ArrayLike) -> NDArray[np.int64]:
    """Return where rows of these lengths begin, and the end."""
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def rows_at(values: NDArray[Any] | Ragged, rows: NDArray[np.int64]) -> Any:
    """Copy some rows of an array or of ragged rows, in the order given."""
    return values.take(rows) if isinstance(values, Ragged) else values[rows]


def rows_between(values: NDArray[Any] | Ragged, low: int, high: int) -> Any:
    """View rows low ... high - 1 of an array or of ragged rows."""
    return values.part(low, high) if isinstance(values, Ragged) else values[low:high]


def largest_step(offsets: NDArray[np.int64]) -> int:
    """Return the length of the longest row, in one pass; offsets that fall are an error."""
    most = 0
    for low in range(0, len(offsets) - 1, _CHUNK):
        steps = np.diff(offsets[low : low + _CHUNK + 1])
        row = low + int(steps.argmin())
        if offsets[row + 1] < offsets[row]:
            raise DataError(
                f"offsets must not fall, got {offsets[row]} before {offsets[row + 1]} at row "
                f"{row}. Sort.",
                rule="problems.ragged.falling",
            )
        most = max(most, int(steps.max()))
    return most


def release(*arrays: NDArray[np.generic]) -> None:
    """Release the memory of pages that were read from mapped files, if the system can.

    The pages stay in the cache of the system. A read maps many pages around it: without this, some
    twenty random cohorts would have all of a population in memory.
    """
    for array in arrays:
        mapped: object = array
        while isinstance(mapped, np.ndarray):  # a part of a mapped array is a view of it
            mapped = mapped.base
        if isinstance(mapped, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
            mapped.madvise(mmap.MADV_DONTNEED)


def names_of(names: Iterable[str]) -> Ragged:
    """Write names as rows of UTF-8 bytes."""
    return Ragged.of([list(name.encode()) for name in names], np.uint8)


def _values_at(
    values: NDArray[np.integer], where: NDArray[np.int64], mask: NDArray[np.bool_]
) -> NDArray[np.integer]:
    if not len(values):
        return np.zeros(where.shape, values.dtype)
    out = np.asarray(values[where])
    out[~mask] = 0
    return out
