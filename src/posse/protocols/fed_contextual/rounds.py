"""One federated round: a pure function of (state, cohort, seed, round), on any device and with any number of lanes.

Clients are worked on one after the other (a CPU does that fastest) or many side by side (`lanes`, for a GPU). Each
client's randomness is its own, so that the order of a cohort and the lanes change sums by rounding only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from numpy.typing import NDArray

from posse.protocols.fed_contextual.aggregation import Clipping, clip, follow, noisy, whole
from posse.protocols.fed_contextual.client import act, learn, study
from posse.protocols.fed_contextual.keys import ACT, INIT, NOISE, ROUNDING, SHUFFLE, STUDY, key_of
from posse.protocols.fed_contextual.models import Contexts, Model
from posse.protocols.fed_contextual.server import Optimiser
from posse.protocols.fed_contextual.trees import Number, Tree, add, norm, scale, zeros_like

Series: TypeAlias = jax.Array | NDArray[Any]
"""A number, or one a round."""
Policy: TypeAlias = Callable[..., jax.Array]
"""(samples, arms) probabilities from scores and what `Rates.explore` holds."""
Pay: TypeAlias = Callable[..., jax.Array]
"""(samples,) rewards from labels, arms and what `Rates.pays` holds."""
PayAll: TypeAlias = Callable[..., jax.Array]
"""(samples, arms) rewards of all arms from labels and what `Rates.pays` holds."""


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
    learns: bool = True
    """Whether clients learn, or only act: a deployed model that is left as it is."""
    centralised: bool = False
    """Whether all samples of a round lie with one client: what a federation is measured against."""


class Rates(NamedTuple):
    """Numbers that may differ from run to run without compiling again."""

    client: Number
    server: Number
    noise: Number = 0.0
    """Noise multiplier: standard deviation of the noise on the sum, in clipping norms."""
    divisor: Number = 0.0
    """What the sum is divided by; 0 for the number of clients present, which no claim of privacy allows."""
    explore: tuple[Number, ...] = ()
    """Parameters of the policy."""
    pays: tuple[jax.Array, ...] = ()
    """What rewards depend on beside labels: a table, which may differ from round to round."""
    seen: jax.Array | None = None
    """(arms,) whose rewards supervised rounds learn from; all."""


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

    contexts: Contexts
    labels: Any
    mask: jax.Array
    clients: jax.Array
    """(clients,) their numbers."""
    present: jax.Array
    """(clients,) whether each takes part; padding does not."""


class Measured(NamedTuple):
    """What a round showed, or several: sums over clients and samples, to be divided by `samples`; one a round."""

    reward: Series
    samples: Series
    probability: Series
    """Sum of the probabilities with which arms were chosen."""
    clients: Series
    within: Series
    """Fraction of updates within the clipping norm."""
    limit: Series
    moved: Series
    """Norm of the mean update."""
    pulls: Series | None = None
    """(arms,) how often each was chosen, in all these rounds together; none where that is not counted."""


SERIES = Measured._fields[:-1]
"""What has one number a round."""


def begin(task: Task, seed: jax.Array | int, params: Tree | None = None) -> State:
    """Return the state before the first round, from parameters that are given or else drawn; they are deployed."""
    params = task.model.init(key_of(seed, INIT)) if params is None else params
    return State(params, params, task.optimiser.init(params), jnp.float32(task.clipping.norm), jnp.int32(0))


def bandit_round(
    task: Task, rates: Rates, state: State, cohort: Cohort, seed: jax.Array | int
) -> tuple[State, Measured]:
    """Let clients act with the deployed model and learn from their logs; the server takes the mean of their updates."""
    cohort, alone = _merged(task, cohort), _lanes(task, cohort) == 1
    arms = jnp.arange(_arms(task, state, cohort))

    def policy(scores: jax.Array) -> jax.Array:
        return task.policy(scores, *rates.explore)

    def pay(labels: Any, arms: jax.Array) -> jax.Array:
        return task.pay(labels, arms, *rates.pays)

    def client(contexts: Contexts, labels: Any, mask: jax.Array, number: jax.Array) -> tuple[Tree, Told]:
        key = key_of(seed, ACT, state.round, number)
        log = act(task.model, state.deployed, policy, pay, contexts, labels, mask, key, alone=alone)
        told = jnp.stack([log.rewards.sum(), mask.sum(), (log.probabilities * mask).sum()])
        pulls = ((log.arms[:, None] == arms) & (mask > 0)[:, None]).sum(axis=0, dtype=jnp.int32)
        if not task.learns:
            return zeros_like(state.params), (told, pulls)
        order = key_of(seed, SHUFFLE, state.round, number)
        update = learn(
            task.model, state.params, log, rates.client, order, batch=task.batch, loss=task.loss, alone=alone
        )
        return update, (told, pulls)

    return _round(task, rates, state, cohort, seed, client, jnp.zeros(arms.shape, jnp.int32))


def supervised_round(
    task: Task, rates: Rates, state: State, cohort: Cohort, seed: jax.Array | int
) -> tuple[State, Measured]:
    """Learn from every arm's reward, as from a few clients who tell it before a model is deployed."""
    if task.pay_all is None:
        raise ValueError("supervised rounds need every arm's reward, got no pay_all in the task. Give it.")
    pay_every = task.pay_all
    cohort, alone = _merged(task, cohort), _lanes(task, cohort) == 1

    def pay_all(labels: Any) -> jax.Array:
        return pay_every(labels, *rates.pays)

    def client(contexts: Contexts, labels: Any, mask: jax.Array, number: jax.Array) -> tuple[Tree, Told]:
        order = key_of(seed, STUDY, state.round, number)
        update = study(
            task.model, state.params, pay_all, contexts, labels, mask, rates.client, order,
            batch=task.batch, seen=rates.seen, alone=alone,
        )  # fmt: skip
        return update, (jnp.stack([jnp.float32(0), mask.sum().astype(jnp.float32), jnp.float32(0)]), None)

    return _round(task, rates, state, cohort, seed, client)


