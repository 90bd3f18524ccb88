"""Use an equinox module as the reward model of devices, with two functions `init` and `apply`.

pip install 'posse-bandits[contextual,data]' equinox
python examples/equinox_model.py

The command line takes the same function: `posse run fed-contextual --model
examples/equinox_model.py:build`.
"""

from __future__ import annotations

from math import prod
from typing import Any

import equinox
import jax

import posse


def build(shape: tuple[int, ...], arms: int) -> tuple[Any, Any]:
    """Return `init` (parameters from a key) and `apply` (a score of every arm, per context)."""

    def make(key: jax.Array) -> Any:
        return equinox.nn.MLP(prod(shape), arms, width_size=16, depth=1, key=key)

    _, static = equinox.partition(make(jax.random.key(0)), equinox.is_inexact_array)

    def init(key: jax.Array) -> Any:
        return equinox.filter(make(key), equinox.is_inexact_array)

    def apply(params: Any, contexts: jax.Array) -> Any:
        return jax.vmap(equinox.combine(params, static))(contexts.reshape(len(contexts), -1))

    return init, apply


def main() -> None:
    """Learn on the devices of `digits`."""
    settings = posse.FedContextual(model=f"{__file__}:build", rounds=60, client_rate=0.1)
    record = posse.run(settings)
    earned = record.summary["average_reward_last_tenth"]
    print(f"{earned:.2f} of 1 a decision in the last rounds, 0.10 by chance")
    assert earned > 0.15


if __name__ == "__main__":
    main()
