"""How everything travels: orders, updates and messages of secure rounds as Flower's records.

A tree travels as its arrays in jax's order; its shape is known to both ends from the settings. A
secure round adds up one vector: the rounded update, then what is measured: whether it was within
the norm, samples, and rewards and probabilities in steps of 1/4096. So the server learns the sums
of these too, and no device's own. Importing this needs no jax: most messages of a secure round are
answered without it.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from io import BytesIO
from typing import TYPE_CHECKING, Any, TypeVar, Union

import msgspec
import numpy as np
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_public_key,
    load_ssh_public_key,
)
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from numpy.typing import NDArray

from posse.core.errors import ConfigError, DataError, ProtocolError
from posse.core.roles import Message
from posse.privacy.aggregation.messages import MESSAGES
from posse.privacy.aggregation.terms import Terms
from posse.systems.fed_contextual.flower.settings import MEASURE, REACH, DeviceSettings

if TYPE_CHECKING:
    from posse.systems.fed_contextual.computing.client import Contribution
    from posse.systems.fed_contextual.computing.models import Leaves, Tree
    from posse.systems.fed_contextual.computing.server import State
    from posse.systems.fed_contextual.flower.deployment import Version

ROUND, PARAMS, DEPLOYED, UPDATE, TOLD, LOG = "round", "params", "deployed", "update", "told", "log"
"""Names of records."""
STAGE, TERMS, MESSAGE = "stage", "terms", "message"
DEPLOY, ABOUT, METHOD = "deploy", "about", "method"
MEASURED = 4
"""Words behind the update."""
T = TypeVar("T")
_DECODER: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Union[MESSAGES])  # noqa: UP007
_TERMS = msgspec.msgpack.Decoder(Terms)
SLACK = 1e-5
"""What the rounding of a clipped update may add to its norm."""


# Orders and updates -------------------------------------------------------------------------------


def order_of(state: State, deployment: int) -> RecordDict:
    """Pack what a device is sent: parameters, those to act with where they differ, round and
    norm.
    """
    number, params, deployed = int(state.round), _leaves(state.params), _leaves(state.deployed)
    record = RecordDict(
        {
            ROUND: ConfigRecord(
                {"round": number, "limit": float(state.limit), "deployment": deployment}
            ),
            PARAMS: arrays(params),
        }
    )
    # Otherwise the model was deployed before this round and is the same.
    if deployment != number or not all(map(np.array_equal, deployed, params)):
        record[DEPLOYED] = arrays(deployed)
    return record


def _leaves(tree: Tree) -> Leaves:
    from posse.systems.fed_contextual.computing.models import leaves_of

    return leaves_of(tree)


def evaluation_order(state: State, number: int, settings: DeviceSettings) -> RecordDict:
    """Pack a round of evaluation: the candidate, the model that devices act with, and how sums are
    clipped.
    """
    return RecordDict(
        {
            ROUND: ConfigRecord(
                {
                    "round": number,
                    "limit": settings.evaluation_clip,
                    "deployment": number,
                    METHOD: settings.evaluate,
                }
            ),
            PARAMS: arrays(_leaves(state.params)),
            DEPLOYED: arrays(_leaves(state.deployed)),
        }
    )


def reply_of(given: Contribution, client: int) -> RecordDict:
    """Pack what a device answers: its update, what it measured, and its number."""
    reward, samples, probability = (float(one) for one in given.sums)
    return RecordDict(
        {
            UPDATE: arrays(_leaves(given.update)),
            TOLD: MetricRecord(
                {
                    "reward": reward,
                    "samples": samples,
                    "probability": probability,
                    "within": float(given.within),
                }
            ),
            ROUND: ConfigRecord({"client": client}),
        }
    )


def version_order(version: Version) -> RecordDict:
    """Pack a version for devices to act with."""
    return RecordDict(
        {DEPLOY: ConfigRecord({ABOUT: version.about()}), PARAMS: arrays(version.leaves)}
    )


def held_reply(version: int, sha256: str, why: str) -> RecordDict:
    """Pack which version a device has, by number (-1: none) and hash, and why it did not take the
    one it was sent.
    """
    return RecordDict({DEPLOY: ConfigRecord({"version": version, "sha256": sha256, "why": why})})


def held_of(reply: RecordDict, sent: int, hash_of: Callable[[int], str]) -> dict[str, Any]:
    """Read what a device says it has; `refused` is the version that it was sent and did not take.

    `hash_of` gives the hash of a version of this run. A model with another one is none of its
    versions, and counts as -1 whatever its number.
    """
    record: Any = reply[DEPLOY]
    version, sha256, why = (
        int(record["version"]),
        str(record["sha256"])[:64],
        str(record["why"])[:500],
    )
    try:
        version = version if hash_of(version) == sha256 else -1
    except DataError:  # the run has no such version
        version = -1
    return {
        "version": version,
        "sha256": sha256,
        **({"refused": sent, "why": why} if version != sent else {}),
    }


def arrays(leaves: Leaves) -> ArrayRecord:
    """Pack arrays."""
    return ArrayRecord({str(at): Array(leaf) for at, leaf in enumerate(leaves)})


def unpacked(record: Any) -> Leaves:
    """Unpack arrays in their order; what is not arrays of numbers, as large as they say, is refused
    unread.
    """
    if not isinstance(record, ArrayRecord) or sorted(record) != sorted(
        str(at) for at in range(len(record))
    ):
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
        raise ProtocolError(
            "an array of a round must hold numbers, of the type and the shape that it declares."
        )
    if (
        min(shape, default=1) < 1
        or len(one.data) - file.tell() != math.prod(shape) * dtype.itemsize
    ):
        raise ProtocolError(
            f"an array of a round must have the bytes of its shape {shape}, got {len(one.data)}."
        )
    return np.asarray(one.numpy())


def check_update(update: Leaves, like: Sequence[Any], limit: float, levels: int) -> None:
    """Refuse an update that no honest device sends: of other shapes, not finite, or beyond the
    norm.

    Rounding to whole numbers can lengthen an update by less than the root of its length, in steps.
    """
    kind = np.dtype(np.int32 if levels else np.float32)
    if [(leaf.shape, leaf.dtype) for leaf in update] != [(tuple(one.shape), kind) for one in like]:
        raise ProtocolError(
            f"an update must be {len(like)} arrays of the model's shapes and {kind.name}."
        )
    longest = (
        levels + math.sqrt(sum(leaf.size for leaf in update)) if levels else limit * (1 + SLACK)
    )
    size = math.sqrt(sum(float(np.square(leaf, dtype=np.float64).sum()) for leaf in update))
    if not size <= longest:  # also where it is not a number
        raise ProtocolError(f"an update must have a norm of at most {longest:.6g}, got {size:.6g}.")


# Secure rounds ------------------------------------------------------------------------------------


def encode(message: Message | Terms) -> bytes:
    """Write a message or terms."""
    return msgspec.msgpack.encode(message)


def decode(data: Any) -> Message:
    """Read a message, or refuse it."""
    return _read(_DECODER, data)


def decode_terms(data: Any) -> Terms:
    """Read terms, or refuse them."""
    return _read(_TERMS, data)


def _read(decoder: msgspec.msgpack.Decoder[T], data: Any) -> T:
    try:
        return decoder.decode(data)
    except (
        ValueError,
        TypeError,
        RecursionError,
        ConfigError,
    ) as error:  # ValueError: not msgpack, or not UTF-8
        raise ProtocolError(f"a message of a secure round does not parse: {error}") from None


def subject_of(order: RecordDict, settings: DeviceSettings) -> bytes:
    """Name what the vectors of a round are computed from: SHA-256 of the settings of the run and of
    the order.

    Settings that may change while a run goes on do not count, so that a round can be done again
    under others. The order counts with every record but the stage's; arrays with type, shape and
    bytes.
    """
    parts: list[Any] = [_bound(settings)]
    for name in sorted(order.keys() - {STAGE}):
        record: Any = order[name]
        parts.append(
            (name, type(record).__name__, [(key, _plain(record, key)) for key in sorted(record)])
        )
    return hashlib.sha256(b"posse order\x00" + msgspec.msgpack.encode(parts)).digest()


def candidate_of(order: RecordDict, settings: DeviceSettings) -> str:
    """Name a candidate and how it is estimated: the hash of its numbers and of the run's settings,
    in hexadecimal.

    The model that devices act with does not count: any log estimates a candidate.
    """
    return hashlib.sha256(model_digest(order) + _bound(settings).encode()).hexdigest()


def _bound(settings: DeviceSettings) -> str:
    """Write the settings that stay while a run goes on."""
    kept = {
        name: value for name, value in settings.resolved().items() if name not in (*REACH, "rounds")
    }
    return json.dumps(kept, sort_keys=True)


def _plain(record: Any, key: str) -> Any:
    if not isinstance(record, ArrayRecord):
        return record[key]
    one = record[key]
    return one.dtype, list(one.shape), one.stype, hashlib.sha256(one.data).digest()


def model_digest(order: RecordDict) -> bytes:
    """Name the model of an order, by its numbers alone and whether it is to be evaluated: SHA-256.

    Numbers count as 32-bit floats; zeros of both signs and numbers that compute as zeros are one.
    """
    about: Any = order[ROUND]
    named = hashlib.sha256(b"posse candidate\x00" if METHOD in about else b"posse model\x00")
    for leaf in unpacked(order[PARAMS]):
        numbers = np.asarray(leaf, np.float32)
        numbers = np.where(np.abs(numbers) < np.finfo(np.float32).tiny, np.float32(0), numbers)
        named.update(msgspec.msgpack.encode((list(numbers.shape), numbers.tobytes())))
    return named.digest()


def identity_of(registered: bytes) -> bytes:
    """Give a registered key as terms write it: a compressed point on P-256."""
    load = load_ssh_public_key if registered.startswith(b"ecdsa-") else load_pem_public_key
    try:
        key = load(registered)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise ConfigError(
            f"a node's registered key cannot be read: {error}. Register it again."
        ) from None
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise ConfigError(
            "secure sums need node keys on P-256 (ssh-keygen -t ecdsa -b 256). Register such keys."
        )
    return key.public_bytes(Encoding.X962, PublicFormat.CompressedPoint)


def words_of(given: Contribution) -> NDArray[np.uint32]:
    """Put a device's rounded update and what it measured into one vector modulo 2^32.

    A sum has room for rewards of at most 1 an action; what is beyond is clipped.
    """
    reward, samples, probability = (float(one) for one in np.nan_to_num(given.sums))
    reward, probability = min(max(reward, -samples), samples), min(max(probability, 0.0), samples)
    measured = [float(given.within), samples, reward * MEASURE, probability * MEASURE]
    parts = [leaf.ravel().astype(np.int64) for leaf in _leaves(given.update)]
    return np.concatenate([*parts, np.rint(measured).astype(np.int64)]).astype(np.uint32)


def split(
    total: NDArray[np.int64], shapes: list[tuple[int, ...]]
) -> tuple[list[NDArray[np.int32]], list[float]]:
    """Take a sum apart: arrays of the update, and rewards, samples, probabilities and updates
    within the norm.
    """
    at, leaves = 0, []
    for shape in shapes:
        count = int(np.prod(shape))
        leaves.append(total[at : at + count].reshape(shape).astype(np.int32))
        at += count
    within, samples, reward, probability = (float(one) for one in total[at:])
    return leaves, [reward / MEASURE, samples, probability / MEASURE, within]
