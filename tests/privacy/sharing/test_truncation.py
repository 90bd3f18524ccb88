"""Truncation by dealt pairs: floor or one more, right on average, and no wrap anywhere below
2^62.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from posse.privacy.sharing.fixed import MOST_BITS
from posse.privacy.sharing.session import Session
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
    secrets,
    seeds,
    shared,
    signed,
    some,
    streams,
    watch,
)

ALL_BITS = range(1, MOST_BITS + 1)


def truncating(x: list[int], bits: int, seed: int = 0):
    def program(s):
        cut = s.truncate(shared(s, x, seed), bits, "cut")
        yield
        return cut.shared

    return program


def check_cut(found: list[int], x: list[int], bits: int) -> None:
    """Floor where it is exact, floor or one more elsewhere."""
    for number, cut in zip(x, found, strict=True):
        floor, rest = number // 2**bits, number % 2**bits
        assert cut in (floor, floor + (rest > 0)), (number, bits, cut)


@pytest.mark.parametrize("bits", ALL_BITS)
@pytest.mark.parametrize("n", PARTIES)
def test_every_edge_with_every_number_of_bits(n: int, bits: int) -> None:
    done = run(truncating(EDGES, bits), n, seed=bits)
    check_cut(added(done.results).tolist(), EDGES, bits)
    assert (done.rounds, done.sent) == (1, 8 * len(EDGES))
    sizes = done.plan.sizes
    assert (sizes.mask, sizes.wide, sizes.narrow, sizes.table) == (
        len(EDGES),
        len(EDGES),
        len(EDGES),
        0,
    )


@some
@given(parties, seeds, st.sampled_from(ALL_BITS), st.lists(in_range, min_size=1, max_size=60))
@example(2, 0, 31, [LARGEST, -LARGEST, 0, 1, -1] * 30)
@example(5, 1, 1, [LARGEST, -LARGEST, 0, 1, -1] * 30)
def test_the_result_is_floor_or_one_more(n: int, seed: int, bits: int, x: list[int]) -> None:
    check_cut(added(run(truncating(x, bits, seed), n, seed).results).tolist(), x, bits)


@pytest.mark.parametrize("x", [LARGEST, -LARGEST, LARGEST // 3, 1 - 2**61])
def test_nothing_ever_wraps(x: int) -> None:
    """200,000 truncations each; share-wise truncation would wrap in |x| 2^-64 of them, one in
    twelve at least.
    """
    done = run(truncating([x] * 200_000, 26), 2, seed=5)
    shares = [result.share for result in done.results]
    total = (shares[0] + shares[1]).view(np.int64) - x // 2**26
    assert set(np.unique(total).tolist()) <= {0, 1}


@pytest.mark.parametrize("masks", HARD_MASKS)
@pytest.mark.parametrize("n", [1, 2, 3])
def test_masks_at_the_edges(n: int, masks: tuple[bytes, ...]) -> None:
    """With the mask r known, floor has 1 added exactly where the low bits of x and r carry."""
    r = sum(int.from_bytes(masks[party % len(masks)], "little") for party in range(n))
    for bits in (1, 2, 13, 30, 31):
        with streams(repeated(*masks)):
            seen = watch(truncating(EDGES, bits), n)
        wanted = [(x // 2**bits) + ((x % 2**bits + r % 2**bits) >> bits) for x in EDGES]
        assert added(seen.results).tolist() == wanted
        assert [int(c) for c in seen.sessions[0].seen[0]] == [
            (x + 2**62 + r) % 2**64 for x in EDGES
        ]


@some
@given(parties, seeds, st.sampled_from(ALL_BITS))
def test_a_twin_finds_the_same_from_the_masks(n: int, seed: int, bits: int) -> None:
    """`Plan.truncations` says where the masks of a label lie, and `Plan.free` what they are, from
    all seeds.
    """
    x = EDGES[seed % 5 :: 3]

    def program(s):
        before = s.mask(shared(s, [1, 2, 3]))
        yield
        done = yield from truncating(x, bits, seed)(s)
        unnamed = s.truncate(before.shared, 1)
        yield
        return done, unnamed.shared

    done = run(program, n, seed)
    names = [f"party-{number}" for number in range(1, n + 1)]
    keys = [secrets(seed).key(b"sharing", context=name.encode()) for name in names]
    at, shape = done.plan.truncations["cut"]
    assert (at, shape, list(done.plan.truncations)) == (3, (len(x),), ["cut"])
    masks = [int(r) for r in done.plan.free(keys, 0)[at : at + len(x)]]
    wanted = [
        (a // 2**bits) + ((a % 2**bits + r % 2**bits) >> bits)
        for a, r in zip(x, masks, strict=True)
    ]
    assert added(done.results, 0).tolist() == wanted


COUNT = 100_000


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(
    ("bits", "rest"), [(1, 1), (3, 1), (8, 200), (20, 2**19), (31, 2**31 - 2**28), (26, 1)]
)
def test_the_result_is_right_on_average(sign: int, bits: int, rest: int) -> None:
    """Ups are binomial with the fraction that is cut off.

    5 standard deviations: one seed in 1.7 million fails. A rate that is off by .02 is found with a
    chance above 1 - 1e-13: that is 12 standard deviations at least, of which 5 are allowed.
    """
    x = sign * (12_345 * 2**bits + rest)
    fraction = (x % 2**bits) / 2**bits
    done = run(truncating([x] * COUNT, bits), 2, seed=bits)
    ups = int(signed(done.results[0].share + done.results[1].share).sum()) - (x >> bits) * COUNT
    assert abs(ups - fraction * COUNT) <= 5 * math.sqrt(COUNT * fraction * (1 - fraction)) + 1e-9


@pytest.mark.parametrize("bits", [0, -1, 32, 64])
def test_other_numbers_of_bits_are_refused(bits: int) -> None:
    with pytest.raises(ValueError, match="1 to 31 bits"):
        run(truncating([1], bits), 2)


@some
@given(parties, seeds, st.sampled_from(ALL_BITS), st.sampled_from(ALL_BITS))
def test_what_was_truncated_is_truncated_again(n: int, seed: int, first: int, second: int) -> None:
    def program(s: Session):
        one = s.truncate(shared(s, EDGES, seed), first)
        yield
        two = s.truncate(one.shared, second)
        yield
        return one.shared, two.shared

    done = run(program, n, seed)
    one, two = added(done.results, 0).tolist(), added(done.results, 1).tolist()
    check_cut(one, EDGES, first)
    check_cut(two, one, second)
    assert (done.rounds, done.sent) == (2, 16 * len(EDGES))
