"""Runs of many rounds: cohorts, deployments, and a state that can be kept and taken up again
exactly.

Rounds go one call each, with cohorts gathered on the host, or many in one call with the whole
population in the device's memory; there several seeds or rates run side by side (`vmap`). On a CPU
a large round is divided over cores: parts of the cohort, each a call on one core, added up in their
order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial, reduce
from pathlib import Path
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from posse.policies.contextual.schedules import Explores
from posse.systems.fed_contextual.computing.cohorts import (
    Logs,
    Schedule,
    cohort_of,
    logs_of,
    room,
)
from posse.systems.fed_contextual.computing.models import Tree, add, size_of, write_arrays
from posse.systems.fed_contextual.computing.rounds import (
    Cohort,
    Data,
    Source,
    Total,
    bandit_round,
    bandit_sum,
    closed,
    gather,
    supervised_round,
    supervised_sum,
)
from posse.systems.fed_contextual.computing.server import SERIES, Measured, State, deploy
from posse.systems.fed_contextual.computing.tasks import Rates, Task

Pays: TypeAlias = Callable[[int], NDArray[np.float64]]
"""The (labels, arms) rewards of a round, where they differ from round to round."""
Drawn: TypeAlias = tuple[NDArray[np.int32], NDArray[np.float32], Logs | None]
"""Clients of a round, which of them are present, and the logs they learn from where these are not
made now.
"""
Varying: TypeAlias = tuple[jax.Array | None, tuple[jax.Array, ...] | None, jax.Array | None]
"""Of some rounds: their rewards, (rounds, labels, arms), parameters of the policy, (rounds,) each,
and arms that can be chosen, (rounds, arms); none where all rounds have those of the rates.
"""

PARTS = 8
"""Parts of a round's cohort that go over cores, at most."""
WORK = 1 << 24
"""Samples times parameters of a round below which it is not divided: a call for each part would
cost more.
"""


class Plan(NamedTuple):
    """All that rounds need beside a state and a source of cohorts."""

    task: Task
    rates: Rates
    schedule: Schedule
    pays: Pays | None = None
    """What arms pay in a round, where the world drifts."""
    explores: Explores | None = None
    """Parameters of the policy by deployment, where they follow a schedule."""
    here: Callable[[int], NDArray[np.bool_]] | None = None
    """Arms that can be chosen in a round, where they come and go."""

    def at(self, round_: int) -> Rates:
        """Return the rates of a round; where clients lag or keep logs, as `Rates.then` takes
        them.
        """
        rates, (_, _, schedule, pays, explores, here) = self.rates, self
        newest, single = round_ // schedule.deploy_every + 1, not schedule.logs
        if pays is not None:
            tables = [
                jnp.asarray(pays(max(0, round_ - back)), jnp.float32)
                for back in range(schedule.window)
            ]
            rates = rates._replace(pays=(tables[0] if single else jnp.stack(tables),))
        if here is not None:
            arms = [here(max(0, round_ - back)) for back in range(schedule.window)]
            rates = rates._replace(here=jnp.asarray(arms[0] if single else np.stack(arms)))
        if explores is not None:
            values = [explores(max(1, newest - age)) for age in range(schedule.older + 1)]
            columns = (jnp.asarray(one, jnp.float32) for one in zip(*values, strict=True))
            rates = rates._replace(explore=values[0] if single else tuple(columns))
        return rates


class Run(NamedTuple):
    """One of several runs: its rates and seed, and where it stands."""

    client: float
    server: float
    seed: int
    state: State


def train(
    plan: Plan, state: State, source: Source, seed: int, *, together: int = 10, cores: int = 0
) -> Iterator[tuple[State, Measured]]:
    """Run the rounds of a plan that the state has not seen, some together; yields states and what
    they showed.

    A run taken up from any of its states gives the same states again: everything is drawn by (seed,
    round). With `cores` large rounds are divided over so many of a CPU, and any number of them
    gives the same bits.
    """
    if not 0 <= seed < 2**32:
        raise ValueError(f"a seed must be in [0, 2^32), got {seed}. Choose another.")
    task, rates, schedule = plan.task, plan.rates, plan.schedule
    parts_of_a_round = (
        divided(task, room(schedule.cohort, schedule.sampling), schedule.samples) if cores else 1
    )
    while rounds := _next(plan, int(state.round), together):
        drawn = [_drawn(schedule, seed, at) for at in rounds]
        if isinstance(source, Data) and parts_of_a_round == 1:
            state, seen = _rounds_of_one(
                task,
                rates,
                state,
                source,
                _stacked(drawn),
                jnp.uint32(seed),
                jnp.int32(schedule.deploy_every),
                _varying(plan, rounds),
                schedule.samples,
                schedule.supervised,
            )
            yield state, seen
            continue
        parts = []
        for at, who in zip(rounds, drawn, strict=True):
            today = plan.at(at)
            if parts_of_a_round > 1:
                state, one = _on_cores(
                    plan._replace(rates=today), state, source, who, seed, parts_of_a_round, cores
                )
            else:
                assert callable(source)
                cohort = source(*who[:2], at)._replace(logs=who[2])
                state, one = _one_round(
                    task, today, state, cohort, jnp.uint32(seed), supervised=schedule.supervised
                )
            if (at + 1) % schedule.deploy_every == 0:
                state = deploy(state)
            parts.append(one)
        yield state, joined(parts)


