"""Computations side by side, what travels in a round, and what a round refuses."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posse.core.errors import ProtocolError
from posse.privacy.sharing.comparison import argmax
from posse.privacy.sharing.dealing import plan_of
from posse.privacy.sharing.local import run_sessions
from posse.privacy.sharing.reciprocal import reciprocal
from posse.privacy.sharing.session import Session, together
from posse.privacy.sharing.tape import Sizes
from tests.privacy.sharing.engine import (
    PARTIES,
    added,
    blank,
    run,
    shared,
    shared_bits,
    some,
    tapes,
    watch,
    xored,
)


def count(rounds: int, log: list[tuple[int, int]] | None = None):
    for number in range(rounds):
        if log is not None:
            log.append((rounds, number))
        yield
    return rounds


def length(computation) -> tuple[int, object]:
    rounds = 0
    while True:
        try:
            next(computation)
        except StopIteration as end:
            return rounds, end.value
        rounds += 1


trees = st.recursive(st.integers(0, 6), lambda inner: st.lists(inner, max_size=4), max_leaves=12)


def of(tree):
    return count(tree) if isinstance(tree, int) else together(*(of(each) for each in tree))


def longest(tree) -> int:
    return tree if isinstance(tree, int) else max(map(longest, tree), default=0)


def as_tuples(tree):
    return tree if isinstance(tree, int) else tuple(map(as_tuples, tree))


@some
@given(trees)
def test_rounds_are_those_of_the_longest_and_results_in_order(tree) -> None:
    assert length(of(tree)) == (longest(tree), as_tuples(tree))


def test_all_that_run_take_part_in_every_round() -> None:
    log: list[tuple[int, int]] = []
    both = together(count(1, log), count(3, log), count(2, log))
    for wanted in ([(1, 0), (3, 0), (2, 0)], [(3, 1), (2, 1)], [(3, 2)]):
        next(both)
        assert log == wanted
        log.clear()
    with pytest.raises(StopIteration):
        next(both)


def test_an_error_in_one_ends_all() -> None:
    def broken():
        yield
        raise ZeroDivisionError

    both = together(count(5), broken())
    next(both)
    with pytest.raises(ZeroDivisionError):
        next(both)


@pytest.mark.parametrize("n", PARTIES)
def test_shared_computations_side_by_side(n: int) -> None:
    """What each opens travels in the same messages; nothing is mixed up."""
    x, q = [3, -5, 8, 1, 0], [0, 1 << 40, 1 << 39]

    def one(s):
        return (yield from argmax(s, shared(s, x)))

    def two(s):
        return (yield from reciprocal(s, shared(s, q), 20, 2)).shared

    def three(s):
        a = s.mask(shared(s, x))
        yield
        return s.product(a, a)

    def all_(s):
        return (yield from together(one(s), together(two(s), three(s)), one(s)))

    done = run(all_, n)
    alone = [run(program, n) for program in (one, two, three)]
    assert done.rounds == max(each.rounds for each in alone) == 6
    assert done.sent == 2 * alone[0].sent + alone[1].sent + alone[2].sent
    for path in ((0,), (2,)):
        assert xored(done.results, *path).tolist() == [0, 0, 1, 0, 0]
    assert added(done.results, 1, 1).tolist() == [a * a for a in x]
    assert added(done.results, 1, 0) / 2**20 == pytest.approx([1, 1 / 2, 2 / 3], abs=1e-5)


@pytest.mark.parametrize("n", PARTIES)
def test_what_travels_is_what_the_plan_says(n: int) -> None:
    def program(s):
        cut = s.truncate(shared(s, [[1, 2], [3, 4]]), 5)
        yield
        found = s.look_up(
            shared_bits(s, [1, 2, 3], 9), lambda mask: np.zeros((*mask.shape, 64), np.uint8), 1
        )
        yield
        s.reveal("outsider", found.bits)
        yield
        yield from argmax(s, shared(s, [4, 5, 6]))
        return cut.shared

    seen = watch(program, n)
    assert [one.shares for one in seen.plan.rounds] == [32, 6, 0, 24, 12, 3, 3]
    assert seen.broadcast == [[one.shares] * n for one in seen.plan.rounds]
    assert [{to: len(parts[0]) for to, parts in one.items()} for one in seen.reveals] == [
        one.reveals for one in seen.plan.rounds
    ]
    for waits, one in zip(seen.expected, seen.plan.rounds, strict=True):
        for number, each in enumerate(waits):
            others = [f"party-{other + 1}" for other in range(n) if other != number]
            assert each == {name: one.shares for name in others if one.shares}
    assert {session.rounds for session in seen.sessions} == {7}


def begun(n: int = 2) -> list[Session]:
    """Parties that are about to open three numbers."""

    def program(s):
        s.mask(shared(s, [1, 2, 3]))
        yield

    plan = plan_of(program)
    names = [f"party-{number}" for number in range(1, n + 1)]
    (own,) = tapes(program, plan, n, 0, [0])
    sessions = [Session(name, names, tape) for name, tape in zip(names, own, strict=True)]
    for session in sessions:
        next(program(session))
    return sessions


def test_messages_of_another_length_are_refused() -> None:
    for data in (bytes(25), bytes(48)):
        with pytest.raises(ProtocolError, match="longer than the round"):
            begun()[0].deliver({"party-2": data})
    for data in (b"", bytes(8), bytes(23)):
        with pytest.raises(ValueError):
            begun()[0].deliver({"party-2": data})
    with pytest.raises(KeyError):
        begun()[0].deliver({})
    with pytest.raises(ProtocolError, match="longer"):
        begun()[0].deliver({"party-2": bytes(24), "stranger": b"1"})


def test_a_round_is_over_once() -> None:
    session = begun()[0]
    assert len(session.outgoing().broadcast) == 24
    session.deliver({"party-2": bytes(24)})
    assert session.rounds == 1
    asked = session.outgoing()
    assert (asked.broadcast, asked.reveals, asked.expected) == (b"", {}, {})
    with pytest.raises(ProtocolError):
        session.deliver({"party-2": bytes(24)})


def test_reveals_are_sent_once() -> None:
    session = Session("a", ("a", "b"), blank(Sizes()))
    session.reveal("outsider", shared_bits(session, [1, 0]))
    assert len(session.outgoing().reveals["outsider"]) == 2
    assert session.outgoing().reveals == {}


def test_parties_whose_programs_differ_in_rounds_are_found() -> None:
    sessions = [Session(name, ("a", "b"), blank(Sizes())) for name in ("a", "b")]
    with pytest.raises(AssertionError):
        run_sessions(sessions, [count(1), count(2)], plan_of(lambda s: count(1)))
