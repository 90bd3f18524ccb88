"""Classification as a bandit: components, unit rows, and one arm a class."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from posse.core.errors import DataError, MissingExtraError
from posse.core.fixed import REWARD_ONE
from posse.problems.contexts.images import Labelled, digits, principal
from tests.kit.rules import refused


def test_components_are_those_of_the_singular_values() -> None:
    draw = np.random.default_rng(3)
    images = draw.integers(0, 256, (5000, 12)) @ np.diag(np.arange(1, 13))
    found = principal(images, 4)
    centred = images - images.mean(axis=0)
    _, _, axes = np.linalg.svd(centred, full_matrices=False)
    assert np.abs(found.axes.T @ axes[:4].T) == pytest.approx(np.eye(4), abs=1e-9)
    assert found.mean == pytest.approx(images.mean(axis=0))
    # The largest entry of every axis is positive.
    assert (found.axes[np.abs(found.axes).argmax(axis=0), np.arange(4)] > 0).all()


def test_the_order_of_the_images_does_not_matter() -> None:
    """Sums of whole numbers are exact, so that the components are the same to the last bit."""
    draw = np.random.default_rng(4)
    images = draw.integers(0, 256, (9000, 10)).astype(np.uint8)
    assert (
        principal(images, 5).axes.tobytes()
        == principal(images[draw.permutation(9000)], 5).axes.tobytes()
    )


def test_rows_have_norm_one() -> None:
    rows = digits()
    assert rows.rows.shape == (1797, 20)
    assert np.linalg.norm(rows.rows, axis=1) == pytest.approx(1.0, abs=1e-12)
    assert rows.labels[:10].tolist() == list(range(10))
    assert digits(20) is digits(20)


def test_a_row_at_the_mean_stays_zero() -> None:
    images = np.array([[0, 0], [2, 2], [1, 1]])
    assert principal(images, 1).unit(images).tolist() == pytest.approx(
        np.array([[-1.0], [1.0], [0.0]])
    )


def test_the_right_arm_pays() -> None:
    rows = digits().first(40)
    problem = rows.contexts(("clinic", "lab"))
    assert problem.arms == tuple("0123456789")
    assert (problem.means.sum(axis=1) == 1).all()
    assert problem.best == 1.0
    for row in range(40):
        paid = [problem.reward(5, row, arm) for arm in range(10)]
        assert paid == [REWARD_ONE if arm == rows.labels[row] else 0 for arm in range(10)]


def test_joint_rows_stay_as_they_are_and_declared_ones_are_scaled() -> None:
    rows = digits()
    joint = rows.contexts(("a", "b"), (15, 5))
    assert joint.features.tobytes() == rows.rows.tobytes()
    assert (joint.joint_norm_checked, [block.bound for block in joint.blocks]) == (True, [1.0, 1.0])
    declared = rows.contexts(("a", "b"), (15, 5), bounds="declared")
    assert not declared.joint_norm_checked
    assert [block.bound**2 for block in declared.blocks] == pytest.approx([0.75, 0.25])
    for party, bound in (("a", 0.75**0.5), ("b", 0.5)):
        before, after = (
            np.linalg.norm(problem.held(party), axis=1) for problem in (joint, declared)
        )
        assert after == pytest.approx(np.minimum(before, bound))


@pytest.mark.parametrize("components", [0, 65])
def test_components_must_be_there(components: int) -> None:
    with refused("problems.components.out-of-range"):
        digits(components)


def test_rows_that_are_all_equal_are_refused() -> None:
    with refused("problems.components.rows-equal"):
        principal(np.ones((2, 2)), 1)


def test_rows_asked_for_must_be_there() -> None:
    rows = Labelled("two", np.eye(2), np.array([0, 1]), ("a", "b"))
    assert rows.first(None) is rows
    with pytest.raises(
        DataError, match=r"rows must be in \[1, 2\], the number that two has, got 3"
    ):
        rows.first(3)


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def without(name: str, *_: Any, **__: Any) -> Any:
        raise ImportError(name)

    digits.cache_clear()
    monkeypatch.setattr("importlib.import_module", without)
    with pytest.raises(MissingExtraError, match=r"sklearn is needed .* pip install .*\[data\]'"):
        digits()
