"""Types of arrays, and a check of all entries of an array."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from posse.core.errors import PosseError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]
Bytes = NDArray[np.uint8]
Place = tuple[int, ...]
"""Indices of an entry of an array."""


def check_entries(good: NDArray[np.bool_], error: Callable[[Place], PosseError]) -> None:
    """Raise the error about the first entry of an array that is not good.

    Args:
        good: Which entries are good.
        error: Makes the error from the place of the entry.
    """
    if not good.all():
        raise error(tuple(np.argwhere(~good)[0].tolist()))
