"""One connection to one peer: frames in, frames out, over TLS; who it is comes from its
certificate.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import msgspec

from posse.core.errors import PosseError
from posse.runtime.door import Limits
from posse.runtime.network.tls import accept
from posse.runtime.network.wire import (
    LARGEST_FRAME,
    LARGEST_HELLO,
    WIRE_VERSION,
    AnyFrame,
    Data,
    Hello,
    Kept,
    Reader,
    Refused,
    agreed,
    pack,
)

if TYPE_CHECKING:
    from posse.runtime.network.calling import Proxy

GREETING = 5.0
"""Seconds after which a peer that has not finished its handshake, or does not say hello, is hung up
on.
"""
SHUTTING = 1.0
"""Seconds that a closed connection waits for the other to close it too."""
LONGEST_REASON = 1000
"""Letters of a refusal."""
_SILENT = (
    "it hung up without a word: it may have refused this party's certificate (expired, revoked, of "
    "another authority). "
    "Its own log says why"
)


Admit = Callable[[bytes | None], tuple[str, str]]
"""Checks a peer's certificate and returns its role and name, or raises."""


@dataclass(frozen=True)
class Timing:
    """Seconds; none of them decides anything about a run."""

    heartbeat: float = 2.0
    patience: float = 8.0
    """Without a sign of life for so long a connection is given up."""
    first_wait: float = 0.05
    longest_wait: float = 3.0
    sync_every: float = 0.25
    """How long messages may wait for the disk; their senders keep them so much longer."""
    linger: float = 10.0
    """How long a finished party stays for peers that have not confirmed its last messages and can
    do without.
    """
    closing: float = 120.0
    """How long it stays for those that cannot."""


@dataclass
class Wiring:
    """Which peers this party has, which of them it calls, and where it listens."""

    protocol: str
    peers: Mapping[str, str]
    """Role of each peer, by name."""
    addresses: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    """Peers that this party calls."""
    listen: tuple[str, int] | None = None
    server: ssl.SSLContext | None = None
    client: ssl.SSLContext | None = None
    proxy: Proxy | None = None
    """Through which peers are called."""
    limits: Limits | None = None
    """What strangers may take of the listener; by the number of peers if not given."""


class Host(Protocol):
    """What a connection asks of the party it belongs to."""

    def admit(self, certificate: bytes | None, connection: Connection) -> str:
        """Return the peer's name, or raise a `PosseError` that says why it is not wanted."""

    def greeting(self, peer: str) -> Hello | None:
        """Make the hello for a peer; None to wait for the peer's, which says for which run it
        calls.
        """

    def greeted(self, connection: Connection, hello: Hello) -> None:
        """Take a peer's hello; raise a `PosseError` if the two cannot talk."""

    def frame(self, connection: Connection, frame: AnyFrame) -> None:
        """Take a frame behind the hello; raise a `PosseError` to end the connection."""

    def batch(self, connection: Connection) -> None:
        """Act on the frames that had arrived: all are taken."""

    def lost(self, connection: Connection, why: str) -> None:
        """Take note that a connection is over."""

    def refused(self, peer: str, why: str, *, counted: str) -> None:
        """Take note that somebody was refused, with a word to count it under."""

    def refused_by(self, peer: str, reason: str) -> None:
        """Take note that a peer refused this party."""


