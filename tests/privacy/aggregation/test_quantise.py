from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posse.core.errors import ConfigError, DataError
from posse.privacy.aggregation.noise import NoisePlan, discrete_gaussian
from posse.privacy.aggregation.quantise import (
    CAPACITY,
    Quantiser,
    _squares,
    clip_l2,
    from_ring,
    round_at_random,
    to_ring,
)
from posse.privacy.aggregation.simulate import ring_sum


@given(st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=20))
def test_the_ring_keeps_every_integer_of_32_bits(numbers):
    z = np.array(numbers, np.int64)
    assert (from_ring(to_ring(z)) == z).all()


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=20), st.floats(0.01, 10))
def test_clipping_shortens_and_keeps_the_direction(numbers, clip):
    x = np.array(numbers)
    clipped = clip_l2(x, clip)
    assert np.linalg.norm(clipped) <= clip * (1 + 1e-12) or np.linalg.norm(x) <= clip * (1 + 1e-12)
    assert np.allclose(clipped * np.linalg.norm(x), x * np.linalg.norm(clipped))


@pytest.mark.parametrize("bad", [math.nan, math.inf, 1e200])
def test_updates_without_a_length_are_refused(bad):
    with pytest.raises(DataError, match="NaN, infinity"), np.errstate(over="ignore"):
        clip_l2(np.array([1.0, bad]), 1.0)


def test_rounding_is_right_on_average_and_never_off_by_one():
    y = np.array([0.25, -0.25, 3.0, -7.9])
    generator = np.random.default_rng(3)
    z = np.array([round_at_random(y, generator) for _ in range(40_000)])
    assert (np.abs(z - y) < 1).all()
    assert (z[:, 2] == 3).all()
    # five standard errors of a coin: 5 * .5 / 200 = .0125
    assert np.abs(z.mean(0) - y).max() < 0.0125


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 300), st.floats(1, 1000))
def test_the_integer_norm_is_what_is_accounted_for(seed, length, scale):
    generator = np.random.default_rng(seed)
    quantiser = Quantiser(clip=1.0, scale=scale, length=length, clients=4)
    z = quantiser.encode(generator.normal(size=length), generator)
    assert sum(int(x) ** 2 for x in z) <= quantiser.sensitivity_squared
    assert quantiser.sensitivity >= scale * (1 - 1e-9) - 1


def test_a_rounding_that_is_too_long_is_drawn_again():
    class Up:
        """Rounds up at first, and fairly afterwards."""

        def __init__(self):
            self.calls, self.fair = 0, np.random.default_rng(0)

        def random(self, size):
            self.calls += 1
            return np.zeros(size) if self.calls <= 3 else self.fair.random(size)

    quantiser, up = Quantiser(clip=1.0, scale=10.0, length=10_000, clients=4), Up()
    z = quantiser.encode(
        np.full(10_000, 0.01), up
    )  # 10,000 coordinates of .1: up is a norm of 100, allowed are 57
    assert up.calls == 4
    assert quantiser.within(z)
    assert not quantiser.within(np.ones(10_000, np.int64))
    up.calls = -100
    with pytest.raises(ConfigError, match="no rounding of 32"):
        quantiser.encode(np.full(10_000, 0.01), up)


def test_capacity_is_kept_to_the_unit():
    top = CAPACITY // 64 - 1
    assert Quantiser(clip=1.0, scale=float(top), length=3, clients=64).largest < CAPACITY
    with pytest.raises(
        ConfigError, match=r"must stay below 2\^31 .* 64 clients x 33554432 .* Lower the scale"
    ):
        Quantiser(clip=1.0, scale=float(top + 1), length=3, clients=64)
    with pytest.raises(ConfigError, match="length must be at least 1, got 0"):
        Quantiser(clip=1.0, scale=1.0, length=0, clients=64)
    with pytest.raises(ConfigError, match="noise tail"):
        Quantiser(clip=1.0, scale=float(top), length=3, clients=64, sigma=1 << 20)


def test_the_scale_of_the_remedy_fits():
    with pytest.raises(ConfigError, match="Lower the scale below") as refused:
        Quantiser(clip=2.5, scale=1e9, length=3, clients=77)
    scale = float(str(refused.value).split("below ")[2].split(",")[0])
    Quantiser(clip=2.5, scale=scale * 0.99999, length=3, clients=77)
    with pytest.raises(ConfigError):
        Quantiser(clip=2.5, scale=scale * 1.001, length=3, clients=77)


