"""Fixed point: rewards and scores as integers, so that sums and comparisons are exact.

A reward in [0, 1] is a whole number of units of 2^-24: sums of any order are equal, and 2^29 pulls
stay exact in a float. A score becomes x = q 2^b + tie with q = floor(score 2^40), b = ceil(log2 K)
and tie this owner's place in the order of the step; |x| < 2^62. No two owners have the same x, so
every comparison has one answer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from posse.core.compiled import elementary
from posse.core.errors import ConfigError

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


class RewardRange(NamedTuple):
    """Least and largest reward. Inside, a reward r is (r - low) / (high - low) in units of 2^-24.

    >>> euros = RewardRange.of((-5, 15))
    >>> (
    ...     euros.units([-5, 0, 15]).tolist(),
    ...     float(euros.value(1 << 22)),
    ...     euros.total(np.array([1 << 23, 1 << 24])),
    ... )
    ([0, 4194304, 16777216], 0.0, 20.0)
    """

    low: float = 0.0
    high: float = 1.0

    @classmethod
    def of(cls, limits: Sequence[float] | None) -> RewardRange:
        """Check a range; None is [0, 1].

        Raises:
            ConfigError: The limits are not two finite numbers, the lower one first.
        """
        if limits is None:
            return UNIT_RANGE
        low, high = map(float, limits)
        finite = max(abs(low), abs(high)) <= LARGEST_REWARD
        if not (finite and low < high):
            raise ConfigError(
                f"reward_range must be two finite numbers of up to {LARGEST_REWARD:g}, "
                f"the lower one first, got {low:g},{high:g}. Give for example 0,5.",
                rule="core.reward_range.not-a-range",
            )
        return cls(low, high)

    def __str__(self) -> str:
        return f"[{self.low:g}, {self.high:g}]"

    def holds(self, rewards: ArrayLike) -> NDArray[np.bool_]:
        """Whether rewards lie within it."""
        values = np.asarray(rewards, np.float64)
        return np.asarray((values >= self.low) & (values <= self.high))

    def units(self, rewards: ArrayLike) -> NDArray[np.int64]:
        """Scale rewards within the range to [0, 1] and round them to the nearest unit of 2^-24."""
        share = (np.asarray(rewards, np.float64) - self.low) / (self.high - self.low)
        return np.floor(share * REWARD_ONE + 0.5).astype(np.int64)

    def value(self, units: ArrayLike) -> NDArray[np.float64]:
        """Return rewards that are given in units."""
        return np.asarray(self.low + (self.high - self.low) * (np.asarray(units) / REWARD_ONE))

    def sums(self, units: NDArray[Any]) -> NDArray[np.float64]:
        """Return the running sum of rewards that are given in units."""
        lows = self.low * np.arange(1, len(units) + 1)
        return np.asarray(lows + (self.high - self.low) * (units.cumsum() / REWARD_ONE))

    def total(self, units: NDArray[Any]) -> float:
        """Return the sum of rewards that are given in units."""
        return self.low * len(units) + (self.high - self.low) * (float(units.sum()) / REWARD_ONE)


UNIT_RANGE = RewardRange()
LARGEST_REWARD = 1e100
"""Sums of larger rewards would not be finite."""


def tie_bits(owners: int) -> int:
    """Bits that hold a place in the tie order: ceil(log2 K)."""
    return max(1, (owners - 1).bit_length())


@elementary
def tie_place(first: int, second: int, owner: int, bits: int) -> int:
    """Return the place of an owner in the tie order of a step: below 2^bits, another for each owner.

    A swap-or-not shuffle of 2^bits places: each of 24 rounds pairs every place x with x xor k, for
    a random k > 0, and swaps each pair or not by its own coin. Every order of any owners is
    equally likely, as far as 2 million orders of 3 to 6 owners show. Cost: about .1 microseconds;
    no owner needs the places of others.

    Args:
        first: One word of the step, from which the keys of all rounds come.
        second: The other word of the step.
        owner: Number of the owner.
        bits: Width of a place: `tie_bits`.

    Reference: Hoang, Morris, Rogaway: An enciphering scheme based on a card shuffle, CRYPTO 2012.
    """
    last = (np.uint64(1) << np.uint64(bits)) - np.uint64(1)
    place = np.uint64(owner)
    state = np.uint64(first)
    for _ in range(24):
        state = (state ^ (state >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9) + np.uint64(
            second
        )
        state = state ^ (state >> np.uint64(32))
        other = place ^ (np.uint64(1) + ((state >> np.uint64(40)) * last >> np.uint64(24)))
        coin = (max(place, other) ^ state) * np.uint64(0x94D049BB133111EB)
        if ((coin ^ (coin >> np.uint64(31))) * np.uint64(0xD6E8FEB86659FD93)) >> np.uint64(63):
            place = other
    return np.int64(place)  # type: ignore[return-value]


@elementary
def bounded(score: float, bits: int) -> float:
    """Clip a score to what x can hold: |score| < 2^(22 - bits)."""
    limit = float(np.int64(1) << np.int64(62 - SCORE_BITS - bits)) * (1.0 - 2.0**-53)
    return min(max(score, -limit), limit)


@elementary
def comparable(score: float, place: int, bits: int) -> int:
    """Return the integer that is compared for a `bounded` score: floor(score 2^40) 2^bits + place.

    Its absolute value is below 2^62.
    """
    q = np.int64(math.floor(score * _SCORE_ONE))
    return (q << np.int64(bits)) + np.int64(place)  # type: ignore[return-value]


MAX_OWNERS = 4096
"""Beyond it the tie order would leave too few bits for the scores."""
