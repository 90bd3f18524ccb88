"""Parties of any system, made from their files and run in one process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from posse.core.roles import Note
from posse.core.settings import read_toml
from posse.runtime.network.deployment import make_party
from posse.runtime.network.party import Party
from posse.runtime.place import open_place
from posse.systems.parties import PartyRecorder, deploy_by_name, run_and_record
from tests.kit import federations, market, mpc
from tests.kit.federations import QUICK

SECONDS = 240
LAY_OUT: dict[str, Callable[[Path], list[Path]]] = {
    "samba": lambda folder: federations.laid_out(folder, budget=12),
    "samba strict": lambda folder: federations.laid_out(
        folder, budget=12, level="strict", sync=True
    ),
    "mpc-contextual": lambda folder: mpc.laid_out(folder, steps=4),
    "dp-combinatorial": lambda folder: market.laid_out_with_own_files(folder),
}
"""Writes the files of a short run of each system."""


def edit(path: Path, old: str, new: str) -> None:
    """Replace a text that a file must have."""
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def opened(path: Path, notes: list[Note] | None = None, **how: Any) -> Party:
    build = deploy_by_name(str(read_toml(path)["protocol"])).build
    watch = None if notes is None else notes.append
    return make_party(open_place(path), build, timing=QUICK, watch=watch, **how)[0]


def close(*parties: Party) -> None:
    """Close the journals of parties."""
    for party in parties:
        party.engine._journal.close()


def finish(paths: Iterable[Path]) -> list[Party]:
    """Run everyone to the end; return the parties, with their journals closed."""

    async def go() -> list[Party]:
        parties = [opened(path) for path in paths]
        await federations.run_all(parties)
        close(*parties)
        return parties

    return asyncio.run(go())


async def ends_of(parties: dict[str, Party]) -> dict[str, Any]:
    """Run everyone until everyone has stopped; return what stopped each."""
    ends = await asyncio.wait_for(
        asyncio.gather(*(party.run() for party in parties.values()), return_exceptions=True),
        SECONDS,
    )
    for party in parties.values():
        party.engine.close()
    return dict(zip(parties, ends, strict=True))


async def all_stop(paths: list[Path]) -> dict[str, Any]:
    """Open and run everyone until everyone has stopped; return what stopped each."""
    return await ends_of({path.stem: opened(path) for path in paths})


def run_and_record_all(paths: list[Path]) -> tuple[dict[str, Any], list[str]]:
    """Run every party as `posse party` does; return results or what stopped each, and remarks."""
    remarks: list[str] = []

    async def go() -> list[Any]:
        runs = (
            run_and_record(open_place(path), lambda place, made: made, remarks.append)
            for path in paths
        )
        ends = await asyncio.wait_for(asyncio.gather(*runs, return_exceptions=True), SECONDS)
        updates = PartyRecorder._keep_row_updated.__qualname__
        assert not [task for task in asyncio.all_tasks() if updates in repr(task)]
        return ends

    return dict(zip((path.stem for path in paths), asyncio.run(go()), strict=True)), remarks
