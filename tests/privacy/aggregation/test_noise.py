from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

from posse.core.errors import ConfigError
from posse.privacy.aggregation.noise import NoisePlan, _coin, _Integers, discrete_gaussian


def _key(at: int) -> bytes:
    return at.to_bytes(32, "big")


def _chi_square(counts: list[int], probabilities: list[float]) -> float:
    total = sum(counts)
    return sum(
        (seen - total * p) ** 2 / (total * p) for seen, p in zip(counts, probabilities, strict=True)
    )


@pytest.mark.parametrize("sigma", [1, 2, 7])
def test_the_distribution_is_the_discrete_gaussian(sigma):
    """Chi-square over single integers; a shift of .02 sigma adds 80 to it, a sigma off by 2 % adds
    160.
    """
    count = 200_000
    drawn = Counter(discrete_gaussian(sigma, count, _key(sigma)).tolist())
    weight = {x: math.exp(-(x**2) / (2 * sigma**2)) for x in range(-12 * sigma, 12 * sigma + 1)}
    whole = sum(weight.values())
    inner = [x for x in weight if abs(x) <= 3 * sigma]
    counts = [drawn[x] for x in inner]
    probabilities = [weight[x] / whole for x in inner]
    counts, probabilities = [*counts, count - sum(counts)], [*probabilities, 1 - sum(probabilities)]
    free = len(counts) - 1
    assert _chi_square(counts, probabilities) < free + 5 * math.sqrt(2 * free)


def test_large_sigma_has_the_right_moments():
    x = discrete_gaussian(1 << 20, 100_000, _key(9)) / (1 << 20)
    assert abs(x.mean()) < 5 / math.sqrt(100_000)
    assert abs(x.var() - 1) < 5 * math.sqrt(2 / 100_000)
    assert abs((x**4).mean() - 3) < 5 * math.sqrt(96 / 100_000)


@pytest.mark.parametrize(("a", "b"), [(0, 1), (1, 1), (1, 3), (5, 7), ((1 << 48) - 1, 1 << 49)])
def test_coins_fall_with_probability_exp(a, b):
    count = 100_000
    heads = _coin(np.full(count, a), np.full(count, b), _Integers(_key(a % 1000))).mean()
    p = math.exp(-a / b)
    assert abs(heads - p) <= 5 * math.sqrt(p * (1 - p) / count)


def test_integers_below_a_bound_that_rejects_a_third_of_the_words_are_uniform():
    bound = (1 << 64) // 3 + 1
    drawn = _Integers(_key(1)).below(np.full(50_000, bound))
    assert 0 <= drawn.min() <= drawn.max() < bound
    assert abs(drawn.astype(float).mean() / bound - 0.5) < 5 * math.sqrt(1 / 12 / 50_000)
    thirds = np.bincount(_Integers(_key(2)).below(np.full(60_000, 3)))
    assert np.abs(thirds - 20_000).max() < 5 * math.sqrt(60_000 * 2 / 9)


def test_no_noise_same_key_and_other_key():
    assert not discrete_gaussian(0, 5, _key(0)).any()
    assert len(discrete_gaussian(4, 0, _key(0))) == 0
    assert (discrete_gaussian(4, 50, _key(0)) == discrete_gaussian(4, 50, _key(0))).all()
    assert (discrete_gaussian(4, 50, _key(0)) != discrete_gaussian(4, 50, _key(1))).any()


@pytest.mark.parametrize("sigma", [-1, 1.5, (1 << 24) + 1])
def test_a_sigma_that_the_sampler_has_no_integers_for_is_refused(sigma):
    with pytest.raises(ConfigError, match="whole number of steps"):
        discrete_gaussian(sigma, 3, _key(0))
    with pytest.raises(ConfigError, match="32 bytes"):
        discrete_gaussian(1, 3, b"short")


def test_the_fewest_honest_survivors_reach_the_total():
    plan = NoisePlan.sized(total=1000.0, honest_survivors=37, sensitivity=100.0, length=10_000)
    assert plan.sigma * math.sqrt(37) >= 1000 > (plan.sigma - 1) * math.sqrt(37)
    # far above one step, the sum is as good as one Gaussian: rho = Delta^2 / (2 m sigma^2)
    assert plan.rho == pytest.approx(100**2 / (2 * 37 * plan.sigma**2), rel=1e-12)
    for said in ("37 honest survivors", "against the server", "without amplification", "zCDP"):
        assert said in plan.note


def test_noise_of_one_step_pays_for_not_being_gaussian():
    plan = NoisePlan(1, 10, 1.0, 1000)
    tau = 10 * sum(math.exp(-2 * math.pi**2 * k / (k + 1)) for k in range(1, 10))
    assert plan.rho == pytest.approx(
        min(0.1 + tau * 500, (math.sqrt(0.1) + tau * math.sqrt(1000)) ** 2) / 2
    )
    assert plan.rho > 1.1 * 0.05