class Connection(asyncio.Protocol):
    """Frames over one transport; ends itself on anything that is not allowed."""

    def __init__(self, host: Host, *, dialled: str | None = None) -> None:
        """`dialled` is the name of the peer that was called, where this party called."""
        self.host, self.dialled = host, dialled
        self.certificate: bytes | None = None
        """What the peer showed (DER)."""
        self.peer: str | None = None
        self.ready = False
        """Whether both have said hello."""
        self.writable, self.wire = True, WIRE_VERSION
        """`wire`: the version that both speak."""
        self.release = ""
        """The peer's release of Posse, once it has said hello."""
        loop = asyncio.get_running_loop()
        self._time = loop.time
        self.closed = loop.create_future()
        self.last_frame = loop.time()
        """When the peer last sent something, by a clock that only runs forward."""
        self._transport: asyncio.Transport | None = None
        self._reader = Reader(LARGEST_HELLO)
        self._why = ""
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Look at the certificate and say hello."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        tls = transport.get_extra_info("ssl_object")
        if isinstance(tls, ssl.SSLObject):
            self.certificate = tls.getpeercert(binary_form=True)
            self.wire = agreed(tls.selected_alpn_protocol())
        try:
            self.peer = self.host.admit(self.certificate, self)
        except PosseError as error:
            self.refuse(error, "certificate")
            return
        self._deadline = asyncio.get_running_loop().call_later(GREETING, self._too_late)
        if (hello := self.host.greeting(self.peer)) is not None:
            self.hello(hello)

    def hello(self, hello: Hello) -> None:
        """Say hello in the version that both speak."""
        self.write(pack(msgspec.structs.replace(hello, wire=self.wire)))

    def data_received(self, data: bytes) -> None:
        """Take bytes as they come."""
        if self._why:
            return
        self.last_frame = self._time()
        try:
            for frame in self._reader.feed(data):
                if not self._take(frame):
                    break  # what arrived behind is not taken
        except PosseError as error:
            self.refuse(error, "frame" if self.ready else "hello")
        if self.ready:
            self.host.batch(self)

    def _take(self, frame: AnyFrame) -> bool:
        """Take a frame; False if the connection is over after it."""
        if self.ready and type(frame) is Data:
            self.host.frame(self, frame)
        elif isinstance(frame, Refused):
            reason = printable(frame.reason)
            self.hang_up(f"it refused us: {reason[:300]}")
            if self.peer is not None:
                self.host.refused_by(self.peer, reason)
        elif self.ready:
            self.host.frame(self, frame)
        elif isinstance(frame, Hello):
            self.release = frame.posse
            self.host.greeted(self, frame)
            self.ready = True
            self._reader.cap = LARGEST_FRAME
            if self._deadline is not None:
                self._deadline.cancel()
        elif not isinstance(frame, Kept):
            self.refuse(PosseError("a hello must come first."), "hello")
        return not self._why

    def connection_lost(self, exc: Exception | None) -> None:
        """Report to the party that the connection is over."""
        if self._deadline is not None:
            self._deadline.cancel()
        if not self.closed.done():
            self.closed.set_result(None)
        self.host.lost(
            self, self._why or (f"{exc}" if exc else "it hung up" if self.ready else _SILENT)
        )

    def pause_writing(self) -> None:
        """The peer is slow: leave messages in the link."""
        self.writable = False

    def resume_writing(self) -> None:
        """The peer has caught up."""
        self.writable = True
        self.host.batch(self)

    def write(self, data: bytes) -> None:
        """Put bytes on the wire."""
        if self._transport is not None:
            self._transport.write(data)

    def refuse(self, error: PosseError, counted: str) -> None:
        """Send the reason, as far as the peer may know it, and hang up."""
        reason = f"[{error.code}] {error.public_text}"
        self.host.refused(self.peer or self._address(), reason, counted=counted)
        self.write(pack(Refused(reason[:LONGEST_REASON])))
        self.hang_up(f"refused: {reason}")

    def hang_up(self, why: str, *, at_once: bool = False) -> None:
        """End the connection; `at_once` without waiting for what is on its way."""
        self._why = self._why or why
        self._reader = Reader(
            0
        )  # a part of a frame need not be held until the other has hung up too
        if self._transport is None:
            return
        if not at_once:
            if (
                not self._transport.is_closing()
            ):  # a second close would make a TLS transport forget its connection
                self._transport.close()
            return
        with suppress(
            AttributeError
        ):  # Python before 3.11.3, where it has forgotten it: it is closed already
            self._transport.abort()

    def pause(self, paused: bool) -> None:
        """Stop or go on reading."""
        if self._transport is not None and not self._transport.is_closing():
            (self._transport.pause_reading if paused else self._transport.resume_reading)()

    def _too_late(self) -> None:
        self.refuse(PosseError(f"no hello within {GREETING:g} s."), "hello")

    def _address(self) -> str:
        at = self._transport.get_extra_info("peername") if self._transport is not None else None
        return f"{at[0]}:{at[1]}" if at else "somebody"


def printable(text: str) -> str:
    """Make one line of a peer's words, in which nothing but letters reaches a terminal."""
    return "".join(letter if letter.isprintable() else " " for letter in text[:LONGEST_REASON])


async def greet(host: Host, context: ssl.SSLContext, opened: socket.socket, address: str) -> None:
    """Do the TLS handshake of a caller: it becomes a `Connection`, or it is counted why not."""
    try:
        await accept(lambda: Connection(host), opened, context, within=GREETING, shutting=SHUTTING)
    except Exception as error:  # whatever a stranger sends ends with its connection
        host.refused(address, why_no_tls(error), counted="tls")


def why_no_tls(error: BaseException) -> str:
    """Say why a handshake failed, as far as OpenSSL tells.

    >>> why_no_tls(TimeoutError())
    'the handshake took too long'
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is refused: {error.verify_message}"
    if isinstance(error, ssl.SSLError) and error.reason:
        return _REASONS.get(error.reason, error.reason.lower().replace("_", " "))
    return (
        "the handshake took too long"
        if isinstance(error, TimeoutError)
        else f"it hung up ({error})"
    )


_REASONS = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it showed no certificate",
    "TLSV1_ALERT_UNKNOWN_CA": "it does not know the authority of this party's certificate",
    "UNSUPPORTED_PROTOCOL": "it does not speak TLS 1.3",
    "WRONG_VERSION_NUMBER": "it does not speak TLS",
    "HTTP_REQUEST": "it speaks plain HTTP",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "it wants a certificate, and was shown none",
}
