"""Exploration as probabilities: by hand, for any scores, and alike in numpy and jax."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from posse.core.errors import ConfigError, PosseError
from posse.policies.contextual.explorations import (
    Exploration,
    Falcon,
    draw,
    epsilon_greedy,
    falcon,
    greedy,
    softmax,
)
from posse.policies.contextual.registry import (
    EXPLORATIONS,
    ExplorationSettings,
    described,
    exploration,
)
from tests.kit.statistics import chi_square, chi_square_limit

KINDS = [*(kind() for kind in EXPLORATIONS.values()), Falcon(mu=1.0), Falcon(mu=100.0)]
SCORES = arrays(
    np.float64, st.tuples(st.integers(1, 4), st.integers(2, 9)), elements=st.floats(-50, 50)
)


def test_by_hand() -> None:
    scores = np.array([[0.2, 0.7, 0.7], [0.5, 0.5, 0.1]])
    assert greedy(scores).tolist() == [[0, 1, 0], [1, 0, 0]]  # the first of those that tie
    np.testing.assert_allclose(epsilon_greedy(scores, 0.3), [[0.1, 0.8, 0.1], [0.8, 0.1, 0.1]])
    wanted = np.exp(scores / 0.5) / np.exp(scores / 0.5).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(softmax(scores, 0.5), wanted)
    # mu 4, gamma 10: others 1 / (4 + 10 gap)
    np.testing.assert_allclose(
        falcon(scores, 4.0, 10.0),
        [[1 / 9, 1 - 1 / 9 - 1 / 4, 1 / 4], [1 - 1 / 4 - 1 / 8, 1 / 4, 1 / 8]],
    )


def test_falcon_is_divided_by_a_sum_above_one() -> None:
    # mu 0.5: others of 1 / 0.5 each add up to 4, and the greedy arm is left nothing.
    np.testing.assert_allclose(falcon(np.zeros((1, 3)), 0.5, 10.0), [[0, 0.5, 0.5]])
    # Others of 1 / (0.5 + 10 x 0.1) = 2/3 and 1 / (0.5 + 10 x 0.2) = 2/5 add up to 16/15.
    np.testing.assert_allclose(
        falcon(np.array([0.2, 0.1, 0.0]), 0.5, 10.0), [0, 10 / 16, 6 / 16], atol=1e-12
    )


def test_limits() -> None:
    scores = np.array([0.1, 0.9, 0.4])
    np.testing.assert_allclose(softmax(scores, 1e-4), greedy(scores), atol=1e-12)
    np.testing.assert_allclose(softmax(scores, 1e6), [1 / 3] * 3, rtol=1e-5)
    np.testing.assert_allclose(softmax(1000 * scores, 0.05), greedy(scores))  # nothing overflows
    np.testing.assert_allclose(epsilon_greedy(scores, 0.0), greedy(scores))
    np.testing.assert_allclose(epsilon_greedy(scores, 1.0), [1 / 3] * 3)


@pytest.mark.parametrize("rule", KINDS, ids=str)
@settings(deadline=None, max_examples=50)
@given(scores=SCORES)
def test_chances_add_up_and_follow_the_scores(rule: Exploration, scores: np.ndarray) -> None:  # type: ignore[type-arg]
    for kind in (np.float64, np.float32):
        chances = rule.probabilities(scores.astype(kind))
        assert chances.shape == scores.shape
        assert chances.dtype == kind
        assert (chances >= 0).all()
        np.testing.assert_allclose(chances.sum(axis=-1), 1, atol=8 * np.finfo(kind).eps)
    chances = rule.probabilities(scores)
    best = scores.argmax(axis=-1)
    if not isinstance(rule, Falcon):  # whose greedy arm gets what is left
        assert (chances[np.arange(len(scores)), best] == chances.max(axis=-1)).all()
    others = np.ones(scores.shape, bool)
    others[np.arange(len(scores)), best] = False
    for row in range(len(scores)):
        order = np.argsort(scores[row][others[row]])
        assert (np.diff(chances[row][others[row]][order]) >= -1e-15).all()


@pytest.mark.parametrize("rule", KINDS, ids=str)
def test_numpy_and_jax_agree(rule: Exploration) -> None:
    jax, jnp = pytest.importorskip("jax"), pytest.importorskip("jax.numpy")
    scores = np.random.default_rng(1).normal(size=(5, 7, 11)).astype(np.float32)
    compiled = jax.jit(lambda values: rule.probabilities(values, jnp))
    np.testing.assert_allclose(rule.probabilities(scores), compiled(scores), atol=1e-6)
    u = np.random.default_rng(2).random((5, 7)).astype(np.float32)
    arm, chance = draw(rule.probabilities(scores), u)
    same, chances = jax.jit(lambda p, v: draw(p, v, jnp))(rule.probabilities(scores), u)
    assert (np.asarray(same) == arm).mean() > 0.99  # a sum may be rounded otherwise
    assert (np.asarray(chances) > 0).all()
    assert (chance > 0).all()


@settings(deadline=None, max_examples=150)
@given(SCORES, st.sampled_from(KINDS), st.floats(0, 1, exclude_max=True), st.booleans())
def test_the_arm_drawn_has_the_chance_returned(
    scores: np.ndarray, rule: Exploration, u: float, single: bool
) -> None:  # type: ignore[type-arg]
    kind = np.float32 if single else np.float64
    chances = rule.probabilities(scores.astype(kind))
    arm, chance = draw(chances, np.full(len(scores), u, kind))
    assert ((arm >= 0) & (arm < scores.shape[1])).all()
    assert (chance > 0).all()
    assert (chance == chances[np.arange(len(scores)), arm]).all()


def test_draws_at_the_edges() -> None:
    chances = np.array([[0.0, 0.5, 0.0, 0.5, 0.0]] * 4)
    arm, _ = draw(chances, np.array([0.0, np.nextafter(0.5, 0), 0.5, np.nextafter(1.0, 0)]))
    assert arm.tolist() == [1, 1, 3, 3]
    ones = np.full((1, 7), 1 / 7, np.float32)
    assert draw(ones, np.array([1.0], np.float32))[0].tolist() == [
        6
    ]  # even a u that was rounded up


def test_draws_have_their_chances() -> None:
    # 200,000 draws over 5 arms: a false alarm in 1,000; an arm of 0.05 off by 0.003 would be seen
    # 99 times in 100.
    chances = softmax(np.array([0.1, 0.2, 0.05, 0.25, 0.0]), 0.1)
    u = np.random.default_rng(7).random(200_000)
    arm, _ = draw(np.broadcast_to(chances, (len(u), 5)), u)
    assert chi_square(np.bincount(arm, minlength=5), len(u) * chances) < chi_square_limit(4)


# Values -------------------------------------------------------------------------------------------


def tilted(scores: Any, width: float = 0.5, xp: Any = np) -> Any:
    """A user's own: half softmax, half uniform."""
    return (1 - width) * softmax(scores, 0.1, xp) + width / scores.shape[-1]


