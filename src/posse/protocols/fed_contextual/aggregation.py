"""The mean of clients' updates: clipped, rounded to whole numbers where sums are secure, with noise where asked for."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from posse.protocols.fed_contextual.trees import Tree, norm, normals, scale


class Clipping(NamedTuple):
    """How updates are clipped: to a fixed norm, or to one that follows a quantile of the norms."""

    norm: float = 1.0
    """The norm, or the first one."""
    quantile: float = 0.0
    """Fraction of clients whose update should be within the norm; 0 keeps it fixed."""
    rate: float = 0.2
    """How fast the norm follows."""


def clip(update: Tree, limit: jax.Array) -> tuple[Tree, jax.Array]:
    """Scale an update down to the norm, and say whether it was within."""
    size = norm(update)
    return scale(update, jnp.minimum(1.0, limit / jnp.maximum(size, 1e-12))), (size <= limit).astype(jnp.float32)


def follow(limit: jax.Array, within: jax.Array, clipping: Clipping) -> jax.Array:
    """Move the norm towards the quantile: C exp(-rate (fraction within - quantile)).

    Andrew, Thakkar, McMahan, Ramaswamy: Differentially private learning with adaptive clipping, NeurIPS 2021.
    """
    if not clipping.quantile:
        return limit
    return limit * jnp.exp(-clipping.rate * (within - clipping.quantile))


def whole(update: Tree, unit: jax.Array, key: jax.Array) -> Tree:
    """Round every number to a multiple of the unit, at random and right on average, as whole numbers of 32 bits."""
    leaves, shape = jax.tree.flatten(update)
    keys = jax.random.split(key, len(leaves))
    rounded = [
        jnp.floor(leaf / unit + jax.random.uniform(one, leaf.shape)).astype(jnp.int32)
        for one, leaf in zip(keys, leaves, strict=True)
    ]
    return jax.tree.unflatten(shape, rounded)


def noisy(total: Tree, deviation: jax.Array, key: jax.Array) -> Tree:
    """Add normal noise to a sum."""
    drawn = normals(total, key)
    return jax.tree.map(lambda one, other: one + deviation * other, total, drawn)
