"""Use a flax module as the reward model of devices, with its functions `init` and `apply`.

pip install 'posse-bandits[contextual,data]' flax
python examples/flax_model.py

The command line takes the same function: `posse run fed-contextual --model
examples/flax_model.py:build`.
"""

from __future__ import annotations

from math import prod
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen, nnx

import posse


def build(shape: tuple[int, ...], arms: int) -> tuple[Any, Any]:
    """Return `init` (parameters from a key) and `apply` (a score of every arm, per context)."""
    module = linen.Sequential([linen.Dense(16), linen.relu, linen.Dense(arms)])

    def init(key: jax.Array) -> Any:
        return module.init(key, jnp.zeros((1, prod(shape))))["params"]

    def apply(params: Any, contexts: jax.Array) -> Any:
        return module.apply({"params": params}, contexts.reshape(len(contexts), -1))

    return init, apply


def build_nnx(shape: tuple[int, ...], arms: int) -> tuple[Any, Any]:
    """Return the same two functions of a module of flax.nnx, which holds its parameters."""

    def make(key: jax.Array) -> Any:
        return nnx.split(nnx.Linear(prod(shape), arms, rngs=nnx.Rngs(key)))

    definition, _ = make(jax.random.key(0))

    def init(key: jax.Array) -> Any:
        return make(key)[1]

    def apply(params: Any, contexts: jax.Array) -> Any:
        return nnx.merge(definition, params)(contexts.reshape(len(contexts), -1))

    return init, apply


def main() -> None:
    """Learn on the devices of `digits` with each."""
    for name in ("build", "build_nnx"):
        settings = posse.FedContextual(model=f"{__file__}:{name}", rounds=60, client_rate=0.1)
        record = posse.run(settings)
        earned = record.summary["average_reward_last_tenth"]
        print(f"{name}: {earned:.2f} of 1 a decision in the last rounds, 0.10 by chance")
        assert earned > 0.15


if __name__ == "__main__":
    main()
