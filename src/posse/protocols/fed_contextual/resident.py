"""Many rounds in one call, with the whole population in the device's memory: for a GPU, and for small populations.

Cohorts are gathered on the device by offsets; several seeds or rates run side by side (`vmap`).
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from posse.protocols.fed_contextual.client import rows
from posse.protocols.fed_contextual.rounds import Cohort, Measured, Rates, State, Task, bandit_round, supervised_round


class Data(NamedTuple):
    """A population: samples of all clients one behind the other."""

    contexts: Any
    """(samples, ...), or a pytree of such"""
    labels: Any
    """(samples, ...)"""
    offsets: jax.Array
    """(clients + 1,): samples of client c are offsets[c] to offsets[c + 1]."""


def gather(data: Data, clients: jax.Array, present: jax.Array, samples: int) -> Cohort:
    """Return the padded samples of some clients; those beyond `samples` are left out."""
    first = data.offsets[clients]
    at = first[:, None] + jnp.arange(samples)
    mask = (at < data.offsets[clients + 1][:, None]).astype(jnp.float32)
    at = jnp.minimum(at, data.offsets[-1] - 1)
    return Cohort(rows(data.contexts, at), rows(data.labels, at), mask, clients, present)


def _rounds(
    task: Task, rates: Rates, state: State, data: Data, clients: jax.Array, present: jax.Array, seed: jax.Array,
    deploy_every: jax.Array, tables: jax.Array | None, samples: int, supervised: bool,
) -> tuple[State, Measured]:  # fmt: skip
    do = supervised_round if supervised else bandit_round

    def step(now: State, some: tuple[jax.Array, jax.Array, jax.Array | None]) -> tuple[State, Measured]:
        numbers, here, table = some
        today = rates if table is None else rates._replace(pays=(table,))
        after, measured = do(task, today, now, gather(data, numbers, here, samples), seed)
        due = after.round % deploy_every == 0
        deployed = jax.tree.map(lambda new, old: jnp.where(due, new, old), after.params, after.deployed)
        return after._replace(deployed=deployed), measured

    return _summed(*jax.lax.scan(step, state, (clients, present, tables)))


def _summed(state: State, seen: Measured) -> tuple[State, Measured]:
    """Add up the pulls of all rounds."""
    return state, seen if seen.pulls is None else seen._replace(pulls=seen.pulls.sum(axis=0))


@partial(jax.jit, static_argnames=("task", "samples", "supervised"))
def many_rounds(
    task: Task, rates: Rates, state: State, data: Data, clients: jax.Array, present: jax.Array, seed: jax.Array,
    deploy_every: jax.Array, tables: jax.Array | None = None, *, samples: int, supervised: bool = False,
) -> tuple[State, Measured]:  # fmt: skip
    """Run the rounds whose cohorts are given, (rounds, clients); deploys after every so many rounds of the run.

    `tables` are the rewards of these rounds, (rounds, labels, arms), where they differ; else `rates.pays` holds.
    """
    return _rounds(
        task, rates, state, data, clients, present, seed, deploy_every, tables, samples, supervised
    )  # fmt: skip


@partial(jax.jit, static_argnames=("task", "samples", "supervised"))
def many_runs(
    task: Task, rates: Rates, client: jax.Array, server: jax.Array, state: State, data: Data, clients: jax.Array,
    present: jax.Array, seed: jax.Array, deploy_every: jax.Array, tables: jax.Array | None = None, *, samples: int,
    supervised: bool = False,
) -> tuple[State, Measured]:  # fmt: skip
    """Run several runs side by side: rates of clients and server, states, cohorts and seeds have a first axis of runs.

    Memory grows with runs x lanes; a run gives what it gives alone, to rounding.
    """

    def one(
        client: jax.Array, server: jax.Array, state: State, clients: jax.Array, present: jax.Array, seed: jax.Array
    ) -> tuple[State, Measured]:
        own = rates._replace(client=client, server=server)
        return _rounds(task, own, state, data, clients, present, seed, deploy_every, tables, samples, supervised)

    return jax.vmap(one)(client, server, state, clients, present, seed)
