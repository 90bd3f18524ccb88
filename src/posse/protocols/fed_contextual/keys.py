"""Randomness as a function of (seed, purpose, client, round): it depends neither on order nor on devices."""

from __future__ import annotations

import jax

INIT, COHORT, ACT, SHUFFLE, NOISE, ROUNDING = range(6)
"""What is drawn: first parameters, who takes part, arms, the order of training, noise, rounding to whole numbers."""


def key_of(seed: jax.Array | int, purpose: int, round_: jax.Array | int = 0, client: jax.Array | int = 0) -> jax.Array:
    """Return the key of a draw."""
    key = jax.random.fold_in(jax.random.key(seed), purpose)
    return jax.random.fold_in(jax.random.fold_in(key, round_), client)
