"""The authors' world: the very numbers it draws, and arms that share a stream."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from posse.core.random import SELECT, uniform
from posse.policies import UCB, EpsilonDecreasing, Pursuit, Softmax, Thompson
from posse.problems import BernoulliArms
from posse.systems.samba.twin import simulate
from reproduction.samba.agreement import (
    OWN,
    SHARED,
    THEIRS,
    draw_correlation,
    estimate,
    our_rewards,
    z_score,
)
from reproduction.samba.replay import SEEDS, replay, their_beta, their_stream, their_thompson


def authors(n: int) -> float:
    return random.Random(n).random()


def test_equal_arms_earn_what_the_world_pays_whichever_is_pulled() -> None:
    rewards = replay(np.array([0.4, 0.4, 0.4]), UCB(), (100, 250), runs=3)
    for run in (1, 2, 3):
        for place, budget in enumerate((100, 250)):
            paid = sum(authors(run + t) < 0.4 for t in range(1, budget + 1))
            assert rewards[run - 1, place] == paid


def plain_ucb(means: list[float], budget: int, run: int) -> int:
    """UCB in the authors' world, in plain Python; equals are settled by the coin that `replay`
    uses.
    """
    arms = range(len(means))
    total, pulls = [0] * len(means), [0] * len(means)
    for t in range(1, budget + 1):
        chosen = t - 1
        if t > len(means):
            scores = [total[i] / pulls[i] + math.sqrt(2 * math.log(t) / pulls[i]) for i in arms]
            best = [i for i in arms if scores[i] == max(scores)]
            chosen = best[int(uniform(np.uint64(run), SELECT, 0, t, 0) * len(best))]
        total[chosen] += authors(run + t) < means[chosen]
        pulls[chosen] += 1
    return sum(total)


def test_ucb_against_plain_python() -> None:
    means = [0.53, 0.43, 0.36, 0.1]
    rewards = replay(np.array(means), UCB(), (600,), runs=4)
    assert rewards[:, 0].tolist() == [plain_ucb(means, 600, run) for run in (1, 2, 3, 4)]


@pytest.mark.long
@pytest.mark.parametrize(
    "policy",
    [Softmax(0.06), Pursuit(0.1), EpsilonDecreasing("inverse-log"), Thompson()],
    ids=lambda p: p.name,
)
def test_in_independent_worlds_it_earns_what_the_twin_earns(policy: object) -> None:
    """Two implementations of each policy: their means over 400 runs differ by less than 4 standard
    errors.

    By chance one test in 16,000 fails; a policy that earns half a standard deviation less fails
    almost surely.
    """
    means = np.array([0.5, 0.4, 0.3, 0.2])
    mine = estimate(replay(means, policy, (400,), runs=400, their_world=False)[:, 0])  # type: ignore[arg-type]
    twin = estimate(simulate(BernoulliArms(means), policy, 400, range(1000, 1400)).total)  # type: ignore[arg-type]
    assert abs(z_score(mine, twin)) < 4
    worse = estimate(np.full(400, mine.mean - 0.5 * twin.sd) + np.linspace(-1, 1, 400) * twin.sd)
    assert abs(z_score(worse, twin)) > 4


def test_one_stream_correlates_the_arms_and_own_streams_do_not() -> None:
    for draws in (SHARED, THEIRS):
        low, high = draw_correlation(draws)
        assert 0.5 < low <= high <= 1.0
    # 2,000 draws: the standard error of a correlation of independent samples is .022.
    assert max(abs(value) for value in draw_correlation(OWN)) < 0.1


def test_streams_matter_to_thompson_and_to_no_policy_without_draws() -> None:
    means = np.array([0.5, 0.45, 0.4, 0.2])
    for policy, same in ((Thompson(), False), (UCB(), True)):
        own, shared = (
            replay(means, policy, (500,), runs=5, shared_draws=one) for one in (False, True)
        )
        assert np.array_equal(own, shared) is same


def test_rewards_at_smaller_budgets_are_the_beginning_of_the_run() -> None:
    several = our_rewards("jester", "ucb", 10, (300, 500), runs=12)
    alone = our_rewards("jester", "ucb", 10, (300,), runs=12)
    assert several[:, 0].tolist() == alone[:, 0].tolist()
    assert (several[:, 1] > several[:, 0]).all()


def test_their_sampler_is_that_of_the_library() -> None:
    stream = their_stream(300)
    for seed in range(300):
        for a, b in ((1.0, 1.0), (1.0, 7.0), (6.0, 1.0), (31.0, 52.0), (900.0, 801.0)):
            assert their_beta(a, b, stream[seed]) == pytest.approx(
                random.Random(seed).betavariate(a, b), rel=1e-12
            )


def test_their_thompson_against_plain_python() -> None:
    means, budget, runs = [0.53, 0.43, 0.1], 400, 3
    chooser = random.Random(runs)
    expected = []
    for run in range(1, runs + 1):
        seed = chooser.randint(*SEEDS)
        total, pulls = [0, 0, 0], [0, 0, 0]
        for t in range(1, budget + 1):
            draws = [
                random.Random(seed + t).betavariate(s + 1, n - s + 1)
                for s, n in zip(total, pulls, strict=True)
            ]
            chosen = t - 1 if t <= 3 else draws.index(max(draws))
            total[chosen] += authors(run + t) < means[chosen]
            pulls[chosen] += 1
        expected.append(sum(total))
    assert their_thompson(np.array(means), (budget,), runs)[:, 0].tolist() == expected
