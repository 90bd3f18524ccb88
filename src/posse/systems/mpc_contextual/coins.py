"""Exploration coins that nobody knows, the dealer included, and tie orders.

For every step the dealer shares a table of coins in random order, of which exactly the exploration
rate says explore, each with a random arm, and a random order of the arms for ties. The parties read
the table at a place, and rotate arms and order by numbers, that follow from their common key: they
know where they read and not what is there; the dealer knows what is there and not where they read.
To each of the two the coin has exactly its rate, and all arms are alike.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from posse.privacy.crypto.keys import Secrets
from posse.privacy.crypto.streams import Words
from posse.systems.mpc_contextual.terms import Terms

_ROWS = 64


def part_of(secrets: Secrets, terms: Terms) -> bytes:
    """Return a party's part of the common key."""
    return secrets.key(b"mpc part", context=terms.digest())


def common_key(terms: Terms, parts: Mapping[str, bytes]) -> bytes:
    """Return the parties' common key, which the dealer does not know: a hash of all parts."""
    return hashlib.sha256(
        b"posse mpc common" + b"".join(parts[party] for party in terms.parties)
    ).digest()


@dataclass(frozen=True, eq=False)
class Dealt:
    """What the dealer drew for some steps."""

    explore: NDArray[np.bool_]
    """(steps, coins)"""
    arms: NDArray[np.int64]
    """(steps, coins)"""
    ties: NDArray[np.int64]
    """(steps, arms)"""
    normals: NDArray[np.float64]
    """(steps, arms), or nothing"""

    def batched(self, batch: int) -> Dealt:
        """Return the same with batches of steps together: (passes, batch, ...)."""

        def cut(part: NDArray[Any]) -> NDArray[Any]:
            return part.reshape(len(part) // batch, batch, *part.shape[1:])

        return Dealt(cut(self.explore), cut(self.arms), cut(self.ties), cut(self.normals))

    def packed(self, arms: int) -> NDArray[np.uint8]:
        """Return the table as bits: for every coin whether it explores, and if so the one-hot
        vector of its arm.
        """
        bits = np.zeros((*self.explore.shape, arms + 1), np.uint8)
        bits[..., 0] = self.explore
        np.put_along_axis(bits, self.arms[..., None] + 1, self.explore[..., None], axis=-1)
        return np.packbits(bits, axis=-1, bitorder="little")


class Coins(NamedTuple):
    """What the coins of some steps come to: in a run known to nobody, and to its twin."""

    explore: NDArray[np.bool_]
    """(steps,) whether the arm is drawn and not chosen."""
    arms: NDArray[np.int64]
    """(steps,) the arm that is pulled where it is drawn."""
    ties: NDArray[np.int64]
    """(steps, arms) a permutation of the arms: of equal best scores that of the largest number
    wins.
    """
    normals: NDArray[np.float64] | None = None
    """(steps, arms) for Thompson sampling."""


class DealerCoins:
    """The dealer's part."""

    def __init__(self, terms: Terms, key: bytes) -> None:
        self._few, self._many = terms.explore
        self._arms = terms.arms
        self._normal = terms.arms if terms.bonus == "thompson" else 0
        width = 2 * self._many + terms.arms + 2 * self._normal
        self._words = Words(key, b"posse mpc coins", width + width % 2, rows=_ROWS)

    def at(self, first: int, count: int) -> Dealt:
        """Draw the tables of some steps."""
        words, many = _rows(self._words, first, count), self._many
        order = np.argsort(words[:, :many], axis=1, kind="stable")
        ties = np.argsort(words[:, 2 * many : 2 * many + self._arms], axis=1, kind="stable")
        drawn = _below(words[:, many : 2 * many], self._arms)
        return Dealt(
            order < self._few,
            drawn,
            ties,
            _normals(words[:, 2 * many + self._arms :], self._normal),
        )


class PartyCoins:
    """The parties' part: where the table is read, by how much arms and ties are rotated, and pads
    that cancel.
    """

    def __init__(self, terms: Terms, key: bytes) -> None:
        self._many, self._arms = terms.explore[1], terms.arms
        self._words = Words(key, b"posse mpc places", 4, rows=_ROWS)
        width = 2 * ((terms.arms + 127) // 128)
        others = range(len(terms.parties) - 1)
        self._pads = [
            Words(key, b"posse mpc pad %d" % number, width, rows=_ROWS) for number in others
        ]

    def pad(self, party: int, first: int, count: int) -> NDArray[np.uint16]:
        """Return a party's pads of the revealed bits of some steps: random, but the last party's
        cancel the others'.
        """
        chosen = self._pads if party == len(self._pads) else self._pads[party : party + 1]
        words = np.bitwise_xor.reduce([_rows(pads, first, count) for pads in chosen], axis=0)
        bits = np.unpackbits(words.view(np.uint8), axis=1)[:, : self._arms]
        return bits.astype(np.uint16)

    def at(self, first: int, count: int) -> NDArray[np.int64]:
        """Return the place to read at, and the rotations of arms, ties and normal numbers, of some
        steps.
        """
        words = _rows(self._words, first, count)
        return np.stack(
            [
                _below(words[:, 0], self._many),
                *(_below(words[:, i], self._arms) for i in (1, 2, 3)),
            ],
            axis=1,
        )


def together(dealt: Dealt, turns: NDArray[np.int64]) -> Coins:
    """Put both parts together."""
    steps, arms = np.arange(len(turns)), dealt.ties.shape[1]
    place, turn, tie_turn, normal_turn = turns.T
    explored = (dealt.arms[steps, place] + turn) % arms
    ties = np.take_along_axis(dealt.ties, (np.arange(arms) - tie_turn[:, None]) % arms, axis=1)
    normals = None
    if dealt.normals.shape[1]:
        # Parties rotate the variances before the table and back after it: the other way round.
        normals = np.take_along_axis(
            dealt.normals, (np.arange(arms) + normal_turn[:, None]) % arms, axis=1
        )
    return Coins(dealt.explore[steps, place], explored, ties, normals)


def _rows(words: Words, first: int, count: int) -> NDArray[np.uint64]:
    parts: list[NDArray[np.uint64]] = []
    while count > 0:
        parts.append(words.rows(first, count))
        first, count = first + len(parts[-1]), count - len(parts[-1])
    return np.concatenate(parts)


def _normals(words: NDArray[np.uint64], count: int) -> NDArray[np.float64]:
    """Standard normal numbers from two words each (Box and Muller), none beyond 8.7."""
    uniform = ((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    radius = np.sqrt(-2 * np.log(uniform[:, :count]))
    return np.asarray(radius * np.cos(2 * np.pi * uniform[:, count : 2 * count]))


def _below(words: NDArray[np.uint64], limit: int) -> NDArray[np.int64]:
    """Numbers below a limit, uniform up to limit / 2^64."""
    return (words % np.uint64(limit)).astype(np.int64)
