"""Membership inference: nothing is found where nothing leaks, and a model that learnt by heart is
caught.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from numpy.typing import NDArray

from posse.core.errors import ConfigError
from posse.privacy.leakage.membership import (
    BY_ERROR,
    BY_REWARD,
    Membership,
    Pairs,
    difference_interval,
    gap_without_leak,
    infer,
    reward_gap,
    score_errors,
)

Floats = NDArray[np.float64]
ARMS = 10
RUNS = 2000
Attack = Callable[..., Membership]
reward_attack, error_attack = (partial(infer, rule) for rule in (BY_REWARD, BY_ERROR))


def earned(rng: np.random.Generator, rows: int, share: float) -> Pairs:
    """Arms at random, and a reward of 1 with the chance `share`."""
    return Pairs(rng.integers(ARMS, size=rows), (rng.random(rows) < share).astype(float))


def rewards_attacked(gap: float, runs: int, rows: int = 2000, seed: int = 0) -> list[Membership]:
    """Attack models that earn `gap` more on training rows; the true advantage of the best rule is
    `gap`.
    """
    rng = np.random.default_rng(seed)
    return [
        reward_attack(earned(rng, rows, 0.6 + gap), earned(rng, rows, 0.6), seed=run)
        for run in range(runs)
    ]


def errors_attacked(scale: float, runs: int, rows: int = 1000, seed: int = 0) -> list[Membership]:
    """Attack exponential errors of mean 1 on training rows and of mean `scale` on others."""
    rng = np.random.default_rng(seed)
    return [
        error_attack(rng.exponential(1, rows), rng.exponential(scale, rows), seed=run)
        for run in range(runs)
    ]


def leaks(result: Membership) -> bool:
    """Whether the interval lies above 0."""
    return result.interval is not None and result.interval[0] > 0


def covered(results: list[Membership], truth: float) -> float:
    edges = [result.interval or (math.nan, math.nan) for result in results]
    return float(np.mean([low <= truth <= high for low, high in edges]))


@pytest.mark.parametrize("attack", [reward_attack, error_attack])
def test_where_nothing_leaks_the_interval_holds_0_as_often_as_it_says(attack: Attack) -> None:
    """.95 over 2,000 attacks: .9345 is the lower .001 point; a false alarm in .025, .0366 the upper
    .001 point.
    """
    attacked = rewards_attacked(0, RUNS) if attack is reward_attack else errors_attacked(1, RUNS)
    assert covered(attacked, 0) > 0.9345
    assert np.mean([leaks(result) for result in attacked]) < 0.0366
    assert np.mean([result.advantage for result in attacked]) == pytest.approx(0, abs=0.003)


def test_a_known_advantage_of_rewards() -> None:
    """A reward calls a member: TPR .9, FPR .6. 800 attacks: .9227 is the lower .001 point of
    .95.
    """
    results = rewards_attacked(0.3, 800)
    assert np.mean([result.advantage for result in results]) == pytest.approx(0.3, abs=0.005)
    assert covered(results, 0.3) > 0.9227
    assert all(leaks(result) for result in results)


def test_a_known_advantage_of_errors() -> None:
    """Means 1 and 3: the densities cross at 1.5 log 3, and e^(-x/3) - e^(-x) is 3^-.5 - 3^-1.5 =
    .385 there.

    Bins of 50 rows cost the attack by error some hundredths of it.
    """
    best = 3**-0.5 - 3**-1.5
    results = errors_attacked(3, 400)
    assert np.mean([result.advantage for result in results]) == pytest.approx(best, abs=0.02)
    assert all(leaks(result) for result in results)


def test_power_against_a_small_leak() -> None:
    """A gap of .05 over 20,000 rows: four standard errors and more of the scored half."""
    results = rewards_attacked(0.05, 100, rows=20_000)
    assert np.mean([leaks(result) for result in results]) > 0.95


def test_in_sample_an_advantage_appears_without_any_leak() -> None:
    """60,000 and 10,000 rows, ten arms, rewards .9: sqrt(2/pi) standard errors an arm, .8 %, the
    size published.
    """
    rng = np.random.default_rng(5)
    pairs = [(earned(rng, 60_000, 0.9), earned(rng, 10_000, 0.9)) for _ in range(100)]
    published = [reward_attack(*pair, split=False) for pair in pairs]
    expected = math.sqrt(2 / math.pi * 0.09 * (ARMS / 60_000 + ARMS / 10_000))
    assert np.mean([result.advantage for result in published]) == pytest.approx(expected, rel=0.1)
    assert expected == pytest.approx(0.0082, abs=1e-4)
    assert {(result.interval, leaks(result)) for result in published} == {(None, False)}
    assert abs(np.mean([reward_attack(*pair).advantage for pair in pairs])) < 0.002


def test_the_gap_of_the_published_code_without_a_leak() -> None:
    rng = np.random.default_rng(6)
    gaps = [reward_gap(rng.random(500) < 0.7, rng.random(2000) < 0.7) for _ in range(4000)]
    assert np.mean(gaps) == pytest.approx(gap_without_leak(0.7, 500, 2000), rel=0.05)


def learner(rows: int, features: int, ridge: float, signal: float) -> tuple[Membership, Membership]:
    """Attack linear scores of ten arms, learnt by ridge regression: by reward and by error.

    The right arm earns 1. `signal` 0 gives labels that have nothing to do with the features: what
    is learnt of them is learnt by heart.
    """
    rng = np.random.default_rng(rows + features)
    x, teacher = rng.normal(size=(2, rows, features)), rng.normal(size=(features, ARMS))
    label = (signal * x @ teacher + rng.gumbel(size=(2, rows, ARMS))).argmax(axis=2)
    weights = x[0].T @ np.linalg.solve(x[0] @ x[0].T + ridge * np.eye(rows), np.eye(ARMS)[label[0]])
    scores = x @ weights
    arms = scores.argmax(axis=2)
    pairs = [Pairs(arms[i], (arms[i] == label[i]).astype(float)) for i in range(2)]
    errors = [score_errors(scores[i], pairs[i]) for i in range(2)]
    return reward_attack(*pairs), error_attack(*errors)


def test_a_model_that_learnt_by_heart_is_caught_by_every_attack() -> None:
    """As many features as rows and hardly any ridge: right on every training row, and on one in ten
    others.
    """
    for result in learner(400, 400, 1e-9, 0.0):
        assert leaks(result)
        assert result.advantage > 0.8


def test_a_ridge_hides_nothing() -> None:
    """Shrunken scores miss a reward of 1 by more than a reward of 0, which is rare on training
    rows.
    """
    by_reward, by_error = learner(1000, 500, 100.0, 0.1)
    assert by_reward.advantage > 0.3
    assert by_error.advantage > by_reward.advantage - 0.03


def test_a_model_of_few_weights_and_many_rows_shows_little() -> None:
    for result in learner(2000, 5, 1.0, 1.0):
        assert abs(result.advantage) < 0.06
        assert not leaks(result)


def test_real_rewards_in_sample_are_all_members() -> None:
    """No value occurs twice, so that the in-sample form knows every row, and the split one none."""
    rng = np.random.default_rng(7)
    members, others = (Pairs(rng.integers(ARMS, size=300), rng.normal(size=300)) for _ in range(2))
    assert reward_attack(members, others, split=False).advantage == 1
    apart = reward_attack(members, others)
    assert (apart.found, apart.accused) == (0, 0)


def test_conditional_on_the_arm() -> None:
    """Arm 0 earns more on members and arm 1 less: no difference in the mean, all of it given the
    arm.
    """
    rng = np.random.default_rng(8)
    arms = rng.integers(2, size=(2, 4000))
    chance = np.stack([np.where(arms[0] == 0, 0.9, 0.1), np.where(arms[1] == 0, 0.1, 0.9)])
    rewards = (rng.random((2, 4000)) < chance).astype(float)
    assert reward_gap(rewards[0], rewards[1]) < 0.05
    assert reward_attack(
        Pairs(arms[0], rewards[0]), Pairs(arms[1], rewards[1])
    ).advantage == pytest.approx(0.8, abs=0.05)


def test_an_arm_or_reward_that_was_never_seen_is_no_member() -> None:
    members = Pairs(np.array([0, 0]), np.array([1.0, 1.0]))
    others = Pairs(np.array([1, 1]), np.array([1.0, 1.0]))
    result = reward_attack(members, others)
    assert (result.found, result.accused) == (1, 0)


def test_halves_are_a_function_of_the_seed() -> None:
    rng = np.random.default_rng(9)
    members, others = rng.random(101), rng.random(100)
    first, again, other = (error_attack(members, others, seed=seed) for seed in (1, 1, 2))
    assert first == again != other
    assert (first.members, first.others) == (51, 50)


def test_what_is_no_row() -> None:
    with pytest.raises(ConfigError, match="every arm needs its reward: got 3 arms and 2 rewards"):
        Pairs(np.arange(3), np.ones(2))
    with pytest.raises(ConfigError, match=r"rewards must be finite, got nan\. Leave out"):
        Pairs(np.arange(2), np.array([1.0, math.nan]))
    with pytest.raises(ConfigError, match="one number a row"):
        error_attack([], [1.0])
    with pytest.raises(ConfigError, match="2 rows each at least, got 1"):
        error_attack([1.0], [1.0, 2.0])
    with pytest.raises(ConfigError, match=r"scores must have the shape \(rows, arms\) with 2 rows"):
        score_errors(np.ones((3, 2)), Pairs(np.arange(2), np.ones(2)))
    assert error_attack([1.0], [2.0], split=False).advantage == 1


@pytest.mark.parametrize(
    ("counts", "published"),
    [
        ((56, 70, 48, 80), (0.0524, 0.3339)),
        ((9, 10, 3, 10), (0.1705, 0.8090)),
        ((10, 10, 0, 20), (0.6791, 1.0)),
    ],
)
def test_the_published_examples(
    counts: tuple[int, int, int, int], published: tuple[float, float]
) -> None:
    """Newcombe 1998, table II, method 10."""
    assert difference_interval(*counts) == pytest.approx(published, abs=6e-5)


@pytest.mark.parametrize(("p", "q"), [(0.5, 0.5), (0.9, 0.6), (0.02, 0.02), (0.99, 0.01)])
def test_coverage(p: float, q: float) -> None:
    """Nominal .95; counted over 4,000 draws of 200 and 100 rows, and never below .92."""
    rng = np.random.default_rng(1)
    draws = zip(rng.binomial(200, p, 4000), rng.binomial(100, q, 4000), strict=True)
    edges = [difference_interval(int(a), 200, int(b), 100) for a, b in draws]
    assert np.mean([low <= p - q <= high for low, high in edges]) > 0.92
