"""Updates of linear models: exact contexts, means where samples mix, and samples that an update was
learnt from.
"""

from __future__ import annotations

import numpy as np
import pytest

from posse.core.errors import ConfigError
from posse.privacy.leakage.inversion import aligned, invert, matches


def descended(
    rows: np.ndarray, arms: np.ndarray, rewards: np.ndarray, many: int = 3
) -> tuple[np.ndarray, np.ndarray]:
    """Some steps of gradient descent on (x.w + b - r)^2 at the chosen arm, from zeros."""
    weights, bias = np.zeros((rows.shape[1], many)), np.zeros(many)
    for x, arm, reward in zip(rows, arms, rewards, strict=True):
        slope = 0.1 * (x @ weights[:, arm] + bias[arm] - reward)
        weights[:, arm] -= slope * x
        bias[arm] -= slope
    return bias, weights


def test_one_sample_an_arm_is_read_exactly_also_when_clipped() -> None:
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(2, 5))
    bias, weights = descended(rows, np.array([2, 0]), np.array([1.0, 0.5]))
    for factor in (1.0, 1e-3):
        found = invert(factor * bias[None], factor * weights[None])
        assert found.arms.tolist() == [0, 2]
        np.testing.assert_allclose(found.contexts, rows[[1, 0]], rtol=1e-9)
        assert matches(found, rows, np.zeros(2, np.int64), np.array([2, 0])).all()
        assert not matches(found, rows, np.ones(2, np.int64), np.array([2, 0])).any()


def test_several_samples_of_an_arm_mix() -> None:
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(6, 5))
    bias, weights = descended(rows, np.zeros(6, np.int64), np.ones(6))
    found = invert(bias[None], weights[None])
    assert not matches(found, rows, None, np.zeros(6, np.int64)).any()
    shares = np.linalg.lstsq(rows.T, found.contexts[0], rcond=None)[0]
    assert np.abs(rows.T @ shares - found.contexts[0]).max() < 1e-9  # a mean of them, weighted


def test_an_update_moves_what_it_was_learnt_from() -> None:
    rng = np.random.default_rng(3)
    rows, labels = rng.normal(size=(400, 30)), rng.integers(3, size=400)
    bias, weights = descended(rows[:12], labels[:12], np.ones(12))
    found = aligned(bias, weights, rows, labels)
    assert found[:12].mean() > found[12:].mean() + 5 * found[12:].std() / np.sqrt(12)


def test_updates_of_other_models_are_refused() -> None:
    with pytest.raises(ConfigError, match="a bias and a column an arm"):
        invert(np.zeros((1, 3)), np.zeros((1, 5, 4)))
