"""Every order in which links can come up again after machines have died, over engines in one
process.

A federation runs up to some message. Then machines lose their power, and with it all that was not
on their disks. Their links come up one after the other, and everything that can move has moved
before the next one does. Two orders that lead to the same state are one from there on, so that all
orders of ten links are some thousand states.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from posse.core.roles import Ask, Message, Role
from posse.runtime.journal import Journal
from posse.runtime.network.engine import Engine, Vocabulary
from posse.runtime.network.links import GapError
from tests.network.seam import Network

_encode = msgspec.msgpack.Encoder().encode
Pair = frozenset[str]


class Everything:
    """Draws the least: a machine keeps nothing that was not on the disk."""

    @staticmethod
    def randint(least: int, most: int) -> int:
        return least


@dataclass
class System:
    """A federation: how its roles are made, who is linked, what the world answers, and what a run
    comes to.
    """

    make: dict[str, Callable[[], Role]]
    links: list[tuple[str, str]]
    vocabulary: Vocabulary
    world: Callable[[Ask], Message]
    outcome: Callable[[dict[str, Any]], Any]
    sync: bool = True


class Federation(Network):
    """Moves messages in a fixed order, and connects only when it is told to."""

    def __init__(self, system: System) -> None:
        self.system = system
        self.greeted: dict[str, set[str]] = {}
        self.moved = 0
        super().__init__(
            system.make,
            system.links,
            system.vocabulary,
            system.world,
            0,
            snapshot_bytes=1 << 30,
            sync_answers=system.sync,
        )

    def start(self, name: str) -> None:
        peers = [b if a == name else a for a, b in self._pairs if name in (a, b)]
        engine = Engine(
            self._make[name](),
            Journal(Path(f"/{name}"), self.disks[name]),
            peers,
            self._vocabulary,
            run="run-1",
            snapshot_bytes=self._snapshot_bytes,
            sync_answers=self._sync_answers,
        )
        self.engines[name], self.greeted[name] = engine, set(peers) if engine.bound else set()
        self._begin(name)

    def _begin(self, name: str) -> None:
        """As a party does: a role that has heard nothing begins when all peers are there."""
        engine = self.engines[name]
        if not engine.started and self.greeted[name] == engine.links.keys():
            engine.begin()
        self._commit(name)

    def join(self, pair: Pair) -> None:
        """Let a link come up, and everything move that can."""
        a, b = sorted(pair)
        self.connect(a, b)
        self.greeted[a].add(b)
        self.greeted[b].add(a)
        self._begin(a)
        self._begin(b)

    def deliver(self, a: str, b: str) -> None:
        number, durable, body = self.wires[a, b].popleft()
        engine = self.engines[b]
        engine.links[a].acknowledged(durable)
        try:
            engine.receive(a, number, body)
        except GapError:
            self.cut(a, b)
        self._commit(b)

    def flush(self, name: str) -> None:
        """Let a party write its journal and send."""
        self._commit(name)

    def move(self) -> bool:
        """Do the next thing that may happen, in turn; False when nothing is left to do."""
        ready: list[Any] = [pair for pair, wire in self.wires.items() if wire]
        ready += [name for name, engine in self.engines.items() if engine.asks]
        if not ready:
            return False
        self.moved += 1
        what = ready[self.moved % len(ready)]
        self.answer(what) if isinstance(what, str) else self.deliver(*what)
        return True

    def settle(self, most: int = 100_000) -> None:
        """Move everything that can move."""
        for _ in range(most):
            if not self.move():
                return
        raise AssertionError("it never comes to rest")

    def sync(self) -> None:
        """Let the clock of every party strike: all is on the disks, and peers know."""
        for name, engine in self.engines.items():
            with engine.syncing() as wait:
                wait()
            self._commit(name)
        for a, b in list(self.wires):
            self.engines[b].links[a].acknowledged(self.engines[a].links[b].durable)

    @property
    def finished(self) -> bool:
        engines = self.engines.values()
        return all(engine.role.finished and not engine.asks for engine in engines) and not any(
            self.wires.values()
        )

    @property
    def outcome(self) -> Any:
        return self.system.outcome({name: engine.role for name, engine in self.engines.items()})

    @property
    def state(self) -> bytes:
        """All that decides how it goes on."""
        parts = []
        for name in sorted(self.engines):
            engine = self.engines[name]
            links = [
                [
                    getattr(link, slot)
                    for slot in sorted(link.__slots__)
                    if not slot.startswith("bytes_")
                ]
                for _, link in sorted(engine.links.items())
            ]
            links = [
                [list(value) if isinstance(value, deque) else value for value in link]
                for link in links
            ]
            asks = sorted((number, _encode(ask)) for number, ask in engine.asks.items())
            parts.append(
                (engine.role.save(), links, asks, engine.started, sorted(self.greeted[name]))
            )
        return _encode(parts)

    def fork(self) -> Federation:
        """Copy everything but what never changes; roles through what they save."""
        memo: dict[int, Any] = {
            id(self.system): self.system,
            id(self._make): self._make,
            id(self._world): self._world,
        }
        memo[id(self._vocabulary)] = self._vocabulary
        for name, engine in self.engines.items():
            role = self._make[name]()
            role.load(msgspec.msgpack.decode(_encode(engine.role.save())))
            memo[id(engine.role)] = role
            memo[id(engine.decoder)], memo[id(engine._ask_decoder)] = (
                engine.decoder,
                engine._ask_decoder,
            )
        return copy.deepcopy(self, memo)


@dataclass
class Run:
    """An undisturbed run, to which every other is compared."""

    system: System
    outcome: Any
    phases: dict[str, int]
    """How many things had moved at one moment of each phase: before the world is asked, while it
    is, and after.
    """


def undisturbed(system: System) -> Run:
    """Run to the end; from then on the world gives the answers that it gave."""
    answers: dict[bytes, Message] = {}
    asked: list[int] = []
    world = system.world
    network = connected(system)

    def answer(ask: Ask) -> Message:
        key = _encode((type(ask).__name__, ask))
        if key not in answers:
            answers[key] = world(ask)
            asked.append(network.moved)
        return answers[key]

    system.world = network._world = answer
    network.settle()
    assert network.finished
    first, last, end = asked[0], asked[-1], network.moved
    phases = {
        "set-up": 3 * first // 4,
        "running": (first + 2 * last) // 3,
        "closing": (last + end + 1) // 2,
        "over": end,
    }
    return Run(system, network.outcome, phases)


def connected(system: System) -> Federation:
    """Return a federation whose links are up, and in which nothing has moved."""
    network = Federation(system)
    for pair in system.links:
        network.join(frozenset(pair))
    return network


def at(system: System, number: int, synced: int) -> Federation:
    """Return the federation when so many things have moved; the clocks struck when `synced` had."""
    network = connected(system)
    while network.moved < number:
        if network.moved == synced:
            network.sync()
        network.move()
    return network


def cut_power(network: Federation, lost: Collection[str]) -> list[Pair]:
    """Let machines die and start again, with their links down; return those links."""
    down = [frozenset(pair) for pair in network._pairs if set(pair) & set(lost)]
    for pair in down:
        network.cut(*sorted(pair))
    for name in lost:
        network.disks[name].lose_power(Everything())  # type: ignore[arg-type]
        network.start(name)
    network.settle()
    return down


Found = tuple[int, Federation]
"""A number of orders that lead to one state, and the state."""


def orders(network: Federation, down: Collection[Pair]) -> tuple[list[Found], int]:
    """Let links come up in every order; return the states that this leads to, and how many links
    came up in all.
    """
    level: dict[frozenset[Pair], dict[bytes, Found]] = {frozenset(): {b"": (1, network)}}
    joined = 0
    for _ in down:
        following: dict[frozenset[Pair], dict[bytes, Found]] = {}
        for up, states in level.items():
            for count, before in states.values():
                for pair in set(down) - up:
                    after = before.fork()
                    after.join(pair)
                    after.settle()
                    joined += 1
                    merged = following.setdefault(up | {pair}, {})
                    key = after.state
                    merged[key] = (merged[key][0] + count if key in merged else count), after
        level = following
    (states,) = level.values()
    return list(states.values()), joined


@dataclass
class Tally:
    """What was tried."""

    orders: int = 0
    joined: int = 0
    lost: int = 0
    """Links on which a party forgot two messages or more that its peer has."""


def check(
    run: Run, moment: int, synced: int, sets: Iterable[Collection[str]], tally: Tally
) -> None:
    """Cut the power of each set of parties at a moment; all orders must lead to the undisturbed
    run's outcome.
    """
    before = at(run.system, moment, synced)
    for lost in sets:
        network = before.fork()
        sent = {
            (name, peer): link.sent
            for name in lost
            for peer, link in network.engines[name].links.items()
        }
        down = cut_power(network, lost)
        tally.lost += sum(
            count >= network.engines[name].links[peer].sent + 2
            for (name, peer), count in sent.items()
        )
        ends, joined = orders(network, down)
        for count, end in ends:
            assert end.finished, (moment, synced, lost)
            assert end.outcome == run.outcome, (moment, synced, lost)
            tally.orders += count
        tally.joined += joined
