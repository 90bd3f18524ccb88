"""What travels says nothing about who pulled: frames of a network run with a slow source, counted on the wire."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from math import comb
from typing import Any

import pytest

from posse.core.roles import Pull
from posse.protocols.samba.messages import Score
from posse.runtime.network.connection import Timing
from posse.runtime.network.party import Party
from posse.runtime.network.wire import Data, pack
from tests.network.federations import laid_out, opened, run_all

OWNERS, BUDGET = 4, 160
LEVELS = ("strict", "standard", "paper")
TIMING = Timing(heartbeat=0.2, patience=4.0, first_wait=0.01, longest_wait=0.2, sync_every=0.02, linger=3.0)


class Wire:
    """All that the controller receives from owners, as it stands when the last score of a pass arrives."""

    def __init__(self, party: Party, owners: Sequence[str]) -> None:
        self.owners, self.passes = tuple(owners), []
        self._marks, self._sizes = dict.fromkeys(owners, 0), {}
        self._decode, self._frame = party.engine._decoder.decode, party.frame
        party.frame = self.frame  # type: ignore[method-assign]

    def frame(self, connection: Any, frame: Any) -> None:
        peer = connection.peer
        if peer in self.owners:
            self._marks[peer] = max(self._marks[peer], getattr(frame, "durable", 0))
            if isinstance(frame, Data) and isinstance(self._decode(frame.body), Score):
                self._sizes[peer] = len(pack(frame))
            if len(self._sizes) == len(self.owners):
                self.passes.append((dict(self._marks), self._sizes))
                self._sizes = {}
        self._frame(connection, frame)


def watched(folder: Any, level: str, *, fault: bool = False) -> tuple[Wire, list[str]]:
    """Run a federation whose rewards take a while; return what travelled, and who pulled in every step after the first
    ones. With a fault, an owner acknowledges what it has whenever a reward is on its disk."""
    world = {"seed": 7, "means": [0.5] * OWNERS}
    paths, pulled = laid_out(folder, OWNERS, budget=BUDGET, level=level, sync=True, world=world), []

    async def go() -> Wire:
        parties = {path.stem: opened(path, timing=TIMING) for path in paths}
        wire = Wire(parties["controller"], [name for name in parties if name.startswith("clinic")])
        for name in wire.owners:
            slow(parties[name], pulled)
            if fault:
                telling(parties[name])
        await run_all(list(parties.values()))
        return wire

    wire = asyncio.run(go())
    return wire, pulled[OWNERS:]


def slow(party: Party, pulled: list[str]) -> None:
    source = party._source

    async def later(ask: Pull) -> Any:
        pulled.append(ask.party)
        await asyncio.sleep(0.004)
        return await source(ask)  # type: ignore[misc]

    party._source = later  # type: ignore[assignment]


def telling(party: Party) -> None:
    engine, sync = party.engine, party.engine.sync

    def told() -> None:
        sync()
        for link in engine.links.values():
            link.durable = link.received
        party.tell_durable()

    engine.sync = told  # type: ignore[method-assign]


def guesses(seen: Sequence[dict[str, int]], seed: int = 1) -> list[str]:
    """Guess in every pass who has acknowledged most, and by chance among equals."""
    rng = random.Random(seed)
    return [rng.choice([name for name in now if now[name] == max(now.values())]) for now in seen]


def likely_by_chance(hits: int, tries: int, p: float) -> float:
    """Probability that guessing an arm that is pulled with probability p hits so often."""
    return sum(comb(tries, n) * p**n * (1 - p) ** (tries - n) for n in range(hits, tries + 1))


def hits(marks: Sequence[dict[str, int]], pulled: Sequence[str]) -> int:
    return sum(guess == name for guess, name in zip(guesses(marks), pulled, strict=False))


def commonest(pulled: Sequence[str]) -> float:
    """What guessing the best arm in all steps would hit."""
    return max(Counter(pulled).values()) / len(pulled)


def test_an_acknowledgement_that_tells_is_noticed(tmp_path):
    """Control: marks that move when a reward is on the disk name the arm."""
    wire, pulled = watched(tmp_path, "strict", fault=True)
    marks = [marks for marks, _ in wire.passes][1:]
    print(f"\nwith a planted fault the arm was named in {hits(marks, pulled)} of {len(marks)} steps")
    assert likely_by_chance(hits(marks, pulled), len(marks), commonest(pulled)) < 1e-6


@pytest.mark.parametrize("level", LEVELS)
def test_neither_acknowledgements_nor_sizes_name_the_arm(tmp_path, level):
    wire, pulled = watched(tmp_path, level)
    # The score of pass t comes after the pull of step t - 1: the first pass shows the first pulls of all.
    assert len(pulled) == BUDGET - OWNERS
    assert len(wire.passes) == BUDGET - OWNERS
    marks = [marks for marks, _ in wire.passes][1:]
    assert max(marks[-1].values()) > BUDGET // 2  # owners do acknowledge
    print(f"\n{level}: the arm was named in {hits(marks, pulled)} of {len(marks)} steps")
    assert likely_by_chance(hits(marks, pulled), len(marks), commonest(pulled)) > 1e-3
    sizes = Counter(len(set(sizes.values())) for _, sizes in wire.passes)
    assert sizes == {1: BUDGET - OWNERS}, "frames of a pass differ in size"
