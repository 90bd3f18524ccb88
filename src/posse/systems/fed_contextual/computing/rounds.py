"""One federated round, a pure function of (state, cohort, seed, round), and where its cohort comes
from.

Clients are worked on one after the other (a core does that fastest) or many side by side (`lanes`,
for a GPU). Each client's randomness is its own, so that the order of a cohort and the lanes change
sums by rounding only. A round is a sum over clients (`Total`), which parts of a cohort give apart,
and the server's step (`closed`).

Cohorts are gathered on the host, which needs memory for a cohort alone, or come from the whole
population in the device's memory, for a GPU and for small populations. Both give the same samples,
padded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from posse.core.errors import ConfigError
from posse.problems.populations.population import Bag, Population
from posse.systems.fed_contextual.computing.client import (
    Contribution,
    Log,
    client_round,
    learnt,
    rows,
    studied,
)
from posse.systems.fed_contextual.computing.cohorts import SAMPLE, Logs
from posse.systems.fed_contextual.computing.models import Contexts, Labels, Tree, add, leaves_of
from posse.systems.fed_contextual.computing.server import (
    Measured,
    State,
    advance,
    blurred,
    floats,
    models_of,
    with_noise,
)
from posse.systems.fed_contextual.computing.tasks import Draws, Rates, Task

MEMORY = {"cpu": 2 << 30, "gpu": 24 << 30}
"""Bytes of a population that are put on a device whole; of a larger one cohorts are gathered on the
host.
"""
_CLIENTS = 512
"""Clients gathered at a time when a population is put on a device."""


Clients: TypeAlias = jax.Array | NDArray[np.int32]
Present: TypeAlias = jax.Array | NDArray[np.float32]


class Cohort(NamedTuple):
    """The clients of a round, padded: (clients, samples, ...)."""

    contexts: Contexts
    labels: Labels
    mask: jax.Array
    clients: Clients
    """(clients,) their numbers."""
    present: Present
    """(clients,) whether each takes part; padding does not."""
    logs: Logs | None = None
    """What each learns from, where not from what it does now with the newest model."""


class Data(NamedTuple):
    """A population: samples of all clients one behind the other."""

    contexts: Contexts
    labels: Labels
    offsets: jax.Array
    """(clients + 1,): samples of client c are offsets[c] to offsets[c + 1]."""


Gather: TypeAlias = Callable[[NDArray[np.int32], NDArray[np.float32], int], Cohort]
"""Gathers the cohort of a round: clients, present, round."""
Source: TypeAlias = Data | Gather
"""A population in the device's memory, or a function that gathers cohorts from it."""


def source_of(
    population: Population, cap: int, samples: int, device: str, whole: bool | None = None
) -> Source:
    """Return where cohorts come from: the device's memory where the population is small enough,
    else the host.
    """
    if whole is None:
        whole = resident_bytes(population, cap) <= MEMORY[device]
    return resident(population, cap) if whole else host(population, samples, cap)


