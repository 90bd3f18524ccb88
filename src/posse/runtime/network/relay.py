"""Two members that nobody can call meet at one that both can: it joins their connections, and TLS
is between the two.

`b = "relay:hub"` in a's file and `a = "relay:hub"` in b's: both call `hub`, which is in their
`[connect]` and has `relays = true`. On a connection of its own kind (ALPN `posse-relay/1`, mutual
TLS as ever) each says whom it wants:

    length of the name (1) | name        to the relay
    1                                    from the relay, when both are here; from then on it moves bytes and no more
    2                                    from the one that is the server of the inner TLS, when it is ready

The one whose name comes first is the client of the inner TLS, in which both show their certificates
as on a connection of their own. The relay sees who meets, how much travels and when; it can cut a
connection, and read or change nothing.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Collection, Mapping
from typing import Any

from posse.core.errors import PosseError, ProtocolError
from posse.runtime.network.calling import call
from posse.runtime.network.connection import GREETING, SHUTTING, Admit, Connection, Wiring
from posse.runtime.network.tls import Tls

PREFIX = "relay:"
"""Begins what stands in [connect] in place of an address."""
_MET, _READY = b"\x01", b"\x02"


class Relay:
    """Joins members of a run that ask for each other."""

    def __init__(self, peers: Mapping[str, str], admit: Admit) -> None:
        self._peers, self._admit = peers, admit
        self.legs: dict[tuple[str, str], Leg] = {}
        """By who calls and whom it wants; a newer one takes the place of an older one."""
        self._pairs: set[frozenset[str]] = set()

    def take(self, transport: asyncio.Transport, certificate: bytes | None) -> str:
        """Take over a connection; returns whose it is, or raises a `PosseError`."""
        role, name = self._admit(certificate)
        if self._peers.get(name) != role:
            raise ProtocolError(
                f"'{name}' ({role}) has no part in this run. Check the federation file."
            )
        leg = Leg(self, name, transport)
        transport.set_protocol(leg)
        return name

    def meet(self, leg: Leg, wanted: str) -> None:
        """Join a leg with the one that waits for it, or let it wait."""
        if wanted not in self._peers or wanted == leg.name:
            leg.close()
            return
        if (earlier := self.legs.get((leg.name, wanted))) is not None:
            earlier.close()
        leg.wanted = wanted
        leg.waits()
        self.legs[leg.name, wanted] = leg
        other = self.legs.get((wanted, leg.name))
        if other is not None and other.other is None:
            leg.other, other.other = other, leg
            self._pairs.add(frozenset((leg.name, wanted)))
            for each in (leg, other):
                each.transport.write(_MET)

    def needed(self, left: Collection[str]) -> bool:
        """Whether two members are joined here, one waits for another, or two have met and neither
        has left.

        One that is cut off comes again; a relay that was started again knows of nobody who has met.
        """
        there = any(
            leg.other is not None or wanted not in left for (_, wanted), leg in self.legs.items()
        )
        return there or any(pair.isdisjoint(left) for pair in self._pairs)

    def close(self) -> None:
        """Close everything that goes through here."""
        for leg in list(self.legs.values()):
            leg.close()


class Leg(asyncio.Protocol):
    """One member's connection to a relay."""

    def __init__(self, relay: Relay, name: str, transport: asyncio.Transport) -> None:
        self.name, self.transport, self._relay = name, transport, relay
        self.wanted, self.other = "", None  # type: str, Leg | None
        self._asked = b""
        self._deadline = asyncio.get_running_loop().call_later(GREETING, self.close)

    def data_received(self, data: bytes) -> None:
        """Read whom it wants, then move what comes."""
        if self.other is not None:
            self.other.transport.write(data)
            return
        self._asked += data
        size = 1 + self._asked[0]
        if self.wanted or len(self._asked) > size:
            self.close()  # nothing may come before the two have met
        elif len(self._asked) == size:
            self._relay.meet(self, self._asked[1:].decode("utf-8", "replace"))

    def waits(self) -> None:
        """Stay until the other comes: this one has said whom it wants."""
        self._deadline.cancel()

    def pause_writing(self) -> None:
        """Let the other wait: this one is slow."""
        if self.other is not None and not self.other.transport.is_closing():
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        """Let the other go on."""
        if self.other is not None and not self.other.transport.is_closing():
            self.other.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """Close the other one too."""
        self._deadline.cancel()
        if self._relay.legs.get((self.name, self.wanted)) is self:
            del self._relay.legs[self.name, self.wanted]
        if self.other is not None:
            self.other.close()

    def close(self) -> None:
        """Hang up."""
        if not self.transport.is_closing():
            self.transport.close()


class _Caller(asyncio.Protocol):
    """A member's side of the outer connection until the two have met."""

    def __init__(self, me: str, peer: str) -> None:
        self._peer, self._answer = peer, _MET + _READY if me < peer else _MET
        self._said = b""
        self.met: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        name = self._peer.encode()
        transport.write(bytes([len(name)]) + name)

    def data_received(self, data: bytes) -> None:
        self._said += data
        if self._said == self._answer and not self.met.done():
            self.transport.pause_reading()
            if self._answer == _MET:
                self.transport.write(_READY)
            self.met.set_result(None)
        elif not self._answer.startswith(self._said):
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.met.done():
            self.met.set_exception(
                ConnectionError("the relay hung up: it may not relay, or not for this run")
            )


def _context(wiring: Wiring, *, client: bool) -> ssl.SSLContext:
    context = wiring.client if client else wiring.server
    assert context is not None
    return context


async def reach(
    make: Callable[[], Connection], me: str, peer: str, admit: Admit, wiring: Wiring
) -> Connection:
    """Call a peer, or meet it where the two are joined."""
    hub = wiring.relayed.get(peer)
    if hub is not None:
        return await _meet(make, me, peer, hub, admit, wiring)
    return await call(make, *wiring.addresses[peer], _context(wiring, client=True), wiring.proxy)


async def _meet(
    make: Callable[[], Connection], me: str, peer: str, name: str, admit: Admit, wiring: Wiring
) -> Connection:
    host, port = wiring.addresses[name]
    assert wiring.outer is not None
    caller = await call(lambda: _Caller(me, peer), host, port, wiring.outer, wiring.proxy)
    transport, inner = caller.transport, None
    try:
        if (
            found := admit(transport.get_extra_info("ssl_object").getpeercert(binary_form=True))[1]
        ) != name:
            raise ConnectionError(f"the relay '{name}' was called, and '{found}' answered")
        await caller.met
        inner = Tls(make, _context(wiring, client=me < peer), server=me > peer, shutting=SHUTTING)
        transport.set_protocol(inner)
        inner.connection_made(transport)
        transport.resume_reading()
        return await inner.opened
    except BaseException as error:
        transport.abort()
        waiters: list[asyncio.Future[Any]] = [
            caller.met,
            *([] if inner is None else [inner.opened]),
        ]
        for waiter in waiters:
            if waiter.done() and not waiter.cancelled():
                waiter.exception()  # nobody asks any more
        if isinstance(error, PosseError):
            raise ConnectionError(error.text) from error
        raise
