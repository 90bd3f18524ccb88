"""The normal numbers of the simulator's noise: their law, near 0 and far out."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

from posse.systems.fed_contextual.computing.models import normal_of, normals

WORD = 2**32


def of_words(high: np.ndarray, low: np.ndarray, turn: np.ndarray) -> np.ndarray:
    """The same in 64-bit numbers."""
    share = ((high & 0x7FFFFFFF) * 2.0**32 + low + 0.5) / 2.0**64
    waited = np.where(high >> 31, -np.log1p(-share), -np.log(share))
    return np.sqrt(2 * waited) * np.sin(turn.astype(np.uint32).view(np.int32) * (np.pi / WORD))


@pytest.mark.parametrize("largest", [2**8, 2**20, WORD])
def test_each_is_what_its_words_say(largest: int) -> None:
    """Also where the first word is small, which is where the tail is made."""
    rng = np.random.Generator(np.random.Philox(1))
    words = [rng.integers(0, top, 100_000, dtype=np.uint64) for top in (largest, WORD, WORD)]
    exact = of_words(*words)
    made = np.asarray(normal_of(*(jnp.asarray(one.astype(np.uint32)) for one in words)), np.float64)
    np.testing.assert_allclose(made, exact, rtol=2e-5, atol=1e-9)


def test_their_law_is_the_normal_one() -> None:
    """A distribution function that is anywhere 0.005 off fails with a chance above .99."""
    drawn = np.asarray(
        normals({"a": jnp.zeros(3), "b": jnp.zeros(1_000_000)}, jax.random.key(3))["b"]
    )
    assert stats.kstest(drawn, "norm").pvalue > 1e-4
    assert len(np.unique(drawn)) > 0.9 * drawn.size


def test_the_tail_beyond_what_jax_draws_has_its_weight() -> None:
    """Numbers whose first word is below 2^12, a share of 2^-20, are all that can lie beyond
    5.27.
    """
    rng = np.random.Generator(np.random.Philox(2))
    size, top = 400_000, 2**12
    words = (
        rng.integers(0, most, size, dtype=np.uint64).astype(np.uint32) for most in (top, WORD, WORD)
    )
    drawn = np.abs(np.asarray(normal_of(*map(jnp.asarray, words))))
    for beyond in (5.42, 6.0, 7.0):
        chance = 2 * special.ndtr(-beyond) * WORD / top
        assert stats.binomtest(int((drawn > beyond).sum()), size, chance).pvalue > 1e-4
    assert drawn.max() > 6.5
