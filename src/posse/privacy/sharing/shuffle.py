"""The largest of many shared numbers between two servers: shuffle, then compare in the open.

The *first* server has a, the *second* b, and x = a + b modulo 2^64; no two x are equal, |x| < 2^62.
The dealer lets the first expand a permutation p and words A', B' from a seed, and the second a
permutation p' and words A, B; it sends the first p(A) - B and the second p'(A') - B' (permute and
share: Chase, Ghosh, Poburinnaya, Secret-shared shuffle, ASIACRYPT 2020). Then

    second -> first    b - A                  ahead of time: the second knows b before a is there
    first -> second    p(x) - B - A'          the first's: p(a + b - A) + p(A) - B - A'
    second             z - B' for z = p'(p(x)): p'(p(x) - A') + p'(A') - B'

so that z is shared and neither server can name the number in a place of z. Differences of z are
compared by `garbled`: the second sends, the first learns which is larger and nothing else. Seen by
it: a uniformly random order, whatever x. It says where the largest is (w); the second knows p'(w)
and sends the vector that is 1 there XOR bits C; the first undoes p on it and on p^-1(C) XOR E,
which was dealt, and has [i is the largest] XOR E_i for every i; the second has E.

Comparisons: all pairs up to 16 numbers; else all pairs of a sample, its largest against the rest,
and so on with those that are larger; a pair once a pass. How many they are depends on which numbers
come first. The dealer sees how many, and knows p and p': so the first server takes places in an
order of its own. Messages one after the other between the servers: 2, and 2 for every question: 4
up to 16 numbers, 8 or a few more for thousands. Dealt, bytes: 8 K + K / 8 and 63 a comparison to
the first, 8 K to the second. Sent, bytes: 8 K each way and 512 a comparison.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from posse.core.errors import ProtocolError
from posse.privacy.crypto.keys import hkdf
from posse.privacy.crypto.streams import keystream
from posse.privacy.sharing.fixed import Words
from posse.privacy.sharing.garbled import LABELS, WORDS, choose, evaluate, garble
from posse.privacy.sharing.tape import ReuseError

ALL_PAIRS = 16
"""Up to so many numbers all pairs are compared at once."""
PAIRS = 512
"""Comparisons that are dealt together."""
MOST = 1 << 16
"""Most numbers: places travel as 16 bits."""
_CHUNK = 128 << 10
_LOW = np.uint64(2**63 - 1)

Bits = NDArray[np.uint8]
Places = NDArray[np.uint16]


@dataclass(frozen=True)
class Question:
    """Pairs of places to compare: a champion with each of the others, or (-1) all pairs; and n XOR
    c of each.
    """

    champion: int
    places: bytes
    shifts: bytes


def words_at(key: bytes, at: int, count: int) -> Words:
    """Return words of a key's stream, from a place on."""
    block, skip = divmod(at, 2)
    return np.frombuffer(keystream(key, block, 8 * (skip + count)), "<u8")[skip:]


