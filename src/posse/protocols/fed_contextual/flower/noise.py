"""The noise of a round, which the server adds to the sum before anything is made of it.

Without a seed it comes from the operating system, in numbers of 53 bits: they have no tail beyond 8.6 standard
deviations, which the figures do not miss (chance 10^-17). With a seed it is the simulator's, and protects nothing.

A sum of whole numbers (`levels`, secure sums) stays one, since the noise is rounded: that is post-processing, and hides
the low-order bits of a floating-point number, from which noise can be read (Mironov: On significance of the least
significant bits for differential privacy, CCS 2012). A sum of floats has such bits.
"""

from __future__ import annotations

import os
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from posse.protocols.fed_contextual.flower.advance import Leaves
from posse.protocols.fed_contextual.flower.settings import DeviceSettings
from posse.protocols.fed_contextual.keys import NOISE, key_of
from posse.protocols.fed_contextual.rounds import State
from posse.protocols.fed_contextual.trees import Tree, normals

_UNIT = 2.0**-53


def with_noise(total: Tree, settings: DeviceSettings, state: State) -> Tree:
    """Add normal noise of standard deviation noise x clip to every number of a sum."""
    leaves, shape = jax.tree.flatten(total)
    levels = settings.rounded_to
    deviation = settings.noise * (levels or float(state.limit))  # in steps, or as the sum is
    drawn = _drawn([np.shape(leaf) for leaf in leaves], settings.seed, int(state.round))
    made = [_added(np.asarray(leaf), deviation * one) for leaf, one in zip(leaves, drawn, strict=True)]
    return jax.tree.unflatten(shape, made)


def _added(leaf: NDArray[Any], noise: NDArray[Any]) -> NDArray[Any]:
    made: NDArray[Any] = leaf + (np.rint(noise) if leaf.dtype.kind == "i" else noise)
    return made.astype(leaf.dtype)


def secret_normals(count: int) -> NDArray[np.float64]:
    """Draw independent standard normal numbers from the operating system (Box and Muller)."""
    pairs = -(-count // 2)
    words = np.frombuffer(os.urandom(16 * pairs), np.uint64).reshape(2, pairs) >> np.uint64(11)
    radius = np.sqrt(-2.0 * np.log((words[0] + np.uint64(1)) * _UNIT))
    angle = 2.0 * np.pi * (words[1] * _UNIT)
    return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:count]


def _drawn(shapes: list[tuple[int, ...]], seed: int, round_: int) -> Leaves:
    """Return standard normal numbers in some shapes."""
    if seed >= 0:
        like = [np.zeros(shape, np.float32) for shape in shapes]
        return [np.asarray(leaf) for leaf in normals(like, key_of(seed, NOISE, round_))]
    return [secret_normals(int(np.prod(shape))).reshape(shape) for shape in shapes]
