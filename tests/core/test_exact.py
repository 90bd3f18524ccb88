"""Exact mathematics: accurate, the same bits on every path, and the same values as ever.

Distribution tests have a false-alarm rate of .001 each; their seeds are fixed.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posse.core.exact import beta, binomial, exp, gumbel, log, normals
from posse.core.random import OWN, PARTIAL, uniform
from tests.kit.binomials import distance, moved
from tests.kit.statistics import KS_LIMIT, SIGMAS, ks

KEY = np.uint64(2024)
positive = st.floats(min_value=2.3e-308, max_value=1.7e308, allow_nan=False)
exponents = st.floats(min_value=-800.0, max_value=800.0, allow_nan=False)
units = st.integers(0, 2**53 - 1).map(lambda n: n / 2**53)


def log_array(x):
    return np.array([log(value) for value in x])


def exp_array(x):
    return np.array([exp(value) for value in x])


def bits(x: float) -> bytes:
    return struct.pack("<d", x)


def ulps(ours: np.ndarray, exact: np.ndarray) -> float:
    return float((np.abs(ours - exact) / np.spacing(np.abs(exact))).max())


def test_log_is_within_two_units_in_the_last_place() -> None:
    rng = np.random.default_rng(1)
    x = np.concatenate([4.0 * rng.random(50_000) + 1e-9, 2.0 ** rng.uniform(-1000, 1000, 50_000)])
    assert ulps(log_array(x), np.array([math.log(value) for value in x])) <= 2.0


def test_log_is_accurate_close_to_one_where_it_cancels() -> None:
    x = np.concatenate([1.0 + 2.0 ** -np.arange(1, 52.0), 1.0 - 2.0 ** -np.arange(1, 53.0)])
    assert ulps(log_array(x), np.array([math.log(value) for value in x])) <= 2.0
    assert log(1.0) == 0.0


def test_exp_is_within_two_units_in_the_last_place() -> None:
    rng = np.random.default_rng(2)
    x = np.concatenate([rng.uniform(-700, 700, 50_000), rng.uniform(-2, 2, 50_000)])
    assert ulps(exp_array(x), np.array([math.exp(value) for value in x])) <= 2.0
    assert exp(0.0) == 1.0


def test_exp_is_clipped_where_floats_end() -> None:
    assert exp(1e9) == exp(700.0) == exp(701.0)
    assert exp(-1e9) == exp(-700.0) > 0.0
    assert exp(math.inf) == exp(700.0)


@settings(deadline=None, max_examples=300)
@given(positive)
def test_log_has_the_same_bits_compiled_in_python_and_on_arrays(x: float) -> None:
    assert bits(log(x)) == bits(log.py_func(x)) == bits(log_array(np.array([x]))[0])


@settings(deadline=None, max_examples=300)
@given(exponents)
def test_exp_has_the_same_bits_compiled_in_python_and_on_arrays(x: float) -> None:
    assert bits(exp(x)) == bits(exp.py_func(x)) == bits(exp_array(np.array([x]))[0])


@settings(deadline=None, max_examples=200)
@given(units)
def test_gumbel_has_the_same_bits_in_python_and_is_its_quantile(u: float) -> None:
    assert bits(gumbel(u)) == bits(gumbel.py_func(u))
    middle = min(u + 2.0**-54, 1.0 - 2.0**-53)
    assert gumbel(u) == pytest.approx(-math.log(-math.log(middle)), rel=1e-13, abs=1e-13)


@settings(deadline=None, max_examples=100)
@given(
    st.floats(0.05, 1e6),
    st.floats(0.05, 1e6),
    st.integers(0, 2**64 - 1).map(np.uint64),
    st.integers(0, 2**32 - 1),
)
def test_beta_has_the_same_bits_in_python_and_lies_in_the_unit_interval(
    a: float, b: float, key: int, i: int
) -> None:
    drawn = beta(a, b, key, OWN, 0, i)
    assert bits(drawn) == bits(beta.py_func(a, b, key, OWN, 0, i))
    assert 0.0 <= drawn <= 1.0


def test_gumbel_is_finite_at_both_ends() -> None:
    assert gumbel(0.0) == pytest.approx(-math.log(54 * math.log(2)))
    assert gumbel(1.0 - 2.0**-53) == pytest.approx(53 * math.log(2))


def test_values_are_the_ones_of_every_other_machine() -> None:
    """Digests over log, exp, gumbel, normals, beta and binomial: one changed bit would part old
    records from new.
    """
    grid = np.arange(1, 2001)
    values = [
        *log_array(grid / 37.0),
        *log_array(np.ldexp(grid / 2001.0, grid % 900 - 450)),
        *exp_array((grid - 1000.0) / 1.7),
        *(gumbel(u) for u in grid / 2001.0),
        *(normals(KEY, OWN, 1, i, 0)[0] for i in range(500)),
        *(
            beta(a, b, KEY, OWN, 2, i)
            for a in (0.3, 1.0, 4.5, 1e4)
            for b in (0.7, 2.0, 300.0)
            for i in range(50)
        ),
    ]
    digest = hashlib.sha256(np.array(values, "<f8").tobytes()).hexdigest()
    assert digest == "304b91e6e91d2502a575bd39d6634a3ca011e639d09a0f367304ec176cc61195"
    whole = [
        binomial(count, q, KEY, PARTIAL, 3, i)
        for count in (1, 40, 41, 100, 1000, 10**6, 10**9)
        for q in (1e-6, 0.2, 0.5, 0.93)
        for i in range(50)
    ]
    digest = hashlib.sha256(np.array(whole, "<i8").tobytes()).hexdigest()
    assert digest == "2b3a95ef7e1a58fc3779f6bc326ec0f210da0766e87771a731afa9db4667e590"


def binomial_cdf(a: int, b: int) -> Callable[[float], float]:
    """Distribution of Beta(a, b) for whole a and b: a binomial tail."""
    n = a + b - 1
    return lambda x: sum(math.comb(n, j) * x**j * (1 - x) ** (n - j) for j in range(a, n + 1))


BETAS: dict[tuple[float, float], Callable[[float], float]] = {
    (1.0, 1.0): lambda x: x,
    (2.0, 5.0): binomial_cdf(2, 5),
    (30.0, 10.0): binomial_cdf(30, 10),
    (1.0, 40.0): lambda x: 1 - (1 - x) ** 40,
    (0.5, 0.5): lambda x: 2 / math.pi * math.asin(math.sqrt(x)),
    (0.3, 1.0): lambda x: x**0.3,
    (1.0, 0.2): lambda x: 1 - (1 - x) ** 0.2,
}


@pytest.mark.parametrize("shape", BETAS)
def test_beta_has_its_distribution(shape: tuple[float, float]) -> None:
    """Power above .99 against a distribution .02 away (a 2 % shift of a uniform): sqrt(n) D = 4,
    limit 1.95, sd .5.
    """
    drawn = [beta(*shape, KEY, OWN, 0, i) for i in range(40_000)]
    assert ks(drawn, BETAS[shape]) < KS_LIMIT
    moved = [BETAS[shape](x) * 0.98 for x in drawn]
    assert ks(moved, lambda p: p) > KS_LIMIT


def test_beta_draws_of_neighbours_are_independent() -> None:
    """Owners draw at neighbouring keys, steps and passes. Power above .99 against a correlation of
    .04.
    """
    for address in (
        lambda i: (np.uint64(i), OWN, 0, 5),
        lambda i: (KEY, OWN, i, 5),
        lambda i: (KEY, OWN, 0, i),
    ):
        drawn = np.array([beta(3.0, 2.0, *address(i)) for i in range(20_000)])
        assert abs(np.corrcoef(drawn[:-1], drawn[1:])[0, 1]) * math.sqrt(len(drawn)) < SIGMAS


def test_normals_have_their_distribution_and_are_independent() -> None:
    """Power above .99 against a mean or a scale off by .06 (distances .024 and .014 at n = 40 000,
    80 000).
    """
    pairs = np.array([normals(KEY, OWN, 0, i, 0)[:2] for i in range(40_000)])

    def phi(x: float) -> float:
        return 0.5 * math.erfc(-x / math.sqrt(2))

    both = pairs.ravel()
    assert ks(pairs[:, 0].tolist(), phi) < KS_LIMIT
    assert ks(pairs[:, 1].tolist(), phi) < KS_LIMIT
    assert ks((both + 0.06).tolist(), phi) > KS_LIMIT
    assert ks((both * 1.06).tolist(), phi) > KS_LIMIT
    assert abs(np.corrcoef(pairs.T)[0, 1]) * math.sqrt(len(pairs)) < SIGMAS


def test_normals_say_which_attempts_they_used() -> None:
    used = [normals(KEY, OWN, 0, i, 0)[2] for i in range(2000)]
    # A pair is accepted with probability pi / 4: .7854 +- 4 sd of .0092.
    assert np.mean(np.array(used) == 1) == pytest.approx(math.pi / 4, abs=0.037)
    assert normals(KEY, OWN, 0, 0, used[0])[0] != normals(KEY, OWN, 0, 0, 0)[0]


def test_gumbel_noise_has_its_distribution() -> None:
    """Power above .99 against a shift of .06 (distance .022, sqrt(n) D = 4.4)."""
    drawn = [gumbel(uniform(KEY, OWN, 0, i, 0)) for i in range(40_000)]

    def cdf(x: float) -> float:
        return math.exp(-math.exp(-x))

    assert ks(drawn, cdf) < KS_LIMIT
    assert ks([x + 0.06 for x in drawn], cdf) > KS_LIMIT


BINOMIALS = [
    (1, 0.3),
    (2, 0.5),
    (40, 0.37),
    (41, 0.37),
    (81, 0.9),
    (1000, 0.02),
    (1000, 0.5),
    (10**6, 0.4),
    (10**6, 1e-6),
    (10**6, 1 - 1e-6),
    (10**9, 1e-9),
    (10**9, 0.5),
]


@pytest.mark.parametrize(("count", "q"), BINOMIALS)
def test_binomial_has_its_distribution(count: int, q: float) -> None:
    """Power above .99 against a mean off by .08 standard deviations (20 000 draws: noncentrality
    128).
    """
    drawn = [binomial(count, q, KEY, PARTIAL, 0, i) for i in range(20_000)]
    statistic, limit = distance(drawn, count, q)
    assert statistic < limit
    statistic, limit = distance(drawn, count, moved(count, q))
    assert statistic > limit


@pytest.mark.parametrize("count", [0, 1, 2, 40, 41, 42, 1000, 10**6, 10**9])
def test_binomial_of_a_sure_event_has_no_chance(count: int) -> None:
    for i in range(300):
        assert binomial(count, 0.0, KEY, PARTIAL, 0, i) == 0
        assert binomial(count, 1.0, KEY, PARTIAL, 0, i) == count
        assert binomial(count, 1e-300, KEY, PARTIAL, 0, i) == 0


@settings(deadline=None, max_examples=100)
@given(
    st.integers(0, 10**9),
    st.floats(0, 1),
    st.integers(0, 2**64 - 1).map(np.uint64),
    st.integers(0, 2**24 - 1),
    st.integers(0, 2**32 - 1),
)
def test_binomial_is_the_same_in_python_and_lies_in_range(
    count: int, q: float, key: int, party: int, i: int
) -> None:
    drawn = binomial(count, q, key, PARTIAL, party, i)
    assert drawn == binomial.py_func(count, q, key, PARTIAL, party, i)
    assert 0 <= drawn <= count


def test_binomial_draws_of_neighbours_are_independent() -> None:
    """Parties and indices, above and below the size that is tossed. Power above .99 against a
    correlation of .04.
    """
    for count in (30, 500):
        for address in (lambda i: (i, 5), lambda i: (0, i)):
            drawn = np.array(
                [binomial(count, 0.4, KEY, PARTIAL, *address(i)) for i in range(20_000)]
            )
            assert abs(np.corrcoef(drawn[:-1], drawn[1:])[0, 1]) * math.sqrt(len(drawn)) < SIGMAS


def test_beta_draws_at_one_address_differ_by_their_attempt() -> None:
    assert bits(beta(3.0, 2.0, KEY, OWN, 0, 1)) == bits(beta(3.0, 2.0, KEY, OWN, 0, 1, 0))
    assert len({beta(3.0, 2.0, KEY, OWN, 0, 1, attempt << 20) for attempt in range(50)}) == 50
