"""When a party gives up on its peers, and when one whose part is over may leave."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from posse.core.errors import LinkError, UnfinishedError
from posse.runtime.network.connection import Timing

if TYPE_CHECKING:
    from posse.runtime.network.party import Party


async def keep_alive(party: Party) -> None:
    """Send heartbeats, and hang up on peers that send none."""
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(party.timing.heartbeat)
        party.often.flush()
        party.tell_durable()
        for connection in list(party.connections.values()):
            if not party.paused and loop.time() - connection.last_frame > party.timing.patience:
                connection.hang_up(f"no sign of life for {party.timing.patience:g} s")


async def miss(party: Party, give_up: float) -> None:
    """Stop when a peer without which this party cannot finish has been missing for too long."""
    loop = asyncio.get_running_loop()
    since: dict[str, float] = {}
    while not party.engine.role.finished:
        absent = [] if party.paused else [peer for peer in party.wiring.peers if peer not in party.connections]
        since = {peer: since.get(peer, loop.time()) for peer in absent if peer in party.needed}
        first = min(since, key=lambda peer: since[peer], default=None)
        if first is not None and loop.time() - since[first] >= give_up:
            why = party.troubles.get(first, "it has not called")
            party.stop(
                LinkError(
                    f"'{first}' has been missing for {give_up:g} s ({why}). Start it again, and then "
                    f"'{party.engine.role.name}': this run goes on where it was."
                )
            )
            return
        await asyncio.sleep(min(0.5, give_up / 10))


def unconfirmed(party: Party) -> set[str]:
    """Peers that may not have all messages of a party on their disks; who has left needs none of them."""
    links = party.engine.links.items()
    return {peer for peer, link in links if link.durable_there < link.sent and peer not in party.left}


async def finish(party: Party, timing: Timing, give_up: float | None) -> None:
    """Leave when all know what they need of each other, or after a while.

    Peers must have this party's last messages on their disks, which takes longer for those that cannot do without; and
    they must know that it has theirs, so it stays for one that is lost. One that relays stays while others meet there.
    """
    loop, engine = asyncio.get_running_loop(), party.engine
    began, waiting = loop.time(), set(engine.links)
    while True:
        missing, waited = unconfirmed(party), loop.time() - began
        for peer in waiting - missing:
            engine.confirmed(peer)
        waiting = missing
        lost = party.wiring.peers.keys() - party.connections.keys() - party.left
        relays = party.relay is not None and party.relay.needed(party.left)
        if engine.durable and not missing and not relays and (not lost or waited > timing.linger):
            break
        patience = give_up or timing.closing if relays or missing & set(party.needed) else 0.0
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
        raise UnfinishedError(
            f"the part of '{name}' is over, but {', '.join(missing)} has not confirmed its last messages "
            f"({party.troubles.get(missing[0], 'no answer yet')}). Start '{name}' again when the other is there, which "
            "may be waiting for them."
        )
