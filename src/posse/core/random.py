"""Counter-based randomness: a draw depends on its address, and not on earlier draws.

The generator is Philox-4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1,
2, 3; SC 2011). The address of a draw is (key, purpose, party, index, attempt). So an owner that
draws one number and a simulation that draws millions get the same number at the same address.

The constants below are the purposes. The text below each constant names what is drawn and, in
brackets, which values are the parts of the address: (key, index) or (key, party, index).

>>> from posse.core.random import EXPLORE, uniform
>>> uniform(42, EXPLORE, 3, 1000, 0) == uniform(42, EXPLORE, 3, 1000, 0)
True
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from posse.core.compiled import compiled_scalar, inlined

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
"""Keys of parties, which follow from one key: (key, party)."""
NOISE = 11
"""An agent's noise: (own key, producer, release)."""
DELIVERY = 12
"""Good units of a simulated purchase: (world seed, agent, round), one word per producer."""
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
def _philox_round(c0, c1, c2, c3, k0, k1):  # type: ignore[no-untyped-def]
    # The products have 64 bits. Each upper half is mixed with a word of the counter and of the key.
    p0 = _M0 * c0
    p1 = _M1 * c2
    return (p1 >> _S32) ^ c1 ^ k0, p1 & _MASK32, (p0 >> _S32) ^ c3 ^ k1, p0 & _MASK32


@inlined
def _philox(c0, c1, c2, c3, k0, k1):  # type: ignore[no-untyped-def]
    # Philox-4x32-10 of the counter (c0, c1, c2, c3): ten rounds, between which the key (k0, k1)
    # changes.
    for _ in range(9):
        c0, c1, c2, c3 = _philox_round(c0, c1, c2, c3, k0, k1)
        k0 = (k0 + _W0) & _MASK32
        k1 = (k1 + _W1) & _MASK32
    return _philox_round(c0, c1, c2, c3, k0, k1)


@inlined
def words32(key, purpose, party, index, attempt):  # type: ignore[no-untyped-def]
    """Return the random bits at an address as four words of 32 bits, for compiled code."""
    key64 = np.uint64(key)
    return _philox(
        np.uint64(index) & _MASK32,
        np.uint64(attempt) & _MASK32,
        np.uint64(party) & _MASK32,
        np.uint64(purpose),
        key64 & _MASK32,
        key64 >> _S32,
    )


@compiled_scalar
def _words64(key, purpose, party, index, attempt):  # type: ignore[no-untyped-def]
    # The same as `words64`, for arguments that have the types of numpy already.
    first, second, third, fourth = words32(key, purpose, party, index, attempt)
    return (first << _S32) | second, (third << _S32) | fourth


@compiled_scalar
def words64(key: int, purpose: int, party: int, index: int, attempt: int) -> tuple[int, int]:
    """Return the random bits at an address as two words of 64 bits.

    Args:
        key: 64 bits.
        purpose: One of the constants of this module, below 2^8.
        party: Below 2^24.
        index: Below 2^32.
        attempt: Below 2^32.
    """
    # numba compiles a function again for every constant that a caller passes. Because the arguments
    # are converted here, only this line is compiled again, and the ten rounds are compiled once.
    return _words64(  # type: ignore[no-any-return]
        np.uint64(key), np.int64(purpose), np.int64(party), np.int64(index), np.int64(attempt)
    )


@compiled_scalar
def word_to_uniform(word: int) -> float:
    """Convert a 64-bit word to a number in [0, 1), a multiple of 2^-53."""
    return np.float64(np.uint64(word) >> _S11) * _UNIT


@compiled_scalar
def uniforms(key: int, purpose: int, party: int, index: int, attempt: int) -> tuple[float, float]:
    """Return the two uniform numbers at an address: multiples of 2^-53 in [0, 1)."""
    first, second = words64(key, purpose, party, index, attempt)
    return word_to_uniform(first), word_to_uniform(second)


@compiled_scalar
def uniform(key: int, purpose: int, party: int, index: int, attempt: int) -> float:
    """Return the first of the two uniform numbers in [0, 1) at an address."""
    return uniforms(key, purpose, party, index, attempt)[0]


def derive_key(key: int, party: int) -> int:
    """Return a party's own key in a simulation. Anyone who knows `key` can compute it."""
    return int(words64(np.uint64(key), DERIVE, party, 0, 0)[0])


@compiled_scalar
def shuffle(key: int, purpose: int, index: int, out: NDArray[np.int64]) -> None:
    """Write a random permutation of 0 to K - 1 into `out`, an array of length K (Fisher-Yates)."""
    k = out.shape[0]
    for i in range(k):
        out[i] = i
    for i in range(k - 1, 0, -1):
        # Exchange item i with a random item from 0 to i. With i as the party of the address, every
        # exchange has its own draw.
        j = int(uniform(key, purpose, i, index, 0) * (i + 1))
        item = out[i]
        out[i] = out[j]
        out[j] = item
