"""Roles: the part of each party in a protocol. A role takes a message and returns actions.

A role opens no socket, reads no clock and starts no loop. Its actions are messages for other
parties and *effects*: requests to the world (`Ask`: pull an arm) and notes for its operator
(`Note`: a step is over). A runtime delivers the messages, carries out the effects, and delivers the
world's answers. So one implementation of a role runs in memory, in processes, over a network, one
message at a time, and with injected faults.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, NoReturn, Protocol, TypeAlias

import msgspec

from posse.core.errors import ProtocolError

WORLD = "world"
"""Name of the sender of the world's answers. The world pays rewards; it is no party."""
OPERATOR = "operator"
"""Name of the sender of requests of a party's own operator: the person who runs the party."""
DURABLE = "durable"
"""Kind of a note: first store all received messages on the disk, then send the messages after it.

A role needs this note before messages that depend on the order in which messages of different
parties arrived.
"""


class Message(msgspec.Struct, frozen=True, array_like=True, tag="Message", gc=False):
    """What one party sends to another; encoded as a tagged msgpack array."""


Send: TypeAlias = tuple[str, str, Message]
"""Sender, receiver and message."""


class Many(msgspec.Struct, frozen=True, gc=False):
    """Action: send many messages of one type and encoded size. All receivers are of one class."""

    sends: list[Send]


class Ask(msgspec.Struct, frozen=True, array_like=True, tag="Ask", gc=False):
    """Effect: a request that only the world can answer; the answer goes to the party that asks."""

    awaits: ClassVar[str] = "a reward"
    """What the party waits for, in words."""
    party: str
    """The party that asks."""


class Pull(Ask, frozen=True, array_like=True, tag="Pull", gc=False):
    """Pull an owner's arm for the `number`-th time (from 0); the world answers with a `Reward`."""

    number: int


class Reward(Message, frozen=True, array_like=True, tag="Reward", gc=False):
    """The world's answer to a `Pull`."""

    number: int
    """The `number` of that `Pull`."""
    units: int
    """The reward, in units of 2^-24 (`posse.core.fixed`)."""


class Note(msgspec.Struct, frozen=True, gc=False):
    """Effect: what an operator may know, such as the end of a step or the result of the run."""

    party: str
    """The party whose operator may know it."""
    kind: str
    """What happened, in one word."""
    step: int
    value: object = None
    """Details; their type depends on `kind`."""


Action: TypeAlias = Send | Many | Ask | Note


class Entry(NamedTuple):
    """A message that was delivered, with its size and its time: one entry of a transcript."""

    number: int
    """Position of the message among all messages of the run, from 0."""
    sender: str
    receiver: str
    message: Message
    size: int = 0
    """Bytes of the encoded message."""
    time: int = 0
    """Number of decisions that were made before the message was delivered."""


@dataclass(frozen=True)
class View:
    """What some parties together saw of a run: the knowledge of an adversary who controls them."""

    parties: tuple[str, ...]
    entries: Sequence[Entry]
    """Messages that one of these parties sent or received, in order, with the world's answers."""
    secrets: Mapping[str, Mapping[str, Any]]
    """Each party's own state with its secrets (`Role.save`)."""
    public: Mapping[str, Any]
    """The terms that everybody knows."""
    forgotten: int = 0
    """Number of the first messages that are missing, because the transcript was full."""


class Role(Protocol):
    """One party's part of a protocol.

    A role is deterministic: with the same arguments and messages it reaches the same state and
    returns equivalent actions. They may differ in bytes that no party depends on (nonces,
    encapsulations, signatures, the randomness of a ciphertext). So a runtime can restore a party:
    it loads the party's last snapshot, and delivers the messages that came after it again.
    """

    @property
    def name(self) -> str:
        """The party's name, unique in its federation."""

    @property
    def kind(self) -> str:
        """The kind of role: owner, controller, comp, customer, ..."""

    def start(self) -> Sequence[Action]:
        """Return what the party does before it has received anything."""

    def receive(self, sender: str, message: Message) -> Sequence[Action]:
        """Take one message, and return the actions that follow.

        Raises:
            ProtocolError: The protocol does not allow the message; the state has not changed.
            EarlyError: The message is allowed only after messages of other parties. The runtime
                stores the message for later. This happens after a party lost power: some peers
                continue to send before all peers have sent the lost messages again.
        """

    # A role may also have `brings`, a message with data that may change during the run, such as a
    # price list. Its operator's new data come through `receive`, also before the start.

    # A class of roles may also have `receive_all(roles, sends, asked)`, for runtimes with many
    # roles in one process. It does what `receive` of each role would do with these messages, one
    # after the other, and appends the actions.

    @property
    def finished(self) -> bool:
        """Whether the role's part is over: it waits for no message and will send none."""

    def state(self) -> dict[str, object]:
        """Return what the operator of this party may see, such as its sum of rewards.

        It never has keys, masks, tokens or seeds; `save` and `reveal` return those. Status pages
        and the studio show it as names and values. If the role knows how far the run is, it has the
        names `step`, `horizon` and `unit` ("pull", "round").
        """

    def reveal(self) -> object:
        """Return the private state of this role, for drawings and attacks in simulations.

        They use this instead of the role's private attributes. Each class of roles has its own
        frozen dataclass for this state. It may share objects with the role: do not change them.

        Raises:
            ProtocolError: The role is in a deployed party (`forbid_reveal`).
        """

    def save(self) -> dict[str, Any]:
        """Return the whole state for `load`, without what follows from the role's arguments.

        The state is as secret as the arguments. It consists of plain values that msgpack can
        encode: None, bool, int in [-2^63, 2^64), float, str, bytes, list and dict with str keys.
        Roles in the same state save equal values.
        """

    def load(self, saved: Mapping[str, Any]) -> None:
        """Restore a state that `save` returned; it may have been stored with msgpack.

        A new role with the same arguments then behaves as the role that was saved.

        Raises:
            JournalError: `saved` is damaged, or belongs to another party, kind or run. The role
                must not be used afterwards.
        """


def forbid_reveal(role: Role) -> None:
    """Make `reveal` of this role raise. Code that deploys a role calls this before all else."""

    def refuse_to_reveal() -> NoReturn:
        raise ProtocolError(
            f"'{role.name}' is in a deployed party, which reveals nothing. Simulate the run to see "
            "the private state of its roles.",
            rule="core.reveal.deployed",
        )

    role.reveal = refuse_to_reveal  # type: ignore[method-assign]
