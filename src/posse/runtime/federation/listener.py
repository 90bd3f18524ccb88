"""One listener for all runs of a party, and the control connection between founder and member.

Whoever calls says in its hello for which run; the listener waits for that and hands the connection
to the party of the run, which greets it as if it had listened itself. A hello for the federation
itself opens a control connection. Over it both send frames of `talk`, numbered from 1 and never
repeated: each says everything, and a new connection begins anew.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from functools import partial

from posse.core.errors import ProtocolError
from posse.runtime.door import Door, Limits, Throttle
from posse.runtime.federation.talk import FEDERATION, Told, decode, encode
from posse.runtime.network.calling import Proxy, keep_connected
from posse.runtime.network.connection import Admit, Connection, Timing, greet
from posse.runtime.network.party import Party
from posse.runtime.network.wire import (
    WIRE_VERSION,
    AnyFrame,
    Data,
    Hello,
    Kept,
    WireError,
    check_versions,
    pack,
)
from posse.version import PROTOCOL_VERSION, __version__

MEMBERS = 64
"""Members that the listener expects at once from one address."""
MOST_GREETINGS = 32
"""Connections of one member that have not said hello: it calls once for each of its runs."""

NOT_YET = "has not called yet"


class Listener:
    """Greets callers and hands each to the party of the run it calls for, or to the control
    connection.
    """

    def __init__(
        self,
        context: ssl.SSLContext,
        admit: Admit,
        control: Control | None,
        parties: Mapping[str, Party],
        absent: Callable[[str], str],
        log: Callable[..., None],
    ) -> None:
        """`absent` says why a run has no party here, and may have it started again."""
        self._context, self._admit, self._control, self._parties = context, admit, control, parties
        self._absent, self._often = absent, Throttle(log)
        self._greeting: dict[str, list[Connection]] = {}
        self._door: Door | None = None

    async def open(self, host: str, port: int) -> tuple[str, int]:
        """Listen; returns where."""
        self._door = Door(
            partial(greet, self, self._context),
            lambda address, why: self.refused(address or "somebody", why, counted="stranger"),
            Limits.for_peers(MEMBERS),
            expected=4 * MEMBERS,
        )
        return await self._door.open(host, port)

    async def close(self) -> None:
        """Stop listening; connections that were handed on are their parties'."""
        if self._door is not None:
            await self._door.closed()
        for connection in [each for waiting in self._greeting.values() for each in waiting]:
            connection.hang_up("this service stops", at_once=True)

    def admit(self, certificate: bytes | None, connection: Connection) -> str:
        """Return the name of a member of the federation; which part it has is seen when it says
        hello.
        """
        _, name = self._admit(certificate)
        waiting = self._greeting.setdefault(name, [])
        waiting.append(connection)
        if len(waiting) > MOST_GREETINGS:
            waiting[0].hang_up("it called too often", at_once=True)
        return name

    def greeting(self, peer: str) -> None:
        """Wait for the peer's hello."""

    def greeted(self, connection: Connection, hello: Hello) -> None:
        """Hand a connection on to whoever it is for."""
        self._greeting[connection.peer or ""].remove(connection)
        if hello.protocol == FEDERATION and self._control is not None:
            host: Party | Control = self._control
        elif hello.protocol != FEDERATION and hello.run in self._parties:
            host = self._parties[hello.run]
        else:
            why = (
                "this is not the founder"
                if hello.protocol == FEDERATION
                else self._absent(hello.run)
            )
            raise ProtocolError(f"there is no part for you here: {why}.")
        connection.host = host
        connection.peer = host.admit(connection.certificate, connection)
        connection.hello(host.greeting(connection.peer))
        host.greeted(connection, hello)

    def frame(self, connection: Connection, frame: AnyFrame) -> None:
        """Take nothing: a connection is handed on with its hello."""

    def batch(self, connection: Connection) -> None:
        """Do nothing: a connection is handed on with its hello."""

    def lost(self, connection: Connection, why: str) -> None:
        """Forget a connection that was not handed on."""
        waiting = self._greeting.get(connection.peer or "", [])
        if connection in waiting:
            waiting.remove(connection)

    def refused(self, peer: str, why: str, *, counted: str) -> None:
        """Log somebody who was refused."""
        self._often(f"refused {counted}", "refused", peer=peer, why=why)

    def refused_by(self, peer: str, reason: str) -> None:
        """Do nothing: who calls is not refused by itself."""


