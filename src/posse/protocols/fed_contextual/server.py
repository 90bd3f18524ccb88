"""What the server does with the mean update: an optimiser that takes it for a gradient, downwards.

Keras' Adam adds its epsilon before the correction of the moments and optax after it: a first gradient of 1e-6 moves a
parameter by .24 of the rate, or by .91. The published study used the former.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from posse.protocols.fed_contextual.trees import Number, Tree, scale, zeros_like

OPTIMISERS = ("adam", "optax-adam", "sgd")


class Optimiser(NamedTuple):
    """State from parameters, and new parameters and state from an update."""

    init: Callable[[Tree], Any]
    step: Callable[[Tree, Any, Tree, Number], tuple[Tree, Any]]
    """Parameters, state, mean update, rate."""


def optimiser(name: str) -> Optimiser:
    """Return an optimiser by name: adam (as Keras has it), optax-adam or sgd."""
    return {"adam": adam, "optax-adam": optax_adam, "sgd": sgd}[name]()


def sgd() -> Optimiser:
    """Move by the rate times the mean update."""

    def step(params: Tree, state: Any, update: Tree, rate: Number) -> tuple[Tree, Any]:
        return jax.tree.map(lambda now, one: now + rate * one, params, update), state

    return Optimiser(lambda params: (), step)


def adam(beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-7) -> Optimiser:
    """Adam as Keras has it: rate sqrt(1 - b2^t) / (1 - b1^t) m / (sqrt(v) + epsilon)."""

    def init(params: Tree) -> Any:
        return jnp.zeros((), jnp.int32), zeros_like(params), zeros_like(params)

    def step(params: Tree, state: Any, update: Tree, rate: Number) -> tuple[Tree, Any]:
        count, first, second = state
        count = count + 1
        slope = scale(update, -1.0)
        first = jax.tree.map(lambda m, g: beta1 * m + (1 - beta1) * g, first, slope)
        second = jax.tree.map(lambda v, g: beta2 * v + (1 - beta2) * g * g, second, slope)
        alpha = rate * jnp.sqrt(1 - beta2**count) / (1 - beta1**count)
        moved = jax.tree.map(lambda p, m, v: p - alpha * m / (jnp.sqrt(v) + epsilon), params, first, second)
        return moved, (count, first, second)

    return Optimiser(init, step)


def optax_adam(beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-7) -> Optimiser:
    """Adam as optax has it."""
    import optax

    made = optax.scale_by_adam(beta1, beta2, epsilon)

    def step(params: Tree, state: Any, update: Tree, rate: Number) -> tuple[Tree, Any]:
        direction, state = made.update(scale(update, -1.0), state, params)
        return jax.tree.map(lambda now, one: now - rate * one, params, direction), state

    return Optimiser(made.init, step)