def test_the_largest_sum_does_not_go_around():
    quantiser = Quantiser(clip=1.0, scale=float(CAPACITY // 64 - 1), length=2, clients=64)
    updates = [np.array([-1.0, 0.0])] * 64
    total = ring_sum(updates, quantiser, [np.random.default_rng(i) for i in range(64)])
    assert total.tolist() == [-64.0, 0.0]


def test_ring_sums_show_quantisation_and_nothing_else():
    generator = np.random.default_rng(1)
    updates = generator.normal(size=(20, 50)) / 20
    quantiser = Quantiser(clip=1.0, scale=1000.0, length=50, clients=20)
    fresh = [np.random.default_rng(i) for i in range(20)]
    total = ring_sum(updates, quantiser, fresh)
    assert 0 < np.abs(total - updates.sum(0)).max() < 20 / 1000
    turned = ring_sum(updates[::-1], quantiser, [np.random.default_rng(i) for i in range(20)][::-1])
    assert (total == turned).all()


def test_ring_sums_refuse_more_clients_and_less_noise_than_they_are_made_for():
    quantiser = Quantiser(clip=1.0, scale=10.0, length=2, clients=2)
    with pytest.raises(ConfigError, match="room for 2 clients, got 3"):
        ring_sum([np.zeros(2)] * 3, quantiser, [np.random.default_rng(0)] * 3)
    with pytest.raises(ConfigError, match="noise an update, got 1"):
        ring_sum(
            [np.zeros(2)] * 2, quantiser, [np.random.default_rng(0)] * 2, [np.zeros(2, np.int64)]
        )
    with pytest.raises(ConfigError, match="must have 2 numbers"):
        quantiser.encode(np.zeros(3), np.random.default_rng(0))


def test_noise_passes_its_allowance_in_no_coordinate():
    noise = NoisePlan.sized(total=500.0, honest_survivors=8, sensitivity=100.0, length=2000)
    quantiser = Quantiser(clip=1.0, scale=100.0, length=2000, clients=10, sigma=noise.sigma)
    drawn = [discrete_gaussian(noise.sigma, 2000, bytes([at]) * 32) for at in range(10)]
    total = ring_sum([np.zeros(2000)] * 10, quantiser, [np.random.default_rng(0)] * 10, drawn) * 100
    assert np.abs(total).max() < quantiser.tail
    assert (
        500 < total.std() < 600
    )  # ten clients add more than the eight it is sized for: 177 sqrt(10) = 560


def test_the_tail_is_over_all_coordinates():
    """sigma sqrt(2 n ln(2 d 2^40)), written out."""
    quantiser = Quantiser(clip=1.0, scale=100.0, length=2000, clients=10, sigma=177)
    assert (
        quantiser.tail
        == math.ceil(177 * math.sqrt(20 * (math.log(4000) + 40 * math.log(2))))
        == 4751
    )


def test_a_fractional_step_counts_as_a_whole_one():
    assert Quantiser(clip=1.5, scale=7.0, length=3, clients=4).largest == 4 * 11


def test_no_coordinate_is_larger_than_the_norm():
    """12 alone is within Delta = 14.3, and beyond what a sum has room for."""
    quantiser = Quantiser(clip=1.0, scale=10.0, length=100, clients=4)
    z = np.zeros(100, np.int64)
    for size, within in ((10, True), (-10, True), (12, False), (-12, False), (-(2**63), False)):
        z[0] = size
        assert quantiser.within(z) == within
    assert quantiser.sensitivity > 12


def test_norms_beyond_63_bits_are_exact():
    top = 2**31 - 2
    quantiser = Quantiser(clip=1.0, scale=float(top), length=4, clients=1)
    assert not quantiser.within(
        np.full(4, top, np.int64)
    )  # its squares add up to 2^64 - 2^35 + 16, cut: below Delta^2
    assert quantiser.within(np.array([top, 0, 0, 0]))
    assert quantiser.within(np.array([top // 2] * 4))
    generator = np.random.default_rng(2)
    for most in (top, 1000):
        z = generator.integers(-most, most, 50)
        assert _squares(z, most) == sum(int(one) ** 2 for one in z)
