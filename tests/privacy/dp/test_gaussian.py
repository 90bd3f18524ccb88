"""The Gaussian mechanism against 60-digit arithmetic, itself and dp-accounting."""

from __future__ import annotations

import math

import mpmath
import pytest
from dp_accounting import gaussian_mechanism
from hypothesis import given, settings
from hypothesis import strategies as st

from posse.core.errors import ConfigError
from posse.privacy.dp.accountant import composed_epsilon, gaussian_event
from posse.privacy.dp.gaussian import classical_multiplier, delta_of, epsilon_of, largest_mu


def powers(low: float, high: float) -> st.SearchStrategy[float]:
    """Numbers of every size between two powers of ten."""
    return st.floats(low, high).map(lambda exponent: 10.0**exponent)


def exact_delta(mu: float, epsilon: float) -> float:
    with mpmath.workdps(60):
        a, b = mpmath.mpf(mu), mpmath.mpf(epsilon)
        return float(mpmath.ncdf(a / 2 - b / a) - mpmath.exp(b) * mpmath.ncdf(-a / 2 - b / a))


@settings(max_examples=200, deadline=None)
@given(powers(-9, 3), st.floats(-3, 36))
def test_delta_has_all_its_digits(mu: float, deviations: float) -> None:
    """From delta = .999 down to 1e-290, for a mu of any size."""
    epsilon = max(0.0, mu * mu / 2 + deviations * mu)
    assert delta_of(mu, epsilon) == pytest.approx(exact_delta(mu, epsilon), rel=1e-9)


@pytest.mark.parametrize("mu", [0.0199999, 0.02, 0.0200001])
@pytest.mark.parametrize("x", [0.0, 4.99, 5.0, 5.01, 30.0])
def test_the_ways_to_compute_delta_meet(mu: float, x: float) -> None:
    epsilon = mu * (x + mu / 2)
    assert delta_of(mu, epsilon) == pytest.approx(exact_delta(mu, epsilon), rel=1e-11)


@settings(max_examples=100, deadline=None)
@given(powers(-9, 5), powers(-250, -0.01))
def test_round_trip(epsilon: float, delta: float) -> None:
    mu = largest_mu(epsilon, delta)
    assert delta_of(mu, epsilon) <= delta
    assert delta_of(mu * (1 + 1e-6), epsilon) > delta
    found = epsilon_of(mu, delta)
    assert delta_of(mu, found) <= delta
    assert found <= epsilon * (1 + 1e-6) + 1e-15


@settings(max_examples=100, deadline=None)
@given(powers(-6, 2), powers(-100, -0.5), st.floats(1.001, 10))
def test_monotone(epsilon: float, delta: float, factor: float) -> None:
    mu = largest_mu(epsilon, delta)
    assert largest_mu(epsilon * factor, delta) > mu
    assert largest_mu(epsilon, min(0.999, delta * factor)) > mu
    assert epsilon_of(mu * factor, delta) > epsilon_of(mu, delta)


@settings(max_examples=40, deadline=None)
@given(st.lists(powers(-4, 0.9), min_size=1, max_size=4), powers(-10, -1))
def test_the_accountant_is_never_below_and_hardly_above(mus: list[float], delta: float) -> None:
    exact = epsilon_of(math.hypot(*mus), delta)
    found = composed_epsilon([gaussian_event(1 / mu) for mu in mus], delta)
    assert exact * (1 - 1e-9) <= found <= exact * (1 + 1e-4) + 1e-5 * math.hypot(*mus)


def test_the_textbook() -> None:
    assert classical_multiplier(1, 0.01) == pytest.approx(math.sqrt(2 * math.log(125)))
    assert 1 / largest_mu(0.9, 1e-5) < classical_multiplier(0.9, 1e-5)


@pytest.mark.parametrize(("epsilon", "delta"), [(1, 0.01), (1, 1e-5), (0.1, 1e-6), (20, 1e-9)])
def test_dp_accounting_finds_the_same_noise(epsilon: float, delta: float) -> None:
    sigma = gaussian_mechanism.get_sigma_gaussian(epsilon, delta)
    assert 1 / largest_mu(epsilon, delta) == pytest.approx(sigma, rel=1e-6)


@pytest.mark.parametrize(
    "call",
    [
        lambda: delta_of(0, 1),
        lambda: delta_of(1, -1),
        lambda: epsilon_of(-1, 0.1),
        lambda: epsilon_of(1, 1),
        lambda: largest_mu(0, 0.1),
        lambda: largest_mu(1, 0),
        lambda: classical_multiplier(1, 2),
    ],
)
def test_bad_numbers_are_refused(call: object) -> None:
    with pytest.raises(ConfigError):
        call()  # type: ignore[operator]
