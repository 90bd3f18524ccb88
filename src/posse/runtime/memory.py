"""Roles in one process: step by step or to the end, as an iterator of events.

>>> from posse.runtime.memory import MemoryRun
>>> run = MemoryRun([], world=lambda party, pull: None)
>>> list(run)
[]
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from posse.core.roles import WORLD, Action, Message, Note, Pull, Role
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
        self._queue: deque[tuple[str, Sequence[Action]]] = deque()
        self._last: tuple[str, str, Message] | None = None
        self._moved = 0
        self._encode = msgspec.msgpack.Encoder().encode
        self._started = False

    def __iter__(self) -> Iterator[Event]:
        return self._pump(None)

    def finish(self) -> None:
        """Run to the end."""
        for _ in self:
            pass

    def deliver(self) -> Delivery | None:
        """Carry out actions until one message has moved; return it, or None when nothing is left to do."""
        before = self._moved
        events = tuple(self._pump(1))
        return Delivery(*self._last, events) if self._moved > before else None  # type: ignore[misc]

    def _begin(self) -> None:
        if not self._started:
            self._started = True
            self._queue.extend((name, actions) for name, role in self.roles.items() if (actions := role.start()))

    def _pump(self, limit: int | None) -> Iterator[Event]:
        """Carry out actions in the order they were asked for, until `limit` messages have moved.

        Consecutive messages of one type between two kinds of role are accounted together: the clock is read and the
        size of a fixed-size message is computed once for all of them.
        """
        self._begin()
        queue, transcript, encode = self._queue, self.transcript, self._encode
        parties = {name: (role.receive, role.kind) for name, role in self.roles.items()}
        account = _Account(self.seconds, self.hops)
        said, kind, size = Message, "", 0
        moved = weight = 0
        sender, rest = "", iter(())
        try:
            while queue:
                sender, actions = queue.popleft()
                rest = iter(actions)
                for action in rest:
                    if type(action) is tuple:
                        name, message = action
                        receive, receiver = parties[name]
                        if type(message) is not said or receiver != kind:
                            account.close(moved, weight + moved * size)
                            moved = weight = 0
                            said, kind = type(message), receiver
                            size = len(encode(message)) if message.fixed_size else 0
                            account.open(parties[sender][1], kind)
                        moved += 1
                        if not size:
                            weight += len(encode(message))
                        if transcript is not None:
                            transcript.add(sender, name, message)
                        answer = receive(sender, message)
                        if answer:
                            queue.append((name, answer))
                        if limit is not None:
                            self._last = (sender, name, message)
                            limit -= 1
                            if not limit:
                                return
                    elif isinstance(action, Note):
                        yield Event(sender, action.kind, action.step, action.value)
                    elif isinstance(action, Pull):
                        reward = self._world(sender, action)
                        if transcript is not None:
                            transcript.add(WORLD, sender, reward)
                        answer = self.roles[sender].receive(WORLD, reward)
                        if answer:
                            queue.append((sender, answer))
        finally:
            # A caller that pauses, an error or an interrupt leaves the other actions of this turn for later.
            left = tuple(rest)
            if left:
                queue.appendleft((sender, left))
            account.close(moved, weight + moved * size)
            self._moved += 1 if limit == 0 else 0


class _Account:
    """Time and traffic of a stretch of messages on one hop."""

    def __init__(self, seconds: dict[str, float], hops: dict[tuple[str, str], Hop]) -> None:
        self._seconds, self._hops = seconds, hops
        self._key: tuple[str, str] | None = None
        self._since = 0.0

    def open(self, sender: str, receiver: str) -> None:
        self._key = (sender, receiver)
        self._since = time.thread_time()

    def close(self, messages: int, size: int) -> None:
        if self._key is None:
            return
        self._seconds[self._key[1]] += time.thread_time() - self._since
        hop = self._hops.setdefault(self._key, Hop())
        hop.messages += messages
        hop.bytes += size
        self._key = None