class Control:
    """The control connections of a founder or of a member: who is connected, and what comes from
    whom.
    """

    def __init__(
        self,
        federation: str,
        name: str,
        admit: Admit,
        take: Callable[[str, Told], None],
        connected: Callable[[str], None],
        log: Callable[..., None],
        timing: Timing | None = None,
    ) -> None:
        self._federation, self._name, self._admit = federation, name, admit
        self._take, self._connected, self._often = take, connected, Throttle(log)
        self.timing = timing or Timing()
        self.connections: dict[str, Connection] = {}
        self.trouble = NOT_YET
        """Why a member is not connected to the founder."""
        self._sent: dict[str, int] = {}

    def send(self, peer: str, message: Told) -> bool:
        """Send to who is connected; False if it is not: on its next connection it is sent what
        counts then.
        """
        connection = self.connections.get(peer)
        if connection is None:
            return False
        self._sent[peer] += 1
        connection.write(pack(Data(self._sent[peer], encode(message))))
        return True

    async def keep_alive(self) -> None:
        """Send heartbeats, and hang up on who sends none."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self.timing.heartbeat)
            self._often.flush()
            for connection in list(self.connections.values()):
                connection.write(pack(Kept(0)))
                if loop.time() - connection.last_frame > self.timing.patience:
                    connection.hang_up(f"no sign of life for {self.timing.patience:g} s")

    async def dial(
        self,
        founder: str,
        host: str,
        port: int,
        context: ssl.SSLContext,
        proxy: Proxy | None = None,
    ) -> None:
        """Keep a connection to the founder."""

        def failed(why: str) -> None:
            self.trouble = why
            self._often("unreachable", "unreachable", peer=founder, why=why)

        make = partial(Connection, self, dialled=founder)
        await keep_connected(make, host, port, context, proxy, self.timing, failed)

    def close(self) -> None:
        """Hang up on everyone."""
        for connection in list(self.connections.values()):
            connection.hang_up("this service stops")

    # What connections ask -------------------------------------------------------------------------

    def admit(self, certificate: bytes | None, connection: Connection) -> str:
        """Return the name in a certificate of the federation; who was called must answer."""
        _, name = self._admit(certificate)
        if connection.dialled is not None and name != connection.dialled:
            raise ProtocolError(
                f"called '{connection.dialled}', and '{name}' answered. Check home and founder."
            )
        return name

    def greeting(self, peer: str) -> Hello:
        """Say who this is."""
        return Hello(
            WIRE_VERSION,
            __version__,
            FEDERATION,
            PROTOCOL_VERSION,
            self._federation,
            self._name,
            0,
            0,
        )

    def greeted(self, connection: Connection, hello: Hello) -> None:
        """Take a control connection; a newer one takes the place of the one before."""
        peer = connection.peer
        assert peer is not None
        check_versions(peer, hello, connection.wire, FEDERATION)
        if (hello.run, hello.name) != (self._federation, peer):
            raise ProtocolError(
                f"'{peer}' speaks of federation '{hello.run}', this is '{self._federation}'."
            )
        earlier = self.connections.get(peer)
        self.connections[peer], self._sent[peer] = connection, 0
        if earlier is not None:
            earlier.hang_up("a newer connection took its place")
        self._often(f"connected {peer}", "connected", peer=peer)
        # After the hello is out, which the caller of this method may still have to write.
        asyncio.get_running_loop().call_soon(self._connected, peer)

    def frame(self, connection: Connection, frame: AnyFrame) -> None:
        """Take what a peer says."""
        peer = connection.peer
        assert peer is not None
        if self.connections.get(peer) is not connection:
            return
        if isinstance(frame, Data):
            self._take(peer, decode(frame.body))
        elif not isinstance(frame, Kept):
            raise WireError("a hello must come once.")

    def batch(self, connection: Connection) -> None:
        """Do nothing: what came was taken at once."""

    def lost(self, connection: Connection, why: str) -> None:
        """Forget a connection."""
        peer = connection.peer
        if connection.dialled is not None:
            self.trouble = why
        if peer is not None and self.connections.get(peer) is connection:
            del self.connections[peer]
            self._often(f"lost {peer}", "lost", peer=peer, why=why)

    def refused(self, peer: str, why: str, *, counted: str) -> None:
        """Log somebody who was refused."""
        self._often(f"refused {counted}", "refused", peer=peer, why=why)

    def refused_by(self, peer: str, reason: str) -> None:
        """Log and remember why the founder refused this member."""
        self.trouble = f"it refused us: {reason}"
        self._often(f"refused by {peer}", "unreachable", peer=peer, why=self.trouble)
