"""Roles are sans-IO: a role takes a message and returns what it wants done.

A role opens no socket, reads no clock and starts no loop. It returns messages for other parties and
*effects*: things it cannot do by itself (pull an arm in the world) or wants known (a step is over).
A runtime moves the messages, carries out the effects and hands their answers back, so one
implementation of a role runs in memory, in processes, over a network, one message at a time, and
under injected faults.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol, TypeAlias

import msgspec

WORLD = "world"
"""The sender of an effect's answer."""
OPERATOR = "operator"
"""The sender of what a party's own operator asks for."""
DURABLE = "durable"
"""Kind of a note that asks the runtime to have everything taken in on the disk before what follows
leaves: for what depends on the order in which messages of different parties came.
"""


class Message(msgspec.Struct, frozen=True, array_like=True, tag="Message", gc=False):
    """What travels between parties; encoded as a tagged msgpack array."""


Send: TypeAlias = tuple[str, str, Message]
"""Sender, receiver, message."""


class Many(msgspec.Struct, frozen=True, gc=False):
    """Messages asked for together: of one type and one encoded size, to roles of one class."""

    sends: list[Send]


class Ask(msgspec.Struct, frozen=True, array_like=True, tag="Ask", gc=False):
    """Effect: what only the world can answer; its answer goes to the party that asks."""

    awaits: ClassVar[str] = "a reward"
    party: str


class Pull(Ask, frozen=True, array_like=True, tag="Pull", gc=False):
    """Pull an owner's arm for the `number`-th time (from 0); the world answers with a `Reward`."""

    number: int


class Reward(Message, frozen=True, array_like=True, tag="Reward", gc=False):
    """The world's answer to a `Pull`, in units of 2^-24."""

    number: int
    units: int


class Note(msgspec.Struct, frozen=True, gc=False):
    """Effect: something an operator may know: the step that ended, or the end of the run with its
    result.
    """

    party: str
    kind: str
    step: int
    value: object = None


Action: TypeAlias = Send | Many | Ask | Note


class Entry(NamedTuple):
    """One message that moved: what was sent, how large it was on the wire, and when."""

    number: int
    sender: str
    receiver: str
    message: Message
    size: int = 0
    """Bytes of the encoded message."""
    time: int = 0
    """Decisions made before it moved."""


@dataclass(frozen=True)
class View:
    """What some parties together saw of a run: all that an adversary who holds them knows."""

    parties: tuple[str, ...]
    entries: Sequence[Entry]
    """Messages that one of them sent or received, in order; the world's answers come from
    `WORLD`.
    """
    secrets: Mapping[str, Mapping[str, Any]]
    """Each party's own state with its secrets (`Role.save`)."""
    public: Mapping[str, Any]
    """The terms that everybody knows."""
    forgotten: int = 0
    """Messages of the run that are no longer held, where only the last ones are kept."""


class Role(Protocol):
    """One party's part of a protocol.

    A role is deterministic: made with the same arguments and given the same messages, it is in the
    same state and returns actions that mean the same. They may differ in bytes that nobody depends
    on (nonces, encapsulations, signatures, the randomness of a ciphertext). So a runtime restores a
    party by loading its last snapshot and giving it again what came after.
    """

    @property
    def name(self) -> str:
        """The party's name, unique in its federation."""

    @property
    def kind(self) -> str:
        """The part it plays: owner, controller, comp, customer, ..."""

    def start(self) -> Sequence[Action]:
        """Return what the party does before it has received anything."""

    def receive(self, sender: str, message: Message) -> Sequence[Action]:
        """Take one message; raise `ProtocolError`, with the state as it was, if the protocol does
        not allow it.

        Raise `EarlyError` if it would be allowed after messages of other parties. Only then is it
        held for a party that lost power and has not met all its peers again. It matters for senders
        that need no message of this party to go on: a connection to any other sender shows by
        itself that this party is behind.
        """

    # A role may also have `brings` (a message): what may change while the run goes on, such as a
    # price list. The operator's new one comes by `receive`, also before the start.

    # A class of roles may also have `receive_all(roles, sends, asked)`: take these messages one
    # after the other, as `receive` of each would, and append what they ask for. Runtimes that hold
    # many roles in one process use it.

    @property
    def finished(self) -> bool:
        """Whether its part is over: it waits for nothing and will ask for nothing."""

    def state(self) -> dict[str, object]:
        """Return what an operator standing at this party may see; never keys, masks, tokens or
        seeds.

        `step` of `horizon` says how far the run is and `unit` what they count ("pull", "round"),
        where the role knows.
        """

    def save(self) -> dict[str, Any]:
        """Return the whole state, without what derives from the role's arguments; keep it as secret
        as the arguments.

        Plain values that msgpack can encode: None, bool, int in [-2^63, 2^64), float, str, bytes,
        list and dict with str keys. Roles in the same state save equal values.
        """

    def load(self, saved: Mapping[str, Any]) -> None:
        """Take up what `save` returned, also after a way through msgpack.

        A role just made with the same arguments then behaves as the one that saved. Raises
        `JournalError` on what another party, kind or run saved, or what is damaged; a role that
        raised must not be used.
        """
