"""Draws at an address, with numpy alone: the numbers of `posse.core.random`, many at once.

Philox-4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3; SC 2011)
over arrays. A draw is a function of (key, purpose, party, index, attempt), so that what a client
does in a round depends neither on who else is in its cohort nor on how many devices compute it. Ten
rounds of whole-array arithmetic: 0.2 microseconds a draw.

>>> uniforms(42, MISSING, [7, 8], 100).round(3).tolist()
[0.504, 0.875]
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

# Purposes 32 to 47 belong to populations; `posse.core.random` numbers the others.
CAP = 32
"""Which samples of a client are kept: (seed, client, sample)."""
MISSING = 33
"""Whether a client answers in a round: (seed, client, round)."""
LATE = 34
"""Whether, and how much, a client is late: (seed, client, round)."""
NEVER = 35
"""Whether a client ever answers: (seed, client)."""
INITIAL = 36
"""Order of clients for pre-training: (seed, client)."""
DRIFT = 37
"""Drift of labels and arms: (seed, arm, period)."""
LAG = 38
"""By how many rounds a deployment reaches a client late: (seed, client, deployment)."""

_MASK = np.uint64(0xFFFFFFFF)
_S32, _S11 = np.uint64(32), np.uint64(11)
_M0, _M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_W0, _W1 = 0x9E3779B9, 0xBB67AE85

Words = NDArray[np.uint64]


def words(
    key: int, purpose: int, party: ArrayLike, index: ArrayLike = 0, attempt: ArrayLike = 0
) -> tuple[Words, Words]:
    """Return two 64-bit words at each address; addresses broadcast. Limits as in
    `posse.core.random.words64`.
    """
    c2, c0, c1 = (
        np.atleast_1d(np.asarray(part)).astype(np.uint64) & _MASK
        for part in (party, index, attempt)
    )
    c0, c1, c2 = np.broadcast_arrays(c0, c1, c2)
    c3: Words = np.full_like(c0, np.uint64(purpose))
    k0, k1 = key & 0xFFFFFFFF, (key >> 32) & 0xFFFFFFFF
    for _ in range(10):
        p0, p1 = _M0 * c0, _M1 * c2
        c0, c1, c2, c3 = (
            (p1 >> _S32) ^ c1 ^ np.uint64(k0),
            p1 & _MASK,
            (p0 >> _S32) ^ c3 ^ np.uint64(k1),
            p0 & _MASK,
        )
        k0, k1 = (k0 + _W0) & 0xFFFFFFFF, (k1 + _W1) & 0xFFFFFFFF
    return (c0 << _S32) | c1, (c2 << _S32) | c3


def uniforms(
    key: int, purpose: int, party: ArrayLike, index: ArrayLike = 0, attempt: ArrayLike = 0
) -> NDArray[np.float64]:
    """Return a number in [0, 1) at each address, a multiple of 2^-53."""
    first, _ = words(key, purpose, party, index, attempt)
    return (first >> _S11).astype(np.float64) * 2.0**-53


def order(key: int, purpose: int, count: int, index: int = 0) -> NDArray[np.int64]:
    """Return a random permutation of 0 ... count - 1, by sorting a draw each.

    >>> order(7, INITIAL, 5).tolist()
    [1, 4, 2, 0, 3]
    """
    first, _ = words(key, purpose, np.arange(count), index)
    return np.argsort(first, kind="stable").astype(np.int64)
