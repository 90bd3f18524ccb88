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
from typing import NamedTuple

import msgspec

from posse.core.roles import WORLD, Action, Message, Note, Pull, Role, Send
from posse.runtime.transcript import Transcript

World = Callable[[Pull], Message]


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
        """Carry out actions in the order they were asked for, until `limit` messages have moved.

        Consecutive messages of one fixed-size type go to one kind of role and are accounted together: the clock is
        read and the size computed once for all.
        """
        self._last = None
        queue, transcript = self._queue, self.transcript
        if not self._started:
            self._started = True
            for role in self.roles.values():
                queue.extend(role.start())
        receivers = {name: role.receive for name, role in self.roles.items()}
        careful = limit is not None or transcript is not None
        stretch = _Stretch(self.roles, self.seconds, self.hops)
        alike: type[Message] | None = None
        moved = 0
        try:
            while queue:
                action = queue.popleft()
                if type(action) is tuple:
                    sender, name, message = action
                    if careful:
                        if limit == 0:
                            queue.appendleft(action)
                            return
                        if limit is not None:
                            limit -= 1
                            self._last = action
                        if transcript is not None:
                            transcript.add(sender, name, message)
                    if type(message) is not alike:
                        stretch.end(moved)
                        moved = 0
                        alike = stretch.begin(sender, name, message)
                    moved += 1
                    queue.extend(receivers[name](sender, message))
                    continue
                # The clocks of roles stand still while the world pulls and while a caller reads an event.
                stretch.end(moved)
                moved, alike = 0, None
                if isinstance(action, Note):
                    yield action
                elif isinstance(action, Pull):
                    reward = self._world(action)
                    if transcript is not None:
                        transcript.add(WORLD, action.owner, reward)
                    started = time.thread_time()
                    queue.extend(receivers[action.owner](WORLD, reward))
                    self.seconds[self.roles[action.owner].kind] += time.thread_time() - started
        finally:
            stretch.end(moved)


class _Stretch:
    """Time and traffic of consecutive messages of one type to one kind of role."""

    def __init__(self, roles: dict[str, Role], seconds: dict[str, float], hops: dict[tuple[str, str], Hop]) -> None:
        self._roles, self._seconds, self._hops = roles, seconds, hops
        self._encode = msgspec.msgpack.Encoder().encode
        self._hop: tuple[str, str] | None = None
        self._since = 0.0
        self._size = 0

    def begin(self, sender: str, receiver: str, message: Message) -> type[Message] | None:
        """Start a stretch with this message; return its type if more of it can follow in the stretch."""
        self._hop = (self._roles[sender].kind, self._roles[receiver].kind)
        self._size = len(self._encode(message))
        self._since = time.thread_time()
        return type(message) if message.fixed_size else None

    def end(self, moved: int) -> None:
        """Account for a stretch of so many messages."""
        if self._hop is None:
            return
        self._seconds[self._hop[1]] += time.thread_time() - self._since
        traffic = self._hops.setdefault(self._hop, Hop())
        traffic.messages += moved
        traffic.bytes += moved * self._size
        self._hop = None
