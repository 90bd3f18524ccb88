"""Numbers that no party knows.

    Shared   x = sum over parties of x_p                        modulo 2^64
    Masked   x = public + (mask + sign wrap), hidden part shared; once masked, products need no further opening
    Bits     x = XOR over parties of x_p                        small integers, a bit field each

Adding, subtracting, scaling by public numbers, indexing and summing are local. Arrays have at least
one axis. Axes in front belong to the dealer, which computes many passes side by side: index and sum
from the back (`x[..., None, :]`).
"""

from __future__ import annotations

from collections.abc import Callable
from types import EllipsisType
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from posse.privacy.sharing.fixed import Words

if TYPE_CHECKING:
    from posse.privacy.sharing.session import Session

Public = int | Words
Raw = NDArray[np.unsignedinteger]
Place = int | slice | EllipsisType | NDArray[np.integer] | None
Index = Place | tuple[Place, ...]
"""What an array is indexed by."""


def words_of(number: Public) -> Words:
    """Return public numbers modulo 2^64; negative ones as two's complement."""
    if isinstance(number, int):
        return np.array([number % 2**64], np.uint64)
    return number


class Shared:
    """This party's share of numbers modulo 2^64."""

    __slots__ = ("session", "share")

    def __init__(self, session: Session, share: Words) -> None:
        self.session, self.share = session, share

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one pass."""
        return self.share.shape[len(self.session.lead) :]

    def __add__(self, other: Shared | Public) -> Shared:
        if isinstance(other, Shared):
            return Shared(self.session, self.share + other.share)
        # A public number is added by one party.
        return Shared(self.session, self.share + words_of(other)) if self.session.first else self

    def __sub__(self, other: Shared) -> Shared:
        return Shared(self.session, self.share - other.share)

    def __neg__(self) -> Shared:
        return Shared(self.session, -self.share)

    def __mul__(self, factor: Public) -> Shared:
        return Shared(self.session, self.share * words_of(factor))

    def __lshift__(self, bits: int) -> Shared:
        return Shared(self.session, self.share << np.uint64(bits))

    def __getitem__(self, index: Index) -> Shared:
        return Shared(self.session, self.share[index])

    def sum(self, axis: int = -1) -> Shared:
        """Add up along an axis, counted from the back."""
        return Shared(self.session, self.share.sum(axis=axis, dtype=np.uint64))

    def join(self, other: Shared) -> Shared:
        """Put another one behind it along the last axis."""
        return Shared(self.session, np.concatenate([self.share, other.share], axis=-1))


class Masked:
    """A number that was opened under a mask: x = public + mask + sign wrap.

    `mask` and `wrap` are shared and were dealt; `public` and `sign` are known to all parties once
    the round is over. A truncation leaves a `wrap` (a bit) with sign = +-2^(63 - bits); a plain
    mask leaves none.
    """

    __slots__ = ("_public", "mask", "session", "sign", "wrap")

    def __init__(
        self,
        session: Session,
        public: Words | None,
        mask: Words,
        wrap: Words | None = None,
        sign: Words | None = None,
    ) -> None:
        self.session, self._public, self.mask, self.wrap, self.sign = (
            session,
            public,
            mask,
            wrap,
            sign,
        )

    @property
    def public(self) -> Words:
        """What was opened."""
        if self._public is None:
            raise RuntimeError("it is not opened before the round is over: yield first")
        return self._public

    def opened(self, public: Words, sign: Words | None = None) -> None:
        """Take what was opened."""
        self._public, self.sign = public, sign

    @property
    def hidden(self) -> Words:
        """This party's share of the hidden part."""
        if self.wrap is None:
            return self.mask
        assert self.sign is not None
        return self.mask + self.sign * self.wrap

    @property
    def shared(self) -> Shared:
        """The same number, shared."""
        if self.session.deals:
            return Shared(self.session, self.session.nothing(self.mask.shape))
        return Shared(
            self.session, self.hidden + self.public if self.session.first else self.hidden
        )

    def __getitem__(self, index: Index) -> Masked:
        return self._each(lambda part: part[index])

    def __neg__(self) -> Masked:
        return self._made(
            -self.mask, None if self.sign is None else -self.sign, lambda public: -public
        )

    def __add__(self, number: Public) -> Masked:
        return self._made(self.mask, self.sign, lambda public: public + words_of(number))

    def __lshift__(self, bits: int) -> Masked:
        shift = np.uint64(bits)
        sign = None if self.sign is None else self.sign << shift
        return self._made(self.mask << shift, sign, lambda public: public << shift)

    def swap(self, one: int, other: int) -> Masked:
        """Swap two axes, counted from the back."""
        return self._each(lambda part: part.swapaxes(one, other))

    def sum(self, axis: int = -1) -> Masked:
        """Add up along an axis, counted from the back; of a plain mask only."""
        assert self.wrap is None
        return self._each(lambda part: part.sum(axis=axis, dtype=np.uint64))

    def _each(self, change: Callable[[Words], Words]) -> Masked:
        parts = (self._public, self.wrap, self.sign)
        public, wrap, sign = (None if part is None else change(part) for part in parts)
        return Masked(self.session, public, change(self.mask), wrap, sign)

    def _made(self, mask: Words, sign: Words | None, change: Callable[[Words], Words]) -> Masked:
        public = None if self._public is None else change(self._public)
        return Masked(self.session, public, mask, self.wrap, sign)


