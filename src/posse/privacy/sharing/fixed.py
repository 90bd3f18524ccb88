"""Real numbers as words: x is kept as round(x 2^f) modulo 2^64, negative numbers as two's
complement.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from posse.core import check
from posse.core.errors import DataError

Words: TypeAlias = NDArray[np.uint64]

MOST_BITS = 31
"""Most bits that one truncation takes off, and so most fraction bits."""
LIMIT = 62
"""Everything that is truncated or compared is below 2^62 in magnitude."""


@dataclass(frozen=True)
class FixedPoint:
    """Numbers of magnitude at most `most`, in units of 2^-bits.

    >>> unit = FixedPoint(20, most=1.0)
    >>> unit.decode(unit.encode([0.5, -0.25]))
    array([ 0.5 , -0.25])
    >>> unit.encode(1.5)
    Traceback (most recent call last):
    ...
    posse.core.errors.DataError: [P200] a number to be shared must be at most 1 in magnitude, got
    1.5. Scale the data.
    """

    bits: int
    most: float

    def __post_init__(self) -> None:
        check.between(1, MOST_BITS, bits=self.bits)
        if not 0 < self.most * 2.0**self.bits < 2.0**LIMIT:
            raise DataError(
                f"numbers up to {self.most:g} with {self.bits} fraction bits do not stay below "
                f"2^{LIMIT}. "
                "Take fewer bits."
            )

    def encode(self, values: ArrayLike) -> Words:
        """Round to the nearest unit; refuses what is outside the declared range, NaN included."""
        found = np.asarray(values, np.float64)
        wrong = ~(np.abs(found) <= self.most)
        if wrong.any():
            raise DataError(
                f"a number to be shared must be at most {self.most:g} in magnitude, got "
                f"{found[wrong].flat[0]:g}. Scale the data."
            )
        return np.rint(found * 2.0**self.bits).astype(np.int64).view(np.uint64)

    def decode(self, words: Words) -> NDArray[np.float64]:
        """Return the numbers."""
        return np.asarray(words, np.uint64).view(np.int64).astype(np.float64) / 2.0**self.bits
