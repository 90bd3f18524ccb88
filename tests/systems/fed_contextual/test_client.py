from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray

from posse.systems.fed_contextual.computing import client, tasks
from posse.systems.fed_contextual.computing.client import Log, act
from tests.systems.fed_contextual.toys import MODEL, close, same

N, FEATURES, ARMS = 10, 5, 3
learn = jax.jit(client.learn, static_argnames=("model", "batch", "loss", "alone"))
study = jax.jit(client.study, static_argnames=("model", "pay_all", "batch", "alone"))


def every(labels: jax.Array) -> jax.Array:
    return jnp.eye(ARMS)[labels]


def log_of(n: int = N, pad: int = 0, seed: int = 0) -> Log:
    rng = np.random.default_rng(seed)
    fill = [(0, pad)]
    contexts = np.pad(rng.normal(size=(n, FEATURES)), [*fill, (0, 0)], constant_values=9.0)
    arms = np.pad(rng.integers(0, ARMS, n), fill)
    rewards, probabilities = (
        np.pad(rng.uniform(0.1, 1, n), fill, constant_values=0.5) for _ in range(2)
    )
    mask = np.arange(n + pad) < n
    return Log(
        *(jnp.asarray(part, jnp.float32) for part in (contexts,)),
        jnp.asarray(arms),
        *(jnp.asarray(part, jnp.float32) for part in (rewards, probabilities, mask)),
    )


def params_of(seed: int = 1) -> dict[str, jax.Array]:
    rng = np.random.default_rng(seed)
    return {"w": jnp.asarray(rng.normal(size=(FEATURES, ARMS)), jnp.float32), "b": jnp.zeros(ARMS)}


def down(
    w: NDArray[np.float64],
    log: Log,
    at: NDArray[np.int64],
    weights: NDArray[np.float64],
    rate: float,
) -> NDArray[np.float64]:
    """One step by hand: the loss is the sum of weight (x w_a - r)^2 over samples, divided by their
    number.
    """
    x, arms, rewards = (np.asarray(part)[at] for part in (log.contexts, log.arms, log.rewards))
    slope = np.zeros_like(w)
    for row, arm, reward, weight in zip(x.astype(float), arms, rewards, weights[at], strict=True):
        error = np.append(row, 1.0) @ w[:, arm] - reward
        slope[:, arm] += 2 * weight * error * np.append(row, 1.0) / len(at)
    return w - rate * slope


def matrix(params: dict[str, jax.Array]) -> NDArray[np.float64]:
    return np.vstack(
        [np.asarray(params["w"], np.float64), np.asarray(params["b"], np.float64)[None]]
    )


@pytest.mark.parametrize("loss", ["regression", "importance"])
def test_the_loss_is_the_mean_of_a_batch(loss: str) -> None:
    log, params = log_of(), params_of()
    weights = np.ones(N)
    if loss == "importance":
        weights = 1 / np.asarray(log.probabilities, np.float64)
        weights /= weights.max()  # scaled to at most 1
    expected = down(matrix(params), log, np.arange(N), weights, 0.3) - matrix(params)
    update = learn(MODEL, params, log, 0.3, jax.random.key(0), batch=16, loss=loss)
    assert np.allclose(matrix(update), expected, atol=1e-6)


def test_batches_follow_a_random_order_and_the_last_is_divided_by_its_own_number() -> None:
    log, params, key = log_of(), params_of(), jax.random.key(3)
    order = np.argsort(np.asarray(jax.random.uniform(key, (N,))))
    now = matrix(params)
    for low in range(0, N, 4):
        now = down(now, log, order[low : low + 4], np.ones(N), 0.2)
    update = learn(MODEL, params, log, 0.2, key, batch=4)
    assert np.allclose(matrix(update), now - matrix(params), atol=1e-6)
    other = learn(MODEL, params, log, 0.2, jax.random.key(4), batch=4)
    assert np.abs(matrix(update) - matrix(other)).max() > 1e-4


def test_padding_changes_nothing() -> None:
    params, key = params_of(), jax.random.key(3)
    bare = learn(MODEL, params, log_of(), 0.2, key, batch=4, loss="importance")
    for pad, alone in ((2, False), (6, True), (7, False)):
        padded = learn(
            MODEL, params, log_of(pad=pad), 0.2, key, batch=4, loss="importance", alone=alone
        )
        close(padded, bare)


def test_an_empty_client_gives_nothing() -> None:
    log = log_of()._replace(mask=jnp.zeros(N))
    for alone, loss in ((False, "importance"), (True, "regression")):
        update = learn(
            MODEL, params_of(), log, 0.5, jax.random.key(0), batch=4, loss=loss, alone=alone
        )
        assert not any(np.asarray(leaf).any() for leaf in jax.tree.leaves(update))
    kept = jax.jit(
        lambda key: act(
            MODEL,
            params_of(),
            tasks.greedy,
            lambda y, a: jnp.ones(N),
            log.contexts,
            log.arms,
            log.mask,
            key,
        )
    )(jax.random.key(0))
    assert not np.asarray(kept.rewards).any()