def bare(scores: Any) -> Any:
    return scores * 0 + 1 / scores.shape[-1]


def negative(scores: Any) -> Any:
    return scores * 0 - 1 / scores.shape[-1]


def heavy(scores: Any) -> Any:
    return scores * 0 + 1


def short(scores: Any) -> Any:
    return scores[..., :-1]


def careless(scores: Any) -> Any:
    scores[...] = 1 / scores.shape[-1]
    return scores


def broken(scores: Any) -> Any:
    raise RuntimeError("no chances today")


def nothing() -> Any:
    return None


HERE = "tests.policies.test_explorations"


def test_every_way_to_give_an_exploration() -> None:
    wanted = ExplorationSettings(policy="falcon", gamma=10.0)
    for given_ in (
        Falcon(gamma=10.0),
        {"name": "falcon", "gamma": 10},
        '{name = "falcon", gamma = 10.0}',
    ):
        assert ExplorationSettings(policy=given_) == wanted
    assert wanted.exploration().values(50) == (10.0, 10.0)
    assert set(ExplorationSettings.model_fields) == {"policy", "epsilon", "beta", "mu", "gamma"}
    said = ExplorationSettings.model_fields["epsilon"].description
    assert said is not None
    assert said.startswith("Exploration rate")


@pytest.mark.parametrize(
    "value", [tilted, f"{HERE}:tilted", {"name": f"{HERE}:tilted", "width": 0.5}]
)
def test_an_own_function_explores(value: Any) -> None:
    jax, jnp = pytest.importorskip("jax"), pytest.importorskip("jax.numpy")
    made = ExplorationSettings(policy=value).exploration()
    scores = np.random.default_rng(1).normal(size=(3, 7)).astype(np.float32)
    np.testing.assert_array_equal(made.probabilities(scores), tilted(scores))
    compiled = jax.jit(lambda given_, *values: made.formula(given_, *values, xp=jnp))
    np.testing.assert_allclose(compiled(scores, *made.values(7)), tilted(scores), atol=1e-6)
    stored = json.loads(json.dumps(ExplorationSettings(policy=value).resolved()))["policy"]
    assert stored == {**made.describe(), "class": f"{HERE}:tilted"}
    assert (stored["name"], stored["parameters"]) == ("tilted", {"width": 0.5})
    assert exploration(stored) == made
    assert hash(made) == hash(exploration(tilted))


