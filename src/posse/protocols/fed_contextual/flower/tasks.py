"""Settings as the task of the simulator: the same model, policy, losses, clipping and optimiser."""

from __future__ import annotations

from functools import lru_cache

import jax.numpy as jnp

from posse.policies.contextual.probabilities import Exploration
from posse.protocols.fed_contextual.aggregation import Clipping
from posse.protocols.fed_contextual.flower.settings import DeviceSettings
from posse.protocols.fed_contextual.models import Model, bag_of_words, cnn, linear
from posse.protocols.fed_contextual.rounds import Rates, Task
from posse.protocols.fed_contextual.server import optimiser
from posse.protocols.fed_contextual.sources import POLICIES, pay

TASK = (
    "model", "features", "arms", "policy", "loss", "batch", "optimiser", "clip", "quantile", "secure", "levels",
)  # fmt: skip
"""The settings that a task depends on."""


def task_of(settings: DeviceSettings) -> Task:
    """Return the task; one object for the same task, since what is compiled depends on it."""
    return _task(DeviceSettings(**{name: getattr(settings, name) for name in TASK}))


@lru_cache(maxsize=8)
def _task(settings: DeviceSettings) -> Task:
    return Task(
        model_of(settings), POLICIES[settings.policy], pay, optimiser(settings.optimiser),
        Clipping(settings.clip, settings.quantile), batch=settings.batch, loss=settings.loss,
        levels=settings.rounded_to,
    )  # fmt: skip


def rates_of(settings: DeviceSettings) -> Rates:
    """Return learning rates, parameters of the policy, and what arms pay: 1 for a label or tag of the sample, else 0.

    FALCON's mu is a fifth of the arms, as published.
    """
    value = settings.explore or {"falcon": 1000.0}.get(settings.policy, 0.05)
    explore = {"greedy": (), "falcon": (settings.arms / 5, value)}.get(settings.policy, (value,))
    Exploration(settings.policy, **dict(zip(_PARAMETERS[settings.policy], explore, strict=True)))  # checks them
    divisor = float(settings.cohort) if settings.noise else 0.0  # the noise itself is added to the sum before the step
    return Rates(
        settings.client_rate, settings.server_rate, divisor=divisor, explore=explore, pays=(jnp.eye(settings.arms),)
    )


_PARAMETERS = {"greedy": (), "epsilon-greedy": ("epsilon",), "softmax": ("beta",), "falcon": ("mu", "gamma")}


def model_of(settings: DeviceSettings) -> Model:
    """Return the reward model."""
    if settings.model == "cnn":
        return cnn(settings.arms, settings.side)
    return (linear if settings.model == "linear" else bag_of_words)(settings.features, settings.arms)
