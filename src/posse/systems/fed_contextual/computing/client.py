"""What a client does in a round: act with the deployed model, log, learn from the log, and clip
what it learnt.

`client_round` is the whole of it, for the simulator and for a device alike. Samples are padded:
`mask` says which are real. Everything is a pure function, for one client. With `alone` the work
ends where only padding is left, which is cheaper one client at a time; side by side with others all
go on to the end.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from posse.policies.contextual.explorations import draw
from posse.systems.fed_contextual.computing.cohorts import Logs
from posse.systems.fed_contextual.computing.models import (
    Contexts,
    Labels,
    Model,
    Number,
    Tree,
    Whole,
    norm,
    subtract,
)
from posse.systems.fed_contextual.computing.tasks import (
    ACT,
    ROUNDING,
    SHUFFLE,
    STUDY,
    Draws,
    Rates,
    Task,
)

LOSSES = ("regression", "importance")
_CHUNK = 16
"""Samples scored together by a client alone: activations stay in a processor's caches."""
_MARGIN = 1e-6


class Log(NamedTuple):
    """What a client kept of its own actions; it never leaves the client."""

    contexts: Contexts
    arms: jax.Array
    rewards: jax.Array
    probabilities: jax.Array
    """With which each arm was chosen."""
    mask: jax.Array


class Contribution(NamedTuple):
    """What a client has for the server."""

    update: Tree
    """Clipped; whole numbers where sums are secure."""
    within: jax.Array
    """1 where it was within the norm."""
    sums: jax.Array
    """Rewards, samples and probabilities of the chosen arms, added up."""


def client_round(
    task: Task,
    rates: Rates,
    params: Tree,
    deployed: Tree,
    limit: jax.Array,
    contexts: Contexts,
    labels: Labels,
    mask: jax.Array,
    draws: Draws,
    logs: Logs | None = None,
    *,
    alone: bool,
) -> tuple[Contribution, Log]:
    """Act on all samples with the deployed model, and learn from the log, beginning from `params`.

    With `logs` the client has models, `deployed` with a first axis, and learns from these logs; it
    makes those of this round now and the others as they were made, since all is drawn by (seed,
    round, client). The log that is returned is of the model that it has; what is measured is of it
    too, and nothing where it did not act in this round.
    """
    if logs is None:
        log = acted(task, rates, deployed, contexts, labels, mask, draws, alone=alone)
        return learnt(task, rates, params, log, limit, draws, alone=alone), log

    def again(one: Logs) -> tuple[jax.Array, ...]:
        there = mask * (one.made >= 0)
        then, at = rates.then(one.made, one.age), draws._replace(round=draws.round - one.made)
        return acted(task, then, rows(deployed, one.age), contexts, labels, there, at, alone=alone)[
            1:
        ]

    every = jax.lax.map(again, logs)
    count, now = logs.made.shape[0], (logs.made[0] == 0).astype(jnp.float32)
    tiled = jax.tree.map(lambda leaf: jnp.concatenate([leaf] * count), contexts)
    kept = Log(tiled, *(part.reshape(-1, *part.shape[2:]) for part in every))
    given = learnt(task, rates, params, kept, limit, draws, alone=alone)
    arms, rewards, probabilities, there = (part[0] for part in every)
    first = Log(contexts, arms, rewards, probabilities, there)
    return given._replace(sums=_sums(first) * now), first


def acted(
    task: Task,
    rates: Rates,
    deployed: Tree,
    contexts: Contexts,
    labels: Labels,
    mask: jax.Array,
    draws: Draws,
    *,
    alone: bool = True,
) -> Log:
    """Do the first half of a round: choose an arm for every sample."""

    def pay(labels: Labels, arms: jax.Array) -> jax.Array:
        return task.pay(labels, arms, *rates.pays)

    policy = partial(rates.chances, task.policy)
    return act(
        task.model, deployed, policy, pay, contexts, labels, mask, draws.key(ACT), alone=alone
    )


def learnt(
    task: Task,
    rates: Rates,
    params: Tree,
    log: Log,
    limit: jax.Array,
    draws: Draws,
    *,
    alone: bool = True,
) -> Contribution:
    """Do the second half: learn from the log, which an application may have written, and clip the
    update.
    """
    if task.learns:
        update = learn(
            task.model,
            params,
            log,
            rates.client,
            draws.key(SHUFFLE),
            batch=task.batch,
            loss=task.loss,
            alone=alone,
        )
    else:
        update = jax.tree.map(jnp.zeros_like, params)
    return Contribution(*_clipped(task, update, limit, draws), _sums(log))


