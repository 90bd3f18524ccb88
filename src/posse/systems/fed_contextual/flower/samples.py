"""What a device has: samples on which it acts by itself, or a log of what its own application did.

A node's configuration says which (`flower-supernode --node-config`; its keys: docs/devices.md).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from posse.core.errors import ConfigError, DataError
from posse.problems.populations.population import Bag, Population, Scaling
from posse.systems.fed_contextual.computing.cohorts import SAMPLE
from posse.systems.fed_contextual.flower.settings import DeviceSettings
from posse.systems.fed_contextual.on_device import LARGEST, LOGGED
from posse.systems.fed_contextual.remarks import input_size

DATA = "POSSE_DEVICE_DATA"
"""Variable of the environment that names the data of all nodes of this machine, where they are
simulated.
"""
SCALING = "POSSE_DEVICE_SCALING"
"""The same, of the file of constants by which they scale contexts."""


class Samples(NamedTuple):
    """A device's samples, padded."""

    contexts: Any
    labels: NDArray[Any]
    mask: NDArray[np.float32]


def number_of(node: Mapping[str, Any], node_id: int) -> int:
    """Return the device's number: as configured, or 31 bits of the node's id."""
    found = node.get("client", node.get("partition-id", node_id & 0x7FFFFFFF))
    if not isinstance(found, int) or found < 0:
        raise ConfigError(
            f"client must be a whole number from 0 on, got {found!r}. Correct the node's "
            "configuration."
        )
    return found


def read_scaling(path: Path) -> Scaling:
    """Read the constants by which a model scales contexts from a file of --model-out."""
    try:
        with np.load(path, allow_pickle=False) as file:
            scaling = Scaling.of(file["shift"], file["scale"])
    except FileNotFoundError:
        raise DataError(f"there is no file {path} of constants. Correct 'scaling'.") from None
    except (OSError, ValueError, KeyError, TypeError, EOFError, BadZipFile):
        raise DataError(
            f"{path} does not say how each feature is scaled. Take a file of --model-out of a "
            "table that is standardised."
        ) from None
    if len(scaling.shift) != len(scaling.spread) or not np.all(scaling.spread):
        raise DataError(f"{path} does not say how each feature is scaled. Take another file.")
    return scaling


def scaling_of(settings: DeviceSettings, node: Mapping[str, Any]) -> Scaling | None:
    """Return the constants by which this device scales contexts; None where the run scales none.

    Raises:
        ConfigError: The node has no constants, or others than the run.
    """
    named = node.get("scaling", os.environ.get(SCALING))
    if not settings.scaling and named is None:
        return None
    if named is None:
        raise ConfigError(
            f"the run scales contexts by the constants {settings.scaling}, and this node's "
            "configuration names no file. Set scaling to take part."
        )
    scaling = read_scaling(Path(str(named)).expanduser())
    if scaling.fingerprint != settings.scaling:
        raise ConfigError(
            f"the run scales contexts by the constants {settings.scaling or 'none'}, and {named} "
            f"holds {scaling.fingerprint}. Set both to the same."
        )
    if len(scaling.shift) != settings.features:
        raise ConfigError(
            f"{named} scales {len(scaling.shift)} features, and the run has {settings.features}. "
            "Take another file."
        )
    return scaling


def samples_of(settings: DeviceSettings, node: Mapping[str, Any], node_id: int) -> Samples:
    """Gather the device's samples; of more than fit, the random set that the simulator takes."""
    scaling = scaling_of(settings, node)
    population = _population(_own_data(settings, node), int(node.get("num-partitions", 60)))
    number = number_of(node, node_id)
    if number >= population.clients:
        raise DataError(
            f"the population '{population.name}' has {population.clients} clients, and this device "
            f"is number {number}. "
            "Give 'client' in the node's configuration."
        )
    cohort = population.gather([number], settings.samples, cap=settings.samples, seed=SAMPLE)
    x = cohort.x
    contexts = (x.words[0], x.weights[0]) if isinstance(x, Bag) else x[0]
    _check(population, contexts, settings)
    mask = cohort.mask[0].astype(np.float32)
    if scaling is not None:
        contexts = scaling(contexts).astype(np.float32) * mask[:, None]
    return Samples(contexts, cohort.y[0], mask)


def _own_data(settings: DeviceSettings, node: Mapping[str, Any]) -> str:
    """Return where the samples are: a path is the node's own to name, and the run may name the
    digits alone.
    """
    own = node.get("data", os.environ.get(DATA))
    if own is None and settings.data != "digits":
        raise ConfigError(
            f"the run names the data {settings.data!r}, and no server chooses what a device reads. "
            "Give 'data' in the "
            "node's configuration."
        )
    return str(own or settings.data)


