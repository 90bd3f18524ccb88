"""A run of many rounds: cohorts, deployments, and a state that can be kept and taken up again exactly."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from posse.problems.populations.worlds import Availability
from posse.protocols.fed_contextual.cohorts import draw
from posse.protocols.fed_contextual.resident import Data, many_rounds, many_runs
from posse.protocols.fed_contextual.rounds import (
    SERIES,
    Cohort,
    Measured,
    Rates,
    State,
    Task,
    bandit_round,
    deploy,
    supervised_round,
)  # fmt: skip

Source: TypeAlias = Data | Callable[[NDArray[np.int32], NDArray[np.float32], int], Cohort]
"""A population in the device's memory, or a function that gathers the cohort of a round: clients, present, round."""
Pays: TypeAlias = Callable[[int], NDArray[np.float64]]
"""The (labels, arms) rewards of a round, where they differ from round to round."""


class Schedule(NamedTuple):
    """How long, with how many clients, and when models are deployed."""

    rounds: int
    clients: int
    """Clients to draw from."""
    cohort: int = 64
    """Clients of a round; expected, where they are drawn by coins."""
    deploy_every: int = 200
    samples: int = 256
    """Padding: samples of a client at most."""
    sampling: str = "fixed"
    supervised: bool = False
    """Every arm's reward is told, as before a first deployment."""
    among: tuple[int, ...] | None = None
    """Their numbers, where they are not the whole population."""
    answers: Availability | None = None
    """Who answers in a round; all, if left out. An update that is late is lost."""


def train(
    task: Task, rates: Rates, state: State, source: Source, schedule: Schedule, seed: int, *, together: int = 10,
    pays: Pays | None = None,
) -> Iterator[tuple[State, Measured]]:  # fmt: skip
    """Run the rounds of a schedule that the state has not seen, some together; yields states and what they showed.

    A run taken up from any of its states gives the same states again: everything is drawn by (seed, round).
    """
    if not 0 <= seed < 2**32:
        raise ValueError(f"a seed must be in [0, 2^32), got {seed}. Choose another.")
    while (first := int(state.round)) < schedule.rounds:
        last = min(schedule.rounds, (first // together + 1) * together)
        drawn = [cohort_of(schedule, seed, at) for at in range(first, last)]
        tables = _tables(pays, range(first, last))
        if isinstance(source, Data):
            numbers, present = (jnp.asarray(np.stack(part)) for part in zip(*drawn, strict=True))
            state, measured = many_rounds(
                task, rates, state, source, numbers, present, jnp.uint32(seed), jnp.int32(schedule.deploy_every),
                tables, samples=schedule.samples, supervised=schedule.supervised,
            )  # fmt: skip
        else:
            seen = []
            for at, (who, here) in enumerate(drawn, first):
                today = rates if tables is None else rates._replace(pays=(tables[at - first],))
                cohort = source(who, here, at)
                state, one = _one_round(task, today, state, cohort, jnp.uint32(seed), supervised=schedule.supervised)
                if (at + 1) % schedule.deploy_every == 0:
                    state = deploy(state)
                seen.append(one)
            measured = joined(seen)
        yield state, measured


def train_many(
    task: Task, rates: Rates, pairs: Sequence[tuple[float, float]], states: Sequence[State], data: Data,
    schedule: Schedule, seeds: Sequence[int], *, together: int = 10, pays: Pays | None = None,
) -> Iterator[tuple[list[State], list[Measured]]]:  # fmt: skip
    """Run several runs side by side as `train` runs one; `pairs` are their rates of clients and of the server.

    All must stand at the same round. A run gives what it gives alone, to rounding.
    """
    client, server = (jnp.asarray(column, jnp.float32) for column in zip(*pairs, strict=True))
    state: State = jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)
    while (first := int(state.round[0])) < schedule.rounds:
        rounds = range(first, min(schedule.rounds, (first // together + 1) * together))
        drawn = [zip(*(cohort_of(schedule, seed, at) for at in rounds), strict=True) for seed in seeds]
        numbers, present = (jnp.asarray(np.stack([np.stack(one) for one in part])) for part in zip(*drawn, strict=True))
        state, seen = many_runs(
            task, rates, client, server, state, data, numbers, present, jnp.asarray(seeds, jnp.uint32),
            jnp.int32(schedule.deploy_every), _tables(pays, rounds), samples=schedule.samples,
        )  # fmt: skip
        yield (
            [jax.tree.map(lambda leaf, at=at: leaf[at], state) for at in range(len(seeds))],
            [jax.tree.map(lambda leaf, at=at: leaf[at], jax.device_get(seen)) for at in range(len(seeds))],
        )


def _tables(pays: Pays | None, rounds: range) -> jax.Array | None:
    """Return what arms pay in some rounds, where that differs."""
    return None if pays is None else jnp.stack([jnp.asarray(pays(at), jnp.float32) for at in rounds])


def cohort_of(schedule: Schedule, seed: int, round_: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Return the clients of a round of a schedule, padded, and which are present."""
    numbers, present = draw(
        seed, round_, schedule.clients, schedule.cohort, schedule.sampling, supervised=schedule.supervised
    )
    if schedule.among is not None:
        numbers = np.asarray(schedule.among, np.int32)[numbers]
    if schedule.answers is not None:
        present = present * schedule.answers.in_time(numbers, round_).astype(np.float32)
    return numbers, present


@partial(jax.jit, static_argnames=("task", "supervised"))
def _one_round(
    task: Task, rates: Rates, state: State, cohort: Cohort, seed: jax.Array, *, supervised: bool
) -> tuple[State, Measured]:
    return (supervised_round if supervised else bandit_round)(task, rates, state, cohort, seed)


def save(path: Path, state: State, seen: Measured) -> None:
    """Keep a state and what the rounds so far showed, in one file that is written whole."""
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves((state, seen))]
    whole = path.with_suffix(".part.npz")
    np.savez(whole, *leaves)
    whole.replace(path)


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
    reward, samples = (np.asarray(part, np.float64).cumsum() for part in (seen.reward, seen.samples))
    running: NDArray[np.float64] = reward / np.maximum(samples, 1)
    return running
