"""One federated round: a pure function of (state, cohort, seed, round), on any device and with any number of lanes.

Clients are worked on one after the other (a CPU does that fastest) or many side by side (`lanes`, for a GPU). Each
client's randomness is its own, so that the order of a cohort and the lanes change sums by rounding only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from posse.protocols.fed_contextual.aggregation import Clipping, clip, follow, noisy, whole
from posse.protocols.fed_contextual.client import Pay, PayAll, Policy, act, learn, study
from posse.protocols.fed_contextual.keys import ACT, INIT, NOISE, ROUNDING, SHUFFLE, key_of
from posse.protocols.fed_contextual.models import Model
from posse.protocols.fed_contextual.server import Optimiser
from posse.protocols.fed_contextual.trees import Tree, add, scale, zeros_like


class Task(NamedTuple):
    """What is learnt and how; fixed for a run. It is a static argument of what is compiled."""

    model: Model
    policy: Policy
    pay: Pay
    optimiser: Optimiser
    clipping: Clipping
    pay_all: PayAll | None = None
    """For supervised rounds."""
    batch: int = 16
    loss: str = "regression"
    lanes: int = 1
    """Clients worked on side by side."""
    levels: int = 0
    """Whole numbers from 0 to the clipping norm where sums are secure: updates are rounded to them; 0 keeps floats."""


class Rates(NamedTuple):
    """Numbers that may differ from run to run without compiling again."""

    client: jax.Array | float
    server: jax.Array | float
    noise: jax.Array | float = 0.0
    """Noise multiplier: standard deviation of the noise on the sum, in clipping norms."""
    divisor: jax.Array | float = 0.0
    """What the sum is divided by; 0 for the number of clients present, which no claim of privacy allows."""


class State(NamedTuple):
    """Where a run stands after a round."""

    params: Tree
    deployed: Tree
    """The parameters by which clients act."""
    optimiser: Any
    limit: jax.Array
    """Clipping norm."""
    round: jax.Array


class Cohort(NamedTuple):
    """The clients of a round, padded: (clients, samples, ...)."""

    contexts: jax.Array
    labels: Any
    mask: jax.Array
    clients: jax.Array
    """(clients,) their numbers."""
    present: jax.Array
    """(clients,) whether each takes part; padding does not."""


class Measured(NamedTuple):
    """What a round showed; sums over clients and samples, to be divided by `samples`."""

    reward: jax.Array
    samples: jax.Array
    probability: jax.Array
    """Sum of the probabilities with which arms were chosen."""
    clients: jax.Array
    within: jax.Array
    """Fraction of updates within the clipping norm."""
    limit: jax.Array
    moved: jax.Array
    """Norm of the mean update."""


def begin(task: Task, seed: jax.Array | int) -> State:
    """Return the state before the first round."""
    params = task.model.init(key_of(seed, INIT))
    return State(params, params, task.optimiser.init(params), jnp.float32(task.clipping.norm), jnp.int32(0))


def bandit_round(
    task: Task, rates: Rates, state: State, cohort: Cohort, seed: jax.Array | int
) -> tuple[State, Measured]:
    """Let clients act with the deployed model and learn from their logs; the server takes the mean of their updates."""

    def client(contexts: jax.Array, labels: Any, mask: jax.Array, number: jax.Array) -> tuple[Tree, jax.Array]:
        key = key_of(seed, ACT, state.round, number)
        log = act(task.model, state.deployed, task.policy, task.pay, contexts, labels, mask, key)
        order = key_of(seed, SHUFFLE, state.round, number)
        update = learn(task.model, state.params, log, rates.client, order, batch=task.batch, loss=task.loss)
        told = jnp.stack([log.rewards.sum(), mask.sum(), (log.probabilities * mask).sum()])
        return update, told

    return _round(task, rates, state, cohort, seed, client)


def supervised_round(
    task: Task, rates: Rates, state: State, cohort: Cohort, seed: jax.Array | int
) -> tuple[State, Measured]:
    """Learn from every arm's reward, as from a few clients who tell it before a model is deployed."""
    assert task.pay_all is not None
    pay_all = task.pay_all

    def client(contexts: jax.Array, labels: Any, mask: jax.Array, number: jax.Array) -> tuple[Tree, jax.Array]:
        order = key_of(seed, SHUFFLE, state.round, number)
        update = study(task.model, state.params, pay_all, contexts, labels, mask, rates.client, order, batch=task.batch)
        return update, jnp.stack([jnp.float32(0), mask.sum().astype(jnp.float32), jnp.float32(0)])

    return _round(task, rates, state, cohort, seed, client)


def deploy(state: State) -> State:
    """Let clients act with the present parameters from now on."""
    return state._replace(deployed=state.params)


Client = Callable[[jax.Array, Any, jax.Array, jax.Array], tuple[Tree, jax.Array]]


def _round(
    task: Task, rates: Rates, state: State, cohort: Cohort, seed: jax.Array | int, client: Client
) -> tuple[State, Measured]:
    unit = state.limit / max(1, task.levels)

    def one(contexts: jax.Array, labels: Any, mask: jax.Array, number: jax.Array, present: jax.Array) -> Any:
        update, told = client(contexts, labels, mask, number)
        update, within = clip(update, state.limit)
        if task.levels:
            update = whole(update, unit, key_of(seed, ROUNDING, state.round, number))
        update = jax.tree.map(lambda leaf: jnp.where(present, leaf, jnp.zeros_like(leaf)), update)
        return update, jnp.append(told, jnp.stack([jnp.float32(1), within])) * present

    total, told = _sum(task, state, one, cohort)
    reward, samples, probability, clients, within = told
    if task.levels:
        total = jax.tree.map(lambda leaf: leaf.astype(jnp.float32) * unit, total)
    if not isinstance(rates.noise, float) or rates.noise:
        total = noisy(total, rates.noise * state.limit, key_of(seed, NOISE, state.round))
    divisor = jnp.where(jnp.asarray(rates.divisor) > 0, rates.divisor, jnp.maximum(1.0, clients))
    mean = scale(total, 1.0 / divisor)
    params, kept = task.optimiser.step(state.params, state.optimiser, mean, rates.server)
    share = within / jnp.maximum(1.0, clients)
    after = State(params, state.deployed, kept, follow(state.limit, share, task.clipping), state.round + 1)
    moved = jnp.sqrt(sum(jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(mean)))
    return after, Measured(reward, samples, probability, clients, share, state.limit, moved)


def _sum(task: Task, state: State, one: Callable[..., Any], cohort: Cohort) -> tuple[Tree, jax.Array]:
    """Add up what clients give, `lanes` of them side by side and these one after the other."""
    count = cohort.clients.shape[0]
    lanes = max(d for d in range(1, min(task.lanes, count) + 1) if count % d == 0)
    parts = jax.tree.map(lambda leaf: leaf.reshape(count // lanes, lanes, *leaf.shape[1:]), tuple(cohort))

    def step(carry: Any, some: Any) -> tuple[Any, None]:
        contexts, labels, mask, clients, present = some
        updates, told = jax.vmap(one)(contexts, labels, mask, clients, present)
        total = add(carry[0], jax.tree.map(lambda leaf: leaf.sum(axis=0), updates))
        return (total, carry[1] + told.sum(axis=0)), None

    zero = zeros_like(state.params)
    if task.levels:
        zero = jax.tree.map(lambda leaf: leaf.astype(jnp.int32), zero)
    (total, told), _ = jax.lax.scan(step, (zero, jnp.zeros(5)), parts)
    return total, told
