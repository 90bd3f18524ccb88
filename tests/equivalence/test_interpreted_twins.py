"""Short plain runs are interpreted, longer ones compiled: both give the same bits."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from posse.policies.arms.registry import POLICIES, policy
from posse.problems.arms.rewards import Arms, BernoulliArms, BetaArms, EmpiricalArms
from posse.systems.samba.twin import Twin

MEANS = np.linspace(0.15, 0.85, 5)
PROBLEMS = {
    "bernoulli": BernoulliArms(MEANS),
    "beta": BetaArms(MEANS, concentration=2.5),
    "resampled": EmpiricalArms([np.linspace(0, mean, 7) for mean in MEANS]),
}
LEVELS = ("strict", "paper")
SEEDS = (1, 7, 2**63)
SOME = [
    ("ucb", "bernoulli", "strict"),
    ("epsilon-decreasing", "resampled", "strict"),
    ("softmax", "bernoulli", "paper"),
    ("thompson", "beta", "strict"),
    ("pursuit", "resampled", "strict"),
]
OTHERS = [case for case in product(POLICIES, PROBLEMS, LEVELS) if case not in SOME]


def played(name: str, arms: Arms, level: str, *, compiled: bool) -> list[bytes]:
    """Return all that a run computes, in bytes."""
    twin = Twin(arms, policy(name), 120, SEEDS, level=level, keep_arms=True)
    twin.interprets = not compiled
    twin.advance(70)
    twin.advance(50)
    outcome = twin.outcome
    assert outcome.arms is not None
    arrays = (outcome.arms, outcome.units, outcome.pulls, outcome.reward, outcome.regret)
    return [array.tobytes() for array in (*arrays, twin.memory)]


def same_bits(name: str, problem: str, level: str) -> bool:
    arms = PROBLEMS[problem]
    interpreted = played(name, arms, level, compiled=False)
    return interpreted == played(name, arms, level, compiled=True)


@pytest.mark.parametrize(("name", "problem", "level"), SOME)
def test_a_policy_on_a_kind_of_reward(name: str, problem: str, level: str) -> None:
    assert same_bits(name, problem, level)


@pytest.mark.long
@pytest.mark.parametrize(("name", "problem", "level"), OTHERS)
def test_every_policy_on_every_kind_of_reward(name: str, problem: str, level: str) -> None:
    assert same_bits(name, problem, level)


def test_only_short_runs_of_built_in_policies_are_interpreted() -> None:
    class Custom(type(policy("ucb"))):  # type: ignore[misc]
        pass

    arms = PROBLEMS["bernoulli"]
    assert not Twin(arms, policy("softmax"), 20_001, [1], level="paper").interprets
    assert not Twin(arms, policy("softmax"), 2_001, [1, 2], level="paper").interprets
    assert not Twin(arms, Custom(), 100, [1]).interprets
