"""Which of several numbers is the largest, as a one-hot vector of shared bits."""

from __future__ import annotations

import numpy as np

from posse.privacy.sharing.comparison import every, less, pairs
from posse.privacy.sharing.fixed import LIMIT
from posse.privacy.sharing.rounds import Rounds
from posse.privacy.sharing.session import Session
from posse.privacy.sharing.values import Bits, Masked, Shared, words_of

ALL_PAIRS = 40
"""Up to so many numbers all pairs are compared at once; more are compared in groups."""
GROUP = 10


def argmax(s: Session, x: Shared, unless: Bits | None = None) -> Rounds[Bits]:
    """Return the one-hot vector of the largest number along the last axis; no two may be equal, |x| < 2^62 - 200.

    With `unless`, a bit along a last axis of one, the vector is 0 where it is 1: it costs one input of a table and no
    round. Rounds: 4 for up to 12 numbers (11 with `unless`), 5 up to 40; above that groups of ten: 10 rounds up to
    120 (110). Opened: 8 bytes a number, 5 a pair, and what `every` opens of the others of each number, 1
    or 2 bytes up to 12; dealt: 352 bytes a pair, and the tables of `every`, 256 bytes at most up to 12.
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
    first, second = pairs(count)
    number = np.zeros((count, count), np.int64)
    number[first, second] = number[second, first] = np.arange(len(first))
    others = np.array([[j for j in range(count) if j != i] for i in range(count)])
    mine = np.arange(count)[:, None]
    return smaller[..., number[mine, others]] ^ (mine < others).astype(np.uint16)


def _tournament(s: Session, x: Shared, unless: Bits | None) -> Rounds[Bits]:
    """Find the largest of every group of ten, and among those the largest of all: 4 + 1 + (rest) + 1 rounds.

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
    both = np.stack([best.share, np.broadcast_to(group.share[..., None], best.share.shape)], axis=-1)
    found = yield from every(s, Bits(s, both))
    return Bits(s, found.share.reshape(*found.share.shape[:-2], -1))[..., :count]


def choose(s: Session, bits: Bits, x: Masked) -> Rounds[Shared]:
    """Return the sum of x where the bit is 1, along the last axis: 1 round, 1 byte a number; dealt: 16 bytes a number.

    b XOR m is opened for a bit m of which [m] and [m mask of x] are dealt; b = B + (1 - 2 B) m with B public.
    """
    assert x.wrap is None  # the dealer knows the hidden part of a plain mask only
    shape = bits.share.shape[len(s.lead) :]
    free = s.tape.bits(shape) & np.uint8(1)
    flipped = s.tape.wide(shape, lambda: free.astype(np.uint64))
    crossed = s.tape.wide(shape, lambda: free.astype(np.uint64) * x.mask)
    seen = Opened()
    if s.opens:
        s.open(bits.share.astype(np.uint8) ^ free, seen.take, xor=True)
    yield
    if s.deals:
        return Shared(s, s.nothing((*s.lead, *shape[:-1])))
    public = seen.bits.astype(np.uint64)
    sign = np.uint64(1) - (public << np.uint64(1))
    share = public * x.shared.share + sign * (x.public * flipped + crossed)
    return Shared(s, share).sum()


class Opened:
    """Bits that travel in a round."""

    bits: np.ndarray

    def take(self, bits: np.ndarray) -> None:
        """Take what was opened."""
        self.bits = bits
