"""The policies: the paper's worked examples, schedules, parameters, and the names they go by."""

from __future__ import annotations

import math
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posse.core.errors import ConfigError
from posse.core.exact import beta, exp
from posse.core.random import OWN
from posse.policies import (
    ARGMAX,
    POLICIES,
    UCB,
    EpsilonDecreasing,
    EpsilonGreedy,
    Policy,
    Pursuit,
    Selection,
    Softmax,
    Thompson,
    policy,
)
from posse.policies.arms.registry import PARAMETERS, PolicySettings, parameters_of
from posse.policies.arms.shipped import FLOOR
from posse.systems.samba.kernels import kernels, select_argmax

KEY = np.uint64(11)
KNOWN = {"epsilon-greedy", "epsilon-decreasing", "ucb", "thompson", "softmax", "pursuit"}


def scores(
    policy: Policy, t: int, sums: list[float], pulls: list[int], turn: int = 0, memory: float = 0.0
) -> list[float]:
    return [
        policy.score(t, turn, float(total), n, memory, KEY, policy.parameters())
        for total, n in zip(sums, pulls, strict=True)
    ]


def test_ucb_at_step_68_as_the_paper_works_it_out() -> None:
    """Section 4.1.2: s = 24, 10, 2 and n = 33, 24, 10 give 1.23, 1.01 and 1.12; arm 1 is pulled."""
    bounds = scores(UCB(), 68, [24, 10, 2], [33, 24, 10])
    assert [round(bound, 2) for bound in bounds] == [1.23, 1.01, 1.12]
    assert UCB().passes() == (ARGMAX,)


def test_epsilon_greedy_as_the_paper_works_it_out() -> None:
    """Section 4.1.2: with epsilon = .1 the coin .7 exploits (the largest mean wins), .04
    explores.
    """
    policy = EpsilonGreedy(epsilon=0.1)
    exploring = kernels(policy).exploring
    assert [bool(exploring(coin, 68, 3, policy.parameters())) for coin in (0.7, 0.04)] == [
        False,
        True,
    ]
    means = scores(policy, 68, [24, 10, 2], [33, 24, 10])
    assert means == [24 / 33, 10 / 24, 2 / 10]
    assert [select_argmax(np.array(means), u) for u in (0.0, 0.5, 0.99)] == [0, 0, 0]
    assert [select_argmax(np.zeros(3), u) for u in (0.0, 0.5, 0.99)] == [
        0,
        1,
        2,
    ]  # any of K equal numbers


def test_ucb_is_mean_plus_width() -> None:
    ours = scores(UCB(coefficient=0.5), 1000, [7], [20])[0]
    assert ours == pytest.approx(7 / 20 + math.sqrt(0.5 * math.log(1000) / 20), rel=1e-15)


def test_softmax_at_step_98_as_the_paper_works_it_out() -> None:
    """Section 4.1.2: rounded means .72, .38, .20 and tau = .1 give 1339.43, 44.7, 7.39;
    probabilities .96, .03, .01.

    An owner sends exp((mean - 1) / tau) instead of exp(mean / tau): the same proportions, and at
    most 1.
    """
    policy = Softmax(tau=0.1)
    (selection,) = policy.passes()
    assert (selection.kind, selection.scale, selection.ceiling) == ("match", 0.1, 1.0)
    means = scores(policy, 98, [0.72, 0.38, 0.2], [1, 1, 1])
    sent = np.array([exp((mean - selection.ceiling) / selection.scale) for mean in means])
    assert sent.max() <= 1.0
    published = np.array([1339.43, 44.7, 7.39])
    assert sent / sent[0] == pytest.approx(published / published[0], rel=1e-3)
    assert (sent / sent.sum()).round(2).tolist() == [0.96, 0.03, 0.01]


def test_pursuit_at_step_4_as_the_paper_works_it_out() -> None:
    """Section 4.2: K = 3, s = 1, 0, 0, p = 1/3 and beta = .1 give probabilities .4, .3, .3."""
    policy = Pursuit(beta=0.1)
    first, second = policy.passes()
    assert first == ARGMAX
    assert (second.kind, second.scale, second.ceiling) == ("match", 1.0, 0.0)
    means = scores(policy, 4, [1, 0, 0], [1, 1, 1])
    assert means == [1.0, 0.0, 0.0]
    start = policy.start(3)
    learnt = [
        policy.learn(0, chosen, start, policy.parameters()) for chosen in (True, False, False)
    ]
    assert learnt == pytest.approx([0.4, 0.3, 0.3], abs=1e-15)
    logs = [policy.score(4, 1, 1.0, 1, p, KEY, policy.parameters()) for p in learnt]
    assert [exp(value) for value in logs] == pytest.approx([0.4, 0.3, 0.3], abs=1e-15)
    assert [policy.learn(1, chosen, 0.4, policy.parameters()) for chosen in (True, False)] == [
        0.4,
        0.4,
    ]


@settings(deadline=None, max_examples=50)
@given(st.integers(2, 30), st.floats(0.001, 1.0), st.lists(st.integers(0, 29), max_size=60))
def test_pursuit_keeps_a_distribution(owners: int, rate: float, winners: list[int]) -> None:
    policy = Pursuit(beta=rate)
    chances = [policy.start(owners)] * owners
    for winner in winners:
        chances = [
            policy.learn(0, i == winner % owners, p, policy.parameters())
            for i, p in enumerate(chances)
        ]
        assert sum(chances) == pytest.approx(1.0)
        assert all(0.0 <= p <= 1.0 for p in chances)


