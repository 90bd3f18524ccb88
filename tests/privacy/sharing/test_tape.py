"""A tape hands out every item once; what was not dealt, or is asked for again, is an error."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posse.core.errors import ProtocolError
from posse.privacy.sharing.comparison import argmax
from posse.privacy.sharing.dealing import Plan, Supply, plan_of
from posse.privacy.sharing.reciprocal import reciprocal
from posse.privacy.sharing.session import Session, together
from posse.privacy.sharing.tape import TRACKS, ReuseError, Sizes, Tape
from tests.privacy.sharing.engine import (
    blank,
    nothing,
    run,
    shared,
    shared_bits,
    some,
    tapes,
    watch,
    words,
)

counts = st.integers(0, 40)
sizes_of = st.builds(Sizes, mask=counts, bits=counts, wide=counts, narrow=counts, table=counts)
WIDTHS = {"mask": 8, "bits": 1, "wide": 8, "narrow": 4, "table": 1}


def taken(tape: Tape, name: str, shape: tuple[int, ...]) -> np.ndarray:
    return (
        getattr(tape, name)(shape)
        if name in ("mask", "bits")
        else getattr(tape, name)(shape, nothing)
    )


@some
@given(sizes_of, st.integers(0, 9))
def test_tracks_lie_one_behind_the_other_in_blocks_of_16_bytes(sizes: Sizes, number: int) -> None:
    data = (
        np.random.default_rng(number)
        .integers(0, 256, sizes.free_bytes + sizes.dealt_bytes)
        .astype(np.uint8)
    )
    raw, at = data.tobytes(), 0
    tape = Tape(sizes, data, number)
    for name in TRACKS:
        count, width = getattr(sizes, name), WIDTHS[name]
        wanted = [
            int.from_bytes(raw[at + width * i : at + width * (i + 1)], "little")
            for i in range(count)
        ]
        assert taken(tape, name, (count,)).tolist() == wanted
        at += (count * width + 15) // 16 * 16
        assert name != "bits" or at == sizes.free_bytes
    assert at == len(raw)
    tape.finish()
    rows = sizes.cut(np.stack([data, data]))
    assert {name: track.shape for name, track in rows.items()} == {
        name: (2, getattr(sizes, name)) for name in TRACKS
    }


@pytest.mark.parametrize("name", TRACKS)
def test_past_its_end_there_is_nothing(name: str) -> None:
    tape = blank(Sizes(**dict.fromkeys(TRACKS, 6)), number=41)
    first, second = taken(tape, name, (2, 2)), taken(tape, name, (2,))
    assert (first.shape, second.shape) == ((2, 2), (2,))
    assert not np.shares_memory(first, second)
    for shape in ((1,), (3, 5), (1, 1)):
        with pytest.raises(
            ReuseError, match=f"pass 41 has 6 items of '{name}', and {np.prod(shape)} more"
        ):
            taken(tape, name, shape)
    taken(tape, name, (0,))


@pytest.mark.parametrize("name", TRACKS)
def test_a_program_that_takes_less_is_found_at_the_end(name: str) -> None:
    tape = blank(Sizes(**dict.fromkeys(TRACKS, 3)), number=5)
    for other in TRACKS:
        taken(tape, other, (3 if other != name else 2,))
    with pytest.raises(ReuseError, match=f"pass 5 used 2 of 3 items of '{name}'"):
        tape.finish()
    taken(tape, name, (1,))
    tape.finish()


def test_reuse_is_an_error_of_the_protocol() -> None:
    assert issubclass(ReuseError, ProtocolError)


def test_half_words_are_given_as_words() -> None:
    tape = Tape(Sizes(narrow=2), np.frombuffer(b"\xff" * 8 + bytes(8), np.uint8), 0)
    found = tape.narrow((2,), nothing)
    assert (found.dtype, found.tolist()) == (np.uint64, [2**32 - 1] * 2)


# Supplies -----------------------------------------------------------------------------------------


def squaring(s: Session):
    x = s.mask(shared(s, [1, 2, 3]))
    yield
    return s.product(x, x)


KEY = bytes(range(32))
SMALL = plan_of(squaring)
assert SMALL.passes == 64
CHUNK = bytes(64 * SMALL.sizes.dealt_bytes)


def supply(which: int = 0, parties: int = 2) -> Supply:
    names = [f"party-{number}" for number in range(parties)]
    return Supply(SMALL, KEY, names[which], names)


def test_a_pass_is_opened_once_and_never_after_a_later_one() -> None:
    one = supply(1)
    assert (one.save()[0], one.ready) == (0, True)
    for number in (0, 1, 5, 63):
        one.open(number)
        assert one.save()[0] == number + 1
        for earlier in range(number + 1):
            with pytest.raises(
                ReuseError, match=f"pass {earlier} was used; the next is {number + 1}"
            ):
                one.open(earlier)
    with pytest.raises(ReuseError, match="was used"):
        one.open(-1)


def test_skipping_ahead_is_allowed_and_final() -> None:
    one = supply(0)
    one.take(0, CHUNK)
    one.take(2, CHUNK)
    one.open(130)
    for earlier in (0, 63, 64, 129, 130):
        with pytest.raises(ReuseError, match="was used"):
            one.open(earlier)
    with pytest.raises(ReuseError, match="dealt before"):
        one.take(0, CHUNK)
    one.open(131)
    one.open(64 * 3)
    with pytest.raises(ReuseError, match="dealt before"):
        one.take(2, CHUNK)


def test_a_tape_is_the_same_whether_passes_before_it_were_opened_or_skipped() -> None:
    steady, ahead = supply(1), supply(1)
    for number in range(9):
        steady.open(number)
    assert steady.open(9).mask((3,)).tolist() == ahead.open(9).mask((3,)).tolist()


def test_a_chunk_is_taken_once_by_the_party_whose_turn_it_is() -> None:
    first, second = supply(0), supply(1)
    assert [first.mine(chunk) for chunk in range(4)] == [True, False, True, False]
    assert [second.mine(chunk) for chunk in range(4)] == [False, True, False, True]
    first.take(0, CHUNK)
    for one, chunk in ((first, 0), (first, 1), (second, 0), (second, 2)):
        with pytest.raises(
            ReuseError, match=f"chunk {chunk} of the dealer's was dealt before, or to another party"
        ):
            one.take(chunk, CHUNK)
    first.open(10)
    with pytest.raises(ReuseError):
        first.take(0, CHUNK)
    first.open(63)
    with pytest.raises(ReuseError):
        first.take(0, CHUNK)


def test_what_is_not_dealt_yet_is_waited_for_and_not_used_up() -> None:
    one = supply(0)
    assert not one.ready
    with pytest.raises(ReuseError, match="not dealt pass 3 yet"):
        one.open(3)
    assert one.save()[0] == 0
    one.take(0, CHUNK)
    assert one.ready
    one.open(63)
    assert one.ready  # the next chunk is another party's turn
    one.open(127)
    assert not one.ready


def test_whether_everything_up_to_a_chunk_is_here() -> None:
    one = supply(0)
    assert not one.whole(0)
    one.take(0, CHUNK)
    assert [one.whole(last) for last in range(4)] == [True, True, False, False]
    one.take(2, CHUNK)
    assert [one.whole(last) for last in range(5)] == [True, True, True, True, False]
    one.open(130)
    assert [one.whole(last) for last in range(5)] == [True, True, True, True, False]


@pytest.mark.parametrize(
    "size", [0, 1, len(CHUNK) - 1, len(CHUNK) + 1, len(CHUNK) + SMALL.sizes.dealt_bytes]
)
def test_a_chunk_of_another_length_is_refused(size: int) -> None:
    one = supply(0)
    with pytest.raises(ProtocolError, match=f"must have {len(CHUNK)} bytes, got {size}"):
        one.take(0, bytes(size))
    assert not one.ready
    one.take(0, CHUNK)


def test_a_supply_goes_on_where_a_snapshot_was_taken() -> None:
    one, again = supply(0), supply(0)
    data = np.random.default_rng(1).bytes(len(CHUNK))
    one.take(0, data)
    one.open(7)
    number, corrections = one.save()
    again.load(number, {chunk: each.tobytes() for chunk, each in corrections.items()})
    assert again.save()[0] == 8
    with pytest.raises(ReuseError):
        again.open(7)
    with pytest.raises(ReuseError):
        again.take(0, data)
    tape = again.open(8)
    tape.mask((3,))
    assert tape.wide((3,), nothing).tolist() == one.open(8).wide((3,), nothing).tolist()
    again.open(SMALL.passes - 1)
    assert again.save() == (SMALL.passes, {})  # what was used is kept by nobody


# Programs that are not the one that was dealt for -------------------------------------------------


def test_a_party_that_takes_other_items_than_planned_is_found() -> None:
    def more(s: Session):
        result = yield from squaring(s)
        if not s.deals:
            s.mask(shared(s, [1]))
            yield
        return result

    def fewer(s: Session):
        x = s.mask(shared(s, [1, 2, 3]))
        yield
        return s.product(x, x) if s.deals else x.shared

    with pytest.raises(ReuseError, match="'mask', and 1 more is asked for"):
        run(more, 2)
    with pytest.raises(ReuseError, match="used 0 of 3 items of 'wide'"):
        run(fewer, 2)


def test_a_dealer_that_takes_other_items_than_planned_is_found() -> None:
    def other(masks: int, products: int = 1):
        def program(s: Session):
            x = s.mask(s.constant(words(list(range(masks)))))
            yield
            return [s.product(x, x) for _ in range(products)]

        return program

    for masks, products, what in [
        (4, 1, "4 of 3 items of 'mask'"),
        (2, 1, "2 of 3 items of 'mask'"),
        (3, 2, "6 of 3 items of 'wide'"),
        (3, 0, "0 of 3 items of 'wide'"),
    ]:
        with pytest.raises(ReuseError, match=f"the program took {what}"):
            tapes(other(masks, products), SMALL, 2, 0, [0])
    tapes(other(3), SMALL, 2, 0, [0])


# Every item once ----------------------------------------------------------------------------------


class Noting(Tape):
    """Notes which bytes of memory were handed out, and by which operation."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.given: dict[str, list[tuple[int, int]]] = {name: [] for name in TRACKS}

    def _take(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        found = super()._take(name, shape)
        at = found.__array_interface__["data"][0]
        self.given[name].append((at, at + found.nbytes))
        return found


class Reading(Session):
    """Notes which tables were read."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.tables: list[tuple[int, int]] = []

    def read(self, tables: np.ndarray, places: np.ndarray, width: int) -> Any:
        at = tables.__array_interface__["data"][0]
        self.tables.append((at, at + tables.nbytes))
        return super().read(tables, places, width)


def apart(spans: list[tuple[int, int]]) -> bool:
    ordered = sorted(span for span in spans if span[0] < span[1])
    return all(one[1] <= other[0] for one, other in itertools.pairwise(ordered))


def everything(s: Session):
    """All operations: a truncation, products, a comparison of twelve and of forty-five numbers, a
    reciprocal.
    """
    a, b = s.mask(shared(s, [[5, -7, 9]])), s.truncate(shared(s, [[100, 200, 300]]), 3)
    yield
    q = s.product(a, b)
    s.product(b, b, contract=True)
    best, many, y = yield from together(
        argmax(s, shared(s, list(range(11))), shared_bits(s, [0])),
        argmax(s, shared(s, list(range(45)))),
        reciprocal(s, shared(s, [0, 1 << 40]), 20, 2),
    )
    return q, best, many, y


def test_every_item_is_used_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("posse.privacy.sharing.dealing.Tape", Noting)
    monkeypatch.setattr("tests.privacy.sharing.engine.Watched", Reading)
    seen = watch(everything, 3)
    for session in seen.sessions:
        for name, spans in session.tape.given.items():
            assert apart(spans), name
            assert (
                sum(end - at for at, end in spans)
                == WIDTHS[name] * getattr(seen.plan.sizes, name)
                > 0
            )
        assert apart(session.tables)
        read = sum(end - at for at, end in session.tables)
        assert read == seen.plan.sizes.table


def test_the_plan_of_a_program_is_what_a_party_takes() -> None:
    plan = plan_of(everything)
    assert isinstance(plan, Plan)
    tape = tapes(everything, plan, 2, 0, [3])[0][0]
    assert {name: track.size for name, track in tape._tracks.items()} == {
        name: getattr(plan.sizes, name) for name in TRACKS
    }
