"""What travels on a connection: length-prefixed frames.

    frame = length (4, little-endian) | body
    body  = 0 | number (8, little-endian) | message     a message of the sender's: `Data`
          | 1 | number (8, little-endian)               how many of the receiver's are on the sender's disk: `Kept`
          | 2 | number (8, little-endian)               the same, and the sender leaves: its part is over
          | 3 or 4 | number (8, little-endian)          as 1 or 2, and the sender is paused by its operator
          | msgpack                                     `Hello`, `Refused` or `Missing`

Messages of one size are frames of one size, whatever their number. What is on the disk travels by
the clock and never with a message: a party that had to wait for its disk would otherwise show that
the world had answered it.

Both sides begin with a `Hello`; nothing else is read before it. Decoding is strict: an unknown
kind, a wrong type, a missing or additional field is refused, and a length above the cap is refused
before anything is read into memory.

**Versions.** A party speaks its own wire version and the one before. Both offer what they speak in
the TLS handshake (ALPN), which takes the newest that both have; the hello says it once more, and
who must upgrade where there is none. The first five fields of a hello stay what they are in every
version. The protocol version (what a system's messages mean) must be equal: a run ends under the
one it began with.

| wire | offered as | hello |
|---|---|---|
| 2 | `posse/1` | nine fields, up to `terms` |
| 3 | `posse/3` | and `restored`; behind it `Missing` may come, to release 0.1.1 or later |
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple, TypeAlias, Union

import msgspec

from posse.core.errors import ProtocolError
from posse.version import PROTOCOL_VERSION, __version__

WIRE_VERSION, OLDEST_WIRE = 3, 2
"""What this version speaks: its own, and the one before."""
_OFFERED = {"posse/3": 3, "posse/1": 2}
LARGEST_FRAME = 4 << 20
LARGEST_HELLO = 16 << 10
"""What a peer that has not said hello may make us hold."""

_LENGTH, _NUMBER, _NUMBERED = struct.Struct("<I"), struct.Struct("<Q"), struct.Struct("<IBQ")
_DATA, _KEPT = 0, 1


class WireError(ProtocolError):
    """A peer sent what is not a frame of this protocol."""

    code = "P520"


class Frame(
    msgspec.Struct, frozen=True, array_like=True, tag="Frame", gc=False, forbid_unknown_fields=True
):
    """Base of what travels on a connection."""


class Hello(Frame, frozen=True, array_like=True, tag="Hello", gc=False, forbid_unknown_fields=True):
    """Who speaks which version of what, for which run and terms; and what it has of the other's
    messages.
    """

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
    restored: bool = False
    """Whether its journal came from a backup and no peer has vouched for it yet; from wire version
    3 on.
    """


MISSING_SINCE = 3
"""Wire version from which on `Missing` is understood."""
_SINCE_3 = 1
"""Fields at the end of a hello that wire version 2 does not have."""


def takes_missing(wire: int, release: str) -> bool:
    """Return whether a peer understands `Missing`; release 0.1.0 refuses it, in wire version 3."""
    return wire >= MISSING_SINCE and release != "0.1.0"


def agreed(offered: str | None) -> int:
    """Return the wire version that TLS agreed on; this party's own where it agreed on none."""
    return _OFFERED.get(offered or "", WIRE_VERSION)


def check_versions(peer: str, hello: Hello, spoken: int, protocol: str) -> None:
    """Refuse a peer that cannot be understood, and say who must upgrade."""
    if hello.protocol != protocol:
        raise ProtocolError(
            f"'{peer}' runs {hello.protocol}, this party {protocol}. Correct protocol in the file."
        )
    theirs, mine = (hello.wire, hello.protocol_version), (spoken, PROTOCOL_VERSION)
    if theirs != mine:
        who = f"'{peer}'" if theirs < mine else "this party"
        raise ProtocolError(
            f"'{peer}' is posse {hello.posse} (protocol {theirs[1]}, wire {theirs[0]}), this is "
            f"posse {__version__} "
            f"(protocol {PROTOCOL_VERSION}, wire {OLDEST_WIRE} to {WIRE_VERSION}). Upgrade {who}."
        )


