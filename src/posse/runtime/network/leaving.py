"""For whom a party waits, when it gives up on its peers, and when one whose part is over may leave.

A party that is missing or refused stops everybody, and in a star only the middle sees why. So every
party tells its peers, with every heartbeat, who is not connected to it and why. Nothing of it
depends on what a source answers: it is about connections alone, goes to all peers alike and by the
clock. For the same reason the time that a party waits is counted without a look at its own source:
one that stayed longer than the others would show whose reward is awaited.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from posse.core.errors import LinkError, StalledError, UnconfirmedError
from posse.runtime.network.calling import UNREACHABLE
from posse.runtime.network.connection import Connection, Timing

if TYPE_CHECKING:
    from posse.runtime.network.party import Party

NOT_YET = "has not called yet"
MESSAGE_REFUSED = "a message was refused: "
"""Begins why a connection was closed; the role's reason follows."""
_NOT_TOLD = {UNREACHABLE: "it cannot be reached", MESSAGE_REFUSED: "a message of it was refused"}
"""What other parties are told in place of reasons that begin so: addresses and contents stay
here.
"""


def gone(party: Party) -> set[str]:
    """Peers that are not connected because nothing is needed of them any more: their part is
    over.
    """
    absent = set(party.wiring.peers) - set(party.connections)
    return {
        peer
        for peer in absent
        if peer in party.left or (party.engine.bound and peer not in party.needed)
    }


def missing(party: Party) -> dict[str, str]:
    """Peers that are not connected and whose part is not over, and why."""
    if party.engine.role.finished:
        return {}
    absent = set(party.wiring.peers) - set(party.connections) - gone(party)
    return {peer: _reason(party, peer) for peer in sorted(absent)}


def _reason(party: Party, peer: str) -> str:
    """Say why a peer is not connected; a caller whose certificate is refused has no name, and may
    be this peer.
    """
    why = party.troubles.get(peer, NOT_YET)
    if (
        party.refused_caller
        and peer not in party.wiring.addresses
        and not why.startswith("refused")
    ):
        why = f"{why}; a caller was refused: {party.refused_caller}"
    return why


def waited_for(party: Party) -> dict[str, str]:
    """Return for whom the run waits and why: parties that are not connected to this one, or not to
    one of its peers.
    """
    waiting = missing(party)
    if party.engine.role.finished:
        return waiting
    over = {party.engine.role.name, *party.left, *gone(party)}
    for peer, report in sorted(party.reports.items()):
        # The last word of a peer that is lost counts for those that only it can see.
        seen_here = set() if peer in party.connections else set(party.connections)
        if peer not in party.left:
            for name in sorted(set(report.peers) - over - seen_here):
                waiting.setdefault(name, f"'{peer}' waits for it: {report.peers[name]}")
    return waiting


class Waiting:
    """Tells peers with every heartbeat for whom a party waits, and stops the party when it has
    waited for too long.
    """

    def __init__(self, party: Party) -> None:
        self._party = party
        self._connections: dict[str, Connection] = {}
        """Those of the last heartbeat."""
        self._missing: dict[str, str] = {}
        self._seconds: dict[str, float] = {}
        """How long each party was waited for."""

    def beat(self) -> None:
        """Send a heartbeat that says who is missing, and count.

        A peer that connects and is refused at once, again and again, is missing: one is back when
        its connection lasts from one heartbeat to the next.
        """
        party = self._party
        absent = missing(party)
        for peer, why in self._missing.items():
            connection = party.connections.get(peer)
            if connection is not None and connection is not self._connections.get(peer):
                absent[peer] = why
        self._connections = dict(party.connections)
        self._missing = {} if party.engine.role.finished else absent
        party.tell_durable(missing={peer: _public(why) for peer, why in self._missing.items()})
        self._count()

    def _count(self) -> None:
        party = self._party
        connected = set(party.connections)
        held = party.paused_peers or any(
            party.reports[peer].paused for peer in connected & set(party.reports)
        )
        if party.paused or held:
            return
        waiting = waited_for(party) | self._missing
        # By heartbeats: time in which this process itself was stopped does not count.
        self._seconds = {
            peer: self._seconds.get(peer, 0.0) + party.timing.heartbeat for peer in waiting
        }
        longest = max(self._seconds, key=self._seconds.__getitem__, default="")
        if longest and 0 < party.stalled_after <= self._seconds[longest]:
            name = party.engine.role.name
            party.stop(
                StalledError(
                    f"the run has waited for '{longest}' for {self._seconds[longest]:g} s "
                    f"({waiting[longest]}). Start "
                    f"'{name}' again when '{longest}' is there: its journal is kept, and the run "
                    "is open."
                )
            )


