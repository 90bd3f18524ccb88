"""The largest of several numbers, and choosing by bits, against Python."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from posse.privacy.sharing.comparison import ALL_PAIRS, argmax, choose
from posse.privacy.sharing.values import words_of
from tests.privacy.sharing.engine import (
    EDGES,
    HARD_MASKS,
    LARGEST,
    PARTIES,
    added,
    in_range,
    parties,
    repeated,
    run,
    seeds,
    shared,
    shared_bits,
    some,
    streams,
    table_sizes,
    watch,
    wrapped,
    xored,
)

MOST = LARGEST - 200
"""The declared range of the numbers."""


def finding(x: list[int], unless: int | None = None, seed: int = 0):
    def program(s):
        bit = None if unless is None else shared_bits(s, [unless], seed=seed)
        return (yield from argmax(s, shared(s, x, seed), bit))

    return program


def one_hot(x: list[int], unless: int | None = None) -> list[int]:
    return [int(a == max(x) and not unless) for a in x]


def spread(seed: int, count: int) -> list[list[int]]:
    """Different numbers in random order: neighbours at the ends and around 0 and powers of two, far
    apart, random.
    """
    random = np.random.default_rng(seed)
    powers = [0, *(sign * 2**place for place in range(62) for sign in (1, -1))][:count]
    far = [MOST - i if i % 2 else -MOST + i for i in range(count)]
    drawn = {int(a) for a in random.integers(-MOST, MOST + 1, count)}
    rows = [
        range(MOST - count + 1, MOST + 1),
        range(-MOST, -MOST + count),
        range(-(count // 2), count - count // 2),
        range(2**32 - count // 2, 2**32 + count - count // 2),
        powers if len(set(powers)) == count else range(count),
        far,
        drawn if len(drawn) == count else range(count),
    ]
    return [[list(row)[i] for i in random.permutation(count)] for row in rows]


def rounds_of(count: int, unless: bool) -> int:
    """4 up to 12 numbers (11 with a bit), 5 up to 40; above that 6 and those of a tenth."""
    if count > ALL_PAIRS:
        return 6 + rounds_of((count + 9) // 10, unless)
    return 3 + len(table_sizes(count - 1 + unless))


def bytes_of(count: int, unless: bool) -> tuple[int, int]:
    """Bytes opened and tables dealt."""
    if count > ALL_PAIRS:
        groups = (count + 9) // 10
        opened, dealt = bytes_of(groups, unless)
        # 8 + 2 (nine bits) + 1 (choose) + 1 (two bits) a number of a full group; tables of 2^9 and
        # 2^2 bits.
        return opened + 10 * groups * 12 + 45 * groups * 5, dealt + groups * (
            45 * 352 + 10 * 64 + 10 * 1
        )
    pairs = count * (count - 1) // 2
    opened = sum(
        tables * (1 if size <= 8 else 2) for tables, size in table_sizes(count - 1 + unless)
    )
    dealt = sum(
        tables * (2 ** (size - 3) if size >= 3 else 1)
        for tables, size in table_sizes(count - 1 + unless)
    )
    return 8 * count + 5 * pairs + count * opened, 352 * pairs + count * dealt


@pytest.mark.parametrize(
    "count", [*range(2, 14), 22, 23, 39, 40, 41, 49, 50, 51, 99, 100, 110, 111, 120, 121, 200]
)
def test_the_largest_of_close_and_far_numbers(count: int) -> None:
    for row, x in enumerate(spread(count, count)):
        n = PARTIES[(row + count) % 5]
        unless = (None, 0, 1)[(row + count) % 3]
        done = run(finding(x, unless, seed=row), n, seed=row)
        assert xored(done.results).tolist() == one_hot(x, unless)
        assert done.rounds == rounds_of(count, unless is not None)
        assert (done.sent, done.plan.sizes.table) == bytes_of(count, unless is not None)


def test_rounds_as_stated() -> None:
    assert [rounds_of(count, False) for count in (2, 12, 13, 40, 41, 120, 121, 400)] == [
        4,
        4,
        5,
        5,
        10,
        10,
        11,
        11,
    ]
    assert [rounds_of(count, True) for count in (2, 11, 12, 40, 41, 110, 111, 400)] == [
        4,
        4,
        5,
        5,
        10,
        10,
        11,
        11,
    ]


@some
@given(
    parties,
    seeds,
    st.sampled_from([None, 0, 1]),
    st.lists(in_range, min_size=2, max_size=16, unique=True),
)
@example(2, 0, None, [LARGEST, -LARGEST])
@example(3, 0, 0, [-LARGEST, LARGEST, 0, LARGEST - 1])
@example(5, 0, 1, [-LARGEST, 1 - LARGEST])
@example(2, 1, None, EDGES[-40:])
def test_up_to_forty_numbers_anywhere_in_the_range(
    n: int, seed: int, unless: int | None, x: list[int]
) -> None:
    assert xored(run(finding(x, unless, seed), n, seed).results).tolist() == one_hot(x, unless)


@some
@given(parties, seeds, st.sampled_from([None, 0, 1]), st.integers(2, 200))
def test_any_number_of_them(n: int, seed: int, unless: int | None, count: int) -> None:
    x = spread(seed, count)[seed % 7]
    assert xored(run(finding(x, unless, seed), n, seed).results).tolist() == one_hot(x, unless)


@pytest.mark.parametrize("place", [0, 9, 10, 409, 410, 411])
def test_groups_of_groups(place: int) -> None:
    """Above 400 numbers the tournament has three levels."""
    x = [-MOST + i for i in range(412)]
    x[place] = MOST
    done = run(finding(x), 2)
    assert xored(done.results).tolist() == one_hot(x)
    assert done.rounds == 6 + 6 + 4


@pytest.mark.parametrize("count", [2, 10, 12, 40, 41, 50])
def test_many_rows_at_once(count: int) -> None:
    x = [row for seed in range(3) for row in spread(seed, count)]
    unless = [[i % 2] for i in range(len(x))]

    def program(s):
        return (yield from argmax(s, shared(s, x), shared_bits(s, unless)))

    wanted = [one_hot(row, bit[0]) for row, bit in zip(x, unless, strict=True)]
    assert xored(run(program, 3).results).tolist() == wanted


@pytest.mark.parametrize("masks", HARD_MASKS)
def test_masks_at_the_edges(masks: tuple[bytes, ...]) -> None:
    for count in (3, 11, 45):
        for n in (1, 2, 3):
            x = spread(n, count)[(n + count) % 7]
            with streams(repeated(*masks)):
                assert xored(watch(finding(x), n).results).tolist() == one_hot(x)


@some
@given(parties, seeds, st.lists(st.tuples(in_range, st.booleans()), min_size=1, max_size=30))
@example(2, 0, [(x, i % 2 == 0) for i, x in enumerate(EDGES)])
@example(3, 0, [(LARGEST, True)] * 4)
def test_choosing_adds_up_where_the_bit_is_1(
    n: int, seed: int, given_: list[tuple[int, bool]]
) -> None:
    """1 round and 1 byte a number after the masking; 16 bytes dealt a number."""
    x, bits = [[one for one, _ in given_]], [[int(bit) for _, bit in given_]]

    def program(s):
        masked = s.mask(shared(s, x, seed))
        yield
        return (yield from choose(s, shared_bits(s, bits, seed=seed), masked))

    done = run(program, n, seed)
    assert (
        added(done.results).tolist() == wrapped([sum(one for one, bit in given_ if bit)]).tolist()
    )
    assert (done.rounds, done.sent) == (2, 9 * len(given_))
    assert (done.plan.sizes.wide, done.plan.sizes.bits) == (2 * len(given_), len(given_))


@pytest.mark.parametrize("masks", HARD_MASKS)
def test_choosing_with_masks_at_the_edges(masks: tuple[bytes, ...]) -> None:
    bits = [[(i >> j) & 1 for i in range(len(EDGES))] for j in range(3)]

    def program(s):
        masked = s.mask(shared(s, [EDGES] * 3))
        yield
        return (yield from choose(s, shared_bits(s, bits), masked))

    with streams(repeated(*masks)):
        found = added(watch(program, 2).results).tolist()
    assert (
        found
        == wrapped(
            [sum(x for x, bit in zip(EDGES, row, strict=True) if bit) for row in bits]
        ).tolist()
    )


def test_only_plain_masks_are_chosen_from() -> None:
    def program(s):
        cut = s.truncate(shared(s, [[5, 6]]), 1)
        yield
        return (yield from choose(s, shared_bits(s, [[1, 0]]), cut))

    with pytest.raises(AssertionError):
        run(program, 2)


def test_what_fills_the_last_group_is_below_the_range() -> None:
    assert [
        int(word) - 2**64 for word in words_of(-(2**62)) + np.arange(1, 10, dtype=np.uint64)
    ] == [-(2**62) + i for i in range(1, 10)]
    assert max(-(2**62) + i for i in range(1, 10)) < -MOST
