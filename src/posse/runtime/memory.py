"""Roles in one process: step by step or to the end, as an iterator of events.

>>> from posse.runtime.memory import MemoryRun
>>> run = MemoryRun([], world=lambda party, pull: None)
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

World = Callable[[str, Pull], Message]


class Event(NamedTuple):
    """Something a role wants known: who said it, what, at which step, with which value."""

    party: str
    kind: str
    step: int
    value: object


class Delivery(NamedTuple):
    """One message that was delivered, and the events it caused."""

    sender: str
    receiver: str
    message: Message
    events: tuple[Event, ...]


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

    Bytes are the encoded size of each message (msgpack); seconds are this thread's CPU time inside each kind of role.
    """

    def __init__(self, roles: Iterable[Role], world: World, *, transcript: int = 0) -> None:
        self.roles = {role.name: role for role in roles}
        self.transcript = Transcript(transcript) if transcript else None
        self.seconds: dict[str, float] = {role.kind: 0.0 for role in self.roles.values()}
        self.hops: dict[tuple[str, str], Hop] = {}
        self._world = world
        self._queue: deque[tuple[str, Send]] = deque()
        self._encode = msgspec.msgpack.Encoder().encode
        self._started = False

    def __iter__(self) -> Iterator[Event]:
        return self._pump(None)

    def finish(self) -> None:
        """Run to the end."""
        for _ in self:
            pass

    def deliver(self) -> Delivery | None:
        """Move one message; return it, or None when nothing is left to move."""
        self._begin()
        if not self._queue:
            return None
        sender, send = self._queue[0]
        return Delivery(sender, send.to, send.message, tuple(self._pump(1)))

    @property
    def next(self) -> tuple[str, Send] | None:
        """Sender and message that will be moved next."""
        self._begin()
        return self._queue[0] if self._queue else None

    def _begin(self) -> None:
        if not self._started:
            self._started = True
            for name, role in self.roles.items():
                for _ in self._carry_out(name, role, role.start()):
                    pass

    def _pump(self, limit: int | None) -> Iterator[Event]:
        """Move up to `limit` messages.

        Consecutive messages of one type between two kinds of role are accounted together: the clock is read and the
        size of a fixed-size message is computed once for all of them.
        """
        self._begin()
        queue, roles, transcript, clock = self._queue, self.roles, self.transcript, time.thread_time
        kinds = {name: role.kind for name, role in roles.items()}
        left = -1 if limit is None else limit
        hop, kind, said, size = Hop(), "", None, 0
        since = clock()
        try:
            while queue and left:
                left -= 1
                sender, send = queue.popleft()
                name, message = send.to, send.message
                if type(message) is not said or kinds[name] != kind:
                    now = clock()
                    if kind:
                        self.seconds[kind] += now - since
                    since, kind, said = now, kinds[name], type(message)
                    hop = self.hops.setdefault((kinds[sender], kind), Hop())
                    size = len(self._encode(message)) if message.fixed_size else 0
                hop.messages += 1
                hop.bytes += size or len(self._encode(message))
                if transcript is not None:
                    transcript.add(sender, name, message)
                role = roles[name]
                for action in role.receive(sender, message):
                    if type(action) is Send:
                        queue.append((name, action))
                    else:
                        yield from self._carry_out(name, role, (action,))
        finally:
            if kind:
                self.seconds[kind] += clock() - since

    def _carry_out(self, name: str, role: Role, actions: Iterable[Action]) -> Iterator[Event]:
        """Queue messages, answer pulls at once, pass notes on."""
        for action in actions:
            if isinstance(action, Send):
                self._queue.append((name, action))
            elif isinstance(action, Note):
                yield Event(name, action.kind, action.step, action.value)
            else:
                answer = self._world(name, action)
                if self.transcript is not None:
                    self.transcript.add(WORLD, name, answer)
                yield from self._carry_out(name, role, role.receive(WORLD, answer))
