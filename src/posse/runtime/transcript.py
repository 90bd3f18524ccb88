"""What moved: the list of messages, and each role's view as a filter on it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from posse.core.roles import Message


class Entry(NamedTuple):
    """One message that moved."""

    number: int
    sender: str
    receiver: str
    message: Message


class Transcript:
    """The last `limit` messages of a run; older ones are forgotten, so its size is bounded."""

    def __init__(self, limit: int) -> None:
        self._entries: deque[Entry] = deque(maxlen=limit)
        self._count = 0

    def add(self, sender: str, receiver: str, message: Message) -> None:
        """Keep one message."""
        self._entries.append(Entry(self._count, sender, receiver, message))
        self._count += 1

    @property
    def forgotten(self) -> int:
        """How many messages are no longer held."""
        return self._count - len(self._entries)

    def view(self, party: str) -> list[Entry]:
        """Return what a party sent and received: all that it saw of the run."""
        return [entry for entry in self._entries if party in (entry.sender, entry.receiver)]

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)
