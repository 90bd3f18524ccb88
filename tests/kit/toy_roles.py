"""A small star and a small mesh of deterministic roles, for tests of the runtime alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from posse.core.errors import ProtocolError
from posse.core.roles import WORLD, Action, Message, Note, Pull, Reward
from posse.runtime.network.engine import Vocabulary


class Work(Message, frozen=True, array_like=True, tag=True, gc=False):
    step: int


class Done(Message, frozen=True, array_like=True, tag=True, gc=False):
    step: int
    total: int


WORDS = Vocabulary((Work, Done, Reward), (Pull,))


@dataclass(frozen=True)
class HubSecrets:
    history: tuple[int, ...]


@dataclass(frozen=True)
class LeafSecrets:
    total: int


class Hub:
    """Asks every leaf in turn for work, `steps` times in all, then one leaf at a time by what it
    answered.
    """

    kind = "hub"

    def __init__(self, leaves: Sequence[str], steps: int) -> None:
        self.name = "hub"
        self._leaves, self._steps = list(leaves), steps
        self.history: list[int] = []

    def start(self) -> Sequence[Action]:
        return (("hub", self._leaves[0], Work(0)),)

    def receive(self, sender: str, message: Message) -> Sequence[Action]:
        if not isinstance(message, Done) or message.step != len(self.history):
            raise ProtocolError("not what the hub waits for.")
        self.history.append(message.total)
        if self.finished:
            return (Note("hub", "total", len(self.history), sum(self.history)),)
        # What comes next depends on all that came before: a reward lost or replaced would show.
        leaf = self._leaves[(sum(self.history) + len(self.history)) % len(self._leaves)]
        return (("hub", leaf, Work(len(self.history))), Note("hub", "step", len(self.history)))

    @property
    def finished(self) -> bool:
        return len(self.history) >= self._steps

    def reveal(self) -> HubSecrets:
        return HubSecrets(tuple(self.history))

    def save(self) -> dict[str, Any]:
        return {"history": list(self.history)}

    def load(self, saved: dict[str, Any]) -> None:
        self.history = list(saved["history"])

    def state(self) -> dict[str, object]:
        return {"step": len(self.history)}


class Leaf:
    """Pulls in the world when asked, and answers with the sum so far; it never knows that the hub
    has finished.
    """

    kind = "leaf"
    finished = True

    def __init__(self, name: str) -> None:
        self.name = name
        self.pulls = self.total = 0
        self._step: int | None = None

    def start(self) -> Sequence[Action]:
        return ()

    def receive(self, sender: str, message: Message) -> Sequence[Action]:
        if isinstance(message, Work) and sender == "hub" and self._step is None:
            self._step = message.step
            return (Pull(self.name, self.pulls),)
        if (
            isinstance(message, Reward)
            and sender == WORLD
            and message.number == self.pulls
            and self._step is not None
        ):
            self.pulls += 1
            self.total += message.units
            step, self._step = self._step, None
            return ((self.name, "hub", Done(step, self.total)),)
        raise ProtocolError("not what a leaf waits for.")

    def reveal(self) -> LeafSecrets:
        return LeafSecrets(self.total)

    def save(self) -> dict[str, Any]:
        return {"pulls": self.pulls, "total": self.total, "step": self._step}

    def load(self, saved: dict[str, Any]) -> None:
        self.pulls, self.total, self._step = saved["pulls"], saved["total"], saved["step"]

    def state(self) -> dict[str, object]:
        return {"pulls": self.pulls}


def reward(pull: Pull) -> Reward:
    """An idempotent source: a function of the party and the number of the pull."""
    return Reward(pull.number, (hash_of(pull.party) + 7 * pull.number * pull.number) % 11)


def hash_of(name: str) -> int:
    return sum(name.encode())


def expected(leaves: Sequence[str], steps: int) -> list[int]:
    """What the hub's history must be."""
    pulls, totals = dict.fromkeys(leaves, 0), dict.fromkeys(leaves, 0)
    history: list[int] = []
    leaf = leaves[0]
    for _ in range(steps):
        totals[leaf] += reward(Pull(leaf, pulls[leaf])).units
        pulls[leaf] += 1
        history.append(totals[leaf])
        leaf = list(leaves)[(sum(history) + len(history)) % len(leaves)]
    return history
