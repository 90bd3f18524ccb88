"""Products of masked numbers, with and without wraps, against Python's integers modulo 2^64."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from posse.privacy.sharing.fixed import MOST_BITS
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
    some,
    streams,
    watch,
    wrapped,
)

cuts = st.one_of(st.none(), st.integers(1, MOST_BITS))
"""Bits of a truncation, or a plain mask."""
CORNERS = [
    0,
    1,
    -1,
    2,
    LARGEST,
    -LARGEST,
    2**61,
    -(2**61),
    2**32 - 1,
    -(2**32),
    2**31 + 1,
    LARGEST // 3 * 2,
    2**40 - 1,
]


def masked(s, x, bits):
    return s.mask(x) if bits is None else s.truncate(x, bits)


def objects(numbers) -> np.ndarray:
    return np.array(numbers, dtype=object)


def multiplying(x, y, first, second, *, contract=False, seed=0):
    """Returns both operands as they are after masking or truncation, and their product."""

    def program(s):
        a, b = masked(s, shared(s, x, seed), first), masked(s, shared(s, y, seed + 1), second)
        yield
        return a.shared, b.shared, s.product(a, b, contract=contract)

    return program


def check(results, *, contract=False) -> None:
    a, b, product = (added(results, place) for place in range(3))
    wanted = a * b
    assert product.tolist() == wrapped(wanted.sum(axis=-1) if contract else wanted).tolist()


@some
@given(parties, seeds, cuts, cuts, st.lists(st.tuples(in_range, in_range), min_size=1, max_size=30))
@example(2, 0, 31, 31, list(itertools.product(CORNERS, CORNERS)))
@example(3, 0, None, None, list(itertools.product(CORNERS, CORNERS)))
@example(4, 0, 1, 31, list(itertools.product(CORNERS, CORNERS)))
@example(5, 0, None, 1, list(itertools.product(CORNERS, CORNERS)))
@example(1, 0, 26, None, list(itertools.product(CORNERS, CORNERS)))
def test_elementwise(
    n: int, seed: int, first: int | None, second: int | None, pairs: list[tuple[int, int]]
) -> None:
    x, y = [list(one) for one in zip(*pairs, strict=True)]
    done = run(multiplying(x, y, first, second, seed=seed), n, seed)
    check(done.results)
    wraps = (first is not None) + (second is not None)
    sizes = done.plan.sizes
    assert (done.rounds, done.sent) == (1, 16 * len(x))
    assert (sizes.wide, sizes.narrow) == ((1 + wraps) * len(x), 2 * wraps * len(x))


@pytest.mark.parametrize("n", PARTIES)
@pytest.mark.parametrize("first", [None, 1, 20, 31])
@pytest.mark.parametrize("second", [None, 1, 31])
@pytest.mark.parametrize("contract", [False, True])
def test_broadcasting_and_adding_up(
    n: int, first: int | None, second: int | None, contract: bool
) -> None:
    """Dealt: 8 bytes a product, and 4 for each wrap before the adding up."""
    random = np.random.default_rng(n)
    x = random.choice(objects(EDGES), (3, 1, 4))
    y = random.choice(objects(EDGES), (1, 5, 4))
    done = run(multiplying(x, y, first, second, contract=contract), n)
    assert added(done.results, 2).shape == ((3, 5) if contract else (3, 5, 4))
    check(done.results, contract=contract)
    sizes, wraps = done.plan.sizes, (first is not None, second is not None)
    assert sizes.wide == 15 * (1 if contract else 4) + wraps[0] * 12 + wraps[1] * 20
    assert sizes.narrow == 60 * sum(wraps) + wraps[0] * 12 + wraps[1] * 20
    assert done.plan.rounds[0].shares == 8 * (12 + 20)


@some
@given(parties, seeds, cuts, st.lists(in_range, min_size=1, max_size=40))
@example(2, 3, None, EDGES)
@example(3, 3, 1, EDGES)
@example(2, 3, 31, EDGES)
@example(5, 3, 16, EDGES)
def test_squares_deal_one_wrap(n: int, seed: int, bits: int | None, x: list[int]) -> None:
    def program(s):
        a = masked(s, shared(s, x, seed), bits)
        yield
        return a.shared, s.product(a, a), s.product(a, a[..., :])

    done = run(program, n, seed)
    wanted = wrapped([a * a for a in added(done.results, 0)]).tolist()
    assert added(done.results, 1).tolist() == wanted
    assert added(done.results, 2).tolist() == wanted
    cut = 0 if bits is None else 1
    assert done.plan.sizes.narrow == cut * (1 + 1 + 2) * len(x)


@pytest.mark.parametrize("contract", [False, True])
@pytest.mark.parametrize("n", PARTIES)
def test_squares_of_rows(n: int, contract: bool) -> None:
    x = np.array(EDGES[: len(EDGES) // 4 * 4], dtype=object).reshape(-1, 4)

    def program(s):
        a = s.truncate(shared(s, x), 9)
        yield
        return a.shared, a.shared, s.product(a, a, contract=contract)

    check(run(program, n).results, contract=contract)


@some
@given(parties, seeds, cuts, cuts, in_range, in_range)
@example(2, 0, 31, 31, LARGEST, -LARGEST)
@example(2, 0, 5, None, -(2**63), 2**63)
def test_operands_that_were_negated_added_to_shifted_or_indexed(
    n: int, seed: int, first: int | None, second: int | None, p: int, q: int
) -> None:
    x, y = EDGES[seed % 7 :: 5], EDGES[seed % 3 :: 4]
    y = y[: len(x)]
    x = x[: len(y)]

    def program(s):
        a, b = masked(s, shared(s, x, seed), first), masked(s, shared(s, y, seed), second)
        yield
        return (
            a.shared,
            b.shared,
            s.product((-a + p)[..., ::-1], (-(b << 7) + q)),
            s.product(-a, -a),
        )

    done = run(program, n, seed)
    a, b = added(done.results, 0), added(done.results, 1)
    assert added(done.results, 2).tolist() == wrapped((p - a[::-1]) * (q - b * 128)).tolist()
    assert added(done.results, 3).tolist() == wrapped(a * a).tolist()


@pytest.mark.parametrize("masks", HARD_MASKS)
@pytest.mark.parametrize("n", [1, 2, 3])
def test_masks_at_the_edges(n: int, masks: tuple[bytes, ...]) -> None:
    x, y = zip(*itertools.product(CORNERS, CORNERS), strict=True)
    for first, second in itertools.product((None, 1, 31), repeat=2):
        with streams(repeated(*masks)):
            check(watch(multiplying(x, y, first, second), n).results)


@some
@given(st.integers(2, 5), seeds, st.integers(8, 31), st.integers(2, 6))
@example(2, 0, 31, 6)
@example(3, 0, 30, 6)
def test_a_chain_of_products_of_truncated_numbers(
    n: int, seed: int, bits: int, length: int
) -> None:
    """Every truncation is floor or one more of the exact product before it; so the whole is within
    a unit a step.
    """
    random = np.random.default_rng(seed)
    one = 2**bits
    x = [[int(a) for a in random.integers(-one, one + 1, 20)] for _ in range(length)]
    x[0][:4] = [one, -one, one, 0]
    x[1][:4] = [one, one, -one, one]

    def program(s):
        a = s.truncate(shared(s, x[0], seed) << bits, bits)
        yield
        made = [a.shared]
        for each in x[1:]:
            b = s.mask(shared(s, each, seed))
            yield
            a = s.truncate(s.product(a, b), bits)
            yield
            made.append(a.shared)
        return made

    done = run(program, n, seed)
    assert added(done.results, 0).tolist() == x[0]
    for step, each in enumerate(x[1:]):
        exact = added(done.results, step) * objects(each)
        for product, cut in zip(exact, added(done.results, step + 1), strict=True):
            assert cut in (product >> bits, (product >> bits) + (product % one > 0))
    assert done.rounds == 1 + 2 * (length - 1)


@some
@given(parties, seeds, st.integers(1, 31), st.integers(1, 31))
def test_sums_of_masked_numbers_multiply(n: int, seed: int, bits: int, other: int) -> None:
    """A sum of plain masks times a truncated number, added up: what a matrix product does."""
    x = np.array(EDGES[:24], dtype=object).reshape(2, 3, 4)
    y = np.array(EDGES[-8:], dtype=object).reshape(2, 4)

    def program(s):
        a, b = s.mask(shared(s, x, seed)), s.truncate(shared(s, y, seed), bits)
        yield
        return a.shared, b.shared, s.product(a.sum(-2), b, contract=True)

    done = run(program, n, seed)
    a, b = added(done.results, 0), added(done.results, 1)
    assert added(done.results, 2).tolist() == wrapped((a.sum(axis=-2) * b).sum(axis=-1)).tolist()


@pytest.mark.parametrize("n", [1, 2])
def test_operands_have_as_many_axes(n: int) -> None:
    """Three passes side by side and three rows would be taken for one another by the dealer."""
    x, y = (
        np.array(EDGES[:12], dtype=object).reshape(3, 1, 4),
        np.array(EDGES[:20], dtype=object).reshape(5, 4),
    )
    for left, right in ((x, y), (y, x)):
        with pytest.raises(AssertionError):
            run(multiplying(left, right, None, None), n)
