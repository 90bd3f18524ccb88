"""What the server does with the sum of a round: noise where asked for, the mean, the optimiser's
step, the next norm.

The optimiser takes the mean update for a gradient, downwards. Keras' Adam adds its epsilon before
the correction of the moments and optax after it: a first gradient of 1e-6 moves a parameter by .24
of the rate, or by .91. The published study used the former.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from numpy.typing import NDArray

from posse.systems.fed_contextual.computing.models import Number, Tree, norm, normals, scale
from posse.systems.fed_contextual.computing.tasks import COUNT, INIT, NOISE, Rates, Task, key_of

Series: TypeAlias = jax.Array | NDArray[Any]
"""A number, or one a round."""


class State(NamedTuple):
    """Where a run stands after a round."""

    params: Tree
    deployed: Tree
    """The parameters by which clients act."""
    optimiser: Tree
    limit: jax.Array
    """Clipping norm."""
    round: jax.Array
    older: Tree = ()
    """Deployed models before this one, the newest first, as far as clients may still have them:
    (models, ...).
    """


class Measured(NamedTuple):
    """What a round showed, or several: sums over clients and samples, to be divided by `samples`;
    one a round.
    """

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
    """(arms,) how often each was chosen, in all these rounds together; none where that is not
    counted.
    """
    best: Series | None = None
    """What the best arm of every sample would have paid, added up; none where rewards of other arms
    are not known.
    """


SERIES = Measured._fields[:-2]
"""What has one number a round, always."""


def begin(task: Task, seed: jax.Array | int, params: Tree | None = None) -> State:
    """Return the state before the first round, from parameters that are given or else drawn; they
    are deployed.
    """
    params = task.model.init(key_of(seed, INIT)) if params is None else params
    older = jax.tree.map(lambda leaf: jnp.stack([leaf] * task.older), params) if task.older else ()
    return State(
        params,
        params,
        task.optimiser.init(params),
        jnp.float32(task.clipping.norm),
        jnp.int32(0),
        older,
    )


def deploy(state: State) -> State:
    """Let clients act with the present parameters from now on; of older models the oldest is given
    up.
    """
    older = (
        jax.tree.map(lambda leaf: leaf[:-1], models_of(state))
        if jax.tree.leaves(state.older)
        else ()
    )
    return state._replace(deployed=state.params, older=older)


def models_of(state: State) -> Tree:
    """Return the deployed model and older ones, the newest first: (models, ...)."""
    if not jax.tree.leaves(state.older):
        return jax.tree.map(lambda new: new[None], state.deployed)
    return jax.tree.map(
        lambda new, old: jnp.concatenate([new[None], old]), state.deployed, state.older
    )


def advance(
    task: Task,
    rates: Rates,
    state: State,
    total: Tree,
    sums: jax.Array,
    pulls: jax.Array | None = None,
    blur: Number = 0.0,
) -> tuple[State, Measured]:
    """Do the server's part of a round with the sum of the updates: the mean, the optimiser's step,
    the next norm.

    `sums` are over clients: rewards, samples, probabilities, clients, updates within the norm.
    `blur` is the noise on the last of them, which the norm then follows as the sum of b - 1/2 over
    the expected clients.
    """
    reward, samples, probability, clients, within = sums
    divisor = jnp.where(jnp.asarray(rates.divisor) > 0, rates.divisor, jnp.maximum(1.0, clients))
    mean = scale(total, 1.0 / divisor)
    params, kept = task.optimiser.step(state.params, state.optimiser, mean, rates.server)
    share = within / jnp.maximum(1.0, clients)
    counted = jnp.where(
        jnp.asarray(rates.counted) > 0, (within - clients / 2 + blur) / divisor + 0.5, share
    )
    limit = follow(state.limit, counted, task.clipping)
    after = State(params, state.deployed, kept, limit, state.round + 1, state.older)
    return after, Measured(
        reward, samples, probability, clients, share, state.limit, norm(mean), pulls
    )


def floats(task: Task, state: State, total: Tree) -> Tree:
    """Return a sum of updates in their own unit, where it is of whole numbers."""
    if not task.levels:
        return total
    unit = state.limit / task.levels
    return jax.tree.map(lambda leaf: leaf.astype(jnp.float32) * unit, total)


def with_noise(total: Tree, multiplier: Number, state: State, seed: jax.Array | int) -> Tree:
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


def blurred(deviation: Number, state: State, seed: jax.Array | int) -> Number:
    """Return the noise of a round on the count of updates within the norm."""
    drawn: jax.Array = deviation * normals(jnp.float32(0), key_of(seed, COUNT, state.round))
    return drawn


def noisy(total: Tree, deviation: Number, key: jax.Array) -> Tree:
    """Add normal noise to a sum."""
    drawn = normals(total, key)
    return jax.tree.map(lambda one, other: one + deviation * other, total, drawn)


class Clipping(NamedTuple):
    """How updates are clipped: to a fixed norm, or to one that follows a quantile of the norms."""

    norm: float = 1.0
    """The norm, or the first one."""
    quantile: float = 0.0
    """Fraction of clients whose update should be within the norm; 0 keeps it fixed."""
    rate: float = 0.2
    """How fast the norm follows."""


def follow(limit: jax.Array, within: jax.Array, clipping: Clipping) -> jax.Array:
    """Move the norm towards the quantile: C exp(-rate (fraction within - quantile)).

    Andrew, Thakkar, McMahan, Ramaswamy: Differentially private learning with adaptive clipping,
    NeurIPS 2021.
    """
    if not clipping.quantile:
        return limit
    return limit * jnp.exp(-clipping.rate * (within - clipping.quantile))


OPTIMISERS = ("adam", "optax-adam", "sgd")


class Optimiser(NamedTuple):
    """State from parameters, and new parameters and state from an update."""

    init: Callable[[Tree], Tree]
    step: Callable[[Tree, Tree, Tree, Number], tuple[Tree, Tree]]
    """Parameters, state, mean update, rate."""


def optimiser(name: str) -> Optimiser:
    """Return an optimiser by name: adam (as Keras has it), optax-adam or sgd."""
    return {"adam": adam, "optax-adam": optax_adam, "sgd": sgd}[name]()


def sgd() -> Optimiser:
    """Move by the rate times the mean update."""

    def step(params: Tree, state: Tree, update: Tree, rate: Number) -> tuple[Tree, Tree]:
        return jax.tree.map(lambda now, one: now + rate * one, params, update), state

    return Optimiser(lambda params: (), step)


def adam(beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-7) -> Optimiser:
    """Adam as Keras has it: rate sqrt(1 - b2^t) / (1 - b1^t) m / (sqrt(v) + epsilon)."""

    def init(params: Tree) -> Tree:
        zeros = jax.tree.map(jnp.zeros_like, params)
        return jnp.zeros((), jnp.int32), zeros, zeros

    def step(params: Tree, state: Tree, update: Tree, rate: Number) -> tuple[Tree, Tree]:
        count, first, second = state
        count = count + 1
        slope = scale(update, -1.0)
        first = jax.tree.map(lambda m, g: beta1 * m + (1 - beta1) * g, first, slope)
        second = jax.tree.map(lambda v, g: beta2 * v + (1 - beta2) * g * g, second, slope)
        alpha = rate * jnp.sqrt(1 - beta2**count) / (1 - beta1**count)
        moved = jax.tree.map(
            lambda p, m, v: p - alpha * m / (jnp.sqrt(v) + epsilon), params, first, second
        )
        return moved, (count, first, second)

    return Optimiser(init, step)


def optax_adam(beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-7) -> Optimiser:
    """Adam as optax has it."""
    import optax

    made = optax.scale_by_adam(beta1, beta2, epsilon)

    def step(params: Tree, state: Tree, update: Tree, rate: Number) -> tuple[Tree, Tree]:
        direction, state = made.update(scale(update, -1.0), state, params)
        return jax.tree.map(lambda now, one: now - rate * one, params, direction), state

    return Optimiser(made.init, step)
