"""The float twin against least squares solved from scratch before every choice."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from posse.core.errors import ConfigError
from posse.systems.mpc_contextual.coins import Coins
from posse.systems.mpc_contextual.twins.floats import Run, replay, run
from tests.kit.mpc import Floats, coins, linear

Rows = list[list[tuple[Floats, float]]]


def solved(rows: Rows, size: int) -> tuple[Floats, Floats]:
    """Weights and inverses of all arms by ridge regression: (I + X^T X)^-1 X^T r."""
    weights, inverses = [], []
    for own in rows:
        x = np.array([row for row, _ in own]).reshape(-1, size)
        r = np.array([reward for _, reward in own])
        grams = np.eye(size) + x.T @ x
        weights.append(np.linalg.solve(grams, x.T @ r) if own else np.zeros(size))
        inverses.append(np.linalg.inv(grams))
    return np.array(weights), np.array(inverses)


def oracle(
    x: Floats,
    rewards: Floats,
    flips: Coins,
    *,
    batch: int = 1,
    kind: str = "greedy",
    width: float = 1.0,
    z: Floats,
) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats, Rows]:
    """Arms, greedy arms, scores and the rows of every arm, slowly."""
    steps, arms = rewards.shape
    rows: Rows = [[] for _ in range(arms)]
    pulled, greedy, table = [], [], []
    for t in range(steps):
        if t % batch == 0:
            weights, inverses = solved([list(own) for own in rows], x.shape[1])
        spread = width * np.sqrt(np.einsum("i,aij,j->a", x[t], inverses, x[t]))
        scores = weights @ x[t] + {"greedy": 0.0, "ucb": spread, "thompson": spread * z[t]}[kind]
        best = max(range(arms), key=lambda a: (scores[a], flips.ties[t, a]))
        arm = int(flips.arms[t]) if flips.explore[t] else best
        rows[arm].append((x[t], rewards[t, arm]))
        pulled.append(arm)
        greedy.append(best)
        table.append(scores)
    return np.array(pulled), np.array(greedy), np.array(table), rows


def play(x: Floats, rewards: Floats, flips: Coins, **options: object) -> Run:
    return run(x, rewards, flips, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["greedy", "ucb", "thompson"])
@pytest.mark.parametrize("batch", [1, 7, 1000])
def test_equal_to_ridge_regression(kind: str, batch: int) -> None:
    x, rewards, flips = linear(300, 4, 5)
    z = np.random.default_rng(5).normal(size=rewards.shape)
    wanted = oracle(x, rewards, flips, batch=batch, kind=kind, width=0.7, z=z)
    found = run(x, rewards, flips, batch=batch, exploration=kind, width=0.7, normals=z)
    assert (found.arms == wanted[0]).all()
    assert (found.greedy == wanted[1]).all()
    assert (found.rewards == rewards[np.arange(300), wanted[0]]).all()
    ranked = np.sort(wanted[2], axis=1)
    assert np.abs(found.margins - (ranked[:, -1] - ranked[:, -2])).max() < 1e-9
    assert np.abs(found.gaps - (ranked[:, -1] - wanted[2][np.arange(300), found.arms])).max() < 1e-9
    weights, inverses = solved(wanted[3], 5)
    assert np.abs(found.weights - weights).max() < 1e-9
    assert np.abs(found.inverses - inverses).max() < 1e-9
    assert (found.arms != found.greedy).any()  # else exploration was not tried


def test_inverses_stay_symmetric_and_accurate_over_many_steps() -> None:
    x, rewards, flips = linear(20_000, 3, 8)
    found = run(x, rewards, flips)
    assert (found.inverses == found.inverses.transpose(0, 2, 1)).all()
    for a in range(3):
        own = x[found.arms == a]
        wanted = np.linalg.inv(np.eye(8) + own.T @ own)
        assert np.abs(found.inverses[a] - wanted).max() < 1e-9
        assert (
            np.abs(found.weights[a] - wanted @ own.T @ found.rewards[found.arms == a]).max() < 1e-9
        )


@pytest.mark.parametrize("kind", ["greedy", "ucb", "thompson"])
@pytest.mark.parametrize("batch", [1, 16])
def test_replay_equals_run(kind: str, batch: int) -> None:
    x, rewards, flips = linear(500, 6, 4)
    options = {
        "batch": batch,
        "exploration": kind,
        "normals": np.random.default_rng(2).normal(size=(500, 6)),
        "checkpoints": (0, 100, 500),
    }
    first = play(x, rewards, flips, **options)
    again = replay(x, first.arms, first.rewards, flips.ties, **options)  # type: ignore[arg-type]
    for name in Run._fields:
        assert (getattr(first, name) == getattr(again, name)).all(), name


def test_replay_tells_how_far_another_arm_was() -> None:
    x, rewards, flips = linear(400, 3, 4, epsilon=0.0)
    arms = np.random.default_rng(8).integers(0, 3, 400)
    found = replay(x, arms, rewards[np.arange(400), arms], flips.ties, checkpoints=range(400))
    scores = np.einsum("tai,ti->ta", found.kept, x)
    assert np.abs(found.gaps - (scores.max(axis=1) - scores[np.arange(400), arms])).max() < 1e-12
    assert (
        found.gaps > found.margins + 1e-9
    ).any()  # a third-best arm is further off than the second


def test_the_model_stands_still_for_a_batch() -> None:
    x, rewards, flips = linear(103, 3, 4)
    kept = run(x, rewards, flips, batch=10, checkpoints=range(104)).kept
    assert all((kept[t] == kept[t - t % 10]).all() for t in range(103))
    assert not (kept[10] == kept[20]).all()
    assert not (kept[100] == kept[103]).all()  # a last batch that is not full is learnt from


def test_checkpoints_hold_the_weights_that_meet_a_context() -> None:
    x, rewards, flips = linear(200, 3, 4)
    whole = run(x, rewards, flips, checkpoints=(200, 0, 60, 60))
    part = run(x[:60], rewards[:60], Coins(*(part[:60] for part in flips[:3])))
    assert (whole.kept[0] == 0).all()
    assert (whole.kept[1] == part.weights).all()
    assert (whole.kept[2] == part.weights).all()
    assert (whole.kept[3] == whole.weights).all()


def test_of_equal_scores_the_largest_tie_number_wins() -> None:
    flips = coins(300, 5, epsilon=0.0, seed=3)
    nothing = run(np.zeros((300, 2)), np.ones((300, 5)), flips)  # all scores are 0
    assert (nothing.arms == flips.ties.argmax(axis=1)).all()
    assert (nothing.margins == 0).all()
    assert set(nothing.arms) == set(range(5))


def test_ties_do_not_matter_where_scores_differ() -> None:
    x, rewards, flips = linear(400, 3, 4)
    first = run(x, rewards, flips)
    differ = first.margins > 0
    turned = flips._replace(ties=np.where(differ[:, None], 2 - flips.ties, flips.ties))
    assert (run(x, rewards, turned).arms == first.arms).all()
    assert differ.mean() > 0.9


def test_explored_steps_pull_the_drawn_arm() -> None:
    x, rewards, flips = linear(400, 4, 3, epsilon=0.5)
    found = run(x, rewards, flips)
    assert (found.arms[flips.explore] == flips.arms[flips.explore]).all()
    assert (found.arms[~flips.explore] == found.greedy[~flips.explore]).all()


def test_one_arm_has_no_rival() -> None:
    found = run(np.ones((3, 1)), np.ones((3, 1)), coins(3, 1, epsilon=0.0, seed=1))
    assert np.isinf(found.margins).all()
    assert found.weights[0, 0] == pytest.approx(3 / 4)


def test_arrays_of_another_layout_give_the_same_numbers() -> None:
    x, rewards, flips = linear(100, 3, 4)
    turned = run(
        np.asfortranarray(x),
        np.asfortranarray(rewards),
        flips._replace(ties=np.asfortranarray(flips.ties)),
    )
    assert (turned.weights == run(x, rewards, flips).weights).all()


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        ({"features": np.zeros((9, 2))}, r"features must have shape \(10, 2\)"),
        ({"rewards": np.zeros(10)}, "rewards must be a table"),
        ({"coins": coins(9, 3, epsilon=0.0, seed=1)}, r"explore must have shape \(10,\)"),
        (
            {"coins": coins(10, 3, epsilon=0.0, seed=1)._replace(arms=np.zeros(9))},
            r"arms must have shape \(10,\)",
        ),
        (
            {"coins": coins(10, 3, epsilon=0.0, seed=1)._replace(arms=np.full(10, 3))},
            "arms must be in 0 to 2, got 3",
        ),
        ({"batch": 0}, "batch must be at least 1"),
        ({"checkpoints": (11,)}, r"checkpoints must be in \[0, 10\]"),
        ({"exploration": "thomson"}, "Did you mean 'thompson'"),
        ({"exploration": "thompson"}, r"thompson needs normals of shape \(10, 3\)"),
    ],
)
def test_what_does_not_fit_is_refused(spoil: dict[str, object], words: str) -> None:
    given: dict[str, object] = {
        "features": np.zeros((10, 2)),
        "rewards": np.zeros((10, 3)),
        "coins": coins(10, 3, epsilon=0.0, seed=1),
    }
    with pytest.raises(ConfigError, match=words):
        run(**{**given, **spoil})  # type: ignore[arg-type]


def test_a_replay_of_another_length_is_refused() -> None:
    x, _, flips = linear(10, 3, 2)
    with pytest.raises(ConfigError, match=r"rewards must have shape \(10,\)"):
        replay(x, flips.arms, np.zeros(9), flips.ties)
    with pytest.raises(ConfigError, match=r"features must have shape \(10, 2\)"):
        replay(x[:9], flips.arms, np.zeros(10), flips.ties)