def train_many(
    plan: Plan,
    runs: Sequence[Run],
    source: Source,
    *,
    side: int,
    together: int = 10,
    cores: int = 0,
) -> Iterator[list[tuple[State, Measured]]]:
    """Run some runs that stand at the same round as `train` runs one: side by side, or a single one
    alone.

    Fewer than `side` are filled up, so that one program does for any number. A run gives what it
    gives alone, to rounding.
    """
    if side == 1 or not isinstance(source, Data):
        (run,) = runs
        own = plan._replace(rates=plan.rates._replace(client=run.client, server=run.server))
        for after in train(own, run.state, source, run.seed, together=together, cores=cores):
            yield [after]
        return
    task, rates, schedule = plan.task, plan.rates, plan.schedule
    filled = [*runs, *[runs[-1]] * (side - len(runs))]
    seeds = [run.seed for run in filled]
    client, server = (
        jnp.asarray([getattr(run, name) for run in filled], jnp.float32)
        for name in ("client", "server")
    )
    state: State = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(run.state for run in filled))
    while rounds := _next(plan, int(state.round[0]), together):
        drawn = _stacked(
            [_stacked([_drawn(schedule, seed, at) for at in rounds]) for seed in seeds]
        )
        state, seen = _rounds_of_many(
            task,
            rates,
            client,
            server,
            state,
            source,
            drawn,
            jnp.asarray(seeds, jnp.uint32),
            jnp.int32(schedule.deploy_every),
            _varying(plan, rounds),
            schedule.samples,
        )
        seen = jax.device_get(seen)
        yield [jax.tree.map(lambda leaf, at=at: leaf[at], (state, seen)) for at in range(len(runs))]


def _next(plan: Plan, done: int, together: int) -> range:
    """Return the rounds of the next call; calls end at multiples of `together`."""
    return range(done, min(plan.schedule.rounds, (done // together + 1) * together))


def _drawn(schedule: Schedule, seed: int, round_: int) -> Drawn:
    numbers, present = cohort_of(schedule, seed, round_)
    return numbers, present, logs_of(schedule, seed, round_, numbers)


def _stacked(some: Sequence[Drawn]) -> Drawn:
    """Put draws of rounds, or of runs, on a first axis."""
    stacked: Drawn = jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves)), *some)
    return stacked


def _varying(plan: Plan, rounds: range) -> Varying:
    """Return what differs between some rounds."""
    every = [plan.at(at) for at in rounds]
    explore = zip(*(one.explore for one in every), strict=True)
    return (
        None if plan.pays is None else jnp.stack([one.pays[0] for one in every]),
        None
        if plan.explores is None
        else tuple(jnp.asarray(column, jnp.float32) for column in explore),
        None if plan.here is None else jnp.stack([jnp.asarray(one.here) for one in every]),
    )


# Over cores ---------------------------------------------------------------------------------------


