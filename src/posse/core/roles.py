"""Roles are sans-IO: a role takes a message and returns what it wants done.

A role opens no socket, reads no clock and starts no loop. It returns messages for other parties and *effects*: things
it cannot do by itself (pull an arm in the world) or wants known (a step is over). A runtime moves the messages,
carries out the effects and hands their answers back, so one implementation of a role runs in memory, in processes,
over a network, one message at a time, and under injected faults.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias

import msgspec

WORLD = "world"
"""The sender of an effect's answer."""


class Message(msgspec.Struct, frozen=True, array_like=True, tag=True, gc=False):
    """What travels between parties; encoded as a tagged msgpack array."""


Send: TypeAlias = tuple[str, str, Message]
"""Sender, receiver, message."""


class Many(msgspec.Struct, frozen=True, gc=False):
    """Messages asked for together: of one type and one encoded size, to roles of one class."""

    sends: list[Send]


class Ask(msgspec.Struct, frozen=True, gc=False):
    """Effect: what only the world can answer; its answer goes to the party that asks."""

    party: str


class Pull(Ask, frozen=True, gc=False):
    """Pull an owner's arm for the `number`-th time (from 0); the world answers with a `Reward`."""

    number: int


class Reward(Message, frozen=True, array_like=True, tag=True, gc=False):
    """The world's answer to a `Pull`, in units of 2^-24."""

    number: int
    units: int


class Note(msgspec.Struct, frozen=True, gc=False):
    """Effect: something an operator may know: the step that ended, or the end of the run with its result."""

    party: str
    kind: str
    step: int
    value: object = None


Action: TypeAlias = Send | Many | Ask | Note


class Role(Protocol):
    """One party's part of a protocol."""

    @property
    def name(self) -> str:
        """The party's name, unique in its federation."""

    @property
    def kind(self) -> str:
        """The part it plays: owner, controller, comp, customer, ..."""

    def start(self) -> Sequence[Action]:
        """Return what the party does before it has received anything."""

    def receive(self, sender: str, message: Message) -> Sequence[Action]:
        """Take one message; raise `ProtocolError`, with the state as it was, if the protocol does not allow it."""

    # A class of roles may also have `receive_all(roles, sends, asked)`: take these messages one after the other, as
    # `receive` of each would, and append what they ask for. Runtimes that hold many roles in one process use it.

    def state(self) -> dict[str, object]:
        """Return what an operator standing at this party may see; never keys, masks, tokens or seeds."""
