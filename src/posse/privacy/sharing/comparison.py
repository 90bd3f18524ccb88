"""Which of two numbers is smaller, and which of several is the largest: exact for numbers below
2^62 in magnitude.

Numbers are opened under masks. Of a difference D + M, with D public and M known to the dealer, the
sign bit is wanted:

    msb(D + M) = msb(D) XOR msb(M) XOR carry,    carry = [N < D mod 2^63],  N = 2^63 - 1 - (M mod 2^63)

N and D are compared in 16 blocks of 4 bits: for each block the dealer has shared a table over the
16 values of D's block that says whether N's is smaller and whether it is equal. Two one-time truth
tables of 8 bits put four blocks together, and then four of those.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from posse.privacy.sharing.fixed import LIMIT, Words
from posse.privacy.sharing.session import Rounds, Session
from posse.privacy.sharing.values import Bits, Masked, Raw, Shared, words_of

_SHIFTS = np.arange(60, -1, -4, dtype=np.uint64)
_LOW = np.uint64(2**63 - 1)
MOST_INPUTS = 11
"""Bits that are put together by one table: 2^11 entries."""


ALL_PAIRS = 40
"""Up to so many numbers all pairs are compared at once; more are compared in groups."""
GROUP = 10


def less(s: Session, x: Masked) -> Rounds[Bits]:
    """Compare all pairs i < j along the last axis: 1 where x_i < x_j. |x| < 2^62; 2 rounds after
    the masking.

    Opened: 5 bytes a pair. Dealt: 352 bytes a pair.
    """
    assert x.wrap is None  # the dealer knows the hidden part of a plain mask only
    first, second = np.triu_indices(x.mask.shape[-1], 1)
    hidden: Words = (
        x.mask[..., first] - x.mask[..., second]
    )  # the dealer's own; a party has a share of it, unused
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
    """Return whether all bits along the last axis are 1: 1 round up to 11 of them, 2 up to 121, 3
    up to 1331.

    Opened: 1 byte a table, 2 above 8 bits. Dealt: 2^(n - 3) bytes for n bits (1 at least), 11 at
    most in one table.
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
    parts = entries.reshape(*entries.shape[:-1], -1, each) << (
        np.arange(each, dtype=np.uint8) * np.uint8(width)
    )
    return np.asarray(np.bitwise_or.reduce(parts, axis=-1))


def _combined(index: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Put four (less, equal) pairs together, the most significant in the low bits."""
    less_, equal = np.zeros_like(index), np.ones_like(index)
    for block in range(4):
        pair = (index >> (2 * block)) & 3
        less_ |= equal & pair & 1
        equal &= pair >> 1
    return (less_ | equal << 1).astype(np.uint8)


_PLACES = np.arange(256)
_BLOCK = _pack(
    ((_PLACES[:16, None] < _PLACES[:16]) | (_PLACES[:16, None] == _PLACES[:16]) * 2).astype(
        np.uint8
    ),
    2,
)
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
    np.put_along_axis(
        table, (place >> 3).astype(np.int64), (1 << (place & 7)).astype(np.uint8), axis=-1
    )
    return table


def argmax(s: Session, x: Shared, unless: Bits | None = None) -> Rounds[Bits]:
    """Return the one-hot vector of the largest number along the last axis; no two may be equal, |x|
    < 2^62 - 200.

    With `unless`, a bit along a last axis of one, the vector is 0 where it is 1: it costs one input
    of a table and no round. Rounds: 4 for up to 12 numbers (11 with `unless`), 5 up to 40; above
    that groups of ten: 10 rounds up to 120 (110). Opened: 8 bytes a number, 5 a pair, and what
    `every` opens of the others of each number, 1 or 2 bytes up to 12; dealt: 352 bytes a pair, and
    the tables of `every`, 256 bytes at most up to 12.
    """
    count = x.shape[-1]
    if count > ALL_PAIRS:
        return (yield from _tournament(s, x, unless))
    masked = s.mask(x)
    yield
    wins = yield from _wins(s, masked)
    if unless is not None:
        shape = (*wins.share.shape[:-1], 1)
        wins = wins.join(Bits(s, np.broadcast_to((unless ^ 1).share[..., None], shape)))
    return (yield from every(s, wins))


def _wins(s: Session, x: Masked) -> Rounds[Bits]:
    """Return for every number whether it is larger than each of the others: one more axis."""
    count = x.mask.shape[-1]
    smaller: Bits = yield from less(s, x)
    first, second = np.triu_indices(count, 1)
    number = np.zeros((count, count), np.int64)
    number[first, second] = number[second, first] = np.arange(len(first))
    others = np.array([[j for j in range(count) if j != i] for i in range(count)])
    mine = np.arange(count)[:, None]
    return smaller[..., number[mine, others]] ^ (mine < others).astype(np.uint16)


def _tournament(s: Session, x: Shared, unless: Bits | None) -> Rounds[Bits]:
    """Find the largest of every group of ten, and among those the largest of all: 4 + 1 + (rest) +
    1 rounds.

    Opened, beside the rest: 12 bytes a number and 5 a pair, 45 pairs a group.
    """
    count = x.shape[-1]
    missing = -count % GROUP
    lowest = words_of(-(1 << LIMIT)) + np.arange(1, missing + 1).astype(np.uint64)
    padded = x.join(s.constant(np.broadcast_to(lowest, (*x.shape[:-1], missing))))
    groups = Shared(s, padded.share.reshape(*padded.share.shape[:-1], -1, GROUP))
    masked = s.mask(groups)
    yield
    wins = yield from _wins(s, masked)
    best = yield from every(s, wins)
    values = yield from choose(s, best, masked)
    group = yield from argmax(s, values, unless)
    both = np.stack(
        [best.share, np.broadcast_to(group.share[..., None], best.share.shape)], axis=-1
    )
    found = yield from every(s, Bits(s, both))
    return Bits(s, found.share.reshape(*found.share.shape[:-2], -1))[..., :count]


def choose(s: Session, bits: Bits, x: Masked) -> Rounds[Shared]:
    """Return the sum of x where the bit is 1, along the last axis: 1 round, 1 byte a number; dealt:
    16 bytes a number.

    b XOR m is opened for a bit m of which [m] and [m mask of x] are dealt; b = B + (1 - 2 B) m with
    B public.
    """
    assert x.wrap is None  # the dealer knows the hidden part of a plain mask only
    shape = bits.share.shape[len(s.lead) :]
    free = s.tape.bits(shape) & np.uint8(1)
    flipped = s.tape.wide(shape, lambda: free.astype(np.uint64))
    crossed = s.tape.wide(shape, lambda: free.astype(np.uint64) * x.mask)
    opened: list[Raw] = []
    if s.opens:
        s.open(bits.share.astype(np.uint8) ^ free, opened.append, xor=True)
    yield
    if s.deals:
        return Shared(s, s.nothing((*s.lead, *shape[:-1])))
    public = opened[0].astype(np.uint64)
    sign = np.uint64(1) - (public << np.uint64(1))
    share = public * x.shared.share + sign * (x.public * flipped + crossed)
    return Shared(s, share).sum()
