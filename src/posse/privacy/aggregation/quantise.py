"""Words modulo 2^32, in which vectors are added, and the integers that they stand for.

A sum modulo 2^32 is the true one as long as it is in [-2^31, 2^31). Nothing can detect a sum that
went around: the caller keeps the clients' vectors small enough.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ring = NDArray[np.uint32]


def from_ring(words: Ring) -> NDArray[np.int64]:
    """Read words as integers in [-2^31, 2^31).

    >>> from_ring(np.array([1, 4294967295], np.uint32)).tolist()
    [1, -1]
    """
    return words.view(np.int32).astype(np.int64)