def _sums(log: Log) -> jax.Array:
    """Add up rewards, samples and probabilities of the chosen arms."""
    return jnp.stack([log.rewards.sum(), log.mask.sum(), (log.probabilities * log.mask).sum()])


def studied(
    task: Task,
    rates: Rates,
    params: Tree,
    limit: jax.Array,
    contexts: Contexts,
    labels: Labels,
    mask: jax.Array,
    draws: Draws,
    *,
    alone: bool,
) -> Contribution:
    """Do a supervised round: every arm's reward is known, and nothing is chosen."""
    pay_all = task.pay_all
    if pay_all is None:
        raise ValueError(
            "supervised rounds need every arm's reward, got no pay_all in the task. Give it."
        )
    update = study(
        task.model,
        params,
        lambda labels: pay_all(labels, *rates.pays),
        contexts,
        labels,
        mask,
        rates.client,
        draws.key(STUDY),
        batch=task.batch,
        seen=rates.seen,
        alone=alone,
    )
    sums = jnp.stack([jnp.float32(0), mask.sum().astype(jnp.float32), jnp.float32(0)])
    return Contribution(*_clipped(task, update, limit, draws), sums)


def _clipped(task: Task, update: Tree, limit: jax.Array, draws: Draws) -> tuple[Tree, jax.Array]:
    """Clip an update, and round it where sums are secure; also whether it was within the norm."""
    update, within = clip(update, limit)
    if task.levels:
        update = whole(update, limit / task.levels, draws.key(ROUNDING))
    return update, within


def act(
    model: Model,
    deployed: Tree,
    policy: Callable[[jax.Array], jax.Array],
    pay: Callable[[Labels, jax.Array], jax.Array],
    contexts: Contexts,
    labels: Labels,
    mask: jax.Array,
    key: jax.Array,
    *,
    alone: bool = False,
) -> Log:
    """Choose an arm for every context with the deployed model, and log what it earned and how
    likely it was.

    An arm is drawn by its place in the cumulated probabilities, from one uniform number a sample.
    """
    scores = (
        _scores_alone(model, deployed, contexts, mask)
        if alone
        else model.scores(deployed, contexts)
    )
    probabilities = policy(scores)
    arms, chosen = draw(probabilities, jax.random.uniform(key, mask.shape), jnp)
    return Log(contexts, arms, jnp.where(mask > 0, pay(labels, arms), 0.0), chosen, mask)


def learn(
    model: Model,
    params: Tree,
    log: Log,
    rate: Number,
    key: jax.Array,
    *,
    batch: int = 16,
    loss: str = "regression",
    alone: bool = False,
) -> Tree:
    """Return the update of one epoch of gradient descent over the log, in a random order, `batch`
    samples a step.

    The loss is the mean over a batch of (predicted - reward)^2, or of the same over the probability
    of the arm, scaled so that the largest weight of the log is 1.
    """
    descend = _descend(model) if model.descend is None else model.descend
    weights = log.mask.astype(jnp.float32)
    if loss == "importance":
        inverse = weights / jnp.maximum(log.probabilities, 1e-12)
        weights = inverse / jnp.maximum(inverse.max(), 1e-12)

    def step(now: Tree, at: jax.Array, real: jax.Array) -> Tree:
        share = real * weights[at] / jnp.maximum(1.0, real.sum())
        return descend(now, rows(log.contexts, at), log.arms[at], log.rewards[at], share, rate)

    return subtract(_epoch(step, params, log.mask, key, batch, alone), params)


def study(
    model: Model,
    params: Tree,
    pay_all: Callable[[Labels], jax.Array],
    contexts: Contexts,
    labels: Labels,
    mask: jax.Array,
    rate: Number,
    key: jax.Array,
    *,
    batch: int = 16,
    seen: jax.Array | None = None,
    alone: bool = False,
) -> Tree:
    """Return the update of one supervised epoch: every arm's reward is known, or those of the arms
    `seen`.

    The loss is the mean over a batch, and over the arms, of (predicted - reward)^2.
    """
    rewards = pay_all(labels)
    arms = jnp.ones(rewards.shape[-1]) if seen is None else seen.astype(jnp.float32)
    descend = _descend_all(model) if model.descend_all is None else model.descend_all

    def step(now: Tree, at: jax.Array, real: jax.Array) -> Tree:
        share = real[:, None] * arms / (jnp.maximum(1.0, real.sum()) * arms.sum())
        return descend(now, rows(contexts, at), rewards[at], share, rate)

    return subtract(_epoch(step, params, mask, key, batch, alone), params)


