"""What a party does with shares: mask, multiply, truncate, look up, take in, reveal.

Nothing here waits: whatever must be opened is noted, travels at the next `yield` of the program,
and is there after it. Computations side by side (`together`) share their rounds. The dealer runs
the same program on a tape of its own: there values are masks, `deal` computes what the parties will
need, and nothing is opened.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from posse.core.errors import ProtocolError
from posse.privacy.sharing.fixed import LIMIT, MOST_BITS, Words
from posse.privacy.sharing.tape import AnyTape, Shape
from posse.privacy.sharing.values import Bits, Interpolated, Lookup, Masked, Raw, Shared, Tabulated

T = TypeVar("T")

Rounds: TypeAlias = Generator[None, None, T]
"""A computation that yields once a communication round and returns its result."""


Rows = Callable[[Words], NDArray[np.uint32]]
"""Gives the values of a function, as half words, at places modulo the size of its table."""


_TOP = np.uint64(63)
_LOW = np.uint64(2**63 - 1)


def together(*computations: Rounds[object]) -> Rounds[tuple[Any, ...]]:
    """Run computations side by side; takes as many rounds as the longest of them.

    >>> def count(rounds):
    ...     for _ in range(rounds):
    ...         yield
    ...     return rounds
    >>> both = together(count(2), count(3))
    >>> [None for _ in both]
    [None, None, None]
    """
    results: list[object] = [None] * len(computations)
    running = dict(enumerate(computations))
    while True:
        for number, computation in list(running.items()):
            try:
                next(computation)
            except StopIteration as end:
                results[number] = end.value
                del running[number]
        if not running:
            return tuple(results)
        yield


@dataclass(frozen=True)
class _Opening:
    """Shares that all parties exchange, and what to do with what they make."""

    share: Raw
    xor: bool
    then: Callable[[Raw], None]


@dataclass(frozen=True)
class _Input:
    """Words that their owner sends to all parties."""

    owner: str
    shape: Shape
    own: Words | None
    then: Callable[[Raw], None]


@dataclass
class Round:
    """What one party sends in a round, and what it waits for."""

    broadcast: bytes = b""
    """To every other party."""
    reveals: dict[str, bytes] = field(default_factory=dict)
    """To one role outside the parties."""
    expected: dict[str, int] = field(default_factory=dict)
    """Bytes from each other party, and from each role outside; none from who is not named."""


class Session:
    """One party's side of a computation; `parties` in the same order everywhere.

    Costs: opening n numbers sends 8 n bytes (bits: 1 or 2 bytes each) to every other party.
    `rounds` counts those done.
    """

    def __init__(self, name: str, parties: Sequence[str], tape: AnyTape) -> None:
        self.name, self.parties, self.tape = name, tuple(parties), tape
        self.deals, self.lead = tape.deals, tape.lead
        self.opens = tape.opens
        self.first = not tape.deals and name == parties[0]
        self.rounds = 0
        self.reads: list[tuple[str, Shape, int]] = []
        """Truncations in the order they were asked for: label, shape, and where their masks lie on
        the tape.
        """
        self._masks = 0
        self._pending: list[_Opening | _Input] = []
        self._reveals: dict[str, bytes] = {}
        self._after: list[Callable[[], None]] = []

    # Values ---------------------------------------------------------------------------------------

    def nothing(self, shape: Shape) -> Words:
        """What the dealer has in the place of a share."""
        return np.broadcast_to(np.uint64(0), shape)

    def constant(self, numbers: Words) -> Shared:
        """Share numbers that everybody knows."""
        share = np.broadcast_to(
            numbers if self.first else np.uint64(0), (*self.lead, *numbers.shape)
        )
        return Shared(self, share.astype(np.uint64))

    def dealt(self, shape: Shape, deal: Callable[[], Words]) -> Shared:
        """Share numbers that the dealer chose; no round."""
        return Shared(self, self.tape.wide(shape, deal))

    def dealt_bytes(self, shape: Shape, deal: Callable[[], NDArray[np.uint8]]) -> NDArray[np.uint8]:
        """Return this party's XOR share of bytes that the dealer chose; no round."""
        return self.tape.table(shape, deal)

    # Operations -----------------------------------------------------------------------------------

    def mask(self, x: Shared) -> Masked:
        """Open x under a fresh mask: 1 round, 8 bytes a number; any x."""
        masked = Masked(self, None, self._mask(x.shape))
        if self.opens:
            self.open(x.share - masked.mask, masked.opened)
        return masked

    def product(self, x: Masked, y: Masked, *, contract: bool = False) -> Shared:
        """Multiply numbers that are masked, broadcasting; with `contract` add up along the last
        axis. No round.

        Both have as many axes: where one has fewer, the dealer's axis in front would meet another
        one.

        x y = X Y + X [b] + Y [a] + [a b] with X, Y public and a, b hidden (Beaver: Efficient
        multiparty protocols using circuit randomization, CRYPTO 1991). Of a hidden part mask + sign
        wrap the products mask mask', mask wrap' and wrap mask' are dealt; wrap wrap' has the factor
        2^(126 - bits - bits'), which is 0. Dealt: 8 bytes a product, and 4 for each wrap, these
        before the adding up.
        """
        add = _adding if contract else _same
        both = self.tape.wide(_shape(x, y, contract), lambda: add(x.mask * y.mask))
        pairs = ((x, y),) if x is y else ((x, y), (y, x))
        crossed = [
            self._crossed(one, other, contract) for one, other in pairs if other.wrap is not None
        ]
        if self.deals:
            return Shared(self, self.nothing((*self.lead, *_shape(x, y, contract))))
        share = add(x.public * y.shared.share + y.public * x.hidden) + both
        for one in crossed:
            share = share + (one << np.uint64(1) if x is y else one)
        return Shared(self, share)

    def _crossed(self, x: Masked, y: Masked, contract: bool) -> Words:
        """Return shares of (mask of x) (sign wrap of y)."""
        wrap = y.wrap
        assert wrap is not None
        # Signs are known to the parties and not to the dealer: they multiply before the adding up.
        dealt = self.tape.narrow(_shape(x, y, False), lambda: x.mask * wrap)
        if self.deals:
            return dealt
        assert y.sign is not None
        return (_adding if contract else _same)(y.sign * dealt)

    def truncate(self, x: Shared, bits: int, label: str = "") -> Masked:
        """Divide by 2^bits: floor + {0, 1}, right on average; 1 round, 8 bytes a number; |x| <
        2^62, bits <= 31.

        Dealt: r uniform, hi = (r mod 2^63) >> bits, m = msb r. Opened: c = x + 2^62 + r. With v = m
        XOR msb(c) the result is ((c mod 2^63) >> bits) - hi + v 2^(63 - bits) - 2^(62 - bits):
        masked by -hi and m. No share wraps.
        """
        if not 1 <= bits <= MOST_BITS:
            raise ValueError(f"a truncation takes off 1 to {MOST_BITS} bits, got {bits}")
        self.reads.append((label, x.shape, self._masks))
        r, shift = self._mask(x.shape), np.uint64(bits)
        hi = self.tape.wide(x.shape, lambda: (r & _LOW) >> shift)
        top = self.tape.narrow(x.shape, lambda: r >> _TOP)
        masked = Masked(self, None, -hi, top)
        step = np.uint64(1) << np.uint64(63 - bits)

        def opened(c: Raw) -> None:
            msb = c >> _TOP
            public = ((c & _LOW) >> shift) - (np.uint64(1) << np.uint64(LIMIT - bits)) + msb * step
            masked.opened(public, step - (msb * step << np.uint64(1)))

        if self.opens:
            self.open((x + (1 << LIMIT)).share + r, opened)
        return masked

    def tabulate(self, x: Shared, bits: int, width: int, rows: Rows, label: str = "") -> Tabulated:
        """Begin to apply a function, given as a table, to x / 2^bits: 1 round, 8 bytes a number;
        |x| < 2^62.

        x / 2^bits is rounded as `truncate` does and must be in [-2^(width - 2), 3 2^(width - 2));
        bits + width <= 63. The dealer shares, as half words, the table shifted by the upper part of
        the mask; modulo 2^width no wrap is left to correct. Dealt: 4 bytes an entry. The result is
        the function's value, a signed half word, times 2^32.
        """
        if bits < 1 or bits + width > 63:
            raise ValueError(
                f"a table takes off at least 1 bit and leaves at most 63 with its own, got {bits} "
                f"and {width}"
            )
        self.reads.append((label, x.shape, self._masks))
        r = self._mask(x.shape)
        places = np.arange(1 << width, dtype=np.uint64)
        modulo = np.uint64((1 << width) - 1)

        def deal() -> NDArray[np.uint32]:
            return rows((places - ((r & _LOW) >> np.uint64(bits))[..., None]) & modulo)

        found = Tabulated(self, self.tape.narrow((*x.shape, 1 << width), deal))

        def opened(c: Raw) -> None:
            found.opened(
                (((c & _LOW) >> np.uint64(bits)) - (np.uint64(1) << np.uint64(LIMIT - bits)))
                & modulo
            )

        if self.opens:
            self.open((x + (1 << LIMIT)).share + r, opened)
        return found

    def interpolate(
        self,
        x: Shared,
        bits: int,
        width: int,
        low: int,
        lines: tuple[NDArray[np.int64], NDArray[np.int64]],
        label: str,
    ) -> Interpolated:
        """Begin to apply a function, given by a line a place: 1 round, 8 bytes a number; |x| <
        2^62.

        With x = i 2^bits + d 2^low, |d| < 2^(bits - low), the result is value(i) + slope(i) d, and
        at most 2^low of x is neglected; i as `tabulate` has it, and rounded as there. c = x + 2^62
        + r is opened: d is the low part of c less that of r, which the dealer knows, so that it
        shares value(i) - slope(i) low(r) and slope(i) at every place, shifted by the upper part of
        r. Dealt: 16 bytes an entry.
        """
        if not 0 <= low < bits or bits + width > 63:
            raise ValueError(
                f"a line takes 0 <= low < bits and bits + width <= 63, got {low}, {bits} and "
                f"{width}"
            )
        self.reads.append((label, x.shape, self._masks))
        r, (value, slope) = self._mask(x.shape), lines
        modulo, shift = np.uint64((1 << width) - 1), np.uint64(bits)
        below = np.uint64((1 << bits) - 1)

        def at() -> NDArray[np.int64]:
            places = np.arange(1 << width, dtype=np.uint64)
            return ((places - ((r & _LOW) >> shift)[..., None]) & modulo).astype(np.int64)

        def constants() -> Words:
            rest = ((r & below) >> np.uint64(low))[..., None]
            return value[at()].view(np.uint64) - slope[at()].view(np.uint64) * rest

        shape = (*x.shape, 1 << width)
        constant = self.tape.wide(shape, constants)
        found = Interpolated(
            self, constant, self.tape.wide(shape, lambda: slope[at()].view(np.uint64))
        )

        def opened(c: Raw) -> None:
            place = ((c & _LOW) >> shift) - (np.uint64(1) << np.uint64(LIMIT - bits))
            found.opened(place & modulo, (c & below) >> np.uint64(low))

        if self.opens:
            self.open((x + (1 << LIMIT)).share + r, opened)
        return found

    def _mask(self, shape: Shape) -> Words:
        self._masks += math.prod(shape)
        return self.tape.mask(shape)

    def read(self, tables: NDArray[np.uint8], places: NDArray[np.integer], width: int) -> Bits:
        """Read shared tables at public places: entries of `width` bits (1, 2, 4 or 8), packed from
        the low bit up.

        `tables` has one more axis than `places`. No round; a table may be read once.
        """
        each = 8 // width
        at = np.asarray(places, np.int64)
        if at.size and int(at.max()) >= tables.shape[-1] * each:
            raise ProtocolError(
                "a party opened a place beyond the end of a table: it computes something else."
            )
        found = np.take_along_axis(tables, (at // each)[..., None], axis=-1)[..., 0]
        entry = (found >> (width * (at % each)).astype(np.uint8)) & np.uint8(2**width - 1)
        return Bits(self, entry.astype(np.uint16), width)

    def look_up(
        self, x: Bits, rows: Callable[[NDArray[np.uint16]], NDArray[np.uint8]], width: int
    ) -> Lookup:
        """Begin to apply a function of x.width bits by a one-time truth table: 1 round, 1 or 2
        bytes a number.

        The dealer shares the table shifted by a mask, `rows(mask)`; x XOR mask is opened and the
        table read there (Ishai, Kushilevitz, Meldgaard, Orlandi, Paskin-Cherniavsky: On the power
        of correlated randomness in secure computation, TCC 2013). Dealt: 2^x.width entries of
        `width` bits.
        """
        inside = x.share.shape[len(self.lead) :]
        narrow = x.width <= 8
        free = self.tape.bits(inside if narrow else (*inside, 2))
        mask = (
            free.astype(np.uint16)
            if narrow
            else free[..., 0] | (free[..., 1].astype(np.uint16) << np.uint16(8))
        )
        mask = mask & np.uint16((1 << x.width) - 1)
        size = max(1, (width << x.width) // 8)
        found = Lookup(self, self.tape.table((*inside, size), lambda: rows(mask)), width)
        if self.opens:
            self.open(
                (x.share ^ mask).astype(np.uint8 if narrow else np.uint16), found.opened, xor=True
            )
        return found

    def unknown_bits(self, shape: Shape, width: int) -> Bits:
        """What the dealer has in the place of bits."""
        return Bits(self, np.broadcast_to(np.uint16(0), (*self.lead, *shape)), width)

    # Taking in and revealing ----------------------------------------------------------------------

    def input(
        self, owner: str, shape: Shape, deal: Callable[[], Words], own: Words | None = None
    ) -> Masked:
        """Take in numbers that `owner` knows, under a mask that it and the dealer know: 1 round, 8
        bytes a number.

        `own` is the masked numbers where this party is the owner. The owner may be a role outside
        the parties.
        """
        masked = Masked(self, None, self.tape.wide(shape, deal))
        if self.opens:
            self._pending.append(_Input(owner, shape, own, lambda words: masked.opened(words)))
        return masked

    def join(self, parts: Sequence[Masked]) -> Masked:
        """Put numbers that are taken in this round one behind the other; plain masks only."""
        assert all(part.wrap is None for part in parts)
        whole = Masked(self, None, np.concatenate([part.mask for part in parts], axis=-1))
        if not self.deals:
            self._after.append(
                lambda: whole.opened(np.concatenate([part.public for part in parts], axis=-1))
            )
        return whole

    def reveal(self, to: str, x: Bits) -> None:
        """Let a role outside the parties, and nobody else, learn bits: each party sends it its
        share. 1 round.
        """
        if self.opens:
            self._reveals[to] = self._reveals.get(to, b"") + x.share.astype(np.uint8).tobytes()

    # Rounds ---------------------------------------------------------------------------------------

    def open(self, share: Raw, then: Callable[[Raw], None], *, xor: bool = False) -> None:
        """Exchange shares in this round; `then` is given their sum, or their XOR. Only what is
        masked may be opened.
        """
        self._pending.append(_Opening(share, xor, then))

    def outgoing(self) -> Round:
        """Return what this party sends in this round, and what it waits for."""
        made = Round(reveals=self._reveals)
        self._reveals = {}
        parts: list[bytes] = []
        others = [party for party in self.parties if party != self.name]
        sizes = dict.fromkeys(others, 0)
        for one in self._pending:
            if isinstance(one, _Opening):
                parts.append(one.share.tobytes())
                for party in others:
                    sizes[party] += one.share.nbytes
            elif one.own is not None:
                parts.append(one.own.tobytes())
            else:
                sizes[one.owner] = sizes.get(one.owner, 0) + 8 * math.prod(one.shape)
        made.broadcast = b"".join(parts)
        made.expected = {name: size for name, size in sizes.items() if size}
        return made

    def skip(self) -> None:
        """End a round of which only the size is wanted."""
        self._pending = []

    def deliver(self, received: Mapping[str, bytes]) -> None:
        """Take what the others sent in this round; lengths as `outgoing` expected them."""
        at = dict.fromkeys(received, 0)

        def take(sender: str, like: np.dtype[np.unsignedinteger], shape: Shape) -> Raw:
            count = math.prod(shape)
            found = np.frombuffer(received[sender], like, count, at[sender]).reshape(shape)
            at[sender] += found.nbytes
            return found

        pending, self._pending = self._pending, []
        for one in pending:
            if isinstance(one, _Opening):
                total = one.share
                for party in self.parties:
                    if party != self.name:
                        other = take(party, one.share.dtype, one.share.shape)
                        total = total ^ other if one.xor else total + other
                one.then(total)
            elif one.own is not None:
                one.then(one.own)
            else:
                one.then(take(one.owner, np.dtype("<u8"), one.shape))
        if any(at[name] != len(data) for name, data in received.items()):
            raise ProtocolError(
                "a message of a round is longer than the round. Install the same version at all."
            )
        for then in self._after:
            then()
        self._after.clear()
        self.rounds += 1


def _same(numbers: Words) -> Words:
    return numbers


def _adding(numbers: Words) -> Words:
    return np.asarray(numbers.sum(axis=-1, dtype=np.uint64))


def _shape(x: Masked, y: Masked, contract: bool) -> Shape:
    assert x.mask.ndim == y.mask.ndim
    whole = np.broadcast_shapes(x.mask.shape, y.mask.shape)[len(x.session.lead) :]
    return whole[:-1] if contract else whole
