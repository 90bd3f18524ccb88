"""What a client does in a round: act with the deployed model, log, and learn from the log.

Samples are padded: `mask` says which are real. Everything is a pure function, for one client.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from posse.protocols.fed_contextual.models import Model
from posse.protocols.fed_contextual.trees import Tree, subtract

Policy = Callable[[jax.Array], jax.Array]
"""(samples, arms) probabilities from scores."""
Pay = Callable[[Any, jax.Array], jax.Array]
"""(samples,) rewards of arms, from labels."""
PayAll = Callable[[Any], jax.Array]
"""(samples, arms) rewards of all arms, from labels."""
LOSSES = ("regression", "importance")


class Log(NamedTuple):
    """What a client kept of its own actions; it never leaves the client."""

    contexts: jax.Array
    arms: jax.Array
    rewards: jax.Array
    probabilities: jax.Array
    """With which each arm was chosen."""
    mask: jax.Array


def act(
    model: Model, deployed: Tree, policy: Policy, pay: Pay, contexts: jax.Array, labels: Any, mask: jax.Array,
    key: jax.Array,
) -> Log:  # fmt: skip
    """Choose an arm for every context with the deployed model, and log what it earned and how likely it was.

    An arm is drawn by its place in the cumulated probabilities, from one uniform number a sample.
    """
    probabilities = policy(model.scores(deployed, contexts))
    drawn = jax.random.uniform(key, (contexts.shape[0], 1))
    reached = jnp.cumsum(probabilities, axis=-1)
    arms = jnp.minimum((reached <= drawn * reached[:, -1:]).sum(axis=-1), probabilities.shape[-1] - 1)
    chosen = jnp.take_along_axis(probabilities, arms[:, None], axis=1)[:, 0]
    return Log(contexts, arms, pay(labels, arms) * mask, chosen, mask)


def learn(
    model: Model, params: Tree, log: Log, rate: jax.Array, key: jax.Array, *, batch: int = 16, loss: str = "regression"
) -> Tree:
    """Return the update of one epoch of gradient descent over the log, in a random order, `batch` samples a step.

    The loss is the mean over a batch of (predicted - reward)^2, or of the same over the probability of the arm, scaled
    so that the largest weight of the log is 1.
    """
    descend = _descend(model) if model.descend is None else model.descend
    weights = log.mask.astype(jnp.float32)
    if loss == "importance":
        inverse = weights / jnp.maximum(log.probabilities, 1e-12)
        weights = inverse / jnp.maximum(inverse.max(), 1e-12)
    order = _order(log.mask, key).reshape(-1, batch)

    def step(now: Tree, at: jax.Array) -> tuple[Tree, None]:
        real = jnp.maximum(1, log.mask[at].sum())
        share = weights[at] / real
        return descend(now, log.contexts[at], log.arms[at], log.rewards[at], share, rate), None

    last, _ = jax.lax.scan(step, params, order)
    return subtract(last, params)


def study(
    model: Model, params: Tree, pay_all: PayAll, contexts: jax.Array, labels: Any, mask: jax.Array, rate: jax.Array,
    key: jax.Array, *, batch: int = 16,
) -> Tree:  # fmt: skip
    """Return the update of one supervised epoch: every arm's reward is known. The loss averages over arms too."""
    order = _order(mask, key).reshape(-1, batch)
    rewards = pay_all(labels)

    def loss(now: Tree, at: jax.Array) -> jax.Array:
        error = jnp.square(model.scores(now, contexts[at]) - rewards[at]).mean(axis=-1)
        return (error * mask[at]).sum() / jnp.maximum(1, mask[at].sum())

    def step(now: Tree, at: jax.Array) -> tuple[Tree, None]:
        slope = jax.grad(loss)(now, at)
        return jax.tree.map(lambda leaf, one: leaf - rate * one, now, slope), None

    last, _ = jax.lax.scan(step, params, order)
    return subtract(last, params)


def _order(mask: jax.Array, key: jax.Array) -> jax.Array:
    """A random order of the real samples, with the padding behind them."""
    return jnp.argsort(jnp.where(mask > 0, jax.random.uniform(key, mask.shape), 2.0))


def _descend(model: Model) -> Callable[..., Tree]:
    def loss(now: Tree, contexts: jax.Array, arms: jax.Array, rewards: jax.Array, weights: jax.Array) -> jax.Array:
        predicted = jnp.take_along_axis(model.scores(now, contexts), arms[:, None], axis=1)[:, 0]
        return (weights * jnp.square(predicted - rewards)).sum()

    def descend(now: Tree, *rest: jax.Array) -> Tree:
        *batch, rate = rest
        slope = jax.grad(loss)(now, *batch)
        return jax.tree.map(lambda leaf, one: leaf - rate * one, now, slope)

    return descend
