"""What the server does with updates of a round: it checks and adds them, and advances as the simulator does."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from posse.core.errors import ProtocolError
from posse.protocols.fed_contextual.rounds import Measured, Rates, State, Task, advance, floats
from posse.protocols.fed_contextual.trees import Tree

SLACK = 1e-5
"""What the rounding of a clipped update may add to its norm."""
Leaves = list[NDArray[Any]]
"""The arrays of a tree, in jax's order."""


def total_of(updates: Sequence[Leaves]) -> Leaves:
    """Add updates one after the other in the order given, as the simulator adds a cohort."""
    total = [np.zeros_like(leaf) for leaf in updates[0]]
    for update in updates:
        total = [one + other for one, other in zip(total, update, strict=True)]
    return total


def check_update(update: Leaves, like: Sequence[Any], limit: float, levels: int) -> None:
    """Refuse an update that no honest device sends: of other shapes, not finite, or beyond the norm.

    Rounding to whole numbers can lengthen an update by less than the root of its length, in steps.
    """
    kind = np.dtype(np.int32 if levels else np.float32)
    if [(leaf.shape, leaf.dtype) for leaf in update] != [(tuple(one.shape), kind) for one in like]:
        raise ProtocolError(f"an update must be {len(like)} arrays of the model's shapes and {kind.name}.")
    longest = levels + math.sqrt(sum(leaf.size for leaf in update)) if levels else limit * (1 + SLACK)
    size = math.sqrt(sum(float(np.square(leaf, dtype=np.float64).sum()) for leaf in update))
    if not size <= longest:  # also where it is not a number
        raise ProtocolError(f"an update must have a norm of at most {longest:.6g}, got {size:.6g}.")


def advanced(task: Task, rates: Rates, state: State, total: Tree, told: jax.Array) -> tuple[State, Measured]:
    """Take the unweighted mean, the optimiser's step, and the next norm (`rounds.advance`).

    `told` holds sums over clients: rewards, samples, probabilities, clients, updates within the norm.
    """
    found: tuple[State, Measured] = _advanced(task, rates, state, total, told)
    return found


@partial(jax.jit, static_argnames="task")
def _advanced(task: Task, rates: Rates, state: State, total: Tree, told: jax.Array) -> tuple[State, Measured]:
    return advance(task, rates, state, floats(task, state, total), told)
