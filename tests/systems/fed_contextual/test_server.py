from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from posse.systems.fed_contextual.computing.server import optimiser


def keras_adam(
    updates: list[float],
    rate: float,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-7,
) -> list[float]:
    """By hand: epsilon is added before the moments are corrected."""
    m = v = now = 0.0
    places = []
    for t, update in enumerate(updates, 1):
        g = -update
        m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g * g
        now -= rate * np.sqrt(1 - beta2**t) / (1 - beta1**t) * m / (np.sqrt(v) + epsilon)
        places.append(now)
    return places


def optax_adam(updates: list[float], rate: float) -> list[float]:
    """By hand: epsilon is added after."""
    m = v = now = 0.0
    places = []
    for t, update in enumerate(updates, 1):
        g = -update
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        now -= rate * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-7)
        places.append(now)
    return places


def places(name: str, updates: list[float], rate: float) -> list[float]:
    made = optimiser(name)
    params = {"x": jnp.zeros(())}
    state, seen = made.init(params), []
    for update in updates:
        params, state = made.step(params, state, {"x": jnp.float32(update)}, rate)
        seen.append(float(params["x"]))
    return seen


@pytest.mark.parametrize(("name", "share"), [("adam", 0.2403), ("optax-adam", 0.9091)])
def test_the_first_step_at_a_small_gradient(name: str, share: float) -> None:
    assert places(name, [1e-6], 0.01)[0] == pytest.approx(share * 0.01, rel=1e-3)


@pytest.mark.parametrize(("name", "by_hand"), [("adam", keras_adam), ("optax-adam", optax_adam)])
@pytest.mark.parametrize("size", [1.0, 1e-6])
def test_further_steps(name: str, by_hand: object, size: float) -> None:
    updates = (size * np.random.default_rng(0).normal(size=12)).tolist()
    assert callable(by_hand)
    assert places(name, updates, 0.05) == pytest.approx(by_hand(updates, 0.05), rel=1e-4, abs=1e-7)


def test_sgd_moves_by_the_rate_times_the_update() -> None:
    assert places("sgd", [1.0, -0.5], 0.2) == pytest.approx([0.2, 0.1])
