"""Arms: rewards are a function of seed, arm and pull, bounded, and right on average.

Statistical tests have a false-alarm rate of .001 each; their seeds are fixed.
"""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posse.core.errors import ConfigError
from posse.core.fixed import REWARD_ONE
from posse.problems.arms.rewards import Arms, BernoulliArms, BetaArms, EmpiricalArms, reward
from tests.kit.statistics import KS_LIMIT, SIGMAS, chi_square, chi_square_limit, ks

KINDS = {
    "bernoulli": BernoulliArms([0.1, 0.5, 0.93]),
    "beta": BetaArms([0.1, 0.5, 0.93], concentration=4.0),
    "resampled": EmpiricalArms([[0.1], [0.0, 0.5, 1.0], [0.25, 0.75, 0.75, 1.0, 1.0]]),
}
PULLS = 20_000


def pulled(arms: Arms, seed: int, arm: int, pulls: int = PULLS) -> np.ndarray:
    return np.array([arms.reward(seed, arm, pull) for pull in range(pulls)]) / REWARD_ONE


@pytest.mark.parametrize("kind", KINDS)
def test_a_reward_is_a_function_of_seed_arm_and_pull(kind: str) -> None:
    arms = KINDS[kind]
    addresses = [
        (seed, arm, pull) for seed in (0, 1, 2**62) for arm in range(3) for pull in range(50)
    ]
    first = {address: arms.reward(*address) for address in addresses}
    random.Random(1).shuffle(addresses)
    assert all(arms.reward(*address) == first[address] for address in addresses)
    for part in range(3):  # each part of the address counts
        moved = [
            tuple(value + (i == part) for i, value in enumerate(address)) for address in addresses
        ]
        assert any(
            arms.reward(*at) != first[was]
            for at, was in zip(moved, addresses, strict=True)
            if at[1] < 3
        )


@pytest.mark.parametrize("kind", KINDS)
def test_the_world_of_an_arm_does_not_depend_on_the_other_arms(kind: str) -> None:
    more = {
        "bernoulli": BernoulliArms([0.1, 0.5, 0.93, 0.2]),
        "beta": BetaArms([0.1, 0.5, 0.93, 0.2], concentration=4.0),
        "resampled": EmpiricalArms([[0.1], [0.0, 0.5, 1.0], [0.25, 0.75, 0.75, 1.0, 1.0], [0.3]]),
    }
    for arm in range(3):
        assert pulled(KINDS[kind], 5, arm, 200).tolist() == pulled(more[kind], 5, arm, 200).tolist()


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(sorted(KINDS)),
    st.integers(0, 2**63 - 1),
    st.integers(0, 2),
    st.integers(0, 2**32 - 1),
)
def test_rewards_are_whole_units_in_range_and_the_source_agrees(
    kind: str, seed: int, arm: int, pull: int
) -> None:
    arms = KINDS[kind]
    units = arms.reward(seed, arm, pull)
    assert isinstance(units, int)
    assert 0 <= units <= REWARD_ONE
    assert reward.py_func(arms.world, np.uint64(seed), arm, pull) == units


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("arm", range(3))
def test_the_mean_converges_to_the_stated_one(kind: str, arm: int) -> None:
    """Power above .99 against a mean off by 6 of its standard errors: at most .021 for n = 20 000
    and sd .5.
    """
    arms = KINDS[kind]
    paid = pulled(arms, 7, arm)
    error = max(paid.std(), 1e-7) / math.sqrt(PULLS)
    assert abs(paid.mean() - arms.means[arm]) < SIGMAS * error + 2.0**-24
    assert abs(paid.mean() + 6 * error - arms.means[arm]) > 2 * error
    assert arms.kind == kind


def test_bernoulli_arms_pay_nothing_or_one() -> None:
    assert set(pulled(KINDS["bernoulli"], 3, 1, 200).tolist()) == {0.0, 1.0}
    sure = BernoulliArms([0.0, 1.0])
    assert pulled(sure, 3, 0, 500).max() == 0.0
    assert pulled(sure, 3, 1, 500).min() == 1.0