def padding(population: Population, cap: int, batch: int = 16) -> int:
    """Samples that a client is padded to: those of the largest, or the cap, in whole batches."""
    return -(-min(population.largest, cap) // batch) * batch


def host(population: Population, samples: int, cap: int) -> Gather:
    """Return a function that gathers the cohort of a round; memory does not grow with the
    population.
    """

    def cohort(numbers: NDArray[np.int32], present: NDArray[np.float32], round_: int) -> Cohort:
        found = population.gather(numbers, samples, cap=min(cap, samples), seed=SAMPLE)
        return Cohort(_contexts(found.x), found.y, found.mask.astype(np.float32), numbers, present)  # type: ignore[arg-type]

    return cohort


def resident(population: Population, cap: int) -> Data:
    """Put all clients' samples on the device, at most `cap` of each: the same that `host`
    gathers.
    """
    contexts, labels, sizes = [], [], []
    pad = min(population.largest, cap)
    for low in range(0, population.clients, _CLIENTS):
        numbers = np.arange(low, min(low + _CLIENTS, population.clients))
        found = population.gather(numbers, pad, cap=pad, seed=SAMPLE)
        real = found.mask
        contexts.append(jax.tree.map(lambda leaf, real=real: leaf[real], _contexts(found.x)))
        labels.append(found.y[real])
        sizes.append(real.sum(axis=1))
    offsets = np.concatenate([[0], np.cumsum(np.concatenate(sizes))])
    if offsets[-1] >= 2**31:
        raise ConfigError(
            f"a device holds fewer than 2^31 samples, got {offsets[-1]}. Gather cohorts on the "
            "host."
        )
    joined = jax.tree.map(lambda *leaves: jnp.asarray(np.concatenate(leaves)), *contexts)
    return Data(joined, jnp.asarray(np.concatenate(labels)), jnp.asarray(offsets, jnp.int32))


def resident_bytes(population: Population, cap: int) -> int:
    """How much `resident` takes, at most."""
    inputs = population.inputs
    if isinstance(inputs, np.ndarray):
        each = inputs.dtype.itemsize * int(np.prod(inputs.shape[1:], dtype=np.int64))
    else:
        each = 8 * max(1, inputs.longest)
    return min(population.samples, population.clients * cap) * (
        each + (len(population.arms) if population.multilabel else 4)
    )


def gather(data: Data, clients: Clients, present: Present, samples: int) -> Cohort:
    """Return the padded samples of some clients; those beyond `samples` are left out."""
    first = data.offsets[clients]
    at = first[:, None] + jnp.arange(samples)
    mask = (at < data.offsets[clients + 1][:, None]).astype(jnp.float32)
    at = jnp.minimum(at, data.offsets[-1] - 1)
    return Cohort(rows(data.contexts, at), rows(data.labels, at), mask, clients, present)


def with_contexts(source: Source) -> Source:
    """Return a source whose labels are (contexts, labels): rewards may depend on both."""
    if isinstance(source, Data):
        return source._replace(labels=(source.contexts, source.labels))
    return gather_with_contexts(source)


def gather_with_contexts(gather: Gather) -> Gather:
    """Do the same for what gathers cohorts."""

    def cohort(numbers: NDArray[np.int32], present: NDArray[np.float32], round_: int) -> Cohort:
        found = gather(numbers, present, round_)
        return found._replace(labels=(found.contexts, found.labels))

    return cohort


def emptied(source: Source) -> Source:
    """Return a source of clients without samples: the same shapes, and next to no work."""
    if isinstance(source, Data):
        return source._replace(offsets=jnp.zeros_like(source.offsets))

    def cohort(numbers: NDArray[np.int32], present: NDArray[np.float32], round_: int) -> Cohort:
        gathered = source(numbers, present, round_)
        return gathered._replace(mask=jnp.zeros_like(gathered.mask))

    return cohort


def _contexts(x: Bag | NDArray[Any]) -> Contexts:
    return (x.words, x.weights) if isinstance(x, Bag) else x


# Rounds -------------------------------------------------------------------------------------------

Counts: TypeAlias = tuple[jax.Array | None, jax.Array | None]
"""How often each arm was chosen, and what the best arm of every sample would have paid; none where
that is unknown.
"""
Client = Callable[..., tuple[Contribution, Counts]]
"""What a client gives from contexts, labels, mask, its draws and logs, and what the simulation
counts beside.
"""
Total: TypeAlias = tuple[Tree, jax.Array, Counts]
"""Sums over clients: updates, what `server.advance` is given as `sums`, and what the simulation
counts beside.
"""


def bandit_round(
    task: Task, rates: Rates, state: State, cohort: Cohort, seed: jax.Array | int
) -> tuple[State, Measured]:
    """Let clients act with the deployed model and learn from their logs; the server takes the mean
    of their updates.
    """
    return closed(task, rates, state, bandit_sum(task, rates, state, cohort, seed), seed)


def bandit_sum(
    task: Task, rates: Rates, state: State, cohort: Cohort, seed: jax.Array | int
) -> Total:
    """Return what the clients of such a round give together."""
    cohort, alone = _merged(task, cohort), _lanes(task, cohort) == 1
    arms = jnp.arange(_arms(task, state, cohort))
    pay_all, today = task.pay_all, _today(rates, cohort)
    models = state.deployed if cohort.logs is None else models_of(state)

    def client(
        contexts: Contexts, labels: Labels, mask: jax.Array, draws: Draws, logs: Logs | None
    ) -> tuple[Contribution, Counts]:
        given, log = client_round(
            task,
            rates,
            state.params,
            models,
            state.limit,
            contexts,
            labels,
            mask,
            draws,
            logs,
            alone=alone,
        )
        mask = (
            mask if logs is None else mask * (logs.made[0] == 0)
        )  # decisions count when they are made
        best = None
        if pay_all is not None:
            paid = pay_all(labels, *today.pays)
            paid = paid if today.here is None else jnp.where(today.here, paid, -jnp.inf)
            best = (paid.max(axis=-1) * mask).sum()
        return given, (
            ((log.arms[:, None] == arms) & (mask > 0)[:, None]).sum(axis=0, dtype=jnp.int32),
            best,
        )

    none = jnp.zeros(arms.shape, jnp.int32), None if pay_all is None else jnp.float32(0)
    return _total(task, state, cohort, seed, client, none)


def logged_round(
    task: Task, rates: Rates, state: State, cohort: Cohort, seed: jax.Array | int
) -> tuple[State, Measured]:
    """Let clients learn from logs that were written before: a cohort's labels are arms, rewards and
    probabilities.
    """
    alone, arms = _lanes(task, cohort) == 1, jnp.arange(_arms(task, state, cohort))

    def client(
        contexts: Contexts, logged: Labels, mask: jax.Array, draws: Draws, _: Logs | None
    ) -> tuple[Contribution, Counts]:
        chosen, rewards, probabilities = logged
        log = Log(contexts, chosen, rewards, probabilities, mask)
        pulls = ((log.arms[:, None] == arms) & (mask > 0)[:, None]).sum(axis=0, dtype=jnp.int32)
        return learnt(task, rates, state.params, log, state.limit, draws, alone=alone), (
            pulls,
            None,
        )

    total = _total(task, state, cohort, seed, client, (jnp.zeros(arms.shape, jnp.int32), None))
    return closed(task, rates, state, total, seed)


def supervised_round(
    task: Task, rates: Rates, state: State, cohort: Cohort, seed: jax.Array | int
) -> tuple[State, Measured]:
    """Learn from every arm's reward, as from a few clients who give it before a model is
    deployed.
    """
    return closed(task, rates, state, supervised_sum(task, rates, state, cohort, seed), seed)


def supervised_sum(
    task: Task, rates: Rates, state: State, cohort: Cohort, seed: jax.Array | int
) -> Total:
    """Return what the clients of such a round give together."""
    cohort, alone = _merged(task, cohort), _lanes(task, cohort) == 1

    def client(
        contexts: Contexts, labels: Labels, mask: jax.Array, draws: Draws, _: Logs | None
    ) -> tuple[Contribution, Counts]:
        return studied(
            task, rates, state.params, state.limit, contexts, labels, mask, draws, alone=alone
        ), (None, None)

    return _total(task, state, cohort, seed, client)


def closed(
    task: Task, rates: Rates, state: State, total: Total, seed: jax.Array | int
) -> tuple[State, Measured]:
    """Add the noise to a sum and let the server advance."""
    updates, sums, (pulls, best) = total
    updates = with_noise(floats(task, state, updates), rates.noise, state, seed)
    after, seen = advance(
        task, rates, state, updates, sums, pulls, blurred(rates.counted, state, seed)
    )
    return after, seen._replace(best=best)


def _total(
    task: Task,
    state: State,
    cohort: Cohort,
    seed: jax.Array | int,
    client: Client,
    none: Counts = (None, None),
) -> Total:
    """Add up what clients give, counting from `none`; a client that is not present costs next to
    nothing alone.
    """
    if (task.levels + 1) * cohort.clients.shape[0] >= 2**31:
        raise ValueError(
            f"a sum of whole numbers must stay below 2^31, got {cohort.clients.shape[0]} clients "
            f"of {task.levels} "
            "levels. Lower the levels."
        )

    def one(
        contexts: Contexts,
        labels: Labels,
        mask: jax.Array,
        number: jax.Array,
        present: jax.Array,
        logs: Logs | None,
    ) -> Total:
        given, counts = client(
            contexts, labels, mask * present, Draws(seed, state.round, number), logs
        )
        sums = jnp.append(given.sums, jnp.stack([jnp.float32(1), given.within])) * present
        kept = jax.tree.map(
            lambda leaf: jnp.where(present, leaf, jnp.zeros_like(leaf)), (given.update, counts)
        )
        return kept[0], sums, kept[1]

    zero = jax.tree.map(
        lambda leaf: jnp.zeros_like(leaf, jnp.int32 if task.levels else None), state.params
    )
    return _sum(task, (zero, jnp.zeros(5), none), one, cohort)


@dataclass(frozen=True, eq=False)
class Observed:
    """A round, client by client: what reaches the server, and what stays on clients."""

    round: int
    devices: NDArray[np.int32]
    """Numbers of those that took part."""
    updates: list[NDArray[Any]]
    """Arrays of the model, each with a first axis of clients."""
    contexts: NDArray[np.float64]
    """(samples, numbers)"""
    labels: NDArray[Any]
    owner: NDArray[np.int64]
    """(samples,) place in `devices` of the device that has the sample."""
    arms: NDArray[np.int64]
    rewards: NDArray[np.float64]


@partial(jax.jit, static_argnames=("task",))
def _contributions(
    task: Task, rates: Rates, state: State, cohort: Cohort, seed: jax.Array | int
) -> tuple[Tree, jax.Array, jax.Array]:
    """Return the update, the arms and the rewards of every client of a round: what `bandit_round`
    adds up.

    Updates are clipped, and whole numbers where sums are secure; all have a first axis of clients.
    """
    models = state.deployed if cohort.logs is None else models_of(state)

    def one(some: Cohort) -> tuple[Tree, jax.Array, jax.Array]:
        contexts, labels, mask, number, _, logs = some
        given, log = client_round(
            task,
            rates,
            state.params,
            models,
            state.limit,
            contexts,
            labels,
            mask,
            Draws(seed, state.round, number),
            logs,
            alone=True,
        )
        return given.update, log.arms, log.rewards

    contributions: tuple[Tree, jax.Array, jax.Array] = jax.lax.map(one, cohort)
    return contributions


def _today(rates: Rates, cohort: Cohort) -> Rates:
    """Return the rates of a client that acts now, with the newest model."""
    return rates if cohort.logs is None else rates.then(0, 0)


def observed(
    task: Task, rates: Rates, state: State, cohort: Cohort, seed: int, population: Population
) -> Observed:
    """Work through a round client by client, from the state before it; all of the cohort are
    present.
    """
    updates, arms, rewards = _contributions(task, rates, state, cohort, jnp.uint32(seed))
    real = np.asarray(cohort.mask) > 0
    labels = cohort.labels[1] if isinstance(cohort.labels, tuple) else cohort.labels
    return Observed(
        int(state.round),
        np.asarray(cohort.clients),
        leaves_of(updates),
        dense(cohort.contexts, population)[real],
        np.asarray(labels)[real],
        np.nonzero(real)[0],
        np.asarray(arms)[real].astype(np.int64),
        np.asarray(rewards, np.float64)[real],
    )


def dense(contexts: Contexts, population: Population) -> NDArray[np.float64]:
    """Return contexts as the model takes them, one row of numbers a sample: (devices, samples,
    numbers).
    """
    if population.bags:
        words, weights = (np.asarray(one) for one in contexts)
        made = np.zeros((*words.shape[:2], len(population.vocabulary)))
        np.add.at(made, (*np.indices(words.shape)[:2], words), weights)
        return made
    rows = np.asarray(contexts)
    flat = rows.reshape(*rows.shape[:2], -1).astype(np.float64)
    return flat / 255.0 if rows.dtype == np.uint8 else flat


def _merged(task: Task, cohort: Cohort) -> Cohort:
    """Give all samples to one client, if the task is centralised."""
    if not task.centralised:
        return cohort

    def flat(leaf: jax.Array) -> jax.Array:
        return leaf.reshape(1, -1, *leaf.shape[2:])

    mask = flat(cohort.mask * jnp.asarray(cohort.present)[:, None])
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


def _sum(task: Task, zero: Total, one: Callable[..., Total], cohort: Cohort) -> Total:
    """Add up what clients give, `lanes` of them side by side and these one after the other."""
    count = cohort.clients.shape[0]
    lanes = _lanes(task, cohort)
    parts = jax.tree.map(
        lambda leaf: leaf.reshape(count // lanes, lanes, *leaf.shape[1:]), tuple(cohort)
    )

    def step(carry: Total, some: Tree) -> tuple[Total, None]:
        if lanes == 1:  # side by side with nobody: scatters stay cheap
            return add(carry, one(*jax.tree.map(lambda leaf: leaf[0], some))), None
        return add(carry, jax.tree.map(lambda leaf: leaf.sum(axis=0), jax.vmap(one)(*some))), None

    return jax.lax.scan(step, zero, parts)[0]
