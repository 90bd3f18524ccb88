"""A round on a GPU is the CPU's, to rounding. Skipped where JAX sees no GPU."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.devices import images_round
from posse.systems.fed_contextual.computing.rounds import bandit_round
from posse.systems.fed_contextual.computing.server import begin, sgd
from posse.systems.fed_contextual.study import computing_on


def moved(device: jax.Device) -> np.ndarray:
    """How a round of the network moves the model."""
    task, rates, cohort = images_round(8)
    task, rates = task._replace(optimiser=sgd(), lanes=8), rates._replace(server=1.0)
    with computing_on(device):
        before = begin(task, 0)
        after, _ = jax.jit(bandit_round, static_argnames="task")(
            task, *jax.device_put((rates, before, cohort), device), jnp.uint32(0)
        )
        pairs = zip(jax.tree.leaves(after.params), jax.tree.leaves(before.params), strict=True)
        return np.concatenate([np.ravel(one) - np.ravel(other) for one, other in pairs])


@pytest.mark.skipif(jax.default_backend() == "cpu", reason="JAX sees no GPU here")
def test_an_update_is_the_cpus_to_a_thousandth() -> None:
    """With JAX's own precision it is 2 % off."""
    exact, own = moved(jax.devices("cpu")[0]), moved(jax.devices()[0])
    assert np.linalg.norm(own - exact) < 1e-3 * np.linalg.norm(exact)


def test_a_cpu_is_left_as_it_is_and_the_users_word_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    with computing_on(jax.devices("cpu")[0]):
        assert jax.config.jax_default_matmul_precision is None
    with jax.default_matmul_precision("bfloat16"), computing_on(jax.devices("cpu")[0]):
        assert jax.config.jax_default_matmul_precision == "bfloat16"