def clip(update: Tree, limit: jax.Array) -> tuple[Tree, jax.Array]:
    """Scale an update down to the norm, and say whether it was within.

    What is clipped ends a millionth below the norm, so that rounding carries nothing past it. An
    update that is not finite counts as clipped, and nothing is left of it.
    """
    size = norm(update)
    factor = jnp.where(
        size > limit * (1 - _MARGIN), limit * (1 - _MARGIN) / jnp.maximum(size, 1e-30), 1.0
    )
    sound = jnp.isfinite(size)
    clipped = jax.tree.map(
        lambda leaf: jnp.where(sound, leaf * factor, jnp.zeros_like(leaf)), update
    )
    return clipped, (size <= limit).astype(jnp.float32)


def whole(update: Tree, unit: jax.Array, key: jax.Array) -> Tree:
    """Round every number to a multiple of the unit, at random and right on average, as whole
    numbers of 32 bits.

    z = floor(x / unit) + [u < fraction], u uniform. The sum of n such updates is exact below 2^31.
    """
    leaves, shape = jax.tree.flatten(update)
    keys = jax.random.split(key, len(leaves))
    return jax.tree.unflatten(
        shape, [_round(leaf / unit, one) for one, leaf in zip(keys, leaves, strict=True)]
    )


def _round(y: jax.Array, key: jax.Array) -> jax.Array:
    low = jnp.floor(y)
    return low.astype(jnp.int32) + (jax.random.uniform(key, y.shape) < y - low)


def rows(tree: Tree, at: Whole) -> Tree:
    """Return some rows of every array of a tree."""
    return jax.tree.map(lambda leaf: leaf[at], tree)


def _scores_alone(model: Model, params: Tree, contexts: Contexts, mask: jax.Array) -> jax.Array:
    """Score the samples some at a time, up to the last real one."""
    samples = mask.shape[0]
    if samples % _CHUNK:
        return model.scores(params, contexts)
    last = jnp.where(mask > 0, jnp.arange(1, samples + 1), 0).max()
    like = jax.eval_shape(model.scores, params, contexts)

    def some(at: jax.Array, scores: jax.Array) -> jax.Array:
        part = jax.tree.map(
            lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, at * _CHUNK, _CHUNK), contexts
        )
        return jax.lax.dynamic_update_slice_in_dim(
            scores, model.scores(params, part), at * _CHUNK, axis=0
        )

    scored: jax.Array = jax.lax.fori_loop(
        0, -(-last // _CHUNK), some, jnp.zeros(like.shape, like.dtype)
    )
    return scored


def _epoch(
    step: Callable[[Tree, jax.Array, jax.Array], Tree],
    params: Tree,
    mask: jax.Array,
    key: jax.Array,
    batch: int,
    alone: bool,
) -> Tree:
    """Take the steps of an epoch: batches of the real samples in a random order, with the padding
    behind them.
    """
    order = jnp.argsort(jnp.where(mask > 0, jax.random.uniform(key, mask.shape), 2.0))
    missing = -mask.shape[0] % batch
    real = jnp.pad((mask[order] > 0).astype(jnp.float32), (0, missing)).reshape(-1, batch)
    at = jnp.pad(order, (0, missing)).reshape(-1, batch)
    if alone:
        steps = (real[:, 0] > 0).sum()
        return jax.lax.fori_loop(0, steps, lambda i, now: step(now, at[i], real[i]), params)
    return jax.lax.scan(lambda now, some: (step(now, *some), None), params, (at, real))[0]


def _descend(model: Model) -> Callable[..., Tree]:
    def loss(
        now: Tree, contexts: Contexts, arms: jax.Array, rewards: jax.Array, weights: jax.Array
    ) -> jax.Array:
        predicted = jnp.take_along_axis(model.scores(now, contexts), arms[:, None], axis=1)[:, 0]
        return (weights * jnp.square(predicted - rewards)).sum()

    return _down(loss)


def _descend_all(model: Model) -> Callable[..., Tree]:
    def loss(now: Tree, contexts: Contexts, rewards: jax.Array, weights: jax.Array) -> jax.Array:
        return (weights * jnp.square(model.scores(now, contexts) - rewards)).sum()

    return _down(loss)


def _down(loss: Callable[..., jax.Array]) -> Callable[..., Tree]:
    """One step down the gradient of a loss, by the rate that comes last."""

    def descend(now: Tree, *rest: Tree) -> Tree:
        *batch, rate = rest
        slope = jax.grad(loss)(now, *batch)
        return jax.tree.map(lambda leaf, one: leaf - rate * one, now, slope)

    return descend
