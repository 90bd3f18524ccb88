"""The paper's fixed point: truncation against Python's integers, and what it does to the
learner.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from posse.core.errors import ConfigError
from posse.systems.mpc_contextual.coins import Coins
from posse.systems.mpc_contextual.twins.floats import replay, run
from reproduction.mpc_contextual.published import (
    FORMS,
    TRUNCATIONS,
    Setup,
    cut,
    dealt,
    encode,
    overflow,
    reciprocal,
    share_wise,
    simulate,
    toward_zero,
)
from tests.kit.mpc import linear
from tests.kit.statistics import SIGMAS

Q = 1 << 64
signed = st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-(1 << 30), 1 << 30)
cuts = st.integers(1, 40)


def word(x: int) -> np.uint64:
    return np.uint64(x % Q)


def read(x: int) -> int:
    """Value of a word as a signed number."""
    x = int(x) % Q
    return x - Q if x >> 63 else x


def divided(x: int, bits: int) -> int:
    return abs(x) // (1 << bits) * (-1 if x < 0 else 1)


def wraps(parts: list[int]) -> int:
    """Return theta: sum of the parts = x + theta 2^64 with x the signed number they share."""
    return (sum(parts) - read(sum(parts))) // Q


def algorithm_three(x: list[int], r: list[int]) -> int:
    """Algorithm 3 with eta := 0, on the signed shares of x and r."""
    z = [read(a + b) for a, b in zip(x, r, strict=True)]
    beta = sum(wraps([a, b]) for a, b in zip(x, r, strict=True))
    return wraps(z) + beta - wraps(r)


@settings(deadline=None)
@given(signed, signed)
@example(1 << 62, 1 << 62)
@example(-(1 << 63), -1)
@example(-(1 << 63), (1 << 63) - 1)
def test_overflow(a: int, b: int) -> None:
    assert overflow(word(a), word(b)) == wraps([a, b])


@settings(deadline=None)
@given(signed, cuts)
def test_division_of_a_share_is_that_of_c(x: int, bits: int) -> None:
    assert read(toward_zero(word(x), word(bits))) == divided(x, bits)


@settings(deadline=None, max_examples=500)
@given(signed, signed, signed, signed, cuts)
def test_published_truncation_is_appendix_c(
    x: int, share: int, r1: int, r2: int, bits: int
) -> None:
    shares = [share, read(x - share)]
    wanted = sum(divided(one, bits) for one in shares) - algorithm_three(shares, [r1, r2]) * (
        Q >> bits
    )
    assert read(share_wise(word(x), word(share), word(r1 + r2), word(bits))) == read(wanted)


@settings(deadline=None, max_examples=500)
@given(signed, signed, signed, cuts)
def test_published_truncation_is_off_by_a_wrap_where_the_pad_overflows(
    x: int, share: int, r: int, bits: int
) -> None:
    found = read(share_wise(word(x), word(share), word(r), word(bits)))
    away = read(found + wraps([x, r]) * (Q >> bits)) * (1 << bits) - x
    assert abs(away) < 2 << bits
    if (share < 0) != (read(x - share) < 0):
        assert abs(away) < 1 << bits


@settings(deadline=None, max_examples=500)
@given(st.integers(-(1 << 62), (1 << 62) - 1) | st.integers(-(1 << 30), 1 << 30), signed, cuts)
@example(-(1 << 62), -1, 20)
@example((1 << 62) - 1, -1, 20)
@example((1 << 62) - 1, (1 << 63) - 1, 1)
@example(-(1 << 62), -(1 << 63), 40)
def test_exact_truncation_rounds_down_or_up(x: int, r: int, bits: int) -> None:
    assert read(dealt(word(x), word(r), word(bits))) - (x >> bits) in (
        (0, 1) if x % (1 << bits) else (0,)
    )


def many(x: int, bits: int, count: int, *, exact: bool) -> tuple[np.ndarray, int]:
    setup = Setup(np.uint64(7), word(bits), exact, False, 7)
    state = np.zeros(3, np.int64)
    found = [read(cut(word(x), word(bits), setup, state)) for _ in range(count)]
    assert state[:2].tolist() == [0, count]
    return np.array(found), int(state[2])


@pytest.mark.parametrize("x", [1 << 60, -(1 << 61) - 12345, 3 << 58])
def test_published_truncation_wraps_with_probability_x_over_two_to_the_64(x: int) -> None:
    """20,000 draws, false alarms .001: power .99 against a chance that is off by a tenth at 1/16,
    by .08 at 1/8.
    """
    found, told = many(x, 20, 20_000, exact=False)
    off = np.abs(found - (x >> 20)) > 2
    p = abs(x) / Q
    assert told == off.sum()
    assert abs(off.mean() - p) < SIGMAS * math.sqrt(p * (1 - p) / len(off))
    jumps = set(np.round((found[off] - (x >> 20)) / 2.0**44))
    assert jumps == {-1.0 if x > 0 else 1.0}


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("x", [123_456_789, -123_456_789, 1, -5])
def test_truncation_is_right_in_the_mean(x: int, exact: bool) -> None:
    """20,000 draws, false alarms .001: power .99 against a bias of .016."""
    found, told = many(x, 10, 20_000, exact=exact)
    up = found - (x >> 10)
    p = x / 2**10 - (x >> 10)
    assert told == 0
    assert set(up) <= {0, 1}
    assert abs(up.mean() - p) < SIGMAS * math.sqrt(p * (1 - p) / len(up))


def test_exact_truncation_counts_what_it_cannot_hold() -> None:
    assert many(1 << 62, 20, 100, exact=True)[1] == 100
    assert many((1 << 62) - 1, 20, 100, exact=True)[1] == 0


@pytest.mark.parametrize(
    ("recursive", "newton", "high", "error"), [(False, 7, 4.0, 2e-6), (True, 2, 2.0, 2e-6)]
)
def test_reciprocal(recursive: bool, newton: int, high: float, error: float) -> None:
    setup = Setup(np.uint64(1), word(24), True, recursive, newton)
    state = np.zeros(3, np.int64)
    for d in np.linspace(1.0, high, 200):
        y = read(reciprocal(encode(np.array([d]), 24)[0], setup, state)) / 2**24
        assert abs(y - 1 / d) < error, d


def test_the_published_start_is_weak_for_large_numbers() -> None:
    """Seven steps raise 1 - d y_0 to the power 128: at 7.5, where it is .959, half a percent is
    left.
    """
    setup, state = Setup(np.uint64(1), word(24), True, False, 7), np.zeros(3, np.int64)
    left = 1 - 7.5 * read(reciprocal(encode(np.array([7.5]), 24)[0], setup, state)) / 2**24
    assert left == pytest.approx((1 - 7.5 * (3 * (1 - 7 / 256) ** 256 + 0.003)) ** 128, rel=0.05)


def test_newton_steps_square_the_error_of_the_start() -> None:
    """The start for [1, 2] is within 1.02 %; one step leaves 1.1e-4, two 1.2e-8, and rounding some
    2^-30.
    """
    worst = []
    for newton in range(3):
        setup, state = Setup(np.uint64(1), word(30), True, True, newton), np.zeros(3, np.int64)
        ds = np.linspace(1.0, 2.0, 300)
        worst.append(
            max(
                abs(d * read(reciprocal(encode(np.array([d]), 30)[0], setup, state)) / 2**30 - 1)
                for d in ds
            )
        )
    assert 0.009 < worst[0] < 0.0103
    assert worst[1] < 1.1e-4
    assert worst[2] < 3e-8


@pytest.fixture(scope="module")
def world():
    return linear(4000, 4, 6)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("truncation", TRUNCATIONS)
def test_twenty_bits_earn_what_the_float_twin_earns(world, form: str, truncation: str) -> None:
    x, rewards, flips = world
    found, twin = (
        simulate(x, rewards, flips, form=form, truncation=truncation),
        run(x, rewards, flips),
    )
    assert found.wraps == 0
    assert abs(found.rewards.mean() - twin.rewards.mean()) < 0.01
    assert (found.arms[flips.explore] == flips.arms[flips.explore]).all()
    assert twin.rewards.mean() > 0.65  # a random arm earns .5
    along = replay(x, found.arms, found.rewards, flips.ties)
    error = {"published": 0.02, "recursive": 2e-4}[form]
    assert np.abs(found.weights - along.weights).max() < error
    assert np.abs(found.inverses - along.inverses).max() < error
    assert along.gaps[found.greedy != along.greedy].max(initial=0.0) < error * 4
    assert found.rewards.tolist() == rewards[np.arange(4000), found.arms].tolist()


@pytest.mark.parametrize("form", FORMS)
def test_from_26_bits_on_published_truncation_breaks_down_and_exact_does_not(
    world, form: str
) -> None:
    x, rewards, flips = world
    twin = run(x, rewards, flips).rewards.mean()
    broken = simulate(x, rewards, flips, bits=28, form=form)
    assert broken.wraps > 100
    assert broken.rewards.mean() < twin - 0.1
    assert simulate(x, rewards, flips, bits=26, form=form).wraps > 5
    whole = simulate(x, rewards, flips, bits=28, form=form, truncation="exact")
    assert whole.wraps == 0
    assert abs(whole.rewards.mean() - twin) < 0.002


def test_the_recursive_form_is_the_more_accurate_one(world) -> None:
    x, rewards, flips = world
    errors = []
    for form in FORMS:
        found = simulate(x, rewards, flips, bits=16, form=form, truncation="exact")
        errors.append(
            np.abs(found.weights - replay(x, found.arms, found.rewards, flips.ties).weights).max()
        )
    assert errors[1] < errors[0] / 20


def test_shares_come_from_the_seed(world) -> None:
    x, rewards, flips = (
        world[0][:300],
        world[1][:300],
        Coins(*(part[:300] for part in world[2][:3])),
    )
    first, again, other = (
        simulate(x, rewards, flips, bits=16, seed=seed).weights for seed in (1, 1, 2)
    )
    assert (first == again).all()
    assert not (first == other).all()


def test_what_does_not_fit_is_refused(world) -> None:
    x, rewards, flips = world
    with pytest.raises(ConfigError, match=r"bits must be in \[8, 30\], got 31"):
        simulate(x, rewards, flips, bits=31)
    with pytest.raises(ConfigError, match="Did you mean 'recursive'"):
        simulate(x, rewards, flips, form="recursiv")
    with pytest.raises(ConfigError, match="unknown truncation 'floor'"):
        simulate(x, rewards, flips, truncation="floor")
    with pytest.raises(ConfigError, match="newton must be at least 0"):
        simulate(x, rewards, flips, newton=-1)
    with pytest.raises(ConfigError, match="features must have shape"):
        simulate(x[1:], rewards, flips)
