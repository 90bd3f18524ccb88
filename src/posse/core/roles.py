"""Roles are sans-IO: a role takes a message and returns what it wants done.

A role opens no socket, reads no clock and starts no loop. It returns messages for other parties and
*effects*: requests to the world (pull an arm) and notes for its operator (a step is over). A runtime
moves the messages, carries out the effects and returns their answers. So one implementation of a
role runs in memory, in processes, over a network, one message at a time, and under injected faults.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, NoReturn, Protocol, TypeAlias

import msgspec

from posse.core.errors import ProtocolError

WORLD = "world"
"""The sender of an effect's answer."""
OPERATOR = "operator"
"""The sender of requests of a party's own operator."""
DURABLE = "durable"
"""Kind of a note: what follows must not be sent before all received messages are on the disk.

For messages that depend on the order in which messages of different parties came.
"""


class Message(msgspec.Struct, frozen=True, array_like=True, tag="Message", gc=False):
    """What travels between parties; encoded as a tagged msgpack array."""


Send: TypeAlias = tuple[str, str, Message]
"""Sender, receiver, message."""


class Many(msgspec.Struct, frozen=True, gc=False):
    """Messages sent together: of one type and one encoded size, to roles of one class."""

    sends: list[Send]


class Ask(msgspec.Struct, frozen=True, array_like=True, tag="Ask", gc=False):
    """Effect: a request that only the world can answer; the answer goes to the party that asks."""

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
    """Effect: what an operator may know, such as the end of a step or the result of the run."""

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
    """What some parties together saw of a run: all that an adversary who controls them knows."""

    parties: tuple[str, ...]
    entries: Sequence[Entry]
    """Messages that one of them sent or received, in order; `WORLD` sends the world's answers."""
    secrets: Mapping[str, Mapping[str, Any]]
    """Each party's own state with its secrets (`Role.save`)."""
    public: Mapping[str, Any]
    """The terms that everybody knows."""
    forgotten: int = 0
    """Messages of the run that are no longer stored, if only the last ones are."""


class Role(Protocol):
    """One party's part of a protocol.

    A role is deterministic: with the same arguments and messages it reaches the same state and
    returns equivalent actions. They may differ in bytes that no party depends on (nonces,
    encapsulations, signatures, the randomness of a ciphertext). So a runtime restores a party by
    loading its last snapshot and replaying what came after.
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
        """Take one message, and return what to do.

        Raises:
            ProtocolError: The protocol does not allow it; the state is as it was.
            EarlyError: It would be allowed after messages of other parties. The runtime then stores
                it for a party that lost power and has not met all its peers again. This matters for
                senders that need no message of this party to continue: a connection to any other
                sender shows that this party is behind.
        """

    # A role may also have `brings` (a message): data that may change during the run, such as a
    # price list. The operator's new one comes through `receive`, also before the start.

    # A class of roles may also have `receive_all(roles, sends, asked)`: take these messages one
    # after the other, as `receive` of each would, and append their actions. Runtimes with many
    # roles in one process use it.

    @property
    def finished(self) -> bool:
        """Whether its part is over: it waits for no message and will send none."""

    def state(self) -> dict[str, object]:
        """Return what an operator of this party may see: never keys, masks, tokens or seeds.

        `step`, `horizon` and `unit` ("pull", "round") are how far the run is, if the role knows.
        """

    def reveal(self) -> object:
        """Return what this role holds and hides, for drawings and attacks in simulations.

        Each role returns its own frozen dataclass. It may refer to the role's own state: read
        it, and do not change it. Nothing else reads private attributes of a role.

        Raises:
            ProtocolError: The role is in a deployed party (`forbid_reveal`).
        """

    def save(self) -> dict[str, Any]:
        """Return the whole state, without what follows from the role's arguments.

        It is as secret as the arguments. It consists of plain values that msgpack can encode: None,
        bool, int in [-2^63, 2^64), float, str, bytes, list and dict with str keys. Roles in the
        same state save equal values.
        """

    def load(self, saved: Mapping[str, Any]) -> None:
        """Restore what `save` returned, also after msgpack encoded and decoded it.

        A new role with the same arguments then behaves as the one that saved.

        Raises:
            JournalError: It was saved by another party, kind or run, or is damaged. The role must
                not be used afterwards.
        """


def forbid_reveal(role: Role) -> None:
    """Let `reveal` of this role raise from now on; whatever deploys a role calls this first."""

    def refuse() -> NoReturn:
        raise ProtocolError(
            f"'{role.name}' is in a deployed party, which reveals nothing. Simulate the run to see "
            "what its roles hold.",
            rule="core.reveal.deployed",
        )

    role.reveal = refuse  # type: ignore[method-assign]
