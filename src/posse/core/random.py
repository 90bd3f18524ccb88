"""Counter-based randomness: a draw is a function of its address, and not of earlier draws.

The generator is Philox-4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1,
2, 3; SC 2011). The address of a draw is (key, purpose, party, index, attempt). So an owner that
draws one number and a simulation that draws millions get the same number at the same address.

The constants below are the purposes. Each names its (key, index), or (key, party, index).

>>> from posse.core.random import EXPLORE, uniform
>>> uniform(42, EXPLORE, 3, 1000, 0) == uniform(42, EXPLORE, 3, 1000, 0)
True
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from posse.core.compiled import elementary, inlined

REWARD = 1
"""Rewards of a simulated world: (world seed, arm, pull number)."""
COIN = 2
"""Exploration coins: (common key, step)."""
TIE = 3
"""Order of ties: (common key, step and pass)."""
EXPLORE = 4
"""An owner's score in an exploring step: (own key, pass, step)."""
OWN = 5
"""An owner's own draws for its score (Thompson): (own key, pass, step)."""
ORDER = 6
"""Permutations of level `paper` in a simulation: (world seed, step and pass)."""
MASK = 7
"""Multiplicative masks of level `paper` in a simulation: (world seed, step and pass)."""
SELECT = 8
"""Comp's draws at level `paper`: (world seed, step and pass)."""
GUMBEL = 10
"""An owner's Gumbel noise for probability matching: (own key, pass, step)."""
DERIVE = 9
"""Keys of parties that follow from another key: (key, party)."""
NOISE = 11
"""An agent's noise: (own key, producer, release)."""
DELIVERY = 12
"""Good units of a purchase in a simulated market: (world seed, agent, round), one word per producer."""
PARTIAL = 13
"""Good units of a purchase for which there is no table: (world seed, agent and producer, round)."""
INSTANCE = 14
"""Instances of a market, and the drift of its qualities: (instance seed, which draw, number)."""

_MASK32 = np.uint64(0xFFFFFFFF)
_S32 = np.uint64(32)
_M0 = np.uint64(0xD2511F53)
_M1 = np.uint64(0xCD9E8D57)
_W0 = np.uint64(0x9E3779B9)
_W1 = np.uint64(0xBB67AE85)
_S11 = np.uint64(11)
_UNIT = 2.0**-53


@inlined
def _philox(c0, c1, c2, c3, k0, k1):  # type: ignore[no-untyped-def]
    for _ in range(10):
        p0 = _M0 * c0
        p1 = _M1 * c2
        c0 = (p1 >> _S32) ^ c1 ^ k0
        c1 = p1 & _MASK32
        c2 = (p0 >> _S32) ^ c3 ^ k1
        c3 = p0 & _MASK32
        k0 = (k0 + _W0) & _MASK32
        k1 = (k1 + _W1) & _MASK32
    return c0, c1, c2, c3


@elementary
def philox(c0: int, c1: int, c2: int, c3: int, k0: int, k1: int) -> tuple[int, int, int, int]:
    """Return ten rounds of Philox-4x32 on one counter; only for test vectors."""
    return _philox(  # type: ignore[no-any-return]
        np.uint64(c0), np.uint64(c1), np.uint64(c2), np.uint64(c3), np.uint64(k0), np.uint64(k1)
    )


@inlined
def quarters(key, purpose, party, index, attempt):  # type: ignore[no-untyped-def]
    """Return the bits at an address as four words of 32 bits, for compiled code."""
    key64 = np.uint64(key)
    return _philox(
        np.uint64(index) & _MASK32,
        np.uint64(attempt) & _MASK32,
        np.uint64(party) & _MASK32,
        np.uint64(purpose),
        key64 & _MASK32,
        key64 >> _S32,
    )


@elementary
def _words(key, purpose, party, index, attempt):  # type: ignore[no-untyped-def]
    c0, c1, c2, c3 = quarters(key, purpose, party, index, attempt)
    return (c0 << _S32) | c1, (c2 << _S32) | c3


@elementary
def words(key: int, purpose: int, party: int, index: int, attempt: int) -> tuple[int, int]:
    """Return two 64-bit words at an address.

    Args:
        key: 64 bits.
        purpose: One of the constants of this module, below 2^8.
        party: Below 2^24.
        index: Below 2^32.
        attempt: Below 2^32.
    """
    # numba compiles a function again for every constant that a caller passes. With converted
    # arguments it compiles only this line again, and the ten rounds once.
    return _words(  # type: ignore[no-any-return]
        np.uint64(key), np.int64(purpose), np.int64(party), np.int64(index), np.int64(attempt)
    )


@elementary
def unit(word: int) -> float:
    """Convert a 64-bit word to a number in [0, 1), a multiple of 2^-53."""
    return np.float64(np.uint64(word) >> _S11) * _UNIT


@elementary
def uniforms(key: int, purpose: int, party: int, index: int, attempt: int) -> tuple[float, float]:
    """Return the two numbers in [0, 1) at an address, multiples of 2^-53."""
    first, second = words(key, purpose, party, index, attempt)
    return unit(first), unit(second)


@elementary
def uniform(key: int, purpose: int, party: int, index: int, attempt: int) -> float:
    """Return the first of the two numbers in [0, 1) at an address, a multiple of 2^-53."""
    return uniforms(key, purpose, party, index, attempt)[0]


def derive(key: int, party: int) -> int:
    """Return a party's own key in a simulation. It follows from `key`, so it is not a secret."""
    return int(words(np.uint64(key), DERIVE, party, 0, 0)[0])


@elementary
def shuffle(key: int, purpose: int, index: int, out: NDArray[np.int64]) -> None:
    """Write a random permutation of 0..K-1 into `out`, an array of length K (Fisher-Yates)."""
    k = out.shape[0]
    for i in range(k):
        out[i] = i
    for i in range(k - 1, 0, -1):
        j = int(uniform(key, purpose, i, index, 0) * (i + 1))
        item = out[i]
        out[i] = out[j]
        out[j] = item
