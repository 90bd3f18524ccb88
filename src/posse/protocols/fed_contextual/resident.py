"""Many rounds in one call, with the whole population in the device's memory: for a GPU, and for small populations.

Cohorts are gathered on the device by offsets; several seeds or rates run side by side (`vmap`).
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from posse.protocols.fed_contextual.rounds import Cohort, Measured, Rates, State, Task, bandit_round, supervised_round


class Data(NamedTuple):
    """A population: samples of all clients one behind the other."""

    contexts: jax.Array
    """(samples, ...)"""
    labels: Any
    """(samples, ...)"""
    offsets: jax.Array
    """(clients + 1,): samples of client c are offsets[c] to offsets[c + 1]."""


def gather(data: Data, clients: jax.Array, present: jax.Array, samples: int) -> Cohort:
    """Return the padded samples of some clients; those beyond `samples` are left out."""
    first = data.offsets[clients]
    at = first[:, None] + jnp.arange(samples)
    mask = (at < data.offsets[clients + 1][:, None]).astype(jnp.float32)
    at = jnp.minimum(at, data.contexts.shape[0] - 1)
    return Cohort(data.contexts[at], jax.tree.map(lambda leaf: leaf[at], data.labels), mask, clients, present)


@partial(jax.jit, static_argnames=("task", "samples", "supervised"), donate_argnames=("state",))
def many_rounds(
    task: Task, rates: Rates, state: State, data: Data, clients: jax.Array, present: jax.Array, seed: jax.Array,
    deploy_every: jax.Array, *, samples: int, supervised: bool = False,
) -> tuple[State, Measured]:  # fmt: skip
    """Run the rounds whose cohorts are given, (rounds, clients); deploys after every so many rounds of the run."""
    do = supervised_round if supervised else bandit_round

    def step(now: State, some: tuple[jax.Array, jax.Array]) -> tuple[State, Measured]:
        after, measured = do(task, rates, now, gather(data, *some, samples), seed)
        due = after.round % deploy_every == 0
        deployed = jax.tree.map(lambda new, old: jnp.where(due, new, old), after.params, after.deployed)
        return after._replace(deployed=deployed), measured

    return jax.lax.scan(step, state, (clients, present))