def test_the_supervised_loss_averages_over_arms_and_samples() -> None:
    log, params = log_of(), params_of()
    labels, rate = np.asarray(log.arms), 0.3
    x = np.hstack([np.asarray(log.contexts, np.float64), np.ones((N, 1))])
    slope = 2 * x.T @ (x @ matrix(params) - np.eye(ARMS)[labels]) / (N * ARMS)
    update = study(MODEL, params, every, log.contexts, log.arms, log.mask, rate, jax.random.key(0))
    assert np.allclose(matrix(update), -rate * slope, atol=1e-6)


def test_the_supervised_loss_is_over_the_arms_that_are_seen() -> None:
    log, params, seen = log_of(), params_of(), np.array([True, False, True])
    x = np.hstack([np.asarray(log.contexts, np.float64), np.ones((N, 1))])
    slope = 2 * x.T @ ((x @ matrix(params) - np.eye(ARMS)[np.asarray(log.arms)]) * seen) / (N * 2)
    update = study(
        MODEL,
        params,
        every,
        log.contexts,
        log.arms,
        log.mask,
        0.3,
        jax.random.key(0),
        seen=jnp.asarray(seen),
    )
    assert np.allclose(matrix(update), -0.3 * slope, atol=1e-6)


@pytest.mark.parametrize("alone", [False, True])
def test_what_is_logged_is_the_probability_of_the_arm_drawn(alone: bool) -> None:
    n = 20_000
    chances = np.array([0.5, 0.3, 0.2], np.float32)
    params = {"w": jnp.zeros((FEATURES, ARMS)), "b": jnp.log(jnp.asarray(chances))}
    contexts, labels = jnp.zeros((n, FEATURES)), jnp.zeros(n, jnp.int32)
    log = jax.jit(
        lambda key: act(
            MODEL,
            params,
            lambda s: tasks.softmax(s, jnp.float32(1)),
            lambda y, a: tasks.pay(y, a, jnp.eye(ARMS)),
            contexts,
            labels,
            jnp.ones(n),
            key,
            alone=alone,
        )
    )(jax.random.key(7))
    arms = np.asarray(log.arms)
    exact = np.asarray(tasks.softmax(MODEL.scores(params, contexts), jnp.float32(1)))
    assert np.array_equal(np.asarray(log.probabilities), exact[np.arange(n), arms])
    assert np.array_equal(np.asarray(log.rewards), arms == 0)
    # Each count is binomial: 5 standard deviations are passed by chance once in 10^6; an error of 3
    # % of n is found.
    counts = np.bincount(arms, minlength=ARMS)
    assert (np.abs(counts - n * chances) < 5 * np.sqrt(n * chances * (1 - chances))).all()


def test_draws_of_a_sample_do_not_depend_on_padding() -> None:
    log = log_of(pad=6)

    def arms(
        contexts: jax.Array, labels: jax.Array, mask: jax.Array, alone: bool = False
    ) -> jax.Array:
        policy, key = (lambda scores: tasks.softmax(scores, jnp.float32(1))), jax.random.key(1)
        return act(
            MODEL,
            params_of(),
            policy,
            lambda y, a: y * 1.0,
            contexts,
            labels,
            mask,
            key,
            alone=alone,
        ).arms

    drawn = jax.jit(arms, static_argnames="alone")
    whole = drawn(log.contexts, log.arms, log.mask)
    same(whole[:N], drawn(log.contexts[:N], log.arms[:N], log.mask[:N]))
    same(whole[:N], drawn(log.contexts, log.arms, log.mask, alone=True)[:N])


def test_an_arm_pays_by_label_or_the_sum_over_tags() -> None:
    draw = np.random.default_rng(1)
    table = draw.random((5, 5)).astype(np.float32)
    labels, arms = draw.integers(0, 5, 6).astype(np.int32), draw.integers(0, 5, 6)
    tags = draw.integers(0, 2, (6, 5)).astype(np.uint8)
    for y, every in ((labels, table[labels]), (tags, tags @ table)):
        np.testing.assert_allclose(
            tasks.pay_all(jnp.asarray(y), jnp.asarray(table)), every, rtol=1e-5
        )
        paid = tasks.pay(jnp.asarray(y), jnp.asarray(arms), jnp.asarray(table))
        np.testing.assert_allclose(paid, every[np.arange(6), arms], rtol=1e-5)


def test_an_update_is_scaled_down_to_the_norm_and_one_that_is_not_finite_to_nothing() -> None:
    """All that leaves a device is within the norm, on which the noise is based."""
    update = {"a": jnp.array([3.0, 0.0]), "b": jnp.array([4.0])}
    clipped, within = client.clip(update, jnp.float32(1.0))
    assert 1 - 1e-5 < float(client.norm(clipped)) <= 1
    np.testing.assert_allclose(clipped["b"] / clipped["a"][0], 4 / 3, rtol=1e-6)
    assert within == 0
    kept, within = client.clip(update, jnp.float32(6.0))
    np.testing.assert_array_equal(kept["a"], update["a"])
    assert within == 1
    nothing, within = client.clip({"a": jnp.array([1.0, jnp.nan])}, jnp.float32(6.0))
    assert (np.asarray(nothing["a"]).tolist(), float(within)) == ([0.0, 0.0], 0.0)
