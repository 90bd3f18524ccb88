"""Randomness as a function of (seed, purpose, client, round): it depends neither on order nor on devices."""

from __future__ import annotations

import jax

INIT, ACT, SHUFFLE, NOISE, ROUNDING, STUDY = range(6)
"""What is drawn: first parameters, arms, the order of training, noise, rounding to whole numbers, the order of
supervised training."""


def key_of(seed: jax.Array | int, purpose: int, round_: jax.Array | int = 0, client: jax.Array | int = 0) -> jax.Array:
    """Return the key of a draw; a seed is in [0, 2^32)."""
    key = jax.random.fold_in(jax.random.key(seed, impl="threefry2x32"), purpose)
    return jax.random.fold_in(jax.random.fold_in(key, round_), client)