class Bits:
    """This party's XOR share of small integers, `width` bits each (at most 16)."""

    __slots__ = ("session", "share", "width")

    def __init__(self, session: Session, share: NDArray[np.uint16], width: int = 1) -> None:
        self.session, self.share, self.width = session, share, width

    def __xor__(self, other: Bits | NDArray[np.integer] | int) -> Bits:
        if isinstance(other, Bits):
            return Bits(self.session, self.share ^ other.share, self.width)
        if not self.session.first:
            return self
        return Bits(self.session, self.share ^ np.asarray(other, np.uint16), self.width)

    def __getitem__(self, index: Index) -> Bits:
        return Bits(self.session, self.share[index], self.width)

    def split(self, size: int) -> Bits:
        """Cut the last axis into pieces of `size`: one more axis."""
        return Bits(self.session, self.share.reshape(*self.share.shape[:-1], -1, size), self.width)

    def packed(self) -> Bits:
        """Put the integers along the last axis into one of so many times the width, the first in
        the low bits.
        """
        count = self.share.shape[-1]
        shifts = np.arange(count, dtype=np.uint16) * np.uint16(self.width)
        return Bits(
            self.session, np.bitwise_or.reduce(self.share << shifts, axis=-1), self.width * count
        )

    def join(self, other: Bits) -> Bits:
        """Put another one behind it along the last axis."""
        return Bits(self.session, np.concatenate([self.share, other.share], axis=-1), self.width)


class Lookup:
    """The result of `look_up`; there after the round."""

    __slots__ = ("_places", "_session", "_tables", "_width")

    def __init__(self, session: Session, tables: NDArray[np.uint8], width: int) -> None:
        self._session, self._tables, self._width = session, tables, width
        self._places: Raw | None = None

    def opened(self, places: Raw) -> None:
        """Take the places to read at."""
        self._places = places

    @property
    def bits(self) -> Bits:
        """The function's value, shared."""
        if self._session.deals:
            return self._session.unknown_bits(
                self._tables.shape[len(self._session.lead) : -1], self._width
            )
        if self._places is None:
            raise RuntimeError("it is not looked up before the round is over: yield first")
        return self._session.read(self._tables, self._places, self._width)


class Tabulated:
    """The result of `tabulate`; there after the round."""

    __slots__ = ("_places", "_session", "_tables")

    def __init__(self, session: Session, tables: Words) -> None:
        self._session, self._tables = session, tables
        self._places: Raw | None = None

    def opened(self, places: Raw) -> None:
        """Take the places to read at."""
        self._places = places

    @property
    def shared(self) -> Shared:
        """The function's value times 2^32, shared."""
        if self._session.deals:
            return Shared(self._session, self._session.nothing(self._tables.shape[:-1]))
        if self._places is None:
            raise RuntimeError("it is not looked up before the round is over: yield first")
        found = np.take_along_axis(self._tables, self._places[..., None].astype(np.int64), axis=-1)[
            ..., 0
        ]
        return Shared(self._session, found << np.uint64(32))


class Interpolated:
    """The result of `interpolate`; there after the round."""

    __slots__ = ("_constants", "_places", "_rest", "_session", "_slopes")

    def __init__(self, session: Session, constants: Words, slopes: Words) -> None:
        self._session, self._constants, self._slopes = session, constants, slopes
        self._places: Raw | None = None

    def opened(self, places: Raw, rest: Words) -> None:
        """Take the places to read at, and what is left of the number there."""
        self._places, self._rest = places, rest

    @property
    def shared(self) -> Shared:
        """The function's value, shared."""
        if self._session.deals:
            return Shared(self._session, self._session.nothing(self._constants.shape[:-1]))
        if self._places is None:
            raise RuntimeError("it is not looked up before the round is over: yield first")
        at = self._places[..., None].astype(np.int64)
        constant, slope = (
            np.take_along_axis(table, at, axis=-1)[..., 0]
            for table in (self._constants, self._slopes)
        )
        return Shared(self._session, constant + self._rest * slope)
