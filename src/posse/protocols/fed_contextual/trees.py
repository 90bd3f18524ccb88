"""Arithmetic on pytrees of arrays."""

from __future__ import annotations

from typing import Any, TypeAlias

import jax
import jax.numpy as jnp

Tree: TypeAlias = Any
"""A pytree of float arrays: parameters, an update, a moment."""
Number: TypeAlias = jax.Array | float


def add(one: Tree, other: Tree) -> Tree:
    """Add trees of one shape."""
    return jax.tree.map(jnp.add, one, other)


def subtract(one: Tree, other: Tree) -> Tree:
    """Subtract trees of one shape."""
    return jax.tree.map(jnp.subtract, one, other)


def scale(tree: Tree, factor: Number) -> Tree:
    """Multiply every number."""
    return jax.tree.map(lambda leaf: leaf * factor, tree)


def zeros_like(tree: Tree) -> Tree:
    """Return a tree of zeros of the same shape."""
    return jax.tree.map(jnp.zeros_like, tree)


def norm(tree: Tree) -> jax.Array:
    """Return the Euclidean norm of all numbers together."""
    return jnp.sqrt(sum(jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(tree)))


def size(tree: Tree) -> int:
    """Count the numbers."""
    return sum(int(leaf.size) for leaf in jax.tree.leaves(tree))


def normals(tree: Tree, key: jax.Array) -> Tree:
    """Return standard normal numbers in the shape of a tree."""
    leaves, shape = jax.tree.flatten(tree)
    keys = jax.random.split(key, len(leaves))
    drawn = [jax.random.normal(one, leaf.shape, leaf.dtype) for one, leaf in zip(keys, leaves, strict=True)]
    return jax.tree.unflatten(shape, drawn)
