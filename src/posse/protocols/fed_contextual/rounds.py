"""One federated round: a pure function of (state, cohort, seed, round), on any device and with any number of lanes.

Clients are worked on one after the other (a CPU does that fastest) or many side by side (`lanes`, for a GPU). Each
client's randomness is its own, so that the order of a cohort and the lanes change sums by rounding only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from posse.protocols.fed_contextual.client import Contribution, client_round, studied
from posse.protocols.fed_contextual.models import Contexts, add
from posse.protocols.fed_contextual.server import Measured, State, advance, floats, with_noise
from posse.protocols.fed_contextual.sources import Cohort
from posse.protocols.fed_contextual.tasks import Draws, Rates, Task

Client = Callable[..., tuple[Contribution, jax.Array | None]]
"""What a client gives from contexts, labels, mask and its draws, and how often it chose each arm."""


def bandit_round(
    task: Task, rates: Rates, state: State, cohort: Cohort, seed: jax.Array | int
) -> tuple[State, Measured]:
    """Let clients act with the deployed model and learn from their logs; the server takes the mean of their updates."""
    cohort, alone = _merged(task, cohort), _lanes(task, cohort) == 1
    arms = jnp.arange(_arms(task, state, cohort))

    def client(contexts: Contexts, labels: Any, mask: jax.Array, draws: Draws) -> tuple[Contribution, jax.Array]:
        given, log = client_round(
            task, rates, state.params, state.deployed, state.limit, contexts, labels, mask, draws, alone=alone
        )
        return given, ((log.arms[:, None] == arms) & (mask > 0)[:, None]).sum(axis=0, dtype=jnp.int32)

    return _round(task, rates, state, cohort, seed, client, jnp.zeros(arms.shape, jnp.int32))


def supervised_round(
    task: Task, rates: Rates, state: State, cohort: Cohort, seed: jax.Array | int
) -> tuple[State, Measured]:
    """Learn from every arm's reward, as from a few clients who give it before a model is deployed."""
    cohort, alone = _merged(task, cohort), _lanes(task, cohort) == 1

    def client(contexts: Contexts, labels: Any, mask: jax.Array, draws: Draws) -> tuple[Contribution, None]:
        return studied(task, rates, state.params, state.limit, contexts, labels, mask, draws, alone=alone), None

    return _round(task, rates, state, cohort, seed, client)


def _round(
    task: Task, rates: Rates, state: State, cohort: Cohort, seed: jax.Array | int, client: Client,
    pulls: jax.Array | None = None,
) -> tuple[State, Measured]:  # fmt: skip
    """Add up what clients give, counting from `pulls`, and let the server advance."""
    if (task.levels + 1) * cohort.clients.shape[0] >= 2**31:
        raise ValueError(
            f"a sum of whole numbers must stay below 2^31, got {cohort.clients.shape[0]} clients of {task.levels} "
            "levels. Lower the levels."
        )

    def one(contexts: Contexts, labels: Any, mask: jax.Array, number: jax.Array, present: jax.Array) -> Any:
        given, pulls = client(contexts, labels, mask, Draws(seed, state.round, number))
        sums = jnp.append(given.sums, jnp.stack([jnp.float32(1), given.within])) * present
        update, pulls = jax.tree.map(lambda leaf: jnp.where(present, leaf, jnp.zeros_like(leaf)), (given.update, pulls))
        return update, sums, pulls

    zero = jax.tree.map(lambda leaf: jnp.zeros_like(leaf, jnp.int32 if task.levels else None), state.params)
    total, sums, pulls = _sum(task, (zero, jnp.zeros(5), pulls), one, cohort)
    total = with_noise(floats(task, state, total), rates.noise, state, seed)
    return advance(task, rates, state, total, sums, pulls)


def _merged(task: Task, cohort: Cohort) -> Cohort:
    """Give all samples to one client, if the task is centralised."""
    if not task.centralised:
        return cohort

    def flat(leaf: jax.Array) -> jax.Array:
        return leaf.reshape(1, -1, *leaf.shape[2:])

    mask = flat(cohort.mask * cohort.present[:, None])
    contexts, labels = jax.tree.map(flat, (cohort.contexts, cohort.labels))
    return Cohort(contexts, labels, mask, jnp.zeros(1, jnp.int32), jnp.ones(1))


def _lanes(task: Task, cohort: Cohort) -> int:
    """The most clients side by side that divide a cohort into equal parts."""
    count = cohort.clients.shape[0]
    return max(d for d in range(1, min(task.lanes, count) + 1) if count % d == 0)


def _arms(task: Task, state: State, cohort: Cohort) -> int:
    """Count the arms that the model scores."""

    def scores(contexts: Contexts) -> jax.Array:
        return task.model.scores(state.deployed, jax.tree.map(lambda leaf: leaf[0], contexts))

    return int(jax.eval_shape(scores, cohort.contexts).shape[-1])


def _sum(task: Task, zero: Any, one: Callable[..., Any], cohort: Cohort) -> Any:
    """Add up what clients give, `lanes` of them side by side and these one after the other."""
    count = cohort.clients.shape[0]
    lanes = _lanes(task, cohort)
    parts = jax.tree.map(lambda leaf: leaf.reshape(count // lanes, lanes, *leaf.shape[1:]), tuple(cohort))

    def step(carry: Any, some: Any) -> tuple[Any, None]:
        if lanes == 1:  # side by side with nobody: scatters stay cheap
            return add(carry, one(*jax.tree.map(lambda leaf: leaf[0], some))), None
        return add(carry, jax.tree.map(lambda leaf: leaf.sum(axis=0), jax.vmap(one)(*some))), None

    return jax.lax.scan(step, zero, parts)[0]
