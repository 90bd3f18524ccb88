"""A toy federation: a caller asks its workers for a pull, round after round."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from posse.core.errors import ProtocolError
from posse.core.roles import WORLD, Action, Message, Note, Pull, Reward, SendMany
from posse.runtime.memory import MemoryRun

WORKERS = ("ann", "bob", "cyd")
ROUNDS = 4


class Ask(Message, frozen=True, array_like=True, tag=True, gc=False):
    """A question; every one of a round has the same size."""

    round: int


class Answer(Message, frozen=True, array_like=True, tag=True, gc=False):
    """An answer; sizes differ."""

    round: int
    text: bytes


class Caller:
    """Asks everyone, waits for all, says that the round is over, and asks again."""

    name = kind = "caller"

    def __init__(self, rounds: int = ROUNDS) -> None:
        self.rounds = rounds
        self.round = 0
        self.heard: list[tuple[str, bytes]] = []
        self.awaited = set(WORKERS)

    def start(self) -> Sequence[Action]:
        return self._ask()

    def _ask(self) -> list[Action]:
        self.awaited = set(WORKERS)
        return [SendMany([(self.name, worker, Ask(self.round)) for worker in WORKERS])]

    def receive(self, sender: str, message: Message) -> Sequence[Action]:
        if not isinstance(message, Answer) or sender not in self.awaited:
            raise ProtocolError(
                f"expected an answer, got a {type(message).__name__} from '{sender}'."
            )
        self.awaited.remove(sender)
        self.heard.append((sender, message.text))
        if self.awaited:
            return ()
        self.round += 1
        over = Note(self.name, "round", self.round)
        if self.round == self.rounds:
            return (over, Note(self.name, "end", self.round, len(self.heard)))
        return (over, *self._ask())

    def state(self) -> dict[str, object]:
        return {"round": self.round, "heard": len(self.heard)}


class Worker:
    """Pulls when asked, and answers with as many bytes as it was paid units."""

    kind = "worker"

    def __init__(self, name: str, work: Callable[[str, int], None] | None = None) -> None:
        self.name = name
        self.pulls = 0
        self.work = work

    def start(self) -> Sequence[Action]:
        return ()

    def receive(self, sender: str, message: Message) -> Sequence[Action]:
        if isinstance(message, Ask):
            if self.work is not None:
                self.work(self.name, message.round)
            return (Pull(self.name, self.pulls),)
        if isinstance(message, Reward) and sender == WORLD:
            self.pulls += 1
            return ((self.name, "caller", Answer(message.number, bytes(message.units))),)
        raise ProtocolError(f"a worker does not take a {type(message).__name__}.")

    def state(self) -> dict[str, object]:
        return {"pulls": self.pulls}


def world(pull: Pull) -> Reward:
    """Pay by name and number, so that answers and their sizes differ."""
    return Reward(pull.number, (WORKERS.index(pull.party) * 10 + pull.number) % 256)


def toy(
    transcript: int = 0, rounds: int = ROUNDS, work: Callable[[str, int], None] | None = None
) -> tuple[MemoryRun, Caller]:
    caller = Caller(rounds)
    run = MemoryRun(
        [caller, *(Worker(name, work) for name in WORKERS)], world, transcript=transcript
    )
    return run, caller


def burn(seconds: float) -> None:
    """Spend this thread's processor time."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass
