from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import hypergeom

from posse.core.errors import ConfigError
from posse.privacy.aggregation.terms import complete_plan, neighbours, plan


@pytest.mark.parametrize(
    ("share", "k", "t", "leak", "fail"), [(0.1, 45, 26, -42.0, -20.5), (0.2, 98, 54, -41.7, -20.4)]
)
def test_vectors_of_a_thousand_clients(share, k, t, leak, fail):
    found = plan(1000, corrupt=share, dropout=share)
    assert (found.degree, found.threshold) == (k, t)
    assert (round(found.leak, 1), round(found.fail, 1)) == (leak, fail)


@pytest.mark.parametrize(("n", "share"), [(1000, 0.1), (1000, 0.2), (300, 0.15)])
def test_no_smaller_degree_and_no_smaller_threshold_will_do(n, share):
    """Against scipy's tails: below k no threshold keeps both bounds, and below t the corrupt
    reconstruct too often.
    """
    found, bad = plan(n, corrupt=share, dropout=share), round(share * n)

    def leaks(k: int, t: int) -> float:
        return n * hypergeom.sf(t - 1, n - 1, bad, k)

    def fails(k: int, t: int) -> float:
        return n * hypergeom.sf(k - t, n - 1, bad, k)

    assert leaks(found.degree, found.threshold) <= 2.0**-40
    assert math.log2(fails(found.degree, found.threshold)) == pytest.approx(found.fail, abs=1e-6)
    assert leaks(found.degree, found.threshold - 1) > 2.0**-40
    for k in range(found.degree - 1, 10, -1):
        assert all(leaks(k, t) > 2.0**-40 or fails(k, t) > 2.0**-20 for t in range(1, k + 1)), k


def test_the_union_is_over_all_clients():
    """Over the 800 honest ones alone, 97 neighbours would do at .2 and .2: the vector tells the two
    apart.
    """
    assert 800 * hypergeom.sf(52, 999, 200, 97) < 2.0**-40 < 1000 * hypergeom.sf(52, 999, 200, 97)


def test_complete_up_to_128_clients():
    found = plan(128, corrupt=0.1, dropout=0.1)
    assert (found.degree, found.threshold, found.corrupt, found.dropouts) == (127, 116, 13, 12)
    assert found.complete
    assert found.quorum == (128 + 13) // 2 + 1
    assert not plan(129, corrupt=0.1, dropout=0.1).complete


def test_complete_where_no_sparse_graph_is_safe():
    found = plan(130, corrupt=0.5, dropout=0.485)
    assert found.complete
    assert found.honest_survivors == 2
    assert found.quorum == 0


def test_a_quorum_makes_the_set_unique_or_is_not_claimed():
    for n in range(3, 30):
        for c in range(n):
            for d in range(n - c - 1):
                found = complete_plan(n, corrupt=c, dropouts=d)
                assert found.threshold > c
                assert found.honest_survivors >= 2
                if found.quorum:
                    # two sets: each honest client signs one of them, each corrupt one both
                    assert 2 * found.quorum > (n - c) + 2 * c
                    assert found.quorum <= found.survivors
                else:
                    assert 2 * found.survivors <= n + c + 1


def test_sums_of_one_honest_client_are_refused():
    with pytest.raises(
        ConfigError, match="at least 2 honest clients: 5 clients - 2 dropouts - 2 corrupt = 1"
    ):
        complete_plan(5, corrupt=2, dropouts=2)
    with pytest.raises(ConfigError, match="corrupt"):
        plan(1000, corrupt=1.5, dropout=0.1)


def test_odd_numbers_of_clients_have_even_degrees():
    for n in (201, 333, 1001):
        assert plan(n, corrupt=0.1, dropout=0.1).degree % 2 == 0


@pytest.mark.parametrize(("n", "k"), [(10, 4), (10, 5), (11, 4), (200, 33), (7, 6), (12, 1)])
def test_graphs_are_regular_and_symmetric(n, k):
    rows = neighbours(n, k, b"7" * 32)
    for i, row in enumerate(rows):
        assert len(set(row)) == len(row) == k
        assert i not in row
        assert all(i in rows[j] for j in row)


@pytest.mark.parametrize(("n", "k"), [(9, 3), (5, 5), (5, 0)])
def test_graphs_that_do_not_exist_are_refused(n, k):
    with pytest.raises(ConfigError, match="cannot have"):
        neighbours(n, k, bytes(32))


def test_the_graph_is_of_the_seed():
    assert neighbours(200, 20, b"a" * 32) == neighbours(200, 20, b"a" * 32)
    assert neighbours(200, 20, b"a" * 32) != neighbours(200, 20, b"b" * 32)


def test_neighbours_are_a_uniform_set():
    """How often 0 and 1 are neighbours in 4,000 graphs of degree 6 over 20: 6/19, within five
    standard errors.
    """
    met = np.mean([1 in neighbours(20, 6, at.to_bytes(32, "big"))[0] for at in range(4000)])
    assert abs(met - 6 / 19) < 5 * math.sqrt(6 / 19 * 13 / 19 / 4000)


def test_rounds_fail_no_more_often_than_printed():
    """A plan that may fail with 2^-4 fails with at most that over 2,000 graphs; and the bound is
    not empty.
    """
    weak = plan(200, corrupt=0.05, dropout=0.2, security=10, correctness=4)
    generator, failed, tries = np.random.default_rng(5), 0, 2000
    for at in range(tries):
        here = np.ones(200, np.int64)
        here[generator.choice(200, weak.dropouts, replace=False)] = 0
        rows = np.array(neighbours(200, weak.degree, at.to_bytes(32, "big")))
        failed += bool((here[rows].sum(1) < weak.threshold).any())
    printed = 2**weak.fail
    assert printed <= 2**-4
    assert printed / 4 < failed / tries < printed + 5 * math.sqrt(printed / tries)


def test_the_second_term_of_a_leak_bounds_falling_apart():
    """Exhibit it where it can be counted: 12 clients of degree 4, 6 removed, all 924 choices."""
    from itertools import combinations

    rows = neighbours(12, 4, bytes(32))
    apart = 0
    for removed in combinations(range(12), 6):
        left = set(range(12)) - set(removed)
        seen, todo = set(), [min(left)]
        while todo:
            at = todo.pop()
            if at not in seen:
                seen.add(at)
                todo.extend(set(rows[at]) & left)
        apart += seen != left
    bound = Fraction(12 * 12, 2) * Fraction(math.comb(6, 4), math.comb(12, 4))
    assert 0 < Fraction(apart, 924) <= bound


def test_vector_where_falling_apart_decides():
    """4 corrupt and 120 lost of 200: no client has five corrupt neighbours, so all of the leak is
    the second term.
    """
    found = plan(200, corrupt=0.02, dropout=0.6, security=20, correctness=4)

    def apart(k: int) -> float:
        return math.log2(
            Fraction(200**2, 2) * Fraction(math.comb(124, k // 2 * 2), math.comb(200, k // 2 * 2))
        )

    assert (found.corrupt, found.dropouts, found.degree, found.threshold) == (4, 120, 44, 5)
    assert found.leak == pytest.approx(apart(44)) == pytest.approx(-21.26, abs=0.005)
    assert apart(43) > -20