def log_of(
    settings: DeviceSettings, path: Path, scaling: Scaling | None = None
) -> tuple[NDArray[Any], ...]:
    """Read a log that an application wrote, padded: the parts of a `client.Log`; of more than fit,
    the last actions.

    An application logs contexts as they are; they are scaled here.
    """
    try:
        with np.load(path, allow_pickle=False) as found:
            missing = [name for name in LOGGED if name not in found.files]
            if missing:
                raise DataError(
                    f"{path} must hold {', '.join(LOGGED)}, and lacks {missing[0]}. Write it whole."
                )
            contexts, arms, rewards, probabilities = (
                found[name][-settings.samples :] for name in LOGGED
            )
    except (OSError, ValueError, EOFError, BadZipFile) as error:
        raise DataError(
            f"the log {path} cannot be read: {error}. Write it with numpy.savez."
        ) from None
    if not len(contexts) == len(arms) == len(rewards) == len(probabilities):
        raise DataError(
            f"{path} must hold one context, arm, reward and probability an action. Write it whole."
        )
    if not len(
        arms
    ):  # nothing was logged yet, and arrays without rows have whatever type and width
        shape = (settings.side, settings.side) if settings.model == "cnn" else (settings.features,)
        contexts, arms = np.zeros((0, *shape), np.float32), np.zeros(0, np.int32)
    if arms.dtype.kind not in "iu":
        raise DataError(
            f"{path}: arms must be whole numbers, got {arms.dtype}. Number the arms from 0."
        )
    _check_contexts(contexts, settings, path)
    if len(arms) and not (arms.min() >= 0 and arms.max() < settings.arms):
        raise DataError(
            f"{path}: arms must be in [0, {settings.arms}), got {arms.min()} to {arms.max()}."
        )
    if not (_within(rewards).all() and (probabilities > 0).all() and (probabilities <= 1).all()):
        raise DataError(
            f"{path}: rewards must be finite, and probabilities above 0 and at most 1. Correct the "
            "log."
        )
    if settings.secure:  # a sum has room for no more, and nobody drops out for what it earned
        rewards = np.clip(rewards, -1, 1)
    if scaling is not None:
        contexts = scaling(contexts).astype(np.float32)
    room = settings.samples - len(arms)
    mask = np.concatenate([np.ones(len(arms), np.float32), np.zeros(room, np.float32)])
    return (
        _padded(contexts, room),
        _padded(arms.astype(np.int32), room),
        _padded(rewards.astype(np.float32), room),
        _padded(probabilities.astype(np.float32), room, 1),
        mask,
    )


def _within(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Say which numbers are finite as 32-bit floats."""
    return np.asarray(np.abs(values.astype(np.float64)) <= LARGEST)


def _check_contexts(contexts: NDArray[Any], settings: DeviceSettings, path: Path) -> None:
    """Refuse logged contexts that the model of the run cannot take."""
    if settings.model == "bag":
        raise DataError(
            f"{path}: a log holds rows of numbers, and the run has a model of bags of words. "
            "Change one."
        )
    size = int(np.prod(contexts.shape[1:], dtype=np.int64))
    if size != settings.features:
        raise DataError(
            f"{path}: contexts must be {settings.features} numbers each, got {size}. Log these."
        )
    if contexts.dtype.kind not in "uif":
        raise DataError(f"{path}: contexts must be numbers, got {contexts.dtype}. Convert them.")
    wrong = np.flatnonzero(~_within(contexts.reshape(len(contexts), size)).all(axis=1))
    if len(wrong):
        raise DataError(
            f"{path}: contexts must be finite numbers, of 32 bits, got others in action "
            f"{wrong[0] + 1}. Correct it."
        )
    _check_kind(contexts, settings, path)


def fitting(data: str) -> dict[str, int | float | str]:
    """Return the settings that fit a prepared population on this machine: model, features, arms,
    size of contexts.
    """
    if data == "digits":
        return {"contexts": "bytes"}
    found = _population(data, 1)
    if found.bags:
        size = input_size(found, "bag")
        return {
            "model": "bag",
            "features": len(found.vocabulary),
            "arms": len(found.arms),
            "input_size": size,
        }
    rows, size = np.asarray(found.inputs), input_size(found, "linear")
    features, kind = int(np.prod(rows.shape[1:])), "bytes" if rows.dtype == np.uint8 else "numbers"
    return {"features": features, "arms": len(found.arms), "input_size": size, "contexts": kind}


def _population(data: str, partitions: int) -> Population:
    if data == "digits":
        from posse.problems.datasets.mnist import digits_population

        return digits_population(partitions)
    from posse.problems.populations.pictures import holds_images, read_pictures
    from posse.problems.populations.prepared import load

    path = Path(data).expanduser()
    if not path.exists() or (path.is_file() and path.suffix != ".npz" and not holds_images(path)):
        why = "is none of these" if path.exists() else "is not there"
        raise DataError(
            "a fleet's data are digits, images (a folder, idx, .npz or Parquet file) or a prepared "
            "population (folder "
            f"or .npz), and {data} {why}. In Python, posse.problems.populations has prepared.save "
            "and, for a table, "
            "splits.read_population."
        )
    return read_pictures(path, clients=partitions) if holds_images(path) else load(path)


def _check(population: Population, contexts: Any, settings: DeviceSettings) -> None:
    bags = isinstance(contexts, tuple)
    features = len(population.vocabulary) if bags else int(np.prod(contexts.shape[1:]))
    if bags != (settings.model == "bag"):
        raise DataError(
            f"a {settings.model} model does not take the samples of '{population.name}'. Change "
            "one."
        )
    if (features, len(population.arms)) != (settings.features, settings.arms):
        raise DataError(
            f"the run is for {settings.features} features and {settings.arms} arms, and "
            f"'{population.name}' has "
            f"{features} and {len(population.arms)}. Set features and arms of the run."
        )
    if not bags:
        _check_kind(contexts, settings, f"'{population.name}'")


def _check_kind(contexts: NDArray[Any], settings: DeviceSettings, where: object) -> None:
    """Refuse contexts that are not what the run declares: the deployed model says what they are
    divided by.
    """
    kind = "bytes" if contexts.dtype == np.uint8 else "numbers"
    if settings.contexts and kind != settings.contexts and len(contexts):
        raise DataError(
            f"{where}: the run declares contexts of {settings.contexts}, got {contexts.dtype}, "
            f"which count as {kind}. "
            f"Convert them, or set contexts = {kind} of the run."
        )


def _padded(values: NDArray[Any], room: int, fill: float = 0) -> NDArray[Any]:
    return np.concatenate([values, np.full((room, *values.shape[1:]), fill, values.dtype)])
