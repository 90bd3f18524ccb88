"""Estimators of features: what arms tell, how good an estimate is, and which of two rows was
opened.
"""

from __future__ import annotations

import numpy as np
import pytest

from posse.core.errors import ConfigError
from posse.privacy.leakage.features import Known, along, by_group, r_squared, recognise


def bandit(steps: int, rate: float, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, Known]:
    """A bandit by least squares on rows around three centres, whose own arm pays; also rows that
    somebody knows.
    """
    rng = np.random.default_rng(seed)
    centres = np.eye(3)
    kinds = rng.integers(3, size=2 * steps)
    rows = centres[kinds] + rng.normal(0, 0.15, (2 * steps, 3))
    pays = np.eye(3)[kinds]
    weights, inverses = np.zeros((3, 3)), np.tile(np.eye(3), (3, 1, 1))
    arms, rewards = np.empty(steps, np.int64), np.empty(steps)
    for at in range(steps):
        x = rows[at]
        arm = (
            int(rng.integers(3))
            if rng.random() < rate
            else int((weights @ x + rng.normal(0, 1e-9, 3)).argmax())
        )
        direction = inverses[arm] @ x
        gain = direction / (1 + direction @ x)
        weights[arm] += gain * (pays[at, arm] - weights[arm] @ x)
        inverses[arm] -= np.outer(gain, direction)
        arms[at], rewards[at] = arm, pays[at, arm]
    return rows[:steps], arms, rewards, Known(rows[steps:], pays[steps:])


@pytest.mark.parametrize("with_rewards", [False, True])
def test_the_sequence_of_arms_tells_features_and_less_where_more_explores(
    with_rewards: bool,
) -> None:
    found = {}
    for rate in (0.1, 1.0):
        rows, arms, rewards, known = bandit(300, rate, 1)
        made = along(known, arms, rewards if with_rewards else None, rate)
        found[rate] = r_squared(made, rows, known.features.mean(axis=0))
    assert found[0.1].value > 0.5
    assert found[0.1].p < 1e-6
    if with_rewards:  # arms at random with their rewards still tell whether the row is of that kind
        assert 0.1 < found[1.0].value < found[0.1].value
    else:
        assert found[1.0].value < 0.05
        assert not found[1.0].above()


def test_the_same_answer_twice_and_another_for_another_seed() -> None:
    _, arms, rewards, known = bandit(60, 0.1, 2)
    first, again, other = (along(known, arms, rewards, 0.1, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_the_interval_of_r_squared_covers_and_its_p_holds_its_size() -> None:
    """Estimates that know nothing: over 600 draws p below .01 in at most 17 (upper .001 point)."""
    rng = np.random.default_rng(3)
    alarms = 0
    for _ in range(600):
        rows = rng.normal(size=(60, 2))
        alarms += r_squared(0.05 * rng.normal(size=(60, 2)), rows, np.zeros(2)).above()
    assert alarms <= 17


def test_groups_without_known_rows_get_the_mean() -> None:
    assert by_group([[1.0], [3.0]], ["a", "b"], ["c"]).tolist() == [[2.0]]


def opened(leak: bool, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    true, decoy = rng.normal(0, 0.3, (2, 120, 4))
    answers = rng.integers(2, size=120)
    pairs = np.where(
        answers[:, None, None] == 0, np.stack([true, decoy], 1), np.stack([decoy, true], 1)
    )
    words = rng.integers(0, 2**64, (120, 500), np.uint64)
    if leak:
        words[:, 77] = np.rint(true[:, 2] * 2**26).astype(np.int64).view(np.uint64)
    return words, pairs, np.where(np.arange(120) % 2, -1, answers), answers


def test_one_word_in_the_clear_among_500_is_recognised_and_masks_are_not() -> None:
    """60 guesses each: a fair coin has 48 or more right with probability 1e-6."""
    for leak in (True, False):
        words, pairs, known, answers = opened(leak, 4)
        right = int((recognise(words, pairs, known) == answers)[known < 0].sum())
        assert (right >= 48) == leak
    with pytest.raises(ConfigError, match="4 known rows"):
        recognise(words, pairs, np.full(120, -1))


def test_known_rows_of_two_lengths_are_refused() -> None:
    with pytest.raises(ConfigError, match="known rows need"):
        Known(np.eye(3), np.eye(2))
