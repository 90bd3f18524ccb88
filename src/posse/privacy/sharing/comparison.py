"""Which of two numbers is smaller: exact for numbers below 2^62 in magnitude.

Numbers are opened under masks. Of a difference D + M, with D public and M known to the dealer, the sign bit is wanted:

    msb(D + M) = msb(D) XOR msb(M) XOR carry,    carry = [N < D mod 2^63],  N = 2^63 - 1 - (M mod 2^63)

N and D are compared in 16 blocks of 4 bits: for each block the dealer has shared a table over the 16 values of D's
block that says whether N's is smaller and whether it is equal. Two one-time truth tables of 8 bits put four blocks
together, and then four of those.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from posse.privacy.sharing.fixed import Words
from posse.privacy.sharing.rounds import Rounds
from posse.privacy.sharing.session import Session
from posse.privacy.sharing.values import Bits, Masked

_SHIFTS = np.arange(60, -1, -4, dtype=np.uint64)
_LOW = np.uint64(2**63 - 1)
MOST_INPUTS = 11
"""Bits that are put together by one table: 2^11 entries."""


def pairs(count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the pairs i < j of so many numbers."""
    first, second = np.triu_indices(count, 1)
    return first, second


def less(s: Session, x: Masked) -> Rounds[Bits]:
    """Compare all pairs i < j along the last axis: 1 where x_i < x_j. |x| < 2^62; 2 rounds after the masking.

    Opened: 5 bytes a pair. Dealt: 352 bytes a pair.
    """
    assert x.wrap is None  # the dealer knows the hidden part of a plain mask only
    first, second = pairs(x.mask.shape[-1])
    hidden: Words = x.mask[..., first] - x.mask[..., second]  # the dealer's own; a party has a share of it, unused
    shown = np.zeros(1, np.uint64) if s.deals else x.public[..., first] - x.public[..., second]
    inside = hidden.shape[len(s.lead) :]
    tables = s.dealt_bytes((*inside, 16, 4), lambda: _BLOCK[_digits(~hidden & _LOW)])
    if s.deals:
        blocks = s.unknown_bits((*inside, 16), 2)
    else:
        blocks = s.read(tables, _digits(shown & _LOW), 2)
    found = s.look_up(blocks.split(4).packed(), lambda mask: _FOUR[mask], 2)
    yield
    last = s.look_up(found.bits.packed(), lambda mask: _last(mask, hidden), 1)
    yield
    return last.bits ^ (shown >> np.uint64(63)).astype(np.uint16)


def every(s: Session, bits: Bits) -> Rounds[Bits]:
    """Return whether all bits along the last axis are 1: 1 round up to 11 of them, 2 up to 121, 3 up to 1331.

    Opened: 1 byte a table, 2 above 8 bits. Dealt: 2^(n - 3) bytes for n bits (1 at least), 11 at most in one table.
    """
    count = bits.share.shape[-1]
    tables = -(-count // MOST_INPUTS)
    size = -(-count // tables)
    ones = s.unknown_bits((*bits.share.shape[len(s.lead) : -1], tables * size - count), 1) ^ 1
    found = s.look_up(bits.join(ones).split(size).packed(), lambda mask: _all_ones(mask, size), 1)
    yield
    if tables == 1:
        return found.bits[..., 0]
    return (yield from every(s, found.bits))


def _digits(numbers: Words) -> NDArray[np.int64]:
    """Blocks of 4 bits, the highest first."""
    return ((numbers[..., None] >> _SHIFTS) & np.uint64(15)).astype(np.int64)


def _pack(entries: NDArray[np.uint8], width: int) -> NDArray[np.uint8]:
    """Pack entries of so many bits along the last axis into bytes, from the low bits up."""
    each = 8 // width
    parts = entries.reshape(*entries.shape[:-1], -1, each) << (np.arange(each, dtype=np.uint8) * np.uint8(width))
    packed: NDArray[np.uint8] = np.bitwise_or.reduce(parts, axis=-1)
    return packed


def _combined(index: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Put four (less, equal) pairs together, the most significant in the low bits."""
    less_, equal = np.zeros_like(index), np.ones_like(index)
    for block in range(4):
        pair = (index >> (2 * block)) & 3
        less_ |= equal & pair & 1
        equal &= pair >> 1
    return (less_ | equal << 1).astype(np.uint8)


_PLACES = np.arange(256)
_BLOCK = _pack(((_PLACES[:16, None] < _PLACES[:16]) | (_PLACES[:16, None] == _PLACES[:16]) * 2).astype(np.uint8), 2)
"""Row n: for every value d of a public block whether n < d, and whether n = d."""
_FOUR = _pack(_combined(_PLACES[:, None] ^ _PLACES), 2)
"""Row m: the table of four blocks, shifted by the mask m."""
_LAST = _pack(_combined(_PLACES[:, None] ^ _PLACES) & np.uint8(1), 1)


def _last(mask: NDArray[np.uint16], hidden: Words) -> NDArray[np.uint8]:
    """The table of the four last blocks: carry XOR msb of the mask."""
    flip = -(hidden >> np.uint64(63)).astype(np.int8)[..., None]
    return _LAST[mask] ^ flip.view(np.uint8)


def _all_ones(mask: NDArray[np.uint16], size: int) -> NDArray[np.uint8]:
    """The table of 'all of them', shifted: 1 at one place."""
    place = (mask ^ np.uint16((1 << size) - 1))[..., None]
    table = np.zeros((*mask.shape, max(1, (1 << size) // 8)), np.uint8)
    np.put_along_axis(table, (place >> 3).astype(np.int64), (1 << (place & 7)).astype(np.uint8), axis=-1)
    return table
