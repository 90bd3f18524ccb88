"""Arms that are clusters: centres that are a function of the seed, and chances that are those of
the paper.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posse.core.errors import ConfigError
from posse.problems.contexts.images import digits, kernel_means, kmeans
from tests.kit.rules import refused


def spread(rows: np.ndarray, centres: np.ndarray) -> float:
    squares = ((rows[:, None, :] - centres[None, :, :]) ** 2).sum(axis=2)
    return float(squares.min(axis=1).sum())


def test_centres_of_clear_clusters_are_found() -> None:
    draw = np.random.default_rng(2)
    truth = np.array([[0.9, 0.0], [-0.4, 0.8], [0.0, -0.9], [0.0, 0.0]])
    rows = np.repeat(truth, 60, axis=0) + 0.01 * draw.normal(size=(240, 2))
    found = kmeans(rows, 4, seed=3)
    order = [int(((found - point) ** 2).sum(axis=1).argmin()) for point in truth]
    assert sorted(order) == [0, 1, 2, 3]
    assert found[order] == pytest.approx(rows.reshape(4, 60, 2).mean(axis=1))


def test_centres_are_means_of_their_rows() -> None:
    """What Lloyd's algorithm ends with: every centre is the mean of the rows that are nearest to
    it.
    """
    rows = digits().rows
    centres = kmeans(rows, 20, seed=1)
    label = ((rows[:, None, :] - centres[None, :, :]) ** 2).sum(axis=2).argmin(axis=1)
    assert sorted(set(label.tolist())) == list(range(20))
    assert centres == pytest.approx(np.stack([rows[label == k].mean(axis=0) for k in range(20)]))


def test_clusters_are_as_tight_as_those_of_scikit_learn() -> None:
    from sklearn.cluster import KMeans

    rows = digits().rows
    theirs = KMeans(20, n_init=5, random_state=0).fit(rows).inertia_
    assert min(spread(rows, kmeans(rows, 20, seed)) for seed in range(5)) < 1.02 * theirs


def test_the_seed_decides() -> None:
    rows = digits().rows[:300]
    assert kmeans(rows, 7, seed=5).tobytes() == kmeans(rows.copy(), 7, seed=5).tobytes()
    assert kmeans(rows, 7, seed=5).tobytes() != kmeans(rows, 7, seed=6).tobytes()


@given(seed=st.integers(0, 2**63 - 1), count=st.integers(2, 12), clusters=st.integers(2, 12))
@settings(max_examples=60, deadline=None)
def test_as_many_centres_as_asked_for(seed: int, count: int, clusters: int) -> None:
    rows = np.stack([np.cos(np.arange(count)), np.sin(np.arange(count))], axis=1)
    if clusters > count:
        with refused("problems.arms.not-clusters"):
            kmeans(rows, clusters, seed)
        return
    centres = kmeans(rows, clusters, seed)
    assert len(np.unique(centres.round(9), axis=0)) == clusters
    if clusters == count:
        assert spread(rows, centres) == pytest.approx(0.0)


def test_equal_rows_make_no_clusters() -> None:
    rows = np.array([[1.0, 0.0], [0.0, 1.0]])[np.arange(30) % 2]
    assert len(kmeans(rows, 2, seed=1)) == 2
    with refused("problems.arms.more-than-rows"):
        kmeans(rows, 3, seed=1)


@pytest.mark.parametrize(("clusters", "seed"), [(1, 1), (5, -1), (5, 2**63)])
def test_wrong_clusterings_are_refused(clusters: int, seed: int) -> None:
    with pytest.raises(ConfigError):
        kmeans(digits().rows[:50], clusters, seed)


# --- chances --------------------------------------------------------------------------------------


def test_chances_are_the_kernel_of_the_paper() -> None:
    rows, centres = digits().rows, kmeans(digits().rows, 10, seed=1)
    found = kernel_means(rows, centres)
    squares = ((rows[:, None, :] - centres[None, :, :]) ** 2).sum(axis=2)
    # sigma = 1/2, so that exp(-|c - x|^2 / (2 sigma)) = exp(-|c - x|^2).
    assert found == pytest.approx(np.exp(-squares))
    assert kernel_means(rows, centres, sigma=2.0) == pytest.approx(np.exp(-squares / 4))


def test_normalised_chances_are_proportional() -> None:
    rows, centres = digits().rows, kmeans(digits().rows, 10, seed=1)
    plain = kernel_means(rows, centres)
    largest, total = (
        kernel_means(rows, centres, normalise="max"),
        kernel_means(rows, centres, normalise="sum"),
    )
    assert (largest.max(axis=1) == 1).all()
    assert total.sum(axis=1) == pytest.approx(1.0)
    for other in (largest, total):
        ratio = other / plain
        assert ratio == pytest.approx(np.broadcast_to(ratio[:, :1], ratio.shape))


@pytest.mark.parametrize("normalise", ["none", "max", "sum"])
def test_a_narrow_kernel_gives_chances_still(normalise: str) -> None:
    rows, centres = digits().rows[:50], kmeans(digits().rows, 10, seed=1)
    found = kernel_means(rows, centres, sigma=1e-6, normalise=normalise)  # type: ignore[arg-type]
    assert ((found >= 0) & (found <= 1)).all()
    if normalise != "none":
        assert found.max(axis=1) == pytest.approx(1.0)


def test_wrong_kernels_are_refused() -> None:
    with refused("problems.sigma.not-positive"):
        kernel_means(np.eye(2), np.eye(2), sigma=0.0)
    with refused("problems.normalise.unknown"):
        kernel_means(np.eye(2), np.eye(2), normalise="sums")  # type: ignore[arg-type]