def deploy(state: State) -> State:
    """Let clients act with the present parameters from now on."""
    return state._replace(deployed=state.params)


def advance(
    task: Task, rates: Rates, state: State, total: Tree, told: jax.Array, pulls: jax.Array | None = None
) -> tuple[State, Measured]:
    """Do the server's part of a round with the sum of the updates: the mean, the optimiser's step, the next norm.

    `told` holds sums over clients: rewards, samples, probabilities, clients, updates within the norm.
    """
    reward, samples, probability, clients, within = told
    divisor = jnp.where(jnp.asarray(rates.divisor) > 0, rates.divisor, jnp.maximum(1.0, clients))
    mean = scale(total, 1.0 / divisor)
    params, kept = task.optimiser.step(state.params, state.optimiser, mean, rates.server)
    share = within / jnp.maximum(1.0, clients)
    after = State(params, state.deployed, kept, follow(state.limit, share, task.clipping), state.round + 1)
    return after, Measured(reward, samples, probability, clients, share, state.limit, norm(mean), pulls)


def floats(task: Task, state: State, total: Tree) -> Tree:
    """Return a sum of updates in their own unit, where it is of whole numbers."""
    if not task.levels:
        return total
    unit = state.limit / task.levels
    return jax.tree.map(lambda leaf: leaf.astype(jnp.float32) * unit, total)


Told = tuple[jax.Array, jax.Array | None]
"""Sums over a client's samples, and how often it chose each arm."""
Client = Callable[[jax.Array, Any, jax.Array, jax.Array], tuple[Tree, Told]]


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
        update, (told, pulls) = client(contexts, labels, mask, number)
        update, within = clip(update, state.limit)
        if task.levels:
            update = whole(update, state.limit / task.levels, key_of(seed, ROUNDING, state.round, number))
        told = jnp.append(told, jnp.stack([jnp.float32(1), within])) * present
        update, pulls = jax.tree.map(lambda leaf: jnp.where(present, leaf, jnp.zeros_like(leaf)), (update, pulls))
        return update, told, pulls

    zero = jax.tree.map(lambda leaf: jnp.zeros_like(leaf, jnp.int32 if task.levels else None), state.params)
    total, told, pulls = _sum(task, (zero, jnp.zeros(5), pulls), one, cohort)
    total = _with_noise(floats(task, state, total), rates.noise, state, seed)
    return advance(task, rates, state, total, told, pulls)


def _with_noise(total: Tree, multiplier: Number, state: State, seed: jax.Array | int) -> Tree:
    """Add the noise of a round; where there is none, none is drawn."""
    if isinstance(multiplier, float | int) and not multiplier:
        return total
    key = key_of(seed, NOISE, state.round)
    return jax.lax.cond(
        jnp.asarray(multiplier) > 0,
        lambda clean: noisy(clean, multiplier * state.limit, key),
        lambda clean: clean,
        total,
    )


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
