"""A link: messages from one party to another, in order, each once, whatever happens to the
connection.

Messages on a link are numbered from 1. A sender keeps each one until the receiver has it *on disk*;
a connection begins with both saying what they have, and the sender goes on from there. What comes
twice is dropped; a gap breaks the connection, and the next one mends it.

A party whose machine dies may find that a peer has messages which it does not remember sending. It
takes in again what its peers have kept for it, and comes to send the same messages under the same
numbers; until then it is *behind*. So what a role sends on a link must not depend on the order in
which messages of different peers arrive. What cannot be mended is a party that needs a message
which its peer has forgotten: the peer knew that it was on disk, so a journal was set back to an
older copy.
"""

from __future__ import annotations

from collections import deque

from posse.core.errors import LinkError, ProtocolError

LARGEST_HELD = 8 << 20
"""Bytes that are held for a peer while this party is behind; more is left with the peer."""
MOST_EARLY, LARGEST_EARLY = 64, 1 << 20
"""Messages, and their bytes, that are held for a peer before it is known whether this party is
behind.
"""


class GapError(LinkError):
    """A message is missing on a connection: the next connection brings it."""


class BehindError(ProtocolError):
    """A party is behind, and cannot say anything new before it has said again what it forgot."""


class Link:
    """One party's end of a link to a peer; sans-IO."""

    __slots__ = (
        "_kept",
        "bytes_received",
        "bytes_sent",
        "durable",
        "durable_there",
        "held",
        "met",
        "peer",
        "received",
        "sent",
        "unsent",
    )

    def __init__(self, peer: str) -> None:
        self.peer = peer
        self.sent = 0
        """Number of the last message to the peer."""
        self.received = 0
        """Number of the last message from the peer that was taken in."""
        self.durable = 0
        """The same, of those that the peer may know to be on this disk."""
        self.durable_there = 0
        """Number of the last message that is on the peer's disk, of those that this party remembers
        sending.
        """
        self.unsent = 1
        """Number of the next message to put on the present connection."""
        self.bytes_sent = self.bytes_received = 0
        """Bytes of the encoded messages, each counted once however often it travels."""
        self.held: deque[bytes] = deque()
        """Messages that have arrived and cannot be taken in yet, in order (see `Engine`)."""
        self.met = False
        """Whether the peer has connected in this life of the party: before, it is not known which
        of them is behind.
        """
        self._kept: deque[bytes] = deque()

    @property
    def behind(self) -> bool:
        """Whether the peer has messages of this party that it does not remember sending."""
        return self.unsent > self.sent + 1

    @property
    def crowded(self) -> bool:
        """Whether as much is held as may be before it is known whether this party is behind."""
        return len(self.held) >= MOST_EARLY or sum(map(len, self.held)) >= LARGEST_EARLY

    @property
    def last(self) -> bytes:
        """The message that was sent last, of those that are kept."""
        return self._kept[-1]

    @property
    def waiting(self) -> bool:
        """Whether there are messages that the present connection has not carried."""
        return self.unsent <= self.sent

    def send(self, body: bytes) -> None:
        """Take a message to the peer."""
        self.sent += 1
        self.bytes_sent += len(body)
        self._kept.append(body)

    def took(self, number: int, body: bytes) -> None:
        """Count a message that was taken in, or refused (then without its body)."""
        self.received = number
        self.bytes_received += len(body)

    def take(self, number: int) -> bool:
        """Return whether an arriving message is the next one; one that was here before is
        dropped.
        """
        here = self.received + len(self.held)
        if number <= here:
            return False
        if number != here + 1:
            raise GapError(
                f"'{self.peer}' sent message {number} where {here + 1} was next; connect again."
            )
        if self.held and sum(map(len, self.held)) > LARGEST_HELD:
            raise GapError(
                f"'{self.peer}' sent more than can be held while others are awaited; connect again."
            )
        return True

    def acknowledged(self, durable: int) -> None:
        """Forget what is on the peer's disk; it cannot have what the present connection has not
        carried.
        """
        if durable >= self.unsent:
            raise LinkError(
                f"'{self.peer}' confirmed message {durable}, and only {self.unsent - 1} were sent "
                "to it."
            )
        for _ in range(min(durable, self.sent) - self.durable_there):
            self._kept.popleft()
            self.durable_there += 1

    def connected(self, received: int, durable: int) -> None:
        """Begin a connection: the peer has taken in `received` messages and has `durable` of them
        on disk.
        """
        if durable < self.durable_there or received < durable:
            raise LinkError(
                f"'{self.peer}' has {durable} messages of this party on its disk, and had "
                f"{self.durable_there} before: "
                "its journal was set back to an older copy, or deleted. Put the newest one back, "
                "or end the run "
                "without it."
            )
        self.unsent = received + 1
        self.acknowledged(durable)
        self.held.clear()  # they come again
        self.met = True

    def outgoing(self, most: int = 256) -> list[tuple[int, bytes]]:
        """Return the messages that the present connection has not carried yet, and count them as
        carried.
        """
        first, last = self.unsent, min(self.sent, self.unsent + most - 1)
        if last < first:
            return []
        self.unsent = last + 1
        offset = first - self.durable_there - 1
        if first == last:
            return [(first, self._kept[offset])]
        return [(number, self._kept[offset + i]) for i, number in enumerate(range(first, last + 1))]

    def save(self) -> tuple[int, int, int, list[bytes], int, int]:
        """Return what a snapshot keeps."""
        return (
            self.sent,
            self.received,
            self.durable_there,
            list(self._kept),
            self.bytes_sent,
            self.bytes_received,
        )

    def load(
        self,
        sent: int,
        received: int,
        durable_there: int,
        kept: list[bytes],
        bytes_sent: int,
        bytes_received: int,
    ) -> None:
        """Take up what a snapshot kept; everything in it is on disk."""
        if sent - durable_there != len(kept):
            raise LinkError(
                f"the snapshot of the link to '{self.peer}' does not add up. Restore the folder "
                "from a copy."
            )
        self.sent, self.received, self.durable, self.durable_there = (
            sent,
            received,
            received,
            durable_there,
        )
        self._kept, self.unsent = deque(kept), durable_there + 1
        self.bytes_sent, self.bytes_received = bytes_sent, bytes_received
