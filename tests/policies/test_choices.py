"""How often each arm is chosen: matching has its distribution, exploring is uniform, at both
levels.

The twin of `posse.systems.samba` makes the choices. Tests have a false-alarm rate of .001 each;
seeds are fixed.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from posse.core.exact import gumbel
from posse.core.random import GUMBEL, derive_key, uniform
from posse.policies import EpsilonGreedy, Policy, Pursuit, Softmax
from posse.problems import BernoulliArms
from posse.systems.samba.twin import simulate
from tests.kit.statistics import chi_square, chi_square_limit

SEEDS = range(12_000)


def test_gumbel_max_has_the_softmax_distribution() -> None:
    """n = 40 000 over 4 arms. Power above .99 against 2 % of probability moved between two arms
    (noncentrality 214).
    """
    means, tau = np.array([0.5, 0.45, 0.3, 0.62]), 0.1
    wanted = np.exp(means / tau) / np.exp(means / tau).sum()
    n = 40_000
    counts = np.zeros(4)
    keys = [np.uint64(derive_key(5, arm)) for arm in range(4)]
    for t in range(n):
        noisy = [
            mean + tau * gumbel(uniform(key, GUMBEL, 0, t, 0))
            for mean, key in zip(means, keys, strict=True)
        ]
        counts[int(np.argmax(noisy))] += 1
    assert chi_square(counts, n * wanted) < chi_square_limit(3)
    moved = wanted + np.array([0.02, -0.02, 0.0, 0.0])
    assert chi_square(counts, n * moved) > chi_square_limit(3)


def first_choices(policy: Policy, means: list[float], level: str) -> np.ndarray:
    """How often each arm is pulled at step K + 1, the first one that the policy decides."""
    arms = BernoulliArms(means)
    outcome = simulate(arms, policy, len(means) + 1, list(SEEDS), level=level)
    return (outcome.pulls - 1).sum(axis=0)


@pytest.mark.parametrize("level", ["strict", "paper"])
def test_the_first_softmax_choice_has_the_published_distribution(level: str) -> None:
    """Arms that pay 1, 0, 0 for sure; tau = 1. Power above .99 against 4 % moved between two arms
    (n = 12 000).
    """
    counts = first_choices(Softmax(tau=1.0), [1.0, 0.0, 0.0], level)
    wanted = np.array([math.e, 1.0, 1.0]) / (math.e + 2)
    assert chi_square(counts, len(SEEDS) * wanted) < chi_square_limit(2)
    moved = wanted + np.array([0.04, -0.04, 0.0])
    assert chi_square(counts, len(SEEDS) * moved) > chi_square_limit(2)


@pytest.mark.parametrize("level", ["strict", "paper"])
def test_the_first_pursuit_choice_has_the_published_distribution(level: str) -> None:
    """The paper's example: after s = 1, 0, 0 the probabilities are .4, .3, .3. Power above .99
    against 4 % moved.
    """
    counts = first_choices(Pursuit(beta=0.1), [1.0, 0.0, 0.0], level)
    wanted = np.array([0.4, 0.3, 0.3])
    assert chi_square(counts, len(SEEDS) * wanted) < chi_square_limit(2)
    assert chi_square(counts, len(SEEDS) * np.array([0.44, 0.26, 0.3])) > chi_square_limit(2)


@pytest.mark.parametrize("level", ["strict", "paper"])
def test_exploring_is_uniform_over_arms_whatever_they_earned(level: str) -> None:
    """Ten arms, the first of which pays. Power above .99 against 3 % of probability moved to it
    (noncentrality 120).
    """
    counts = first_choices(EpsilonGreedy(epsilon=1.0), [1.0] + [0.0] * 9, level)
    assert chi_square(counts) < chi_square_limit(9)
    wanted = np.array([0.13] + [0.87 / 9] * 9)
    planted = np.random.default_rng(3).multinomial(len(SEEDS), wanted)
    assert chi_square(planted) > chi_square_limit(9)


@pytest.mark.parametrize("level", ["strict", "paper"])
def test_without_exploring_the_best_mean_is_taken_and_ties_are_shared(level: str) -> None:
    """Of four arms two pay; each of the two is taken half of the time. Power above .99 against .47
    to .53.
    """
    counts = first_choices(EpsilonGreedy(epsilon=0.0), [0.0, 1.0, 0.0, 1.0], level)
    assert counts[[0, 2]].sum() == 0
    assert chi_square(counts[[1, 3]]) < chi_square_limit(1)
