"""Messages of a secure round as bytes in Flower's records, and the vector that is added up.

The vector holds the rounded update, then what is measured: whether it was within the norm, samples, and rewards and
probabilities in steps of 1/4096. So the server learns the sums of these too, and no device's own.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, Union

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
from flwr.app import ArrayRecord, RecordDict
from numpy.typing import NDArray

from posse.core.errors import ConfigError, DataError, ProtocolError
from posse.core.roles import Message
from posse.privacy.aggregation.messages import MESSAGES
from posse.privacy.aggregation.terms import Terms
from posse.protocols.fed_contextual.flower.settings import MEASURE, DeviceSettings

if TYPE_CHECKING:
    from posse.protocols.fed_contextual.flower.device import Learnt

STAGE, TERMS, MESSAGE = "stage", "terms", "message"
MEASURED = 4
"""Words behind the update."""
_DECODER = msgspec.msgpack.Decoder(Union[MESSAGES])  # noqa: UP007
_TERMS = msgspec.msgpack.Decoder(Terms)


def encode(message: Message | Terms) -> bytes:
    """Write a message or terms."""
    return msgspec.msgpack.encode(message)


def decode(data: Any) -> Message:
    """Read a message, or refuse it."""
    return _read(_DECODER, data)  # type: ignore[no-any-return]


def decode_terms(data: Any) -> Terms:
    """Read terms, or refuse them."""
    return _read(_TERMS, data)  # type: ignore[no-any-return]


def _read(decoder: Any, data: Any) -> Any:
    try:
        return decoder.decode(data)
    except (ValueError, TypeError, RecursionError, ConfigError) as error:  # ValueError: not msgpack, or not UTF-8
        raise ProtocolError(f"a message of a secure round does not parse: {error}") from None


def subject_of(order: RecordDict, settings: DeviceSettings) -> bytes:
    """Name what the vectors of a round are computed from: SHA-256 of the settings of the run and of the order.

    The order counts with every record but the stage's; arrays with type, shape and bytes.
    """
    parts: list[Any] = [json.dumps(settings.resolved(), sort_keys=True)]
    for name in sorted(order.keys() - {STAGE}):
        record: Any = order[name]
        parts.append((name, type(record).__name__, [(key, _plain(record, key)) for key in sorted(record)]))
    return hashlib.sha256(b"posse order\x00" + msgspec.msgpack.encode(parts)).digest()


def _plain(record: Any, key: str) -> Any:
    if not isinstance(record, ArrayRecord):
        return record[key]
    one = record[key]
    return one.dtype, list(one.shape), one.stype, hashlib.sha256(one.data).digest()


def identity_of(registered: bytes) -> bytes:
    """Give a registered key as terms write it: a compressed point on P-256."""
    load = load_ssh_public_key if registered.startswith(b"ecdsa-") else load_pem_public_key
    try:
        key = load(registered)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise ConfigError(f"a node's registered key cannot be read: {error}. Register it again.") from None
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise ConfigError("secure sums need node keys on P-256 (ssh-keygen -t ecdsa -b 256). Register such keys.")
    return key.public_bytes(Encoding.X962, PublicFormat.CompressedPoint)


def words_of(learnt: Learnt) -> NDArray[np.uint32]:
    """Put a device's rounded update and what it measured into one vector modulo 2^32.

    A sum has room for rewards of at most 1 an action.
    """
    from posse.protocols.fed_contextual.flower.carry import leaves_of

    reward, samples, probability = (float(one) for one in learnt.told)
    if not (abs(reward) <= samples and 0 <= probability <= samples):
        raise DataError(
            f"rewards of a secure round must be from -1 to 1, got a sum of {reward:g} over {samples:g} actions. "
            "Scale them."
        )
    measured = [float(learnt.within), samples, reward * MEASURE, probability * MEASURE]
    parts = [leaf.ravel().astype(np.int64) for leaf in leaves_of(learnt.update)]
    return np.concatenate([*parts, np.rint(measured).astype(np.int64)]).astype(np.uint32)


def split(total: NDArray[np.int64], shapes: list[tuple[int, ...]]) -> tuple[list[NDArray[np.int32]], list[float]]:
    """Take a sum apart: arrays of the update, and rewards, samples, probabilities and updates within the norm."""
    at, leaves = 0, []
    for shape in shapes:
        count = int(np.prod(shape))
        leaves.append(total[at : at + count].reshape(shape).astype(np.int32))
        at += count
    within, samples, reward, probability = (float(one) for one in total[at:])
    return leaves, [reward / MEASURE, samples, probability / MEASURE, within]