def _public(why: str) -> str:
    """Return a reason as other parties may read it."""
    return next(
        (public for beginning, public in _NOT_TOLD.items() if why.startswith(beginning)), why
    )


async def keep_alive(party: Party) -> None:
    """Send heartbeats, and hang up on peers that send none."""
    loop = asyncio.get_running_loop()
    waiting = Waiting(party)
    while True:
        await asyncio.sleep(party.timing.heartbeat)
        party.often.flush()
        waiting.beat()
        for connection in list(party.connections.values()):
            if not party.paused and loop.time() - connection.last_frame > party.timing.patience:
                connection.hang_up(f"no sign of life for {party.timing.patience:g} s")


async def miss(party: Party, give_up: float) -> None:
    """Stop when a peer without which this party cannot finish has been missing for too long."""
    loop = asyncio.get_running_loop()
    since: dict[str, float] = {}
    while not party.engine.role.finished:
        absent = (
            []
            if party.paused
            else [peer for peer in party.wiring.peers if peer not in party.connections]
        )
        # A peer may connect and leave between two looks: it is missing since it left.
        since = {
            peer: max(since.get(peer, loop.time()), party.lost_at.get(peer, 0.0))
            for peer in absent
            if peer in party.needed
        }
        first = min(since, key=lambda peer: since[peer], default=None)
        if first is not None and loop.time() - since[first] >= give_up:
            why = party.troubles.get(first, "it has not called")
            party.stop(
                LinkError(
                    f"'{first}' has been missing for {give_up:g} s ({why}). Start it again, and then "
                    f"'{party.engine.role.name}': the run continues where it stopped."
                )
            )
            return
        await asyncio.sleep(min(0.5, give_up / 10))


def unconfirmed(party: Party) -> set[str]:
    """Peers that may not have all messages of a party on their disks; who has left needs none of
    them.
    """
    links = party.engine.links.items()
    return {
        peer for peer, link in links if link.durable_there < link.sent and peer not in party.left
    }


async def finish(party: Party, timing: Timing, give_up: float | None) -> None:
    """Leave when all know what they need of each other, or after a while.

    Peers must have this party's last messages on their disks, which takes longer for those that
    cannot do without; and they must know that it has theirs, so it stays for one that is lost.
    """
    loop, engine = asyncio.get_running_loop(), party.engine
    began, waiting = loop.time(), set(engine.links)
    while True:
        missing, waited = unconfirmed(party), loop.time() - began
        for peer in waiting - missing:
            engine.confirmed(peer)
        waiting = missing
        lost = party.wiring.peers.keys() - party.connections.keys() - party.left
        if engine.durable and not missing and (not lost or waited > timing.linger):
            break
        patience = give_up or timing.closing if missing & set(party.needed) else 0.0
        if waited > max(patience, timing.linger):
            break
        await asyncio.sleep(0.02)
    party.tell_durable(leaves=True)
    await asyncio.sleep(0.05)
    party.stop()


def check(party: Party) -> None:
    """Raise if a party has finished, and a peer that needs its last messages may not have them."""
    name = party.engine.role.name
    missing = sorted(unconfirmed(party) & set(party.needed)) if party.engine.role.finished else []
    if missing:
        raise UnconfirmedError(
            f"the part of '{name}' is over, but {', '.join(missing)} has not confirmed its "
            f"last messages ({party.troubles.get(missing[0], 'no answer yet')}). Start "
            f"'{name}' again when the other is running: it may need these messages."
        )
