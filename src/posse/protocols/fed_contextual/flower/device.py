"""What a device computes in a round: the client of the simulator, for one device.

`acted` and `learnt` call `client.act`, `client.learn`, `aggregation.clip` and `aggregation.whole` with the keys that
the simulator would take: (seed, purpose, round, client).
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from posse.protocols.fed_contextual.aggregation import clip, whole
from posse.protocols.fed_contextual.client import Log, act, learn
from posse.protocols.fed_contextual.flower.samples import Samples
from posse.protocols.fed_contextual.keys import ACT, ROUNDING, SHUFFLE, key_of
from posse.protocols.fed_contextual.rounds import Rates, Task
from posse.protocols.fed_contextual.trees import Tree


class Who(NamedTuple):
    """Whose draws, and of which round."""

    seed: int
    round: int
    client: int


class Learnt(NamedTuple):
    """What a device has for the server."""

    update: Tree
    """Clipped; whole numbers where sums are secure."""
    within: jax.Array
    """1 where it was within the norm."""
    told: jax.Array
    """Rewards, samples and probabilities of the chosen arms, added up."""


def acted(task: Task, rates: Rates, deployed: Tree, samples: Samples, who: Who) -> Log:
    """Act on the device's samples with the deployed model, and log it."""
    log: Log = _acted(task, rates, deployed, *samples, who)
    return log


def learnt(task: Task, rates: Rates, params: Tree, log: Log, limit: float, who: Who) -> Learnt:
    """Learn from the log: the clipped update, and what is measured."""
    found: Learnt = _learnt(task, rates, params, log, jnp.float32(limit), who)
    return found


@partial(jax.jit, static_argnames="task")
def _acted(
    task: Task, rates: Rates, deployed: Tree, contexts: Any, labels: Any, mask: jax.Array, who: Who
) -> Log:  # fmt: skip
    def policy(scores: jax.Array) -> jax.Array:
        return task.policy(scores, *rates.explore)

    def pay(labels: Any, arms: jax.Array) -> jax.Array:
        return task.pay(labels, arms, *rates.pays)

    key = key_of(jnp.uint32(who.seed), ACT, who.round, who.client)
    return act(task.model, deployed, policy, pay, contexts, labels, mask, key, alone=True)


@partial(jax.jit, static_argnames="task")
def _learnt(task: Task, rates: Rates, params: Tree, log: Log, limit: jax.Array, who: Who) -> Learnt:
    seed = jnp.uint32(who.seed)
    order = key_of(seed, SHUFFLE, who.round, who.client)
    update = learn(task.model, params, log, rates.client, order, batch=task.batch, loss=task.loss, alone=True)
    update, within = clip(update, limit)
    if task.levels:
        update = whole(update, limit / task.levels, key_of(seed, ROUNDING, who.round, who.client))
    told = jnp.stack([log.rewards.sum(), log.mask.sum(), (log.probabilities * log.mask).sum()])
    return Learnt(update, within, told)
