from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posse.systems.fed_contextual.computing.client import clip, whole
from posse.systems.fed_contextual.computing.models import norm
from posse.systems.fed_contextual.computing.server import Clipping, follow, noisy
from tests.systems.fed_contextual.toys import differs, same

clip_ = jax.jit(clip)


def tree(seed: int, size: float = 1.0) -> dict[str, jax.Array]:
    rng = np.random.default_rng(seed)
    return {
        "w": jnp.asarray(size * rng.normal(size=(300, 40)), jnp.float32),
        "b": jnp.asarray(size * rng.normal(size=40), jnp.float32),
    }


def exact_norm(update: dict[str, jax.Array]) -> float:
    return float(
        np.sqrt(sum((np.asarray(leaf, np.float64) ** 2).sum() for leaf in update.values()))
    )


@pytest.mark.parametrize("seed", range(20))
def test_no_update_passes_the_norm(seed: int) -> None:
    size = float(np.exp(np.random.default_rng(seed).normal(scale=5)))
    update, limit = tree(seed, size), jnp.float32(0.8)
    clipped, within = clip_(update, limit)
    assert exact_norm(clipped) <= float(limit)
    assert bool(within) == (float(norm(update)) <= float(limit))
    factor = exact_norm(clipped) / exact_norm(update)
    assert factor == pytest.approx(min(1.0, float(limit) / exact_norm(update)), rel=1e-5)
    assert np.allclose(clipped["w"], factor * np.asarray(update["w"]), rtol=1e-5)


def test_a_small_update_stays_as_it_is() -> None:
    update = tree(0, 1e-4)
    same(clip_(update, jnp.float32(0.8))[0], update)


@pytest.mark.parametrize("wrong", [np.inf, np.nan, 1e30])
def test_an_update_that_is_not_finite_is_left_out(wrong: float) -> None:
    update = tree(0) | {"b": jnp.full(40, wrong, jnp.float32)}
    clipped, within = clip_(update, jnp.float32(0.8))
    assert not np.asarray(clipped["w"]).any()
    assert not np.asarray(clipped["b"]).any()
    assert not within


@pytest.mark.parametrize("quantile", [0.2, 0.5, 0.8])
@pytest.mark.parametrize("first", [0.01, 100.0])
def test_the_norm_follows_the_quantile(quantile: float, first: float) -> None:
    norms = jnp.asarray(np.random.default_rng(0).lognormal(size=(400, 64)), jnp.float32)
    clipping = Clipping(first, quantile)

    def step(limit: jax.Array, some: jax.Array) -> tuple[jax.Array, jax.Array]:
        share = (some <= limit).mean()
        return follow(limit, share, clipping), share

    last, shares = jax.jit(lambda start: jax.lax.scan(step, start, norms))(jnp.float32(first))
    assert abs(float(shares[200:].mean()) - quantile) < 0.01
    assert abs(float((norms <= last).mean()) - quantile) < 0.05


def test_a_fixed_norm_stays() -> None:
    assert follow(jnp.float32(0.3), jnp.float32(0.0), Clipping(0.3)) == jnp.float32(0.3)


def test_noise_has_its_standard_deviation() -> None:
    total = {"w": jnp.zeros((400, 500)), "b": jnp.full(50, 3.0)}
    given = noisy(total, 0.7, jax.random.key(1))
    drawn = np.asarray(given["w"], np.float64).ravel()
    # 200,000 draws: the estimate's standard error is 0.16 %. 0.8 % is passed by chance once in
    # 10^6, and an error of 1.6 % (a missing factor, a wrong divisor) is found as surely.
    assert abs(drawn.std() / 0.7 - 1) < 0.008
    assert abs(drawn.mean()) < 5 * 0.7 / np.sqrt(drawn.size)
    fourth = ((drawn / 0.7) ** 4).mean()
    assert abs(fourth - 3) < 5 * np.sqrt(
        96 / drawn.size
    )  # a normal distribution's fourth moment is 3
    assert np.asarray(given["b"]).std() > 0.1
    assert (
        np.corrcoef(drawn[:50], np.asarray(given["b"]))[0, 1] < 0.6
    )  # leaves have draws of their own


def test_rounding_is_right_on_average_and_to_a_neighbour() -> None:
    update = {"w": jnp.linspace(-1, 1, 41), "b": jnp.asarray([0.3, -0.001])}
    unit = jnp.float32(1 / 7)
    draws = jax.jit(jax.vmap(lambda key: whole(update, unit, key)))(
        jax.random.split(jax.random.key(0), 4000)
    )
    assert draws["w"].dtype == jnp.int32
    for name, leaf in update.items():
        exact = np.asarray(leaf, np.float64) * 7
        got = np.asarray(draws[name])
        assert (np.abs(got - exact) < 1 + 1e-5).all()
        # a rounding is a coin of variance at most 1/4: 5 standard deviations
        assert np.abs(got.mean(axis=0) - exact).max() < 5 * 0.5 / np.sqrt(4000)


def test_sums_of_whole_numbers_are_those_of_the_secure_ring() -> None:
    quantise = pytest.importorskip("posse.privacy.aggregation.quantise")
    rounding = jax.jit(whole)
    rounded = [
        rounding(tree(seed), jnp.float32(1 / 65536), jax.random.key(seed)) for seed in range(5)
    ]
    added = jax.tree.map(lambda *leaves: sum(leaves), *rounded)
    for name, leaf in added.items():
        words = sum(np.asarray(one[name], np.int64).astype(np.uint32) for one in rounded)
        assert words.dtype == np.uint32
        assert np.array_equal(quantise.from_ring(words), np.asarray(leaf))
    assert differs(rounded[0], rounded[1])
