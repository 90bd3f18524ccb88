"""Fixed point: rewards and scores as integers, so that sums and comparisons are exact.

A reward in [0, 1] is a whole number of units of 2^-24: sums of any order are equal, and 2^29 pulls stay exact in a
float. A score becomes x = q 2^b + tie with q = floor(score 2^40), b = ceil(log2 K) and tie this owner's place in the
order of the step; |x| < 2^62. No two owners have the same x, so every comparison has one answer.
"""

from __future__ import annotations

import math

import numpy as np

from posse.core.compiled import elementary
from posse.core.random import TIE, words

REWARD_BITS = 24
REWARD_ONE = 1 << REWARD_BITS
SCORE_BITS = 40
_SCORE_ONE = float(1 << SCORE_BITS)
_REWARD_UNIT = 1.0 / REWARD_ONE


@elementary
def to_units(reward: float) -> int:
    """Round a reward in [0, 1] to the nearest unit of 2^-24."""
    return math.floor(reward * REWARD_ONE + 0.5)


@elementary
def from_units(units: int) -> float:
    """Value of a number of reward units.

    >>> from_units(to_units(0.25))
    0.25
    """
    return units * _REWARD_UNIT


def tie_bits(owners: int) -> int:
    """Bits that hold a place in the tie order: ceil(log2 K)."""
    return max(1, (owners - 1).bit_length())


@elementary
def tie(key: int, index: int, owner: int, owners: int, bits: int) -> int:
    """Place of an owner in the tie order of one step: different for every owner, below 2^bits.

    Cost: one counter draw and some thirty integer operations; no owner needs the others' places.
    """
    first, second = words(key, TIE, 0, index, 0)
    return tie_place(first, second, owner, owners, bits)


@elementary
def tie_place(first: int, second: int, owner: int, owners: int, bits: int) -> int:
    """`tie` with the two words of the step drawn before: the loop over owners draws them once.

    The owners are rotated by a random number, so that a tie of all goes to each alike; then eight rounds of odd
    multiplication, addition and xor-shift modulo 2^bits mix them, each a bijection.
    """
    mask = (np.uint64(1) << np.uint64(bits)) - np.uint64(1)
    half = np.uint64((bits + 1) // 2)
    turn = ((np.uint64(first) >> np.uint64(32)) * np.uint64(owners)) >> np.uint64(32)
    place = (np.uint64(owner) + turn) % np.uint64(owners)
    for r in range(8):
        shift = np.uint64(8 * r)
        place = (place * ((np.uint64(first) >> shift) | np.uint64(1)) + (np.uint64(second) >> shift)) & mask
        place = place ^ (place >> half)
    return np.int64(place)  # type: ignore[return-value]


@elementary
def bounded(score: float, bits: int) -> float:
    """Clip a score to what x can hold: |score| < 2^(22 - bits)."""
    limit = float(np.int64(1) << np.int64(62 - SCORE_BITS - bits)) * (1.0 - 2.0**-53)
    return min(max(score, -limit), limit)


@elementary
def comparable(score: float, place: int, bits: int) -> int:
    """The integer x that is compared: floor(score 2^40) 2^bits + place, |x| < 2^62, for a `bounded` score."""
    q = np.int64(math.floor(score * _SCORE_ONE))
    return (q << np.int64(bits)) + np.int64(place)  # type: ignore[return-value]


MAX_OWNERS = 4096
"""Beyond it the tie order would leave too few bits for the scores."""
