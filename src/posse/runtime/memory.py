"""Roles in one process: step by step or to the end, as an iterator of events.

>>> from posse.runtime.memory import MemoryRun
>>> run = MemoryRun([], world=lambda pull: None)
>>> list(run)
[]
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, NamedTuple

import msgspec
import numpy as np

from posse.core.roles import (
    OPERATOR,
    WORLD,
    Action,
    Ask,
    Entry,
    Message,
    Note,
    Role,
    Send,
    SendMany,
)
from posse.privacy.crypto.keys import CALLS, PRIMITIVES

LATE = 2_000
"""Messages that a saved moment keeps of a run whose first ones are forgotten."""
World = Callable[[Any], Message]
"""Answers what the roles of one protocol ask of the world (their own kind of `Ask`)."""


class Transcript:
    """The last `limit` messages of a run; older ones are forgotten, so its size is bounded."""

    def __init__(self, limit: int, entries: Iterable[Entry] = ()) -> None:
        self._entries: deque[Entry] = deque(entries, limit)
        self.count = 0
        self.truncate: Callable[[Message], Message] | None = None
        """Returns the part of a message to store. The size on the wire stays that of the message."""

    def add(
        self, sender: str, receiver: str, message: Message, size: int = 0, time: int = 0
    ) -> None:
        """Keep one message."""
        if self.truncate is not None:
            message = self.truncate(message)
        self._entries.append(Entry(self.count, sender, receiver, message, size, time))
        self.count += 1

    @property
    def forgotten(self) -> int:
        """How many messages are no longer held."""
        return self.count - len(self._entries)

    def view(self, *parties: str) -> list[Entry]:
        """Return what these parties sent and received: all that they saw of the run."""
        return [
            entry for entry in self._entries if entry.sender in parties or entry.receiver in parties
        ]

    def copy(self) -> Transcript:
        """Return a transcript of its own with the same messages; the last `LATE` where the first
        ones are forgotten.

        Copies of one that holds all messages share them; otherwise each copy would hold others.
        """
        held = len(self._entries)
        first = held - LATE if self.forgotten and held > LATE else 0
        made = Transcript(self._entries.maxlen or 0, islice(self._entries, first, held))
        made.count = self.count
        made.truncate = self.truncate
        return made

    @property
    def entries(self) -> Sequence[Entry]:
        """The messages that are held, in order."""
        return self._entries

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


class Delivery(NamedTuple):
    """One message that was delivered, and what became known with it."""

    sender: str
    receiver: str
    message: Message
    notes: tuple[Note, ...]
    """What is known up to the next message."""
    time: int = 0
    explanation: Mapping[str, Any] | None = None


@dataclass
class Hop:
    """Traffic between two kinds of role."""

    messages: int = 0
    bytes: int = 0


class MemoryRun:
    """Moves messages between roles, first in first out, and carries out their effects.

    Iterating runs to the end and yields events; a caller that stops iterating has paused the run.
    `deliver` moves one message. Between the two, roles can be read (`roles[name].state()`) at any
    time. A `ProtocolError` that a role raises passes through, with that role's state as it was.
    `transcript` keeps the last so many messages; without it, memory does not grow with the length
    of the run.

    An interrupt (Ctrl-C) ends a run: what was done can be read and recorded, but the message that
    was being handled is lost.

    Bytes are the encoded size of each message (msgpack); seconds are this thread's CPU time inside
    each kind of role.

    Without a world, what roles ask of it waits in `asks` until `answer` is called.
    """

    def __init__(self, roles: Iterable[Role], world: World | None, *, transcript: int = 0) -> None:
        self.roles = {role.name: role for role in roles}
        self.asks: dict[int, Ask] = {}
        """What the world outside has not answered yet, by number."""
        self.time = 0
        """Decisions made so far, as the caller counts them; kept with each message of the
        transcript.
        """
        self.transcript = Transcript(transcript) if transcript else None
        self.seconds: dict[str, float] = {role.kind: 0.0 for role in self.roles.values()}
        self.calls: dict[str, list[int]] = {
            role.kind: [0] * len(PRIMITIVES) for role in self.roles.values()
        }
        """Calls of `PRIMITIVES` by each kind of role."""
        self.moved: dict[str, int] = {}
        """Messages by type."""
        self.hops: dict[tuple[str, str], Hop] = {}
        self.world = world
        self._asked = 0
        self._queue: deque[Action] = deque()
        self._encode = msgspec.msgpack.Encoder().encode
        self._last: Send | None = None
        self._started = False

    def __iter__(self) -> Iterator[Note]:
        return self._pump(None)

    def finish(self) -> None:
        """Run to the end."""
        for _ in self:
            pass

    def deliver(self, enough: Callable[[], bool] | None = None) -> Delivery | None:
        """Move one message and carry out what is not a message up to the next one; None when
        nothing is left.

        It stops early where it is `enough`: at a note, or before a message moves.
        """
        notes = []
        for note in self._pump(1, enough):
            notes.append(note)
            if enough is not None and enough():
                break
        return None if self._last is None else Delivery(*self._last, tuple(notes), self.time)

    def crowded(self, count: int) -> bool:
        """Whether about more than so many messages wait to be delivered, judged by the first
        ones.
        """
        first = self._queue[0] if self._queue else None
        return len(self._queue) * (len(first.sends) if isinstance(first, SendMany) else 1) > count

    @property
    def pending(self) -> Sequence[Action]:
        """The actions that wait, the next one first; `take` and `put` change them."""
        return self._queue

    def take(self, place: int = 0) -> Action:
        """Take a waiting action out and return it: it is not carried out."""
        action = self._queue[place]
        del self._queue[place]
        return action

    def put(self, actions: Iterable[Action]) -> None:
        """Let actions wait behind all others, also such as no role asked for."""
        self._queue.extend(actions)

    @property
    def upcoming(self) -> Send | None:
        """The message that moves next, as far as it is known: what the world answers may come
        before it is sent.
        """
        for action in self._queue:
            if isinstance(action, tuple):
                return action
            if isinstance(action, SendMany):
                return action.sends[0]
        return None

    def _pump(self, limit: int | None, enough: Callable[[], bool] | None = None) -> Iterator[Note]:
        """Carry out actions in the order they were asked for, until `limit` messages have moved."""
        self._last = None
        queue = self._queue
        if not self._started:
            self._started = True
            for role in self.roles.values():
                queue.extend(role.start())
        while queue:
            action = queue.popleft()
            match action:
                case tuple():
                    if limit == 0 or (enough is not None and enough()):
                        queue.appendleft(action)
                        return
                    if limit is not None:
                        limit -= 1
                        self._last = action
                    self._move([action])
                case SendMany() if limit is None and self.transcript is None:
                    self._move(action.sends)
                case SendMany():
                    queue.extendleft(reversed(action.sends))
                case Note():
                    yield action
                case _:
                    self._answer(action)

    def _move(self, sends: list[Send]) -> None:
        """Move messages of one type and size to roles of one class.

        When a role refuses one, the messages behind it stay in the queue.
        """
        sender, name, message = sends[0]
        role = self.roles[name]
        rest = iter(sends)
        actions: list[Action] = []
        started, before = time.thread_time(), CALLS.so_far()
        try:
            together = getattr(role, "receive_all", None) if len(sends) > 1 else None
            if together is not None:
                together(self.roles, rest, actions)
            else:
                for each_sender, each_name, each in rest:
                    if self.transcript is not None:
                        self.transcript.add(
                            each_sender, each_name, each, len(self._encode(each)), self.time
                        )
                    actions.extend(self.roles[each_name].receive(each_sender, each))
        finally:
            self._charge(role.kind, started, before)
            left = list(rest)
            self._count(self.roles[sender].kind, role.kind, len(sends) - len(left), message)
            self._queue.extend(actions)
            if left:
                self._queue.extendleft(reversed(left))

    def _charge(self, kind: str, started: float, before: tuple[int, ...]) -> None:
        self.seconds[kind] += time.thread_time() - started
        if (after := CALLS.so_far()) != before:
            self.calls[kind] = [
                own + now - then
                for own, now, then in zip(self.calls[kind], after, before, strict=True)
            ]

    def _count(self, sender: str, receiver: str, moved: int, message: Message) -> None:
        hop = self.hops.setdefault((sender, receiver), Hop())
        hop.messages += moved
        kind = type(message).__name__
        self.moved[kind] = self.moved.get(kind, 0) + moved
        hop.bytes += moved * len(self._encode(message))

    def _answer(self, ask: Ask) -> None:
        """Deliver the world's answer; its time is charged to no role."""
        if self.world is None:
            self._asked += 1
            self.asks[self._asked] = ask
        else:
            self._give(ask, self.world(ask))

    def answer(self, number: int, answer: Message) -> None:
        """Answer for the world outside; an answer that the role refuses leaves the ask open."""
        self._give(self.asks[number], answer)
        del self.asks[number]

    def operate(self, name: str, message: Message) -> None:
        """Give a role what its operator asks for."""
        self._queue.extend(self.roles[name].receive(OPERATOR, message))

    def _give(self, ask: Ask, answer: Message) -> None:
        role = self.roles[ask.party]
        started, before = time.thread_time(), CALLS.so_far()
        try:
            actions = role.receive(WORLD, answer)
        finally:
            self._charge(role.kind, started, before)
        self._queue.extend(actions)
        if self.transcript is not None:
            self.transcript.add(WORLD, ask.party, answer, len(self._encode(answer)), self.time)

    def save(self) -> dict[str, Any]:
        """Return what is needed to come back to this moment, with roles made anew from the same
        arguments.
        """
        return {
            "roles": {name: self._encode(role.save()) for name, role in self.roles.items()},
            "transcript": None if self.transcript is None else self.transcript.copy(),
            "seconds": dict(self.seconds),
            "calls": {kind: list(own) for kind, own in self.calls.items()},
            "moved": dict(self.moved),
            "hops": {hop: replace(traffic) for hop, traffic in self.hops.items()},
            "queue": list(self._queue),
            "asks": dict(self.asks),
            "numbers": (self._asked, self.time, self._started),
        }

    def load(self, saved: Mapping[str, Any], roles: Iterable[Role], world: World | None) -> None:
        """Come back to a saved moment, with the world as it was then."""
        self.world, self.seconds = world, dict(saved["seconds"])
        self.calls, self.moved = (
            {kind: list(own) for kind, own in saved["calls"].items()},
            dict(saved["moved"]),
        )
        self.roles = {role.name: role for role in roles}
        for name, state in saved["roles"].items():
            self.roles[name].load(msgspec.msgpack.decode(state))
        self.transcript = None if saved["transcript"] is None else saved["transcript"].copy()
        self.hops = {hop: replace(traffic) for hop, traffic in saved["hops"].items()}
        self._queue, self.asks = deque(saved["queue"]), dict(saved["asks"])
        self._asked, self.time, self._started = saved["numbers"]


def fork(state: Any) -> Any:
    """Copy the state of a simulation so that the two go on apart: arrays and containers are copied,
    their items shared.

    >>> class World:
    ...     def __init__(self):
    ...         self.pulls = [1, 2]
    >>> world = World()
    >>> fork(world).pulls is world.pulls
    False
    """
    if (
        state is None
        or isinstance(state, str | bytes | int | float | type)
        or callable(getattr(state, "py_func", None))
    ):
        return state
    if isinstance(state, np.ndarray):
        return state.copy()
    if isinstance(state, dict | list | deque | set):
        return state.copy()
    if isinstance(state, tuple):
        parts = [
            fork(part) if isinstance(part, np.ndarray | list | dict) else part for part in state
        ]
        return type(state)(*parts) if hasattr(state, "_fields") else tuple(parts)
    made = copy(state)
    for name, value in getattr(made, "__dict__", {}).items():
        if isinstance(value, np.ndarray | dict | list | deque | set | tuple):
            object.__setattr__(made, name, fork(value))
    return made
