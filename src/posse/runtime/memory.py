"""Roles in one process: step by step or to the end, as an iterator of events.

>>> from posse.runtime.memory import MemoryRun
>>> run = MemoryRun([], world=lambda pull: None)
>>> list(run)
[]
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from posse.core.roles import WORLD, Action, Ask, Many, Message, Note, Role, Send
from posse.runtime.transcript import Transcript

World = Callable[[Any], Message]
"""Answers what the roles of one protocol ask of the world (their own kind of `Ask`)."""


class Delivery(NamedTuple):
    """One message that was delivered, and the events up to the next."""

    sender: str
    receiver: str
    message: Message
    events: tuple[Note, ...]


@dataclass
class Hop:
    """Traffic between two kinds of role."""

    messages: int = 0
    bytes: int = 0


class MemoryRun:
    """Moves messages between roles, first in first out, and carries out their effects.

    Iterating runs to the end and yields events; a caller that stops iterating has paused the run. `deliver` moves one
    message. Between the two, roles can be read (`roles[name].state()`) at any time. A `ProtocolError` that a role
    raises passes through, with that role's state as it was. `transcript` keeps the last so many messages; without it,
    memory does not grow with the length of the run.

    An interrupt (Ctrl-C) ends a run: what was done can be read and recorded, but the message that was being handled is
    lost.

    Bytes are the encoded size of each message (msgpack); seconds are this thread's CPU time inside each kind of role.
    """

    def __init__(self, roles: Iterable[Role], world: World, *, transcript: int = 0) -> None:
        self.roles = {role.name: role for role in roles}
        self.transcript = Transcript(transcript) if transcript else None
        self.seconds: dict[str, float] = {role.kind: 0.0 for role in self.roles.values()}
        self.hops: dict[tuple[str, str], Hop] = {}
        self._world = world
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

    def deliver(self) -> Delivery | None:
        """Move one message and carry out what is not a message up to the next one; None when nothing is left."""
        events = tuple(self._pump(1))
        return None if self._last is None else Delivery(*self._last, events)

    def _pump(self, limit: int | None) -> Iterator[Note]:
        """Carry out actions in the order they were asked for, until `limit` messages have moved."""
        self._last = None
        queue = self._queue
        if not self._started:
            self._started = True
            for role in self.roles.values():
                queue.extend(role.start())
        while queue:
            action = queue.popleft()
            if isinstance(action, tuple):
                if limit == 0:
                    queue.appendleft(action)
                    return
                if limit is not None:
                    limit -= 1
                    self._last = action
                self._move([action])
            elif isinstance(action, Many):
                if limit is None and self.transcript is None:
                    self._move(action.sends)
                else:
                    queue.extendleft(reversed(action.sends))
            elif isinstance(action, Note):
                yield action
            else:
                self._answer(action)

    def _move(self, sends: list[Send]) -> None:
        """Move messages of one type and size to roles of one class.

        When a role refuses one, the messages behind it stay in the queue.
        """
        sender, name, message = sends[0]
        role = self.roles[name]
        rest = iter(sends)
        asked: list[Action] = []
        started = time.thread_time()
        try:
            together = getattr(role, "receive_all", None) if len(sends) > 1 else None
            if together is not None:
                together(self.roles, rest, asked)
            else:
                for each_sender, each_name, each in rest:
                    if self.transcript is not None:
                        self.transcript.add(each_sender, each_name, each)
                    asked.extend(self.roles[each_name].receive(each_sender, each))
        finally:
            self.seconds[role.kind] += time.thread_time() - started
            left = list(rest)
            self._count(self.roles[sender].kind, role.kind, len(sends) - len(left), message)
            self._queue.extend(asked)
            if left:
                self._queue.extendleft(reversed(left))

    def _count(self, sender: str, receiver: str, moved: int, message: Message) -> None:
        hop = self.hops.get((sender, receiver))
        if hop is None:
            hop = self.hops[sender, receiver] = Hop()
        hop.messages += moved
        hop.bytes += moved * len(self._encode(message))

    def _answer(self, ask: Ask) -> None:
        """Let the world answer, whose time is nobody's, and give the answer to who asked."""
        answer = self._world(ask)
        if self.transcript is not None:
            self.transcript.add(WORLD, ask.party, answer)
        role = self.roles[ask.party]
        started = time.thread_time()
        try:
            self._queue.extend(role.receive(WORLD, answer))
        finally:
            self.seconds[role.kind] += time.thread_time() - started
