"""What travels on a connection: length-prefixed frames of msgpack.

    frame = length (4, little-endian) | body

Both sides begin with a `Hello`; nothing else is read before it. Decoding is strict: an unknown kind, a wrong type, a
missing or additional field is refused, and a length above the cap is refused before anything is read into memory.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TypeAlias, Union

import msgspec

from posse.core.errors import ProtocolError

WIRE_VERSION = 2
LARGEST_FRAME = 4 << 20
LARGEST_HELLO = 16 << 10
"""What a peer that has not said hello may make us hold."""

_LENGTH = struct.Struct("<I")


class WireError(ProtocolError):
    """A peer sent what is not a frame of this protocol."""

    code = "P520"


class Frame(msgspec.Struct, frozen=True, array_like=True, tag=True, gc=False, forbid_unknown_fields=True):
    """Base of what travels on a connection."""


class Hello(Frame, frozen=True, array_like=True, tag=True, gc=False, forbid_unknown_fields=True):
    """Who speaks which version of what, for which run and terms; and what it has of the other's messages."""

    wire: int
    posse: str
    protocol: str
    protocol_version: int
    run: str
    name: str
    received: int
    durable: int
    terms: dict[str, str] = {}
    """What it was started for (`core.agreement`); a hello of wire version 1 has none."""


class Data(Frame, frozen=True, array_like=True, tag=True, gc=False, forbid_unknown_fields=True):
    """Message `number` of the sender's; and how many of the receiver's are on the sender's disk."""

    number: int
    durable: int
    body: bytes


class Kept(Frame, frozen=True, array_like=True, tag=True, gc=False, forbid_unknown_fields=True):
    """Heartbeat: how many of the receiver's messages are on the sender's disk."""

    durable: int


class Refused(Frame, frozen=True, array_like=True, tag=True, gc=False, forbid_unknown_fields=True):
    """Why the sender ends the connection, as far as the receiver may know."""

    reason: str


AnyFrame: TypeAlias = Hello | Data | Kept | Refused

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Union[Hello, Data, Kept, Refused]).decode  # noqa: UP007


def pack(frame: AnyFrame) -> bytes:
    """Encode a frame with its length.

    >>> pack(Kept(3)).hex(" ", 4)
    '070000 0092a44b 65707403'
    """
    body = _encode(frame)
    return _LENGTH.pack(len(body)) + body


class Reader:
    """Cuts a stream of bytes into frames; holds at most one frame of the cap, and what arrived behind it."""

    __slots__ = ("_buffer", "cap")

    def __init__(self, cap: int = LARGEST_HELLO) -> None:
        self.cap = cap
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[AnyFrame]:
        """Take bytes and give the frames that are whole; raise `WireError` on anything that is not one."""
        buffer = self._buffer
        buffer += data
        at = 0
        try:
            while len(buffer) - at >= 4:
                (length,) = _LENGTH.unpack_from(buffer, at)
                if length > self.cap:
                    raise WireError(f"a frame of {length} bytes is announced, the largest allowed is {self.cap}.")
                if len(buffer) - at - 4 < length:
                    break
                body = bytes(buffer[at + 4 : at + 4 + length])
                at += 4 + length
                yield _frame(body)
        finally:
            del buffer[:at]


def _frame(body: bytes) -> AnyFrame:
    try:
        return _decode(body)  # type: ignore[no-any-return]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise WireError(f"a frame does not decode: {error}.") from error
