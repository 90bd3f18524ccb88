"""Worlds: who answers, what arms pay, and how it changes; each a function of its address alone."""

from __future__ import annotations

import numpy as np
import pytest

from posse.problems.populations.population import Population, Ragged
from posse.problems.populations.worlds import (
    Availability,
    LabelDrift,
    Rewards,
    ValueDrift,
    inverse_frequency,
    scenario,
    tag_counts,
)
from tests.kit.rules import refused
from tests.kit.statistics import SIGMAS
from tests.problems.populations import images, texts

# --- availability ---------------------------------------------------------------------------------


def test_answers_depend_on_client_and_round_alone() -> None:
    answers = Availability(missing=0.3, late=0.3, delay=3, never=0.1, seed=4)
    everyone = answers.in_time(np.arange(500), 7)
    order = np.random.default_rng(0).permutation(500)
    np.testing.assert_array_equal(answers.in_time(order, 7), everyone[order])
    assert [bool(answers.in_time(c, 7)[0]) for c in range(20)] == everyone[:20].tolist()
    assert (answers.in_time(np.arange(500), 8) != everyone).any()


@pytest.mark.parametrize(
    ("answers", "rate"),
    [
        (Availability(missing=0.2, late=0.25, delay=2, seed=1), 0.8 * 0.75),
        (Availability(missing=0.2, seed=1), 0.8),
        (Availability(late=0.25, seed=1), 0.75),
    ],
)
def test_rates(answers: Availability, rate: float) -> None:
    # 400,000 draws: a rate off by 0.004 would be seen 95 times in 100; a true one fails once in
    # 1,000.
    found = np.concatenate([answers.in_time(np.arange(100_000), round_) for round_ in range(4)])
    assert abs(found.mean() - rate) < SIGMAS * 0.5 / np.sqrt(len(found))


def test_some_clients_never_come() -> None:
    answers = Availability(never=0.3, seed=2)
    rounds = np.stack([answers.in_time(np.arange(3000), round_) for round_ in range(3)])
    assert (rounds == rounds[0]).all()
    assert abs((~rounds[0]).mean() - 0.3) < SIGMAS * 0.5 / np.sqrt(3000)
    assert Availability().in_time(np.arange(5), 1).all()


def test_bad_availability() -> None:
    with refused("problems.missing.out-of-range"):
        Availability(missing=1.5)
    with refused("problems.never.everybody"):
        Availability(never=1.0)
    with refused("problems.delay.too-small"):
        Availability(delay=0)


# --- drift ----------------------------------------------------------------------------------------


def test_labels_drift_by_permutations() -> None:
    drift = LabelDrift(arms=10, every=50, share=0.3, seed=1)
    assert drift.mapping(49).tolist() == list(range(10))
    for round_ in (50, 100, 333):
        assert sorted(drift.mapping(round_).tolist()) == list(range(10))
        assert drift.table(round_).sum() == 10
    assert (drift.mapping(50) != np.arange(10)).sum() == 3
    # Periods follow one another: what moved before stays moved.
    assert (drift.mapping(333) != np.arange(10)).sum() > 3
    assert drift.mapping(99).tolist() == drift.mapping(50).tolist()
    assert drift.mapping(333).tolist() == LabelDrift(10, 50, 0.3, 1).mapping(333).tolist()
    assert (LabelDrift(4, 1, 1.0, 2).mapping(1) != np.arange(4)).all()


def test_values_drift_within_their_depth() -> None:
    drift = ValueDrift(arms=6, period=40, depth=0.4, seed=1)
    values = np.stack([drift.values(round_) for round_ in range(40)])
    assert values.min() >= 0.6
    assert values.max() <= 1
    np.testing.assert_allclose(values.mean(axis=0), 0.8, atol=1e-9)
    np.testing.assert_allclose(drift.values(3), drift.values(43), atol=1e-9)
    assert (ValueDrift(6, 40, 0.0).values(7) == 1).all()


def test_rewards_under_drift() -> None:
    plain = Rewards(np.eye(3))
    moved = plain.at(LabelDrift(3, 10, 1.0, 5), 10)
    mapping = LabelDrift(3, 10, 1.0, 5).mapping(10)
    assert moved.table[np.arange(3), mapping].tolist() == [1, 1, 1]
    assert moved.table.sum() == 3
    assert plain.at(None, 10) is plain


# --- scenarios ------------------------------------------------------------------------------------


def letters() -> Population:
    return images([1, 1], arms=("0", "A", "a"), labels=np.array([1, 2], np.int32))


def test_scratch_and_init() -> None:
    scratch, init = scenario("scratch", letters()), scenario("init", letters(), pretrained=2)
    assert (scratch.pretrained, scratch.before) == (0, None)
    assert scratch.initial(100, seed=1).tolist() == []
    assert init.before is init.rewards
    assert init.initial(2, seed=1).tolist() == [0, 1]
    chosen = scenario("init", letters()).initial(5000, seed=3)
    assert len(set(chosen.tolist())) == 100
    assert (np.diff(chosen) > 0).all()
    with refused("problems.pretrained.too-many"):
        scenario("init", letters()).initial(50, seed=1)


def test_shift_of_letters() -> None:
    shifted = scenario("init-shift", letters())
    assert shifted.before is not None
    assert shifted.before.table.tolist() == [[1, 0, 0], [0, 1, 0.5], [0, 0, 1]]
    assert shifted.rewards.table.tolist() == np.eye(3).tolist()
    with refused("problems.before.not-letters"):
        scenario("init-shift", images([1, 1]))
    with refused("problems.scenario.unknown"):
        scenario("shift", letters())


def test_shift_of_tags() -> None:
    arms = tuple(f"tag-{i}" for i in range(12))
    rows = [[tag for tag in range(12) if sample % (tag + 1) == 0] for sample in range(24)]
    whole = texts()
    tagged = Population(
        "t",
        arms,
        np.array([0, 10, 24]),
        Ragged.of([[0]] * 24),
        Ragged.of(rows),
        vocabulary=whole.vocabulary,
    )
    counts = tag_counts(tagged)
    assert counts[:3].tolist() == [24, 12, 8]
    shifted = scenario("init-shift", tagged)
    assert shifted.before is not None
    assert shifted.pretrained_arms is not None
    assert shifted.pretrained_arms.tolist() == [True] * 10 + [False] * 2
    np.testing.assert_allclose(np.diag(shifted.before.table), [1] * 10 + [0] * 2)
    np.testing.assert_allclose(np.diag(shifted.rewards.table), 24 / counts)
    assert shifted.rewards.table.min() == 0
    with refused("problems.tags.unused"):
        inverse_frequency([3, 0])
    with refused("problems.population.no-tags"):
        tag_counts(letters())


def test_rewards_must_be_finite() -> None:
    with refused("problems.before.not-a-table"):
        Rewards(np.array([[np.nan]]))
