"""A network of engines in one process whose connections, processes and power fail as a test
wishes.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from pathlib import Path

from posse.core.roles import Ask, Message, Note, Role
from posse.runtime.journal import Journal
from posse.runtime.network.engine import Engine, Vocabulary
from posse.runtime.network.links import GapError
from tests.network.disks import MemoryDisk


class Network:
    """Engines joined by connections; `step` does one random thing that may happen, faults
    included.
    """

    def __init__(
        self,
        make: dict[str, Callable[[], Role]],
        links: list[tuple[str, str]],
        vocabulary: Vocabulary,
        world: Callable[[Ask], Message],
        seed: int,
        *,
        snapshot_bytes: int = 2_000,
        sync_answers: bool = True,
        syncs: float = 0.1,
    ) -> None:
        self.rng = random.Random(seed)
        self._make, self._pairs, self._vocabulary, self._world = make, links, vocabulary, world
        self._snapshot_bytes, self._sync_answers, self._syncs = snapshot_bytes, sync_answers, syncs
        self.disks = {name: MemoryDisk() for name in make}
        self.engines: dict[str, Engine] = {}
        self.up: set[frozenset[str]] = set()
        self.wires: dict[tuple[str, str], deque[tuple[int, int, bytes]]] = {}
        self.notes: list[Note] = []
        self.answers = 0
        for name in make:
            self.start(name)

    def start(self, name: str) -> None:
        peers = [b if a == name else a for a, b in self._pairs if name in (a, b)]
        journal = Journal(Path(f"/{name}"), self.disks[name])
        self.engines[name] = Engine(
            self._make[name](),
            journal,
            peers,
            self._vocabulary,
            run="run-1",
            snapshot_bytes=self._snapshot_bytes,
            sync_answers=self._sync_answers,
        )
        self.engines[name].begin()
        self._commit(name)

    def connect(self, a: str, b: str) -> None:
        """Both say what they have, and begin from there."""
        one, two = self.engines[a].links[b], self.engines[b].links[a]
        hello_one, hello_two = (one.received, one.durable), (two.received, two.durable)
        one.connected(*hello_two)
        two.connected(*hello_one)
        self.wires[a, b], self.wires[b, a] = deque(), deque()
        self.up.add(frozenset((a, b)))
        self._send(a)
        self._send(b)

    def cut(self, a: str, b: str) -> None:
        """The connection goes, and with it what was on the wire."""
        self.up.discard(frozenset((a, b)))
        self.wires.pop((a, b), None)
        self.wires.pop((b, a), None)

    def kill(self, name: str, *, power: bool = False) -> None:
        """The process (or its machine) dies and is started again."""
        for a, b in self._pairs:
            if name in (a, b):
                self.cut(a, b)
        if power:
            self.disks[name].lose_power(self.rng)
        else:
            self.disks[name].kill()
        self.start(name)

    def deliver(self, a: str, b: str) -> None:
        """Hand the first message on a wire to its receiver."""
        number, durable, body = self.wires[a, b].popleft()
        engine = self.engines[b]
        engine.links[a].acknowledged(durable)
        try:
            engine.receive(a, number, body)
        except GapError:
            self.cut(a, b)
        if self.rng.random() < 0.7:  # several messages may be taken before a commit
            self._commit(b)

    def answer(self, name: str) -> None:
        """Let the world answer one ask."""
        engine = self.engines[name]
        number, ask = self.rng.choice(list(engine.asks.items()))
        engine.answer(number, self._world(ask))
        self.answers += 1
        self._commit(name)

    def _commit(self, name: str) -> None:
        engine = self.engines[name]
        engine.commit()
        assert not engine.refusals, engine.refusals
        self.notes += engine.notes
        engine.notes.clear()
        self._send(name)

    def _send(self, name: str) -> None:
        for peer, link in self.engines[name].links.items():
            if frozenset((name, peer)) in self.up:
                self.wires[name, peer].extend(
                    (n, link.durable, body) for n, body in link.outgoing()
                )

    def step(self, faults: dict[str, float]) -> bool:
        """Do one thing; False when nothing is left to do."""
        kind = self.rng.choices(
            [*faults, "none"], [*faults.values(), max(0.0, 1 - sum(faults.values()))]
        )[0]
        getattr(self, f"_fault_{kind}")()
        for name in self.engines:
            if self.rng.random() < self._syncs:
                with self.engines[name].syncing() as wait:
                    wait()
        moves: list[Callable[[], None]] = [
            lambda pair=pair: self.deliver(*pair) for pair, wire in self.wires.items() if wire
        ]
        moves += [
            lambda name=name: self.answer(name)
            for name, engine in self.engines.items()
            if engine.asks
        ]
        moves += [
            lambda pair=pair: self.connect(*pair)
            for pair in self._pairs
            if frozenset(pair) not in self.up
        ]
        moves += [lambda name=name: self._commit(name) for name in self.engines]
        if all(
            engine.role.finished and not engine.asks for engine in self.engines.values()
        ) and not any(self.wires.values()):
            return False
        self.rng.choice(moves)()
        return True

    def run(self, faults: dict[str, float], most: int = 200_000) -> None:
        """Run until everyone has finished."""
        for _ in range(most):
            if not self.step(faults):
                return
        raise AssertionError(f"not finished after {most} steps")

    # Faults: a connection cut, a message twice, two exchanged, one dropped, a process or its power
    # lost.

    def _fault_none(self) -> None:
        return

    def _fault_cut(self) -> None:
        if self.up:
            self.cut(*self.rng.choice(sorted(tuple(sorted(pair)) for pair in self.up)))

    def _fault_kill(self) -> None:
        self.kill(self.rng.choice(list(self.engines)))

    def _fault_power(self) -> None:
        self.kill(self.rng.choice(list(self.engines)), power=True)

    def _wire(self) -> deque[tuple[int, int, bytes]] | None:
        busy = [wire for wire in self.wires.values() if wire]
        return self.rng.choice(busy) if busy else None

    def _fault_duplicate(self) -> None:
        if (wire := self._wire()) is not None:
            wire.append(wire[0])

    def _fault_reorder(self) -> None:
        if (wire := self._wire()) is not None and len(wire) > 1:
            wire[0], wire[-1] = wire[-1], wire[0]

    def _fault_drop(self) -> None:
        if (wire := self._wire()) is not None:
            wire.popleft()


FAULTS = {
    "kills": {"kill": 0.08},
    "power": {"power": 0.08},
    "connections": {"cut": 0.05, "duplicate": 0.05, "reorder": 0.05, "drop": 0.03},
    "everything": {
        "cut": 0.04,
        "duplicate": 0.03,
        "reorder": 0.03,
        "drop": 0.02,
        "kill": 0.04,
        "power": 0.04,
    },
}
