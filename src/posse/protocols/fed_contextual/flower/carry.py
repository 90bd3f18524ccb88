"""Trees and messages as Flower's records.

A tree travels as its arrays in jax's order; its shape is known to both ends from the settings.
"""

from __future__ import annotations

import math
from io import BytesIO
from typing import Any

import jax
import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from numpy.typing import NDArray

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
    """Unpack arrays in their order; what is not arrays of numbers, as large as they say, is refused unread."""
    if not isinstance(record, ArrayRecord) or sorted(record) != sorted(str(at) for at in range(len(record))):
        raise ProtocolError("arrays of a round must be in a record of arrays, numbered from 0.")
    return [_numbers(record[str(at)]) for at in range(len(record))]


def _numbers(one: Array) -> NDArray[Any]:
    """Read an array whose bytes have the type, the shape and the size that it declares."""
    file = BytesIO(one.data)
    try:
        if np.lib.format.read_magic(file) != (1, 0):
            raise ValueError("another version")
        shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    except (ValueError, TypeError, SyntaxError, EOFError, MemoryError, RecursionError):
        raise ProtocolError("an array of a round must be as numpy writes it.") from None
    declared = (tuple(one.shape), one.dtype, one.stype)
    if declared != (shape, str(dtype), "numpy.ndarray") or dtype.kind not in "fiu":
        raise ProtocolError("an array of a round must hold numbers, of the type and the shape that it declares.")
    if min(shape, default=1) < 1 or len(one.data) - file.tell() != math.prod(shape) * dtype.itemsize:
        raise ProtocolError(f"an array of a round must have the bytes of its shape {shape}, got {len(one.data)}.")
    found: NDArray[Any] = one.numpy()
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