def test_beta_arms_have_their_spread() -> None:
    """Beta(2, 2) by its distribution 3x^2 - 2x^3; power above .99 against a distribution .03 away
    (n = 20 000).
    """
    paid = pulled(KINDS["beta"], 7, 1)
    assert ks(paid.tolist(), lambda x: x * x * (3 - 2 * x)) < KS_LIMIT
    assert ks((0.97 * paid).tolist(), lambda x: x * x * (3 - 2 * x)) > KS_LIMIT
    narrow, wide = (BetaArms([0.3, 0.6], c).means.tolist() for c in (100.0, 1.0))
    assert narrow == wide == [0.3, 0.6]
    assert (
        pulled(BetaArms([0.3, 0.6], 100.0), 1, 0, 500).std()
        < pulled(BetaArms([0.3, 0.6], 1.0), 1, 0, 500).std()
    )


def test_empirical_arms_pay_their_own_observations_equally_often() -> None:
    """Three observations; power above .99 against .31, .345, .345 (noncentrality above 30)."""
    arms = KINDS["resampled"]
    counts = np.unique(pulled(arms, 7, 1), return_counts=True)
    assert counts[0].tolist() == [0.0, 0.5, 1.0]
    assert chi_square(counts[1]) < chi_square_limit(2)
    assert chi_square(counts[1] * np.array([0.93, 1.035, 1.035])) > chi_square_limit(2)
    assert arms.means.tolist() == pytest.approx([0.1, 0.5, 0.75])
    assert set(pulled(arms, 7, 2, 300).tolist()) == {0.25, 0.75, 1.0}


def test_arms_of_one_seed_and_seeds_of_one_arm_are_independent() -> None:
    """Power above .99 against a correlation of .05 (n = 20 000)."""
    arms = BernoulliArms([0.5, 0.5])
    one, other, another = pulled(arms, 7, 0), pulled(arms, 7, 1), pulled(arms, 8, 0)
    for a, b in ((one, other), (one, another), (one[:-1], one[1:])):
        assert abs(np.corrcoef(a, b)[0, 1]) * math.sqrt(len(a)) < SIGMAS


def test_arms_describe_themselves() -> None:
    arms = BernoulliArms([0.25, 0.5], names=["a", "b"], source="a test")
    assert arms.describe() == {
        "kind": "bernoulli",
        "names": ["a", "b"],
        "means": [0.25, 0.5],
        "source": "a test",
    }
    assert (len(arms), arms.best) == (2, 0.5)
    assert BernoulliArms([0.1, 0.2]).names == ("arm-1", "arm-2")
    assert "array" not in repr(arms).replace("means=array", "")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: BernoulliArms([0.5]), "at least 2 arms, got 1"),
        (lambda: BernoulliArms([]), "at least 2 arms, got 0"),
        (lambda: BernoulliArms([0.5, 1.5]), r"means must be in \[0, 1\], got 1\.5 at position 2"),
        (lambda: BernoulliArms([-0.1, 0.5]), "got -0.1 at position 1"),
        (lambda: BernoulliArms([0.5, math.nan]), "got nan at position 2"),
        (lambda: BernoulliArms([[0.5, 0.1]]), "array of 2 dimensions"),
        (lambda: BernoulliArms([0.5, 0.6], names=["a"]), "1 names for 2 arms"),
        (lambda: BernoulliArms([0.5, 0.6], names=["a", "a"]), "got 'a' twice"),
        (lambda: BetaArms([0.0, 0.5]), "strictly between 0 and 1"),
        (lambda: BetaArms([0.5, 1.0]), "strictly between 0 and 1"),
        (
            lambda: BetaArms([0.5, 0.6], concentration=0.0),
            "concentration must be at least 0.05, got 0.0",
        ),
        (lambda: BetaArms([0.5, 0.6], concentration=math.inf), "concentration must be"),
        (lambda: BetaArms([0.5, 0.6], concentration=math.nan), "concentration must be"),
        (lambda: EmpiricalArms([]), "at least 2 arms, got 0"),
        (lambda: EmpiricalArms([[0.5]]), "at least 2 arms, got 1"),
        (lambda: EmpiricalArms([[0.5], []]), "arm 2 has no observed reward"),
        (
            lambda: EmpiricalArms([[0.5], [0.2, 2.0]]),
            "rewards of arm 2 must be in .* got 2.0 at position 2",
        ),
    ],
)
def test_wrong_arms_are_refused_in_one_line(make: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        make()  # type: ignore[operator]
    assert "\n" not in str(caught.value)