def divided(task: Task, clients: int, samples: int) -> int:
    """Return into how many parts a round is divided: by its work alone, so that any number of cores
    adds up alike.
    """
    if task.centralised or clients * samples * size_of(task.model) < WORK:
        return 1
    return -(-clients // -(-clients // PARTS))


def _on_cores(
    plan: Plan,
    state: State,
    source: Source,
    drawn: Drawn,
    seed: int,
    parts: int,
    cores: int,
) -> tuple[State, Measured]:
    """Run a round in parts, each in one call on one core, and add these up in their order."""
    task, rates, schedule = plan.task, plan.rates, plan.schedule
    missing = -len(drawn[0]) % parts
    who, here, logs = jax.tree.map(
        lambda leaf: np.pad(leaf, [(0, missing)] + [(0, 0)] * (leaf.ndim - 1)), drawn
    )
    cohort = (
        None
        if isinstance(source, Data)
        else source(who, here, int(state.round))._replace(logs=logs)
    )
    size, where = len(who) // parts, jax.config.jax_default_device  # type: ignore[attr-defined]

    def part(low: int) -> Total:
        some = slice(low, low + size)
        with jax.default_device(where):  # which is of a thread
            given = jax.tree.map(
                lambda leaf: leaf[some], (who, here, logs) if cohort is None else cohort
            )
            data = source if cohort is None else None
            how = (jnp.uint32(seed), schedule.samples, schedule.supervised)
            made: Total = _part(task, rates, state, data, given, *how)
            made[1].block_until_ready()
            return made

    with ThreadPoolExecutor(cores) as pool:
        found = (pool.map if cores > 1 else map)(part, range(0, len(who), size))
        after: tuple[State, Measured] = _closed(
            task, rates, state, reduce(add, found), jnp.uint32(seed)
        )
    return after


@partial(
    jax.jit,
    static_argnames=("task", "samples", "supervised"),
    compiler_options={"xla_cpu_multi_thread_eigen": False},
)
def _part(
    task: Task,
    rates: Rates,
    state: State,
    data: Data | None,
    given: Tree,
    seed: jax.Array,
    samples: int,
    supervised: bool,
) -> Total:
    cohort = (
        given if data is None else gather(data, given[0], given[1], samples)._replace(logs=given[2])
    )
    return (supervised_sum if supervised else bandit_sum)(task, rates, state, cohort, seed)


_closed = jax.jit(closed, static_argnames="task")


@partial(jax.jit, static_argnames=("task", "supervised"))
def _one_round(
    task: Task, rates: Rates, state: State, cohort: Cohort, seed: jax.Array, *, supervised: bool
) -> tuple[State, Measured]:
    return (supervised_round if supervised else bandit_round)(task, rates, state, cohort, seed)


def _rounds(
    task: Task,
    rates: Rates,
    state: State,
    data: Data,
    drawn: Drawn,
    seed: jax.Array,
    deploy_every: jax.Array,
    varying: Varying,
    samples: int,
    supervised: bool,
) -> tuple[State, Measured]:
    """Run the rounds whose cohorts are given, (rounds, clients); deploys after every so many rounds
    of the run.
    """
    do = supervised_round if supervised else bandit_round

    def step(now: State, some: tuple[Drawn, Varying]) -> tuple[State, Measured]:
        (numbers, present, logs), (table, explore, here) = some
        today = rates if table is None else rates._replace(pays=(table,))
        today = today if explore is None else today._replace(explore=explore)
        today = today if here is None else today._replace(here=here)
        after, measured = do(
            task, today, now, gather(data, numbers, present, samples)._replace(logs=logs), seed
        )
        due, new = after.round % deploy_every == 0, deploy(after)
        return jax.tree.map(lambda one, other: jnp.where(due, one, other), new, after), measured

    last, seen = jax.lax.scan(step, state, (drawn, varying))
    return last, seen if seen.pulls is None else seen._replace(pulls=seen.pulls.sum(axis=0))


_rounds_of_one = jax.jit(_rounds, static_argnames=("task", "samples", "supervised"))


@partial(jax.jit, static_argnames=("task", "samples"))
def _rounds_of_many(
    task: Task,
    rates: Rates,
    client: jax.Array,
    server: jax.Array,
    state: State,
    data: Data,
    drawn: Drawn,
    seed: jax.Array,
    deploy_every: jax.Array,
    varying: Varying,
    samples: int,
) -> tuple[State, Measured]:
    """Do the same for several runs: rates, states, cohorts and seeds have a first axis of runs.

    Memory grows with runs x lanes.
    """

    def one(
        client: jax.Array, server: jax.Array, state: State, drawn: Drawn, seed: jax.Array
    ) -> tuple[State, Measured]:
        own = rates._replace(client=client, server=server)
        return _rounds(task, own, state, data, drawn, seed, deploy_every, varying, samples, False)

    return jax.vmap(one)(client, server, state, drawn, seed)


def save(path: Path, state: State, seen: Measured) -> None:
    """Keep a state and what the rounds so far showed, in one file that is written whole."""
    write_arrays(path, *jax.tree.leaves((state, seen)))


def load(path: Path, like: State) -> tuple[State, Measured]:
    """Take up what `save` kept; `like` is a state of the same task. Pulls are none where they were
    not kept.
    """
    with path.open("rb") as file, np.load(file) as found:
        leaves = [found[name] for name in found.files]
    expected, shape = jax.tree.flatten(like)
    count = len(expected)
    kept, seen = leaves[:count], leaves[count:]
    alike = [leaf.shape for leaf in kept] == [jnp.shape(leaf) for leaf in expected]
    if not alike or not len(SERIES) <= len(seen) <= len(Measured._fields):
        raise ValueError(
            f"{path} was kept by another model or optimiser. Go on with the settings it began with."
        )
    state: State = jax.tree.unflatten(shape, [jnp.asarray(leaf) for leaf in kept])
    return state, Measured(*seen)


def joined(parts: list[Measured]) -> Measured:
    """Put what successive rounds showed one behind the other, and add up their pulls."""

    def series(name: str) -> NDArray[np.float64]:
        return np.concatenate([np.atleast_1d(getattr(part, name)) for part in parts])

    counts = [part.pulls for part in parts]
    known = [np.asarray(one, np.int64) for one in counts if one is not None]
    known_best = None if any(part.best is None for part in parts) else series("best")
    pulls = np.sum(known, axis=0) if len(known) == len(counts) else None
    return Measured(*map(series, SERIES))._replace(pulls=pulls, best=known_best)


def average_reward(seen: Measured) -> NDArray[np.float64]:
    """Return the running average reward: all rewards so far over all samples so far, a number a
    round.
    """
    reward, samples = (
        np.asarray(part, np.float64).cumsum(axis=-1) for part in (seen.reward, seen.samples)
    )
    running: NDArray[np.float64] = reward / np.maximum(samples, 1)
    return running
