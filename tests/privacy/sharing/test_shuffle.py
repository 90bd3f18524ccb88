"""The largest of many shared numbers: exact for any K, in a uniformly random order, nothing dealt
used twice.
"""

from __future__ import annotations

from itertools import pairwise, permutations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from posse.core.errors import ProtocolError
from posse.privacy.sharing import shuffle
from posse.privacy.sharing.garbled import LABELS, WORDS, choose, evaluate, garble
from posse.privacy.sharing.shuffle import PAIRS, Dealer, First, Question, Second
from posse.privacy.sharing.tape import ReuseError

LEVEL = 1e-6
TOP = 2**63


class Trio:
    """Two servers and a dealer in one place."""

    def __init__(self, count: int, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        one, other, own, search = (rng.bytes(32) for _ in range(4))
        self.count, self.rng = count, rng
        self.first, self.second = First(count, one, search), Second(count, other, own)
        self.dealer = Dealer(count, one, other)
        self.dealt = self.pairs = 0
        self.questions: list[Question] = []
        self.messages = self.sent = 0

    def supply(self, number: int) -> None:
        """Deal what a pass needs."""
        while not self.first.has(number):
            mine, other = self.dealer.passes(self.dealt)
            self.first.deal(self.dealt, mine)
            self.second.deal(self.dealt, other)
            self.dealt += 1
        while self.first.left < self.count * (4 + self.count // 3):
            self.first.deal_pairs(self.pairs, self.dealer.pairs(self.pairs))
            self.pairs += 1

    def largest(self, number: int, x: NDArray[np.int64]) -> tuple[NDArray[np.uint8], int]:
        """Return the shares of both servers put together, and the place in the shuffled order."""
        self.supply(number)
        b = self.rng.integers(0, 2**64, self.count, np.uint64)
        ahead, bits = self.second.ahead(number, b)
        masked = self.first.begin(number, x.view(np.uint64) - b, ahead)
        self.second.shuffle(masked)
        self.messages, self.sent = 1, len(ahead) + len(masked)
        asked = self.first.ask()
        self.questions = []
        while isinstance(asked, Question):
            self.questions.append(asked)
            answer = self.second.answer(asked)
            self.messages, self.sent = (
                self.messages + 2,
                self.sent + len(answer) + len(asked.shifts),
            )
            asked = self.first.ask(answer)
        assert asked is not None
        self.messages += 1
        return self.first.undo(self.second.place(asked)) ^ bits, asked


def numbers(rng: np.random.Generator, count: int) -> NDArray[np.int64]:
    """Different numbers below 2^62 in magnitude, some of them next to each other and at the
    ends.
    """
    kind = rng.integers(3)
    if kind == 0:
        return rng.permutation(count).astype(np.int64) + int(rng.integers(-(2**61), 2**61))
    found = rng.integers(-(2**62) + 1, 2**62 - count, count)
    if kind == 1:
        found[0], found[1] = 2**62 - 1, -(2**62) + 1
        rng.shuffle(found)
    return found


# Comparing two numbers ----------------------------------------------------------------------------

word = st.integers(0, TOP - 1)


@given(n=word, d=word, near=st.integers(-2, 2), flip=st.booleans(), seed=st.integers(0, 2**32))
@example(n=0, d=0, near=0, flip=False, seed=0)
@example(n=TOP - 1, d=TOP - 1, near=0, flip=True, seed=0)
@settings(max_examples=300, deadline=None)
def test_one_message_says_which_is_smaller(
    n: int, d: int, near: int, flip: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    theirs = np.array([d, min(max(n + near, 0), TOP - 1)], np.uint64)
    mine = np.array([n, n], np.uint64)
    choices = rng.integers(0, TOP, 2, np.uint64)
    pads = rng.integers(0, 2**64, (2, WORDS), np.uint64)
    sent = np.empty_like(pads)
    garble(
        theirs | np.uint64(TOP * flip),
        mine ^ choices,
        pads,
        rng.integers(0, 2**64, (2, LABELS), np.uint64),
        sent,
    )
    dealt, chosen, answer = (
        np.empty((2, WORDS), np.uint8),
        np.empty((2, WORDS), np.uint8),
        np.empty(2, np.uint8),
    )
    choose(pads, choices, dealt)
    choose(sent, choices, chosen)
    evaluate(chosen ^ dealt, answer)
    np.testing.assert_array_equal(answer, (mine < theirs) ^ flip)


# The largest of many ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "count", [2, 3, 4, 7, 8, 9, 10, 15, 16, 17, 18, 33, 64, 100, 101, 257, 1000, 3000]
)
def test_the_largest_is_found(count: int) -> None:
    trio = Trio(count, count)
    for number in range(70 if count < 200 else 4):
        x = numbers(trio.rng, count)
        hot, _ = trio.largest(number, x)
        np.testing.assert_array_equal(hot, np.arange(count) == x.argmax())


@pytest.mark.parametrize("count", [3, 10, 16])
def test_scores_that_win_in_a_circle_end_the_run(count: int) -> None:
    trio = Trio(count, count)
    # A score that wraps around beats those above it and loses to those below it.
    for place in range(count):
        x = np.arange(count, dtype=np.int64) * 1000
        x[place] += np.iinfo(np.int64).min
        if place in (0, count - 1):
            # All others are above, or all below: the order has no circle.
            hot, _ = trio.largest(trio.first.number + 1, x)
            assert int(hot.argmax()) == (0 if place == 0 else count - 2)
        else:
            with pytest.raises(ProtocolError):
                trio.largest(trio.first.number + 1, x)


@given(count=st.integers(2, 3000), seed=st.integers(0, 2**32))
@settings(max_examples=25, deadline=None)
def test_the_largest_is_found_for_any_number_of_them(count: int, seed: int) -> None:
    trio = Trio(count, seed)
    x = numbers(trio.rng, count)
    assert trio.largest(0, x)[0].nonzero()[0].tolist() == [int(x.argmax())]


def test_costs_are_what_the_page_says() -> None:
    """Messages one after the other, bytes sent and dealt, comparisons."""
    for count in (2, 10, 16):
        trio = Trio(count)
        trio.largest(0, numbers(trio.rng, count))
        pairs = count * (count - 1) // 2
        assert trio.messages == 4
        assert trio.first.compared == trio.second.compared == pairs
        assert trio.sent == 16 * count + 512 * pairs
    trio = Trio(100)
    passes = shuffle.passes(100)
    for number in range(100):
        trio.largest(number, numbers(trio.rng, 100))
        assert trio.messages <= 14
    assert trio.first.compared < 100 * 2.2 * 100
    assert [len(part) for part in trio.dealer.passes(0)] == [passes * (800 + 13), passes * 800]
    assert len(trio.dealer.pairs(0)) == 63 * PAIRS


# What opens is a random order ---------------------------------------------------------------------


@pytest.mark.parametrize("x", [(1, 2, 3), (3, 1, 2), (-(2**61), 0, 2**61)])
def test_the_order_that_the_first_server_sees_is_uniform(
    x: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six orders of three numbers over 6,000 passes, chi-square with 5 degrees of freedom, for each
    x alone.

    An order of frequency 0.22 instead of 0.167 is found with 99 %.
    """
    seen = _orders(np.array(x), monkeypatch)
    assert stats.chisquare([seen.get(order, 0) for order in permutations(range(3))]).pvalue > LEVEL


def _orders(x: NDArray[np.int64], monkeypatch: pytest.MonkeyPatch) -> dict[tuple[int, ...], int]:
    bits: list[tuple[int, ...]] = []
    read = First._read

    def noted(self: First, answer: bytes) -> NDArray[np.uint8]:
        found = read(self, answer)
        bits.append(tuple(found.tolist()))
        return found

    monkeypatch.setattr(First, "_read", noted)
    trio = Trio(3, 5)
    for number in range(6000):
        trio.largest(number, x)
    ranks = {
        tuple(int(p[i] < p[j]) for i, j in ((0, 1), (0, 2), (1, 2))): p
        for p in permutations(range(3))
    }
    seen: dict[tuple[int, ...], int] = {}
    for pattern in bits:
        seen[ranks[pattern]] = seen.get(ranks[pattern], 0) + 1
    return seen


def test_an_order_that_is_not_shuffled_by_one_server_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Control: both permutations the identity."""
    monkeypatch.setattr(
        shuffle,
        "order",
        lambda words: np.broadcast_to(np.arange(words.shape[-1]), words.shape).copy(),
    )
    seen = _orders(np.array([1, 2, 3]), monkeypatch)
    assert stats.chisquare([seen.get(order, 0) for order in permutations(range(3))]).pvalue < LEVEL


@pytest.mark.parametrize("count", [5, 40])
def test_the_place_that_the_second_server_sees_is_uniform(count: int) -> None:
    """Whatever is the largest: places over 4,000 passes, chi-square."""
    trio = Trio(count, 3)
    places = np.zeros(count)
    for number in range(4000 if count == 5 else 2000):
        places[trio.largest(number, np.arange(count))[1]] += 1
    assert stats.chisquare(places).pvalue > LEVEL


def _counts(count: int) -> tuple[list[int], list[int]]:
    """Comparisons of passes in which the largest is among the places that come first, and of the
    others.

    The dealer, which knows both permutations, can tell them apart for every guess of who has the
    largest.
    """
    trio, sample, found = Trio(count, 4), shuffle._sample(count), ([], [])
    for number in range(500):
        before = trio.first.compared
        _, place = trio.largest(number, np.arange(count))
        found[place >= sample].append(trio.first.compared - before)
    return found


@pytest.mark.parametrize("count", [17, 40])
def test_the_number_of_comparisons_tells_the_dealer_nothing(count: int) -> None:
    """Mann-Whitney; a shift by 0.7 of a standard deviation is found with 99 %."""
    assert stats.mannwhitneyu(*_counts(count)).pvalue > LEVEL


def test_places_taken_in_their_order_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: who knows both permutations then knows whose numbers are compared first."""
    monkeypatch.setattr(First, "_taken", lambda self, number: np.arange(self.count, dtype="<u2"))
    assert stats.mannwhitneyu(*_counts(40)).pvalue < LEVEL


# Nothing twice ------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [3, 10, 40])
def test_every_word_is_used_once(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the servers read of their streams, in words: no word twice, none left out."""
    words: dict[bytes, list[tuple[int, int]]] = {}
    original = shuffle.words_at

    def noted(key: bytes, at: int, size: int) -> NDArray[np.uint64]:
        words.setdefault(key, []).append((at, at + size))
        return original(key, at, size)

    trio = Trio(count)
    for chunk in range(40 // shuffle.passes(count) + 1):
        mine, other = trio.dealer.passes(chunk)
        trio.first.deal(chunk, mine)
        trio.second.deal(chunk, other)
        trio.dealt += 1
    while trio.first.left < 40 * count * count:
        trio.first.deal_pairs(trio.pairs, trio.dealer.pairs(trio.pairs))
        trio.pairs += 1
    monkeypatch.setattr(shuffle, "words_at", noted)
    monkeypatch.setattr(Trio, "supply", lambda *_: None)
    for number in range(40):
        trio.largest(number, numbers(trio.rng, count))
    # Each server's tape, the first's choices, the second's pads and labels; the order in which
    # places are taken.
    assert len(words) == (5 if count <= shuffle.ALL_PAIRS else 6)
    for spans in words.values():
        assert spans == sorted(spans)
        assert all(end == start for (_, end), (start, _) in pairwise(spans))


def test_a_pass_or_a_chunk_is_never_used_twice() -> None:
    trio = Trio(4)
    trio.largest(3, numbers(trio.rng, 4))
    b = np.zeros(4, np.uint64)
    for number in (0, 2, 3):
        with pytest.raises(ReuseError):
            trio.second.ahead(number, b)
        with pytest.raises(ReuseError):
            trio.first.begin(number, b, bytes(32))
    with pytest.raises(ReuseError, match="dealt before"):
        trio.first.deal(0, trio.dealer.passes(0)[0])
    with pytest.raises(ReuseError, match="dealt before"):
        trio.first.deal_pairs(0, trio.dealer.pairs(0))
    with pytest.raises(ReuseError, match="Wait"):
        trio.first.begin(10**6, b, bytes(32))


@pytest.mark.parametrize("count", [4, 30])
def test_a_pair_is_compared_once_a_pass(count: int) -> None:
    """A first server that could ask again with another shift would find the difference of two
    numbers bit by bit.
    """
    trio = Trio(count)
    trio.largest(0, numbers(trio.rng, count))
    ahead, _ = trio.second.ahead(1, np.zeros(count, np.uint64))
    trio.second.shuffle(trio.first.begin(1, np.arange(count, dtype=np.uint64), ahead))
    asked = trio.first.ask()
    assert isinstance(asked, Question)
    places = np.frombuffer(asked.places, "<u2")

    def question(champion: int, *others: int) -> Question:
        pairs = len(others) if champion >= 0 else len(others) * (len(others) - 1) // 2
        return Question(champion, np.array(others, "<u2").tobytes(), bytes(8 * pairs))

    one, two = int(places[0]), int(places[1])
    twice = [question(-1, one, one), question(one, two)]
    twice += [question(-1, *range(17))] if count > 16 else []
    for wrong in twice:
        with pytest.raises(ProtocolError, match="once a pass"):
            trio.second.answer(wrong)
    answer = trio.second.answer(asked)
    others = [place for place in range(count) if place not in places]
    for wrong in [asked, question(-1, one, two), question(one, two), question(one, one)]:
        with pytest.raises(ProtocolError, match="once a pass"):
            trio.second.answer(wrong)
    if others:
        following = trio.first.ask(answer)
        assert isinstance(following, Question)
        trio.second.answer(following)
        for wrong in [following, question(others[0], others[1])]:
            with pytest.raises(ProtocolError, match="once a pass"):
                trio.second.answer(wrong)
    before = trio.second.compared
    ahead, _ = trio.second.ahead(2, np.zeros(count, np.uint64))
    assert trio.second.compared == before


def test_more_comparisons_than_dealt_wait() -> None:
    trio = Trio(4)
    trio.first.deal(0, trio.dealer.passes(0)[0])
    trio.first.begin(0, np.zeros(4, np.uint64), bytes(32))
    assert trio.first.ask() is None
    trio.first.deal_pairs(0, trio.dealer.pairs(0))
    assert isinstance(trio.first.ask(), Question)


def test_messages_out_of_turn_are_refused() -> None:
    trio = Trio(4)
    trio.supply(0)
    ahead, _ = trio.second.ahead(0, np.zeros(4, np.uint64))
    for wrong in (
        lambda: trio.second.answer(Question(-1, bytes(4), bytes(8))),
        lambda: trio.second.place(0),
        lambda: trio.second.shuffle(bytes(8)),
        lambda: trio.first.undo(b"0"),
        lambda: trio.first.ask(),
    ):
        with pytest.raises(ProtocolError):
            wrong()
    masked = trio.first.begin(0, np.arange(4, dtype=np.uint64), ahead)
    trio.second.shuffle(masked)
    with pytest.raises(ProtocolError):
        trio.second.shuffle(masked)
    asked = trio.first.ask()
    assert isinstance(asked, Question)
    for question in (
        Question(4, bytes(2), bytes(8)),
        Question(-1, b"\x00\x00\x04\x00", bytes(8)),
        Question(-1, bytes(4), bytes(16)),
        Question(-1, b"", b""),
    ):
        with pytest.raises(ProtocolError):
            trio.second.answer(question)
    with pytest.raises(ProtocolError):
        trio.first.ask(bytes(8))
    found = trio.first.ask(trio.second.answer(asked))
    assert isinstance(found, int)
    with pytest.raises(ProtocolError):
        trio.second.place(4)
    placed = trio.second.place(found)
    with pytest.raises(ProtocolError):
        trio.second.place(found)
    trio.first.undo(placed)
    with pytest.raises(ProtocolError):
        trio.first.undo(placed)


def test_servers_go_on_from_what_they_saved() -> None:
    one, other = Trio(20, 9), Trio(20, 9)
    for number in range(5):
        one.largest(number, np.arange(20) * 3)
    other.supply(0)
    other.pairs, other.dealt = one.pairs, one.dealt
    other.first.load(*one.first.save())
    other.first.load_pairs(one.first.save_pairs())
    other.second.load(*one.second.save())
    x = np.arange(20)[::-1].copy()
    assert one.largest(5, x)[0].tolist() == other.largest(5, x)[0].tolist()
    assert one.questions == other.questions
