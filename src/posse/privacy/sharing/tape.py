"""Dealt randomness: a tape of five tracks that a party reads once, front to back.

    mask     words, free: the parties' words add up to a number that nobody knows
    bits     bytes, free: the same under XOR
    wide     words that add up to what the dealer computed (products of masks, upper parts of masks)
    narrow   half words that add up to what the dealer computed, for what is needed modulo 2^32 only
    table    bytes whose XOR is what the dealer computed (tables that are read at a public place)

Free tracks cost nothing to deal: every party expands its own seed. Of the other tracks one party
receives the difference between what was computed and what the seeds of the others give.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from posse.core.errors import ProtocolError

TRACKS = ("mask", "bits", "wide", "narrow", "table")
_TYPES = {"mask": "<u8", "bits": "u1", "wide": "<u8", "narrow": "<u4", "table": "u1"}

Shape = tuple[int, ...]
Deal = Callable[[], NDArray[np.unsignedinteger]]
"""Computes what is dealt, from masks; called by the dealer only."""


class ReuseError(ProtocolError):
    """Dealt randomness was asked for twice, or more of it than was dealt."""


@dataclass(frozen=True)
class Sizes:
    """How many items of each track one pass of a program reads."""

    mask: int = 0
    bits: int = 0
    wide: int = 0
    narrow: int = 0
    table: int = 0

    @property
    def free_bytes(self) -> int:
        """Bytes of the free tracks."""
        return padded(8 * self.mask) + padded(self.bits)

    @property
    def dealt_bytes(self) -> int:
        """Bytes of the computed tracks: what one party receives a pass."""
        return padded(8 * self.wide) + padded(4 * self.narrow) + padded(self.table)

    def cut(self, data: NDArray[np.uint8]) -> dict[str, NDArray[np.unsignedinteger]]:
        """Cut whole tapes, one a row, into their tracks."""
        tracks, at = {}, 0
        for name in TRACKS:
            width = np.dtype(_TYPES[name]).itemsize * getattr(self, name)
            tracks[name] = np.ascontiguousarray(data[..., at : at + width]).view(_TYPES[name])
            at += padded(width)
        return tracks


def padded(size: int) -> int:
    """Return a number of bytes rounded up to whole AES blocks."""
    return -(-size // 16) * 16


class AnyTape(Protocol):
    """What a session draws from."""

    deals: bool
    """Whether this is the dealer: values are masks, and nothing is ever opened."""
    opens: bool
    """Whether what is opened is of interest: at a party, and where a program is looked over."""
    lead: Shape
    """Passes side by side: () at a party, (passes,) at the dealer."""

    def mask(self, shape: Shape) -> NDArray[np.uint64]:
        """Return free words."""

    def bits(self, shape: Shape) -> NDArray[np.uint8]:
        """Return free bytes."""

    def wide(self, shape: Shape, deal: Deal) -> NDArray[np.uint64]:
        """Return words that add up to what `deal` computes."""

    def narrow(self, shape: Shape, deal: Deal) -> NDArray[np.uint64]:
        """Return half words (as words) that add up to what `deal` computes, modulo 2^32."""

    def table(self, shape: Shape, deal: Deal) -> NDArray[np.uint8]:
        """Return bytes whose XOR is what `deal` computes."""


class Tape:
    """One party's tape of one pass. Every item is handed out once; the end is checked by `finish`.

    >>> tape = Tape(Sizes(mask=2), np.arange(16, dtype=np.uint8), 7)
    >>> tape.mask((2,)).shape
    (2,)
    >>> tape.mask((1,))
    Traceback (most recent call last):
    ...
    posse.privacy.sharing.tape.ReuseError: [P500] pass 7 has 2 items of 'mask', and 1 more is asked for. The program is
    not the one that was dealt for.
    """

    deals = False
    opens = True
    lead: Shape = ()

    def __init__(self, sizes: Sizes, data: NDArray[np.uint8], number: int) -> None:
        self._tracks = sizes.cut(data)
        self._at = dict.fromkeys(TRACKS, 0)
        self._number = number

    def mask(self, shape: Shape) -> NDArray[np.uint64]:
        """Return this party's free words."""
        return self._take("mask", shape)

    def bits(self, shape: Shape) -> NDArray[np.uint8]:
        """Return this party's free bytes."""
        return self._take("bits", shape)  # type: ignore[return-value]

    def wide(self, shape: Shape, deal: Deal) -> NDArray[np.uint64]:
        """Return this party's words of what was dealt."""
        return self._take("wide", shape)

    def narrow(self, shape: Shape, deal: Deal) -> NDArray[np.uint64]:
        """Return this party's half words of what was dealt."""
        return self._take("narrow", shape).astype(np.uint64)

    def table(self, shape: Shape, deal: Deal) -> NDArray[np.uint8]:
        """Return this party's bytes of what was dealt."""
        return self._take("table", shape)  # type: ignore[return-value]

    def finish(self) -> None:
        """Check that everything was used: counters of both sides stand at the end."""
        for name, at in self._at.items():
            if at != self._tracks[name].size:
                raise ReuseError(
                    f"pass {self._number} used {at} of {self._tracks[name].size} items of '{name}'."
                )

    def _take(self, name: str, shape: Shape) -> NDArray[np.uint64]:
        at, track = self._at[name], self._tracks[name]
        size = math.prod(shape)
        if at + size > track.size:
            raise ReuseError(
                f"pass {self._number} has {track.size} items of '{name}', and "
                f"{at + size - track.size} more is asked "
                "for. The program is not the one that was dealt for."
            )
        self._at[name] = at + size
        return track[at : at + size].reshape(shape)


assert {field.name for field in fields(Sizes)} == set(TRACKS)