def test_pursuit_has_a_floor_far_below_any_draw() -> None:
    policy = Pursuit()
    assert policy.score(4, 1, 1.0, 1, 0.0, KEY, policy.parameters()) == pytest.approx(
        math.log(FLOOR)
    )


def test_thompson_samples_the_posterior_from_the_owners_own_stream() -> None:
    ours = scores(Thompson(), 50, [12], [20])[0]
    assert ours == beta(13.0, 9.0, KEY, OWN, 0, 50)
    other = Thompson().score(50, 0, 12.0, 20, 0.0, np.uint64(12), (0.0,))
    later = Thompson().score(51, 0, 12.0, 20, 0.0, KEY, (0.0,))
    assert len({ours, other, later}) == 3


def test_epsilon_greedy_scores_by_the_mean_and_explores_at_a_fixed_rate() -> None:
    policy = EpsilonGreedy(epsilon=0.25)
    assert scores(policy, 9, [3, 4], [4, 8]) == [0.75, 0.5]
    assert {policy.explore(t, 10, policy.parameters()) for t in (3, 100, 10**6)} == {0.25}
    assert policy.explores


@pytest.mark.parametrize(
    ("schedule", "scale", "expected"),
    [
        ("inverse", 2.0, {1: 1.0, 4: 0.5, 1000: 0.002}),
        ("inverse-sqrt", 2.0, {1: 1.0, 16: 0.5, 10_000: 0.02}),
        ("inverse-arms", 0.5, {5: 1.0, 20: 0.25, 1000: 0.005}),
        ("inverse-log", 1.0, {2: 1.0, 16: 0.25, 1024: 0.1}),
    ],
)
def test_epsilon_falls_by_its_schedule(
    schedule: str, scale: float, expected: dict[int, float]
) -> None:
    policy = EpsilonDecreasing(schedule, scale)
    for t, probability in expected.items():
        assert policy.explore(t, 10, policy.parameters()) == pytest.approx(probability, rel=1e-15)


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_explores_where_it_says_so(name: str) -> None:
    made = policy(name)
    rates = [made.explore(t, 10, made.parameters()) for t in (3, 100, 10**6)]
    assert (max(rates) > 0) == made.explores


def test_epsilon_policies_explore_and_others_that_we_know_do_not() -> None:
    explore = {name for name in POLICIES if policy(name).explores}
    assert explore.intersection(KNOWN) == {"epsilon-greedy", "epsilon-decreasing"}


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("epsilon-greedy", {"epsilon": -0.1}, r"epsilon must be in \[0, 1\], got -0\.1"),
        ("epsilon-greedy", {"epsilon": 1.1}, "epsilon must be in"),
        ("epsilon-greedy", {"epsilon": math.nan}, "epsilon must be a number, got NaN"),
        ("epsilon-decreasing", {"schedule": "inverse-sqr"}, "Did you mean 'inverse-sqrt'"),
        ("epsilon-decreasing", {"scale": 0}, "scale must be a finite number above 0"),
        ("ucb", {"coefficient": 0}, "coefficient must be a finite number above 0"),
        ("ucb", {"coefficient": math.inf}, "coefficient must be a finite number above 0"),
        ("softmax", {"tau": 0}, r"tau must be in \(0, 20\]"),
        ("softmax", {"tau": 21}, r"tau must be in \(0, 20\]"),
        ("pursuit", {"beta": 0}, r"beta must be in \(0, 1\]"),
        ("pursuit", {"beta": 1.5}, r"beta must be in \(0, 1\]"),
        ("ucb", {"tau": 1}, "policy 'ucb' has no parameter 'tau'; it takes coefficient"),
        ("thompson", {"tau": 1}, "policy 'thompson' has no parameter 'tau'; it takes none"),
        ("thomson", {}, "unknown policy 'thomson'. Did you mean 'thompson'"),
        ("qqqq", {}, "unknown policy 'qqqq'. Known: epsilon-decreasing, "),
    ],
)
def test_a_wrong_parameter_is_refused_in_one_line(
    name: str, parameters: dict[str, float], message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        policy(name, parameters)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_is_made_by_its_name_and_describes_itself(name: str) -> None:
    made = policy(name)
    assert made == POLICIES[name]()
    assert (made.name, made.describe()["name"]) == (name, name)
    assert made.summary
    assert made.reference
    given = made.describe()["parameters"]
    assert policy(name, given) == made
    assert policy(made.describe()) == made
    assert set(given) == set(parameters_of(name)) <= set(PARAMETERS)
    assert all(field.metadata["meaning"] for field in fields(made))


def test_settings_make_a_policy_and_leave_out_what_is_not_given() -> None:
    assert PolicySettings().make_policy() == Thompson()
    assert PolicySettings(policy="ucb").make_policy() == UCB()
    assert PolicySettings.make({"policy": "softmax", "tau": 0.3}).make_policy() == Softmax(0.3)
    with pytest.raises(ConfigError, match="policy 'softmax' has no parameter 'beta'"):
        PolicySettings(policy="softmax", beta=0.3)


def test_values_do_not_change() -> None:
    with pytest.raises(AttributeError):
        UCB().coefficient = 3.0  # type: ignore[misc]
    with pytest.raises(AttributeError):
        Selection("argmax").scale = 3.0  # type: ignore[misc]