def test_own_functions_have_digests_of_their_own() -> None:
    rules = [exploration(value) for value in (*EXPLORATIONS, tilted, bare)]
    assert len({described(rule)["digest"] for rule in rules}) == len(rules)
    assert exploration(tilted, {"width": 0.25}).values(3) == (0.25,)


@pytest.mark.parametrize(
    ("given_", "message"),
    [
        ({"policy": "sotfmax"}, "unknown policy 'sotfmax'. Did you mean 'softmax'"),
        ({"policy": "epsilon-greedy", "epsilon": 1.5}, r"epsilon must be in \[0, 1\], got 1.5"),
        ({"policy": "softmax", "beta": 0.0}, "beta must be a finite number above 0, got 0.0"),
        ({"policy": "falcon", "gamma": -1.0}, "gamma must be at least 0, got -1.0"),
        ({"policy": "falcon", "mu": 0.0}, "mu must be a finite number above 0"),
        (
            {"policy": "greedy", "beta": 0.1},
            "policy 'greedy' has no parameter 'beta'; it takes none",
        ),
        ({"policy": f"{HERE}:tlited"}, "has no 'tlited'. Did you mean 'tilted'"),
        ({"policy": f"{HERE}:HERE"}, "must be a function of the scores that gives chances"),
        ({"policy": 3}, "a policy is a name, module:function, a table"),
        (
            {"policy": {"name": tilted, "depth": 1}},
            "policy 'tilted' has no parameter 'depth'; it takes width",
        ),
        (
            {"policy": {"name": tilted, "width": "wide"}},
            "width of policy 'tilted' must be a valid number",
        ),
        ({"policy": negative}, "negative must give chances of at least 0"),
        ({"policy": heavy}, "heavy must give chances that add up to 1, got 2"),
        ({"policy": short}, r"short must give a chance for every arm, \(2,\), got shape \(1,\)"),
        ({"policy": careless}, "careless changes the scores"),
        (
            {"policy": broken},
            r"broken fails on scores of shape \(2,\): RuntimeError: no chances today",
        ),
        ({"policy": nothing}, "nothing must take the scores of all arms"),
    ],
)
def test_a_wrong_exploration_is_refused_in_one_line(given_: dict[str, Any], message: str) -> None:
    with pytest.raises(PosseError, match=message) as caught:
        ExplorationSettings(**given_)
    assert "\n" not in str(caught.value)


def test_parameters_are_numbers() -> None:
    with pytest.raises(ConfigError, match="mu must be a number, got NaN"):
        Falcon(mu=float("nan"))