class Data(NamedTuple):
    """Message `number` of the sender's."""

    number: int
    body: bytes


class Kept(NamedTuple):
    """Heartbeat: how many of the receiver's messages are on the sender's disk; the last one of a
    party that leaves.
    """

    durable: int
    leaves: bool = False
    paused: bool = False


class Refused(
    Frame, frozen=True, array_like=True, tag="Refused", gc=False, forbid_unknown_fields=True
):
    """Why the sender ends the connection, as far as the receiver may know."""

    reason: str


class Missing(Frame, frozen=True, array_like=True, tag=True, gc=False, forbid_unknown_fields=True):
    """For whom the sender waits, with every heartbeat from wire version 3 on: parties without a
    connection to it.
    """

    peers: dict[str, str]
    """Why, by name."""
    paused: bool = False
    """Whether an operator holds the run: the time does not count."""


AnyFrame: TypeAlias = Hello | Data | Kept | Refused | Missing

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Union[Hello, Refused, Missing]).decode  # noqa: UP007


def pack(frame: AnyFrame) -> bytes:
    """Encode a frame with its length.

    >>> pack(Kept(3)).hex(" ", 4)
    '09 00000001 03000000 00000000'
    """
    if isinstance(frame, Data):
        return pack_data(frame.number, frame.body)
    if isinstance(frame, Kept):
        return _NUMBERED.pack(9, _KEPT + frame.leaves + 2 * frame.paused, frame.durable)
    body = _encode(frame)
    if isinstance(frame, Hello) and frame.wire < 3:
        body = _encode(["Hello", *msgspec.structs.astuple(frame)[:-_SINCE_3]])
    return _LENGTH.pack(len(body)) + body


def pack_data(number: int, body: bytes) -> bytes:
    """Encode a message with its number."""
    return _NUMBERED.pack(9 + len(body), _DATA, number) + body


class Reader:
    """Cuts a stream of bytes into frames; holds at most one frame of the cap, and what arrived
    behind it.
    """

    __slots__ = ("_buffer", "cap")

    def __init__(self, cap: int = LARGEST_HELLO) -> None:
        self.cap = cap
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[AnyFrame]:
        """Take bytes and give the frames that are whole; raise `WireError` on anything that is not
        one.
        """
        held = self._buffer
        held += data if held else b""
        buffer = held or data  # mostly whole frames come, and nothing is held
        at, size = 0, len(buffer)
        try:
            while size - at >= 4:
                (length,) = _LENGTH.unpack_from(buffer, at)
                if length > self.cap:
                    raise WireError(
                        f"a frame of {length} bytes is announced, the largest allowed is "
                        f"{self.cap}."
                    )
                begins, end = at + 4, at + 4 + length
                if end > size:
                    break
                at = end
                if length >= 9 and buffer[begins] == _DATA:
                    yield Data(
                        _NUMBER.unpack_from(buffer, begins + 1)[0], bytes(buffer[begins + 9 : end])
                    )
                else:
                    yield _frame(bytes(buffer[begins:end]))
        finally:
            if buffer is held:
                del held[:at]
            else:
                held += data[at:]


def _frame(body: bytes) -> AnyFrame:
    if len(body) == 9 and _KEPT <= body[0] <= _KEPT + 3:
        flags = body[0] - _KEPT
        return Kept(_NUMBER.unpack_from(body, 1)[0], bool(flags & 1), bool(flags & 2))
    try:
        return _decode(body)  # type: ignore[no-any-return]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        _check_newer(body)
        raise WireError(f"a frame does not decode: {error}.") from error


class _Newer(msgspec.Struct, array_like=True, tag="Hello"):
    """What the hello of any version begins with."""

    wire: int
    posse: str


def _check_newer(body: bytes) -> None:
    """Say who must upgrade if a frame is the hello of a version that this one does not know."""
    with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        newer = msgspec.msgpack.decode(body, type=_Newer)
        if newer.wire > WIRE_VERSION:
            raise WireError(
                f"its hello is of wire version {newer.wire} (posse {newer.posse[:20]}), this is "
                f"posse {__version__}, "
                f"which speaks {OLDEST_WIRE} to {WIRE_VERSION}. Upgrade this party."
            )
