"""What a device computes in a round: the client of the simulator, with the task that the run's
settings describe.

The same model, policy, losses, clipping and optimiser, and the keys that the simulator would take:
(seed, purpose, round, client).
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from zipfile import BadZipFile

import jax
import jax.numpy as jnp
import numpy as np

from posse.core.errors import ConfigError, DataError
from posse.policies.own import is_own
from posse.systems.fed_contextual.computing import client
from posse.systems.fed_contextual.computing.client import Contribution
from posse.systems.fed_contextual.computing.models import (
    Model,
    Tree,
    named_model,
    read_model,
    shape_of,
    tree_of,
)
from posse.systems.fed_contextual.computing.own_models import named
from posse.systems.fed_contextual.computing.server import Clipping, optimiser
from posse.systems.fed_contextual.computing.tasks import Draws, Rates, Task, pay, policy_of
from posse.systems.fed_contextual.flower.settings import DeviceSettings

acted = jax.jit(client.acted, static_argnames=("task", "alone"))
"""Act on the device's samples with the deployed model, and log it."""
learnt = jax.jit(client.learnt, static_argnames=("task", "alone"))
"""Learn from the log: the clipped update, and what is measured."""

TASK = (
    "model",
    "hidden",
    "channels",
    "features",
    "arms",
    "policy",
    "loss",
    "batch",
    "optimiser",
    "clip",
    "quantile",
    "secure",
    "levels",
)
"""The settings that a task depends on."""


def task_of(settings: DeviceSettings) -> Task:
    """Return the task; one object for the same task, since what is compiled depends on it."""
    return _task(DeviceSettings(**{name: getattr(settings, name) for name in TASK}))


@lru_cache(maxsize=8)
def _task(settings: DeviceSettings) -> Task:
    return Task(
        model_of(settings),
        policy_of(type(settings.exploration())),
        pay,
        optimiser(settings.optimiser),
        Clipping(settings.norm, settings.follows),
        batch=settings.batch,
        loss=settings.loss,
        levels=settings.rounded_to,
    )


def rates_of(settings: DeviceSettings) -> Rates:
    """Return learning rates, parameters of the policy, and what arms pay: 1 for a label or tag of
    the sample, else 0.

    The noise itself is added to the sum before the step.
    """
    explore = settings.exploration().values(settings.arms)
    divisor = float(settings.cohort) if settings.noise else 0.0
    return Rates(*settings.rates, divisor=divisor, explore=explore, pays=(jnp.eye(settings.arms),))


def model_of(settings: DeviceSettings, node: Mapping[str, object] | None = None) -> Model:
    """Return the reward model; one of a user is imported, at a device only if `node`, its
    configuration, names it.
    """
    if is_own(settings.model):
        if node is not None:
            check_own(settings, node)
        return named(settings.model, (settings.features,), settings.arms)
    one, two = settings.widths
    size = settings.side if settings.model == "cnn" else settings.features
    return named_model(settings.model, size, settings.arms, settings.hidden, (one, two))


def shapes_of(model: Model) -> list[tuple[int, ...]]:
    """Return the shapes of a model's arrays."""
    return [tuple(leaf.shape) for leaf in jax.tree.leaves(shape_of(model))]


def draws_of(settings: DeviceSettings, round_: int, number: int) -> Draws:
    """Return the draws of a device in a round: from the run's seed, or from the operating
    system.
    """
    seed = settings.seed if settings.seed >= 0 else secrets.randbits(31)
    return Draws(jnp.uint32(seed), round_, number)


def zeros_of(settings: DeviceSettings, model: Model) -> Contribution:
    """Return the part of a device that adds nothing."""
    kind = np.int32 if settings.rounded_to else np.float32
    update = jax.tree.map(lambda leaf: np.zeros(leaf.shape, kind), shape_of(model))
    return Contribution(update, jnp.float32(0), jnp.zeros(3))


def check_own(settings: DeviceSettings, node: Mapping[str, object]) -> None:
    """Refuse to import a model that the run names and this node does not."""
    if is_own(settings.model) and node.get("own-model") != settings.model:
        raise ConfigError(
            f"the run names the model {settings.model}, and this node's configuration "
            f"{node.get('own-model', 'none')}. "
            "A device imports what its own configuration names: set own-model to take part."
        )


def first_model(settings: DeviceSettings) -> Tree | None:
    """Return the parameters to begin from, of `model.npz` of a run on devices or of a state that
    the simulator kept; none where they are to be drawn.
    """
    if not settings.start:
        return None
    path, model = Path(settings.start).expanduser(), model_of(settings)
    shapes = shapes_of(model)
    try:
        leaves = read_model(path, len(shapes), settings.scaling)
    except FileNotFoundError:
        raise DataError(f"there is no first model {path}. Correct 'start'.") from None
    except (OSError, ValueError, KeyError, TypeError, EOFError, BadZipFile) as error:
        raise DataError(
            f"the first model {path} cannot be read ({error}). Take model.npz of a run, or a state "
            "that "
            "'posse run fed-contextual --keep' wrote."
        ) from None
    if [leaf.shape for leaf in leaves] != shapes:
        shown = ", ".join(str(leaf.shape) for leaf in leaves)
        raise DataError(
            f"{path} holds arrays of shapes {shown}, and a {settings.model} model of "
            f"{settings.features} features and "
            f"{settings.arms} arms has {', '.join(map(str, shapes))}. Set model, features and arms "
            "to fit it."
        )
    if not all(leaf.dtype.kind == "f" and np.isfinite(leaf).all() for leaf in leaves):
        raise DataError(f"{path} must hold finite numbers. Take another model.")
    return tree_of([leaf.astype(np.float32) for leaf in leaves], shape_of(model))
