"""Samba federations over mutual TLS on loopback, in one process, for tests."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from posse.core.roles import Note
from posse.privacy.crypto.keys import Secrets
from posse.runtime.journal import Journal
from posse.runtime.network.connection import Timing
from posse.runtime.network.deployment import make_party
from posse.runtime.network.engine import journalled_nonce
from posse.runtime.network.party import Party
from posse.runtime.place import open_place, root_of, secrets_of
from posse.systems.samba.deploy import build
from posse.systems.samba.layout import FederationFile, lay_out

QUICK = Timing(
    heartbeat=0.2, patience=2.0, first_wait=0.01, longest_wait=0.2, sync_every=0.005, linger=3.0
)


_RESERVED: list[socket.socket] = []


def free_port() -> int:
    """A port that nobody else gets while these tests run: it stays bound, and whoever listens may
    take it over.
    """
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("127.0.0.1", 0))
    _RESERVED.append(holder)
    return int(holder.getsockname()[1])


def laid_out(folder: Path, owners: int = 3, **values: Any) -> list[Path]:
    """Make identities and files; a simulated world unless the values say otherwise."""
    given = {
        "run": "trial-1",
        "level": "paper",
        "listen": f"127.0.0.1:{free_port()}",
        "budget": 60,
        "policy": "ucb",
        "paillier_bits": 2048,
        "sync": False,
        "owner": [{"name": f"clinic-{i + 1}"} for i in range(owners)],
        "world": {"seed": 7, "owners": owners},
        **values,
    }
    return lay_out(FederationFile.make(given), folder)


def opened(
    path: Path, notes: list[Note] | None = None, log: Callable[..., None] | None = None, **how: Any
) -> Party:
    watch = None if notes is None else notes.append
    return make_party(
        open_place(path), build, log=log, watch=watch, timing=how.pop("timing", QUICK), **how
    )[0]


def journalled_secrets(path: Path) -> Secrets:
    """The secrets that a party, which is stopped, has had since it began its journal."""
    place = open_place(path)
    journal = Journal(place.journal)
    nonce = journalled_nonce(journal.first)
    journal.close()
    assert nonce
    return secrets_of(root_of(place), nonce)


async def until(condition: Callable[[], object], every: float = 0.005) -> None:
    """Wait for something that must come."""
    async with asyncio.timeout(240):
        while not condition():
            await asyncio.sleep(every)


async def settled(parties: Sequence[Party]) -> None:
    """Wait until nothing is on its way between these parties, nor asked of the world: none of them
    moves by itself.
    """
    by_name = {party.engine.role.name: party for party in parties}
    links = [
        (link, by_name[peer].engine.links[name])
        for name, party in by_name.items()
        for peer, link in party.engine.links.items()
        if peer in by_name
    ]

    def rests() -> bool:
        busy = any(party._flushing or party._asking or party.engine.touched for party in parties)
        return not busy and all(
            here.sent == there.received + len(there.held) for here, there in links
        )

    await until(rests)


async def run_all(parties: list[Party], seconds: float = 240) -> None:
    await asyncio.wait_for(asyncio.gather(*(party.run() for party in parties)), seconds)


def run(folder: Path, **values: Any) -> tuple[float, list[tuple[int, float]]]:
    """Run a federation to its end; return the total, and pulls and rewards of every owner."""
    notes: list[Note] = []
    paths = laid_out(folder, **values)

    async def all_of_them() -> list[Party]:
        parties = [opened(path, notes) for path in paths]
        await run_all(parties)
        return parties

    parties = asyncio.run(all_of_them())
    (total,) = [note.value for note in notes if note.kind == "total"]
    owners = [party.engine.role.state() for party in parties if party.engine.role.kind == "owner"]
    return total, [(state["pulls"], state["reward"]) for state in owners]
