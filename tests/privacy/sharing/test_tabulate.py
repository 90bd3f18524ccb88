"""Functions of a truncated number by a shifted table, against Python."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from posse.privacy.sharing.dealing import plan_of
from tests.privacy.sharing.engine import (
    HARD_MASKS,
    added,
    check_uniform,
    parties,
    repeated,
    run,
    secrets,
    seeds,
    shared,
    some,
    streams,
    watch,
)

widths = st.integers(2, 9)


def tabulating(x: list[int], bits: int, width: int, values: list[int], seed: int = 0):
    """`values` has the function at 0 to 2^width - 1, those above 3/4 being negative numbers."""
    table = np.array([value % 2**32 for value in values], np.uint32)

    def program(s):
        found = s.tabulate(
            shared(s, x, seed), bits, width, lambda places: table[places.astype(np.int64)], "table"
        )
        yield
        return found.shared

    return program


def values_of(seed: int, width: int) -> list[int]:
    """Signed half words, the extreme ones among them."""
    random = np.random.default_rng(seed)
    values = [int(value) for value in random.integers(-(2**31), 2**31, 2**width)]
    values[0], values[-1] = 2**31 - 1, -(2**31)
    return values


def inside(bits: int, width: int) -> list[int]:
    """Numbers whose floor, and one more, are in the range of a table: both ends, and around every
    multiple.
    """
    low, high = -(2 ** (width - 2)), 3 * 2 ** (width - 2)
    unit = 2**bits
    near = [place * unit + by for place in range(low, high) for by in (0, 1, unit // 2, unit - 1)]
    return [x for x in near if x <= (high - 1) * unit]


def check(found: list[int], x: list[int], bits: int, values: list[int]) -> None:
    for number, got in zip(x, found, strict=True):
        floor, rest = number // 2**bits, number % 2**bits
        wanted = {values[floor % len(values)]}
        if rest:
            wanted.add(values[(floor + 1) % len(values)])
        assert got in {value * 2**32 for value in wanted}, number


@some
@given(parties, seeds, st.integers(1, 54), widths)
@example(2, 0, 1, 2)
@example(3, 1, 54, 9)
@example(5, 2, 60, 3)
@example(1, 3, 31, 8)
def test_the_value_at_floor_or_one_more(n: int, seed: int, bits: int, width: int) -> None:
    """1 round, 8 bytes a number; dealt: 4 bytes an entry."""
    x, values = [a for a in inside(bits, width) if abs(a) < 2**62], values_of(seed, width)
    done = run(tabulating(x, bits, width, values, seed), n, seed)
    check(added(done.results).tolist(), x, bits, values)
    assert (done.rounds, done.sent) == (1, 8 * len(x))
    sizes = done.plan.sizes
    assert (sizes.mask, sizes.narrow, sizes.wide, sizes.table) == (len(x), len(x) * 2**width, 0, 0)


@pytest.mark.parametrize("masks", HARD_MASKS)
@pytest.mark.parametrize("n", [1, 2, 3])
def test_masks_at_the_edges(n: int, masks: tuple[bytes, ...]) -> None:
    """With the mask r known, floor has 1 added exactly where the low bits of x and r carry."""
    r = sum(int.from_bytes(masks[party % len(masks)], "little") for party in range(n))
    for bits, width in itertools.product((1, 20, 56), (2, 6)):
        x, values = inside(bits, width), values_of(bits, width)
        with streams(repeated(*masks)):
            seen = watch(tabulating(x, bits, width, values), n)
        places = [(a // 2**bits) + ((a % 2**bits + r % 2**bits) >> bits) for a in x]
        assert added(seen.results).tolist() == [
            values[place % 2**width] * 2**32 for place in places
        ]


def test_a_twin_finds_the_same_from_the_masks() -> None:
    x, values = inside(20, 5), values_of(0, 5)
    done = run(tabulating(x, 20, 5, values), 2)
    keys = [secrets(0).key(b"sharing", context=name) for name in (b"party-1", b"party-2")]
    assert done.plan.truncations == {"table": (0, (len(x),))}
    masks = [int(r) for r in done.plan.free(keys, 0)]
    places = [(a // 2**20) + ((a % 2**20 + r % 2**20) >> 20) for a, r in zip(x, masks, strict=True)]
    assert added(done.results).tolist() == [values[place % 32] * 2**32 for place in places]


@pytest.mark.parametrize("x", [0, 2**30, -(2**20)])
def test_what_is_opened_and_each_share_is_uniform(x: int) -> None:
    """8,192 words, 16 cells, level 1e-6: .1 in total variation is found with a chance above 1 -
    1e-9.
    """
    seen = watch(tabulating([x] * 8192, 30, 4, values_of(1, 4)), 2)
    (opened,) = seen.sessions[0].seen
    for place in (0, 30, 60):
        check_uniform((opened >> np.uint64(place)) & np.uint64(15), 16)
    for result in seen.results:
        for place in (32, 60):
            check_uniform((result.share >> np.uint64(place)) & np.uint64(15), 16)


def test_it_is_not_read_before_the_round_is_over() -> None:
    def program(s):
        found = s.tabulate(shared(s, [1]), 1, 2, lambda places: places.astype(np.uint32))
        _ = found.shared
        yield

    with pytest.raises(RuntimeError, match="yield first"):
        run(program, 2)


@pytest.mark.parametrize(("bits", "width"), [(55, 9), (62, 2), (0, 4)])
def test_tables_and_bits_that_do_not_fit_are_refused(bits: int, width: int) -> None:
    with pytest.raises(ValueError, match="63"):
        run(tabulating([0], bits, width, [0] * 2**width), 2)


def test_lines_use_every_bit_of_a_number() -> None:
    x, value, slope = list(range(64)), np.arange(8) * 100, np.arange(8) + 1

    def program(s):
        found = s.interpolate(shared(s, x), 4, 3, 0, (value, slope), "line")
        yield
        return found.shared

    assert plan_of(program).truncations == {"line": (0, (64,))}
    for number, got in zip(x, added(run(program, 3).results).tolist(), strict=True):
        down, up = number // 16, number // 16 + 1
        assert got in (
            value[down] + slope[down] * (number - 16 * down),
            value[up] + slope[up] * (number - 16 * up),
        )
