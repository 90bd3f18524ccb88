"""Trees and messages as Flower's records.

A tree travels as its arrays in jax's order; its shape is known to both ends from the settings.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from posse.core.errors import ProtocolError
from posse.protocols.fed_contextual.flower.advance import Leaves
from posse.protocols.fed_contextual.flower.settings import DeviceSettings
from posse.protocols.fed_contextual.flower.tasks import model_of
from posse.protocols.fed_contextual.rounds import State
from posse.protocols.fed_contextual.trees import Tree

ROUND, PARAMS, DEPLOYED, UPDATE, TOLD, LOG = "round", "params", "deployed", "update", "told", "log"
"""Names of records."""


def shape_of(settings: DeviceSettings) -> Tree:
    """Return the parameters' tree as shapes."""
    return jax.eval_shape(model_of(settings).init, jax.random.key(0))


def leaves_of(tree: Tree) -> Leaves:
    """Return the arrays of a tree."""
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


def tree_of(leaves: Leaves, like: Tree) -> Tree:
    """Return the tree of some arrays, and refuse those of another model."""
    expected = [tuple(leaf.shape) for leaf in jax.tree.leaves(like)]
    found = [leaf.shape for leaf in leaves]
    if found != expected:
        raise ProtocolError(f"expected arrays of shapes {expected}, got {found}. Both ends need the same model.")
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def arrays(leaves: Leaves) -> ArrayRecord:
    """Pack arrays."""
    return ArrayRecord({str(at): Array(leaf) for at, leaf in enumerate(leaves)})


def unpacked(record: Any) -> Leaves:
    """Unpack arrays in their order; those of bytes and numbers only."""
    found = [record[str(at)].numpy() for at in range(len(record))]
    if any(leaf.dtype.kind not in "fiu" for leaf in found):
        raise ProtocolError("an array of a round must hold numbers.")
    return found


def order_of(state: State, deployment: int) -> RecordDict:
    """Pack what a device is sent: parameters, those to act with where they differ, round and norm."""
    number = int(state.round)
    record = RecordDict({
        ROUND: ConfigRecord({"round": number, "limit": float(state.limit), "deployment": deployment}),
        PARAMS: arrays(leaves_of(state.params)),
    })  # fmt: skip
    if deployment != number:  # else the model was deployed before this round and is the same
        record[DEPLOYED] = arrays(leaves_of(state.deployed))
    return record


def told_record(reward: float, samples: float, probability: float, within: float) -> MetricRecord:
    """Pack what is measured."""
    return MetricRecord({"reward": reward, "samples": samples, "probability": probability, "within": within})
