"""The mean of clients' updates: clipped, rounded to whole numbers where sums are secure, with noise where asked for."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from posse.protocols.fed_contextual.trees import Number, Tree, norm, normals

_MARGIN = 1e-6


class Clipping(NamedTuple):
    """How updates are clipped: to a fixed norm, or to one that follows a quantile of the norms."""

    norm: float = 1.0
    """The norm, or the first one."""
    quantile: float = 0.0
    """Fraction of clients whose update should be within the norm; 0 keeps it fixed."""
    rate: float = 0.2
    """How fast the norm follows."""


def clip(update: Tree, limit: jax.Array) -> tuple[Tree, jax.Array]:
    """Scale an update down to the norm, and say whether it was within.

    What is clipped ends a millionth below the norm, so that rounding carries nothing past it. An update that is not
    finite counts as clipped, and nothing is left of it.
    """
    size = norm(update)
    factor = jnp.where(size > limit * (1 - _MARGIN), limit * (1 - _MARGIN) / jnp.maximum(size, 1e-30), 1.0)
    sound = jnp.isfinite(size)
    clipped = jax.tree.map(lambda leaf: jnp.where(sound, leaf * factor, jnp.zeros_like(leaf)), update)
    return clipped, (size <= limit).astype(jnp.float32)


def follow(limit: jax.Array, within: jax.Array, clipping: Clipping) -> jax.Array:
    """Move the norm towards the quantile: C exp(-rate (fraction within - quantile)).

    Andrew, Thakkar, McMahan, Ramaswamy: Differentially private learning with adaptive clipping, NeurIPS 2021.
    """
    if not clipping.quantile:
        return limit
    return limit * jnp.exp(-clipping.rate * (within - clipping.quantile))


def whole(update: Tree, unit: jax.Array, key: jax.Array) -> Tree:
    """Round every number to a multiple of the unit, at random and right on average, as whole numbers of 32 bits.

    z = floor(x / unit) + [u < fraction], u uniform. The sum of n such updates is exact below 2^31.
    """
    leaves, shape = jax.tree.flatten(update)
    keys = jax.random.split(key, len(leaves))
    return jax.tree.unflatten(shape, [_round(leaf / unit, one) for one, leaf in zip(keys, leaves, strict=True)])


def _round(y: jax.Array, key: jax.Array) -> jax.Array:
    low = jnp.floor(y)
    return low.astype(jnp.int32) + (jax.random.uniform(key, y.shape) < y - low)


def noisy(total: Tree, deviation: Number, key: jax.Array) -> Tree:
    """Add normal noise to a sum."""
    drawn = normals(total, key)
    return jax.tree.map(lambda one, other: one + deviation * other, total, drawn)
