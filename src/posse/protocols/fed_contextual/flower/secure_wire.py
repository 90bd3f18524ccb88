"""Messages of a secure round as bytes in Flower's records, and the vector that is added up.

The vector holds the rounded update, then what is measured: whether it was within the norm, samples, and rewards and
probabilities in steps of 1/4096. So the server learns the sums of these too, and no device's own.
"""

from __future__ import annotations

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
from numpy.typing import NDArray

from posse.core.errors import ConfigError, ProtocolError
from posse.core.roles import Message
from posse.privacy.aggregation.messages import MESSAGES
from posse.privacy.aggregation.terms import Terms
from posse.protocols.fed_contextual.flower.settings import MEASURE

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
    except (msgspec.MsgspecError, TypeError, ConfigError) as error:
        raise ProtocolError(f"a message of a secure round does not parse: {error}") from None


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
    """Put a device's rounded update and what it measured into one vector modulo 2^32."""
    from posse.protocols.fed_contextual.flower.carry import leaves_of

    reward, samples, probability = (float(one) for one in learnt.told)
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