def passes(count: int) -> int:
    """Passes that are dealt together: about 128 KiB, at least one."""
    return max(1, min(64, _CHUNK // (8 * count)))


@lru_cache(maxsize=64)
def pairs_of(count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the pairs i < j of so many numbers."""
    first, second = np.triu_indices(count, 1)
    return first, second


def _pairs(champion: int, places: Places) -> tuple[NDArray[np.integer], NDArray[np.integer]]:
    if champion >= 0:
        return np.full(len(places), champion), places
    first, second = pairs_of(len(places))
    return places[first], places[second]


class _Server:
    """What both servers do: keep what was dealt, and use each pass and each comparison once and in
    order.
    """

    def __init__(self, count: int, seed: bytes) -> None:
        if not 2 <= count <= MOST:
            raise ValueError(f"between 2 and {MOST} numbers are compared, got {count}")
        self.count, self.number, self.compared = count, -1, 0
        """`number` of the pass that goes on (none: -1), `compared` comparisons so far."""
        self.tape, self.pads = (
            hkdf(seed, b"posse shuffle tape"),
            hkdf(seed, b"posse shuffle comparisons"),
        )
        self._dealt: dict[int, bytes] = {}

    def deal(self, chunk: int, data: bytes) -> None:
        """Take what was dealt for a chunk of passes."""
        if chunk in self._dealt or (chunk + 1) * passes(self.count) <= self.number + 1:
            raise ReuseError(f"chunk {chunk} of the dealer's was dealt before.")
        if len(data) != passes(self.count) * self._each:
            raise ProtocolError(
                f"a chunk must have {passes(self.count) * self._each} bytes, got {len(data)}."
            )
        self._dealt[chunk] = data

    @property
    def _each(self) -> int:
        return 8 * self.count

    def has(self, number: int) -> bool:
        """Whether a pass was dealt."""
        return number // passes(self.count) in self._dealt

    def _open(self, number: int, words: int) -> tuple[Words, bytes]:
        """Return this server's words of a pass, and what it was dealt for it; a pass later than all
        before.
        """
        if number <= self.number:
            raise ReuseError(
                f"the randomness of pass {number} was used; the next is {self.number + 1}."
            )
        chunk, row = divmod(number, passes(self.count))
        if chunk not in self._dealt:
            raise ReuseError(f"the dealer has not dealt pass {number} yet. Wait for it.")
        self.number = number
        for old in [each for each in self._dealt if each < chunk]:
            del self._dealt[old]
        dealt = self._dealt[chunk][row * self._each : (row + 1) * self._each]
        return words_at(self.tape, number * words, words), dealt

    def save(self) -> tuple[int, int, dict[int, bytes]]:
        """Return what is kept between two passes."""
        return self.number, self.compared, dict(self._dealt)

    def load(self, number: int, compared: int, dealt: Mapping[int, bytes]) -> None:
        """Take up what `save` returned."""
        self.number, self.compared, self._dealt = number, compared, dict(dealt)


class Second(_Server):
    """The server whose share is known ahead; it answers questions. `own` is a key of its own, for
    labels.
    """

    def __init__(self, count: int, seed: bytes, own: bytes) -> None:
        super().__init__(count, seed)
        self._own = own
        self._words: Words = np.zeros(0, np.uint64)
        self._delta: Words = self._words
        self._z: Words | None = None
        self._sampled, self._champions = np.zeros(count, np.bool_), np.zeros(count, np.bool_)

    def ahead(self, number: int, share: Words) -> tuple[bytes, Bits]:
        """Begin a pass: return b - A for the first server, and the bits E, one a number."""
        k = self.count
        words, dealt = self._open(number, _second_words(k))
        self._words, self._delta, self._z = words, np.frombuffer(dealt, "<u8"), None
        self._sampled[:] = self._champions[:] = False
        masked: Words = share - words[k : 2 * k]
        return masked.tobytes(), (_returns(words, k) >> np.uint8(1)) & np.uint8(1)

    def shuffle(self, masked: bytes) -> None:
        """Take p(x) - B - A' of the first server."""
        k = self.count
        if self._z is not None or len(masked) != 8 * k:
            raise ProtocolError(f"expected {k} numbers once a pass, got {len(masked)} bytes.")
        self._z = (np.frombuffer(masked, "<u8") + self._words[2 * k : 3 * k])[
            order(self._words[:k])
        ] + self._delta

    def forget(self) -> None:
        """Wait for the first server's numbers again: those that came with a question out of range
        are not taken.
        """
        self._z = None

    def answer(self, question: Question) -> bytes:
        """Compare the pairs of a question."""
        z, places = self._z, np.frombuffer(question.places, "<u2")
        if z is None or not len(places) or max(int(places.max()), question.champion) >= self.count:
            raise ProtocolError("a question is about places of the pass that goes on.")
        one, other = _pairs(question.champion, places)
        if len(question.shifts) != 8 * len(one):
            raise ProtocolError(
                f"expected {8 * len(one)} bytes for {len(one)} pairs, got {len(question.shifts)}."
            )
        self._once(question.champion, places)
        start, self.compared = self.compared, self.compared + len(one)
        out = np.empty((len(one), WORDS), np.uint64)
        pads = words_at(self.pads, WORDS * start, out.size).reshape(out.shape)
        draws = words_at(self._own, LABELS * start, LABELS * len(one)).reshape(-1, LABELS)
        garble(z[one] - z[other], np.frombuffer(question.shifts, "<u8"), pads, draws, out)
        return out.tobytes()

    def _once(self, champion: int, places: Places) -> None:
        """Raise unless no pair of these was compared in this pass, as in any search.

        One that is compared again and again with other shifts tells how far two numbers are apart.
        """
        new = np.zeros(self.count, np.bool_)
        new[places] = True
        again = np.count_nonzero(new) < len(places) or bool((new & self._sampled).any())
        if champion >= 0:
            again = again or bool(self._champions[champion]) or not self._sampled[champion]
        if again or (champion < 0 and len(places) > max(ALL_PAIRS, _sample(self.count))):
            raise ProtocolError(
                "a pair of places is compared once a pass: a sample, then its largest with others."
            )
        if champion >= 0:
            self._champions[champion] = True
        else:
            self._sampled |= new

    def place(self, winner: int) -> bytes:
        """Return where the largest was before the second shuffle, as a vector of bits XOR C."""
        if self._z is None or not 0 <= winner < self.count:
            raise ProtocolError("the largest has a place of the pass that goes on.")
        bits = _returns(self._words, self.count) & np.uint8(1)
        bits[order(self._words[: self.count])[winner]] ^= 1
        self._z = None
        return np.packbits(bits).tobytes()


class First(_Server):
    """The server that learns a random order: it asks, and hands out the result.

    `own` is a key of its own, for the order in which it takes places.
    """

    def __init__(self, count: int, seed: bytes, own: bytes) -> None:
        super().__init__(count, seed)
        self._own = own
        self._corrections: dict[int, bytes] = {}
        self._order: NDArray[np.int64] = np.zeros(0, np.int64)
        self._b: Words = np.zeros(0, np.uint64)
        self._flips: Bits = np.zeros(0, np.uint8)
        self._going: Generator[tuple[int, Places], Bits, int] | None = None
        self._next: tuple[int, Places] | None = None
        self._asked: tuple[Words, Words] | None = None

    @property
    def _each(self) -> int:
        return 8 * self.count + -(-self.count // 8)

    def deal_pairs(self, chunk: int, data: bytes) -> None:
        """Take what was dealt for a chunk of comparisons."""
        if chunk in self._corrections or (chunk + 1) * PAIRS <= self.compared:
            raise ReuseError(f"comparisons {chunk} of the dealer's were dealt before.")
        if len(data) != PAIRS * WORDS:
            raise ProtocolError(f"comparisons are dealt in {PAIRS * WORDS} bytes, got {len(data)}.")
        self._corrections[chunk] = data

    @property
    def left(self) -> int:
        """Comparisons that are dealt and not used."""
        return (max(self._corrections, default=-1) + 1) * PAIRS - self.compared

    @property
    def lacking(self) -> int:
        """Comparisons that the next question needs and that are not dealt."""
        return max(0, len(_pairs(*self._next)[0]) - self.left) if self._next is not None else 0

    def save_pairs(self) -> dict[int, bytes]:
        """Return what was dealt of comparisons and is not used up."""
        return dict(self._corrections)

    def load_pairs(self, corrections: Mapping[int, bytes]) -> None:
        """Take up what `save_pairs` returned."""
        self._corrections = dict(corrections)

    def begin(self, number: int, share: Words, ahead: bytes) -> bytes:
        """Begin a pass with this server's share and b - A; return p(x) - B - A' for the second
        server.
        """
        k = self.count
        if len(ahead) != 8 * k:
            raise ProtocolError(f"expected {k} numbers, got {len(ahead)} bytes.")
        words, dealt = self._open(number, 3 * k)
        self._order, self._b = order(words[:k]), words[2 * k :]
        self._flips = np.unpackbits(np.frombuffer(dealt, np.uint8, offset=8 * k), count=k)
        self._going, self._next, self._asked = _search(self._taken(number)), None, None
        permuted: Words = (share + np.frombuffer(ahead, "<u8"))[self._order]
        masked: Words = permuted + np.frombuffer(dealt, "<u8", k) - words[k : 2 * k]
        return masked.tobytes()

    def _taken(self, number: int) -> Places:
        """Return the places in the order in which a pass takes them; of few numbers all pairs are
        compared anyway.
        """
        if self.count <= ALL_PAIRS:
            return np.arange(self.count, dtype="<u2")
        return order(words_at(self._own, number * self.count, self.count)).astype("<u2")

    def ask(self, answer: bytes | None = None) -> Question | int | None:
        """Return the next question, given the answer to the last one; the place of the largest; or
        None, to wait.

        Where fewer comparisons are dealt than are needed it waits: call it again when more are.
        """
        if self._going is None or (answer is None) != (self._asked is None):
            raise ProtocolError("an answer belongs to a question of the pass that goes on.")
        try:
            if answer is not None:
                self._next = self._going.send(self._read(answer))
            elif self._next is None:
                self._next = next(self._going)
        except StopIteration as end:
            self._going = self._next = None
            return int(end.value)
        champion, places = self._next
        one, other = _pairs(champion, places)
        if self.left < len(one):
            return None
        self._next, hidden = None, self._b[one] - self._b[other]
        choices = words_at(self.pads, self.compared, len(one)) & _LOW
        self._asked = hidden, choices
        return Question(champion, places.tobytes(), ((~hidden & _LOW) ^ choices).tobytes())

    def check(self, answer: bytes) -> None:
        """Raise unless an answer is as long as the last question asks for."""
        expected = 8 * WORDS * len(self._asked[0]) if self._asked is not None else 0
        if len(answer) != expected:
            raise ProtocolError(f"expected an answer of {expected} bytes, got {len(answer)}.")

    def _read(self, answer: bytes) -> Bits:
        """Return which of the pairs asked for have the smaller number in front."""
        self.check(answer)
        assert self._asked is not None
        hidden, choices = self._asked
        start, self.compared = self.compared, self.compared + len(hidden)
        self._asked = None
        chosen, bits = np.empty((len(hidden), WORDS), np.uint8), np.empty(len(hidden), np.uint8)
        choose(np.frombuffer(answer, "<u8").reshape(-1, WORDS), choices, chosen)
        at = 0
        while at < len(hidden):
            chunk, row = divmod(start + at, PAIRS)
            dealt = np.frombuffer(self._corrections[chunk], np.uint8).reshape(PAIRS, WORDS)
            part = dealt[row : row + len(hidden) - at]
            chosen[at : at + len(part)] ^= part
            at += len(part)
        for old in [each for each in self._corrections if (each + 1) * PAIRS <= self.compared]:
            del self._corrections[old]
        evaluate(chosen, bits)
        return bits ^ (hidden >> np.uint64(63)).astype(np.uint8)

    def undo(self, placed: bytes) -> Bits:
        """Return [i is the largest] XOR E_i for every number, given what the second server's
        `place` returned.
        """
        if self._going is not None or not len(self._flips) or len(placed) != -(-self.count // 8):
            raise ProtocolError("the place comes once, after the largest is found.")
        bits = self._flips.copy()
        bits[self._order] ^= np.unpackbits(np.frombuffer(placed, np.uint8), count=self.count)
        self._flips = self._flips[:0]
        return bits


def _sample(count: int) -> int:
    """Of so many numbers, how many are compared in all pairs."""
    return count if count <= ALL_PAIRS else math.ceil(1.2 * math.sqrt(count))


def _search(left: Places) -> Generator[tuple[int, Places], Bits, int]:
    """Find the largest in places of a random order: ask for pairs, be sent which have the smaller
    in front.
    """
    while True:
        size = _sample(len(left))
        sample, rest = left[:size], left[size:]
        champion = int(sample[0])
        if size > 1:
            smaller = yield -1, sample
            first, second = pairs_of(size)
            wins = np.bincount(np.where(smaller, second, first), minlength=size)
            # Scores outside the range that owners agreed on can win in a circle: a score that wraps
            # around modulo 2^64 would let the smallest one win.
            if not np.array_equal(np.sort(wins), np.arange(size)):
                raise ProtocolError("the comparisons of a pass contradict each other.")
            champion = int(sample[np.argmax(wins)])
        if len(rest):
            rest = rest[(yield champion, rest) != 0]
        if not len(rest):
            return champion
        left = rest


class Dealer:
    """Deals passes and comparisons to the two servers whose seeds it made; sees no number."""

    def __init__(self, count: int, first: bytes, second: bytes) -> None:
        self._one, self._other = First(count, first, b""), Second(count, second, b"")
        self._count = count

    def passes(self, chunk: int) -> tuple[bytes, bytes]:
        """Return what the first and the second server are sent for a chunk of passes."""
        k, n = self._count, passes(self._count)
        one = words_at(self._one.tape, chunk * n * 3 * k, n * 3 * k).reshape(n, 3, k)
        width = _second_words(k)
        words = words_at(self._other.tape, chunk * n * width, n * width).reshape(n, width)
        returns = _returns(words, k)
        first, second = order(one[:, 0]), order(words[:, :k])
        to_first = np.take_along_axis(words[:, k : 2 * k], first, -1) - words[:, 2 * k : 3 * k]
        to_second = np.take_along_axis(one[:, 1], second, -1) - one[:, 2]
        flips = (returns >> np.uint8(1)) & np.uint8(1)
        np.put_along_axis(
            flips, first, np.take_along_axis(flips, first, -1) ^ (returns & np.uint8(1)), -1
        )
        data = np.concatenate([to_first.view(np.uint8), np.packbits(flips, axis=-1)], axis=-1)
        return data.tobytes(), to_second.tobytes()

    def pairs(self, chunk: int) -> bytes:
        """Return what the first server is sent for a chunk of comparisons."""
        pads = words_at(self._other.pads, chunk * PAIRS * WORDS, PAIRS * WORDS).reshape(
            PAIRS, WORDS
        )
        found = np.empty((PAIRS, WORDS), np.uint8)
        choose(pads, words_at(self._one.pads, chunk * PAIRS, PAIRS) & _LOW, found)
        return found.tobytes()


def order(words: Words) -> NDArray[np.int64]:
    """Return the permutation that words give: place -> item; uniform but for equal words, K^2 /
    2^65 at most.
    """
    return np.argsort(words, axis=-1, kind="stable")


def _second_words(count: int) -> int:
    """Words of the second server's tape of a pass: an order, A, B, and a byte a number for C and
    E.
    """
    return 3 * count + -(-count // 8)


def _returns(words: Words, count: int) -> Bits:
    """Return the bytes whose lowest bits are C, and whose second ones E."""
    tail = np.ascontiguousarray(words[..., 3 * count :])
    return tail.view(np.uint8)[..., :count].copy()
