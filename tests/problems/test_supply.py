"""Deliveries: tables are the binomial law, draws are functions of their address, records are
replayed in order.

Statistical tests have a false-alarm rate of .001 each; their seeds are fixed.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import random
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posse.core.random import DELIVERY, PARTIAL, uniform, words32
from posse.problems.markets import market as module
from posse.problems.markets.market import (
    LARGEST_TABLE,
    Supply,
    epoch_at,
    from_word,
    good_units,
    make_market,
    recorded,
    untabled,
)
from tests.kit.binomials import distance, moved
from tests.kit.statistics import SIGMAS

WORDS = 1 << 32
SEED = np.uint64(11)
DRAWS = 20_000
QUALITIES = [0.5, 1 / 3, 0.02, 0.97, 1e-9, 1 - 1e-9, 0.0, 1.0]
UNITS = [1, 2, 50, LARGEST_TABLE]


def one(q: float, capacity: int) -> Supply:
    """A market of one producer (alpha 0: any quality will do)."""
    return make_market([q], [[0.0]], [[capacity]], alpha=0.0).supply


def exact_pmf(units: int, q: float) -> list[Fraction]:
    """Binomial probabilities to 2^-64: whole numbers throughout, for the denominator of a float is
    a power of 2.
    """
    good = Fraction(q)
    bits, bad = (good.denominator - 1).bit_length(), good.denominator - good.numerator
    powers = [[1], [1]]
    for _ in range(units):
        powers[0].append(powers[0][-1] * good.numerator)
        powers[1].append(powers[1][-1] * bad)
    numerators = [
        math.comb(units, x) * powers[0][x] * powers[1][units - x] for x in range(units + 1)
    ]
    return [Fraction((numerator << 64) >> (bits * units), 1 << 64) for numerator in numerators]


def cells(supply: Supply, units: int) -> list[tuple[int, int, int, int]]:
    """First word, first word that gives the other value, first word after, and other value of each
    cell.
    """
    n, slot = units + 1, int(supply.slots[0, 0, units])
    keep, other = (array[slot : slot + n].tolist() for array in (supply.keep, supply.other))
    # Word w is in cell w n // 2^32 and holds w n mod 2^32 against the threshold.
    return [
        (-(-c * WORDS // n), -(-(c * WORDS + keep[c]) // n), -(-(c + 1) * WORDS // n), other[c])
        for c in range(n)
    ]


@pytest.mark.parametrize("units", UNITS)
@pytest.mark.parametrize("q", QUALITIES)
def test_the_table_is_the_binomial(q: float, units: int) -> None:
    """Thresholds to 2^-31; the law of the words themselves, counted over all 2^32, to (units + 2)
    2^-32.
    """
    supply, n = one(q, units), units + 1
    stated, counted = [Fraction(0)] * n, [0] * n
    slot = int(supply.slots[0, 0, units])
    for c, (first, middle, after, other) in enumerate(cells(supply, units)):
        share = Fraction(int(supply.keep[slot + c]), WORDS)
        stated[c] += share / n
        stated[other] += (1 - share) / n
        counted[c] += middle - first
        counted[other] += after - middle
    wanted = exact_pmf(units, q)
    assert sum(counted) == WORDS
    assert max(abs(a - b) for a, b in zip(stated, wanted, strict=True)) <= Fraction(1, WORDS // 2)
    assert max(
        abs(Fraction(a, WORDS) - b) for a, b in zip(counted, wanted, strict=True)
    ) <= Fraction(units + 2, WORDS)


@pytest.mark.parametrize(("q", "units"), [(0.4, 1), (0.4, 50), (0.9, 7), (0.03, LARGEST_TABLE)])
def test_from_word_reads_the_table_as_counted(q: float, units: int) -> None:
    supply = one(q, units)
    for c, (first, middle, after, other) in enumerate(cells(supply, units)):
        for word in {first, middle - 1, middle, after - 1}:
            if first <= word < after:
                expected = c if word < middle else other
                assert from_word(supply, 0, 0, units, np.uint64(word)) == expected
                assert from_word.py_func(supply, 0, 0, units, np.uint64(word)) == expected
    grid = [
        from_word(supply, 0, 0, units, np.uint64(word)) for word in range(0, WORDS, WORDS // 5000)
    ]
    assert min(grid) >= 0
    assert max(grid) <= units
    # A grid of 5000 words meets every cell about equally often: the mean is off by less than a
    # cell's share of it.
    assert np.mean(grid) == pytest.approx(units * q, abs=(units + 1) ** 2 / 5000)


def test_a_table_for_every_full_capacity_and_no_other() -> None:
    market = make_market([0.5, 0.6], [[0.1, 0.1]] * 2, [[3, 0], [5, LARGEST_TABLE + 1]], alpha=0.0)
    found = {
        (i, units)
        for i, units in itertools.product(range(2), range(LARGEST_TABLE + 3))
        if from_word(market.supply, 0, i, units, np.uint64(0)) >= 0
    }
    assert found == {(0, 3), (0, 5)}


def test_compiled_tables_are_those_of_the_source() -> None:
    for q, units in itertools.product(QUALITIES, UNITS):
        weights, source = np.empty(units + 1), np.empty(units + 1)
        module._weights(units, q, weights)
        module._weights.py_func(units, q, source)
        assert weights.tolist() == source.tolist()
        made = [(np.zeros(units + 1, np.uint32), np.zeros(units + 1, np.int32)) for _ in range(2)]
        module._fill(weights, *made[0])
        module._fill.py_func(weights, *made[1])
        assert all((a == b).all() for a, b in zip(*made, strict=True))


def drawn(supply: Supply, units: int, producer: int = 0, draws: int = DRAWS) -> np.ndarray:
    return np.array(
        [good_units(supply, SEED, 0, producer, t, 0, units) for t in range(1, draws + 1)]
    )


@pytest.mark.parametrize("q", [0.05, 0.37, 0.9])
def test_tabled_and_untabled_deliveries_have_the_same_law(q: float) -> None:
    """Power above .99 against a mean off by .08 sd, shown by a quality moved so far."""
    tabled, partial = one(q, 30), one(q, 31)
    assert (
        from_word(tabled, 0, 0, 30, np.uint64(0)) >= 0 > from_word(partial, 0, 0, 30, np.uint64(0))
    )
    for supply in (tabled, partial):
        found = drawn(supply, 30)
        statistic, limit = distance(found, 30, q)
        assert statistic < limit
        statistic, limit = distance(found, 30, moved(30, q))
        assert statistic > limit


@pytest.mark.parametrize("units", [LARGEST_TABLE + 1, 1_000_000])
def test_capacities_above_the_table_limit(units: int) -> None:
    supply = one(0.37, units)
    assert supply.keep.size == 0
    statistic, limit = distance(drawn(supply, units), units, 0.37)
    assert statistic < limit


@pytest.mark.parametrize(("q", "good"), [(0.0, 0.0), (1.0, 1.0)])
@pytest.mark.parametrize("capacity", [1, 40, 41, LARGEST_TABLE, LARGEST_TABLE + 1, 10**9])
def test_all_units_of_a_sure_producer_are_alike(q: float, good: float, capacity: int) -> None:
    supply = one(q, capacity)
    for units in {capacity, max(1, capacity // 2)}:
        assert set(drawn(supply, units, draws=200).tolist()) == {good * units}
    assert good_units(supply, SEED, 0, 0, 1, 0, 0) == 0.0


def test_too_many_cells_and_there_are_no_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    assert one(0.4, 50).keep.size == 51
    for most in (
        50,
        51,
    ):  # the tables; and with them their index, which has a place for 0 units too
        monkeypatch.setattr(module, "MOST_CELLS", most)
        assert (one(0.4, 50).keep.size == 51) == (most == 51)
    monkeypatch.setattr(module, "MOST_CELLS", 50)
    statistic, limit = distance(drawn(one(0.4, 50), 50), 50, 0.4)
    assert statistic < limit


def test_a_large_index_counts_as_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_CELLS", 100)
    few = make_market([0.5] * 3, [[0.0] * 3], [[50, 1, 1]], alpha=0.0).supply
    assert few.keep.size == 0
    assert few.slots.shape == (1, 3, 1)


def test_qualities_change_with_the_epochs() -> None:
    quality = [[0.0, 1.0], [1.0, 0.5], [0.0, 1.0]]
    market = make_market(quality, [[0.1, 0.1]], [[20, 20]], alpha=0.4, every=10)
    assert [epoch_at(market.supply, t) for t in (1, 10, 11, 20, 21, 30, 31, 10**6)] == [
        0,
        0,
        1,
        1,
        2,
        2,
        2,
        2,
    ]
    for units in (20, 13):  # with a table and without
        assert [market.good(3, 0, 0, t, 0, units) for t in (1, 10, 11, 20, 21, 99)] == [
            0,
            0,
            units,
            units,
            0,
            0,
        ]
    middle = [market.good(seed, 0, 1, 15, 0, 20) for seed in range(200)]
    # Mean 10, sd of the mean .158.
    assert np.mean(middle) == pytest.approx(10, abs=SIGMAS * 0.159)
    forever = make_market([0.3], [[0.1]], [[20]], alpha=0.1)
    assert epoch_at(forever.supply, 2**31) == 0


MARKETS = {
    "drawn": make_market(
        [0.3, 0.5, 0.6, 0.8, 0.7], [[0.1] * 5] * 3, [[30, 40, 50, 2000, 20]] * 3, alpha=0.1
    ),
    "replayed": make_market(
        None,
        [[0.1] * 5] * 3,
        [[30] * 5] * 3,
        alpha=0.1,
        records=[[0, 1, 0.25], [1], [0.1, 0.9], [0.5] * 7 + [0] * 10, [1, 0] * 20],
    ),
}


@pytest.mark.parametrize("kind", MARKETS)
def test_a_delivery_is_a_function_of_its_address(kind: str) -> None:
    market = MARKETS[kind]
    addresses = [
        (seed, j, i, t, 3 * t, 30)
        for seed in (0, 1, 2**62)
        for j in (0, 1)
        for i in range(4)
        for t in (1, 9)
    ]
    first = {address: market.good(*address) for address in addresses}
    random.Random(1).shuffle(addresses)
    assert all(market.good(*address) == first[address] for address in addresses)
    for part in range(3):
        moved_to = [
            tuple(value + (i == part) for i, value in enumerate(address)) for address in addresses
        ]
        assert any(
            market.good(*at) != first[was] for at, was in zip(moved_to, addresses, strict=True)
        )


@settings(deadline=None, max_examples=150)
@given(
    st.sampled_from(sorted(MARKETS)),
    st.integers(0, 2**63 - 1),
    st.integers(0, 2),
    st.integers(0, 4),
    st.integers(1, 2**32 - 1),
    st.integers(0, 10**6),
    st.integers(0, 2000),
)
def test_the_source_delivers_the_same(
    kind: str, seed: int, j: int, i: int, t: int, before: int, units: int
) -> None:
    supply = MARKETS[kind].supply
    address = (supply, np.uint64(seed), j, i, t, before, units)
    good = good_units(*address)
    assert good == good_units.py_func(*address)
    assert 0.0 <= good <= units
    if from_word(supply, 0, i, units, np.uint64(0)) < 0 < units:
        assert good == untabled(*address) == untabled.py_func(*address)


def test_a_tabled_delivery_is_the_word_of_its_address() -> None:
    """Five producers need two counters: the first, third and fifth producer share one, the others
    the other.
    """
    market = make_market([0.5] * 5, [[0.1] * 5], [[30] * 5], alpha=0.1)
    for t, i in itertools.product((1, 2, 77), range(5)):
        word = words32(SEED, DELIVERY, 0, t, i % 2)[i // 2]
        assert market.good(int(SEED), 0, i, t, 0, 30) == from_word(
            market.supply, 0, i, 30, np.uint64(word)
        )


def test_neighbours_are_independent() -> None:
    """Rounds, producers of one counter and of two, agents. Power above .99 against a correlation of
    .05.
    """
    market = make_market([0.5] * 5, [[0.1] * 5] * 2, [[30] * 4 + [2000]] * 2, alpha=0.1)

    def row(j: int, i: int, units: int) -> np.ndarray:
        supply = market.supply
        return np.array([good_units(supply, SEED, j, i, t, 0, units) for t in range(1, DRAWS + 1)])

    first = row(0, 0, 30)
    others = [row(0, 1, 30), row(0, 2, 30), row(1, 0, 30), row(0, 4, 2000), row(0, 0, 29)]
    assert all(abs(np.corrcoef(first, other)[0, 1]) * math.sqrt(DRAWS) < SIGMAS for other in others)
    for same in (first, others[3], others[4]):
        assert abs(np.corrcoef(same[:-1], same[1:])[0, 1]) * math.sqrt(DRAWS) < SIGMAS


def replayed_by_hand(
    values: list[float], seed: int, j: int, i: int, before: int, units: int
) -> float:
    begin = int(uniform(np.uint64(seed), PARTIAL, j, 0, i) * len(values)) + before
    return sum(values[(begin + unit) % len(values)] for unit in range(units))


records = st.lists(
    st.lists(st.integers(0, 2**24).map(lambda n: n / 2**24), min_size=1, max_size=8),
    min_size=1,
    max_size=4,
)


@settings(deadline=None, max_examples=150)
@given(
    records,
    st.integers(0, 2**63 - 1),
    st.integers(0, 20),
    st.integers(0, 100),
    st.integers(1, 60),
    st.data(),
)
def test_records_are_replayed_in_order_and_begin_anew(
    values: list[list[float]], seed: int, agent: int, before: int, units: int, data: st.DataObject
) -> None:
    """Exactly: sums of multiples of 2^-24. Sixty units go round a table of eight more than seven
    times.
    """
    i = data.draw(st.integers(0, len(values) - 1))
    market = make_market(
        None, [[0.0] * len(values)], [[99] * len(values)], alpha=0.0, records=values
    )
    found = market.good(seed, agent, i, 5, before, units)
    assert found == replayed_by_hand(values[i], seed, agent, i, before, units)
    # One purchase, or two that follow each other.
    part = data.draw(st.integers(0, units))
    split = market.good(seed, agent, i, 1, before, part) + market.good(
        seed, agent, i, 2, before + part, units - part
    )
    assert split == found


def test_agents_begin_at_places_of_their_own() -> None:
    """A table of 100, one good unit at its end: where it is found is uniform over 400 agents'
    places (mean 49.5).
    """
    market = make_market(None, [[0.0]], [[9]], alpha=0.0, records=[[0.0] * 99 + [1.0]])
    places = [
        next(n for n in range(100) if market.good(4, agent, 0, 1, n, 1)) for agent in range(400)
    ]
    assert len(set(places)) > 80
    assert np.mean(places) == pytest.approx(49.5, abs=SIGMAS * 28.9 / 20)


def test_records_are_rounded_to_units_and_their_mean_is_the_quality() -> None:
    supply = recorded([np.array([2 / 3, 1.0, 0.0]), np.array([2.0**-26])])
    assert supply.reached.tolist() == [
        0.0,
        11184811 / 2**24,
        1 + 11184811 / 2**24,
        1 + 11184811 / 2**24,
        0.0,
        0.0,
    ]
    assert supply.quality.tolist() == [[(1 + 11184811 / 2**24) / 3, 0.0]]


def test_deliveries_are_those_of_every_other_machine() -> None:
    """A digest over tables and deliveries: a change of one bit would part old records from new
    ones.
    """
    digest = hashlib.sha256()
    for market in MARKETS.values():
        digest.update(
            market.supply.keep.astype("<u4").tobytes() + market.supply.other.astype("<i4").tobytes()
        )
        found = [
            market.good(seed, j, i, t, 7 * t, units)
            for seed, j, i, t in itertools.product((1, 2**62 + 3), range(3), range(5), range(1, 9))
            for units in (1, 20, 30, 50, 1999)
        ]
        digest.update(np.array(found, "<f8").tobytes())
    assert digest.hexdigest() == "caa266f5b5e6767558d145f7611bc9d3ef048d6f77333ba0dac3b5b6f5314cf1"
