"""Runs of many rounds: cohorts, deployments, and a state that can be kept and taken up again exactly.

Rounds go one call each, with cohorts gathered on the host, or many in one call with the whole population in the
device's memory; there several seeds or rates run side by side (`vmap`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from posse.protocols.fed_contextual.cohorts import Schedule, cohort_of
from posse.protocols.fed_contextual.models import write_arrays
from posse.protocols.fed_contextual.rounds import Cohort, Data, Source, bandit_round, gather, supervised_round
from posse.protocols.fed_contextual.server import SERIES, Measured, State, deploy
from posse.protocols.fed_contextual.tasks import Rates, Task

Pays: TypeAlias = Callable[[int], NDArray[np.float64]]
"""The (labels, arms) rewards of a round, where they differ from round to round."""


class Plan(NamedTuple):
    """All that rounds need beside a state and a source of cohorts."""

    task: Task
    rates: Rates
    schedule: Schedule
    pays: Pays | None = None
    """What arms pay in a round, where the world drifts."""


class Run(NamedTuple):
    """One of several runs: its rates and seed, and where it stands."""

    client: float
    server: float
    seed: int
    state: State


def train(
    plan: Plan, state: State, source: Source, seed: int, *, together: int = 10
) -> Iterator[tuple[State, Measured]]:
    """Run the rounds of a plan that the state has not seen, some together; yields states and what they showed.

    A run taken up from any of its states gives the same states again: everything is drawn by (seed, round).
    """
    if not 0 <= seed < 2**32:
        raise ValueError(f"a seed must be in [0, 2^32), got {seed}. Choose another.")
    task, rates, schedule, _ = plan
    while rounds := _next(plan, int(state.round), together):
        drawn, tables = [cohort_of(schedule, seed, at) for at in rounds], _tables(plan, rounds)
        if isinstance(source, Data):
            numbers, present = (jnp.asarray(np.stack(part)) for part in zip(*drawn, strict=True))
            state, seen = _rounds_of_one(
                task, rates, state, source, numbers, present, jnp.uint32(seed), jnp.int32(schedule.deploy_every),
                tables, schedule.samples, schedule.supervised,
            )  # fmt: skip
            yield state, seen
            continue
        parts = []
        for at, (who, here) in zip(rounds, drawn, strict=True):
            today = rates if tables is None else rates._replace(pays=(tables[at - rounds[0]],))
            cohort = source(who, here, at)
            state, one = _one_round(task, today, state, cohort, jnp.uint32(seed), supervised=schedule.supervised)
            if (at + 1) % schedule.deploy_every == 0:
                state = deploy(state)
            parts.append(one)
        yield state, joined(parts)


def train_many(
    plan: Plan, runs: Sequence[Run], source: Source, *, side: int, together: int = 10
) -> Iterator[list[tuple[State, Measured]]]:
    """Run some runs that stand at the same round as `train` runs one: side by side, or a single one alone.

    Fewer than `side` are filled up, so that one program does for any number. A run gives what it gives alone, to
    rounding.
    """
    if side == 1 or not isinstance(source, Data):
        (run,) = runs
        own = plan._replace(rates=plan.rates._replace(client=run.client, server=run.server))
        for after in train(own, run.state, source, run.seed, together=together):
            yield [after]
        return
    task, rates, schedule, _ = plan
    filled = [*runs, *[runs[-1]] * (side - len(runs))]
    seeds = [run.seed for run in filled]
    client, server = (jnp.asarray([getattr(run, name) for run in filled], jnp.float32) for name in ("client", "server"))
    state: State = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(run.state for run in filled))
    while rounds := _next(plan, int(state.round[0]), together):
        drawn = [zip(*(cohort_of(schedule, seed, at) for at in rounds), strict=True) for seed in seeds]
        numbers, present = (jnp.asarray(np.stack([np.stack(one) for one in part])) for part in zip(*drawn, strict=True))
        state, seen = _rounds_of_many(
            task, rates, client, server, state, source, numbers, present, jnp.asarray(seeds, jnp.uint32),
            jnp.int32(schedule.deploy_every), _tables(plan, rounds), schedule.samples,
        )  # fmt: skip
        seen = jax.device_get(seen)
        yield [jax.tree.map(lambda leaf, at=at: leaf[at], (state, seen)) for at in range(len(runs))]


def _next(plan: Plan, done: int, together: int) -> range:
    """Return the rounds of the next call; calls end at multiples of `together`."""
    return range(done, min(plan.schedule.rounds, (done // together + 1) * together))


def _tables(plan: Plan, rounds: range) -> jax.Array | None:
    """Return what arms pay in some rounds, where that differs."""
    pays = plan.pays
    return None if pays is None else jnp.stack([jnp.asarray(pays(at), jnp.float32) for at in rounds])


@partial(jax.jit, static_argnames=("task", "supervised"))
def _one_round(
    task: Task, rates: Rates, state: State, cohort: Cohort, seed: jax.Array, *, supervised: bool
) -> tuple[State, Measured]:
    return (supervised_round if supervised else bandit_round)(task, rates, state, cohort, seed)


def _rounds(
    task: Task, rates: Rates, state: State, data: Data, clients: jax.Array, present: jax.Array, seed: jax.Array,
    deploy_every: jax.Array, tables: jax.Array | None, samples: int, supervised: bool,
) -> tuple[State, Measured]:  # fmt: skip
    """Run the rounds whose cohorts are given, (rounds, clients); deploys after every so many rounds of the run.

    `tables` are the rewards of these rounds, (rounds, labels, arms), where they differ; else `rates.pays` holds.
    """
    do = supervised_round if supervised else bandit_round

    def step(now: State, some: tuple[jax.Array, jax.Array, jax.Array | None]) -> tuple[State, Measured]:
        numbers, here, table = some
        today = rates if table is None else rates._replace(pays=(table,))
        after, measured = do(task, today, now, gather(data, numbers, here, samples), seed)
        due = after.round % deploy_every == 0
        deployed = jax.tree.map(lambda new, old: jnp.where(due, new, old), after.params, after.deployed)
        return after._replace(deployed=deployed), measured

    last, seen = jax.lax.scan(step, state, (clients, present, tables))
    return last, seen if seen.pulls is None else seen._replace(pulls=seen.pulls.sum(axis=0))


_rounds_of_one = jax.jit(_rounds, static_argnames=("task", "samples", "supervised"))


@partial(jax.jit, static_argnames=("task", "samples"))
def _rounds_of_many(
    task: Task, rates: Rates, client: jax.Array, server: jax.Array, state: State, data: Data, clients: jax.Array,
    present: jax.Array, seed: jax.Array, deploy_every: jax.Array, tables: jax.Array | None, samples: int,
) -> tuple[State, Measured]:  # fmt: skip
    """Do the same for several runs: rates, states, cohorts and seeds have a first axis of runs.

    Memory grows with runs x lanes.
    """

    def one(
        client: jax.Array, server: jax.Array, state: State, clients: jax.Array, present: jax.Array, seed: jax.Array
    ) -> tuple[State, Measured]:
        own = rates._replace(client=client, server=server)
        return _rounds(task, own, state, data, clients, present, seed, deploy_every, tables, samples, False)

    return jax.vmap(one)(client, server, state, clients, present, seed)


def save(path: Path, state: State, seen: Measured) -> None:
    """Keep a state and what the rounds so far showed, in one file that is written whole."""
    write_arrays(path, *jax.tree.leaves((state, seen)))


def load(path: Path, like: State) -> tuple[State, Measured]:
    """Take up what `save` kept; `like` is a state of the same task. Pulls are none where they were not kept."""
    with np.load(path) as found:
        leaves = [found[name] for name in found.files]
    expected, shape = jax.tree.flatten(like)
    count = len(expected)
    kept, seen = leaves[:count], leaves[count:]
    alike = [leaf.shape for leaf in kept] == [jnp.shape(leaf) for leaf in expected]
    if not alike or len(seen) not in (len(SERIES), len(Measured._fields)):
        raise ValueError(f"{path} was kept by another model or optimiser. Go on with the settings it began with.")
    state: State = jax.tree.unflatten(shape, [jnp.asarray(leaf) for leaf in kept])
    return state, Measured(*seen)


def joined(parts: list[Measured]) -> Measured:
    """Put what successive rounds showed one behind the other, and add up their pulls."""
    series = (np.concatenate([np.atleast_1d(getattr(part, name)) for part in parts]) for name in SERIES)
    counts = [part.pulls for part in parts]
    known = [np.asarray(one, np.int64) for one in counts if one is not None]
    return Measured(*series)._replace(pulls=np.sum(known, axis=0) if len(known) == len(counts) else None)


def average_reward(seen: Measured) -> NDArray[np.float64]:
    """Return the running average reward: all rewards so far over all samples so far, a number a round."""
    reward, samples = (np.asarray(part, np.float64).cumsum(axis=-1) for part in (seen.reward, seen.samples))
    running: NDArray[np.float64] = reward / np.maximum(samples, 1)
    return running
