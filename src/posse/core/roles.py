"""Roles: the part of each party in a protocol. A role takes a message and returns actions.

A role opens no socket, reads no clock and starts no loop. The actions that a role returns are
messages for other parties and *effects*. An effect is a request to the world (`Ask`), such as to
pull an arm, or a note for the party's operator (`Note`), such as the end of a step. A runtime
delivers the messages, carries out the effects, and delivers the world's answers. So one
implementation of a role runs in memory, in processes, over a network, one message at a time, and
with injected faults.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, NoReturn, Protocol, TypeAlias

import msgspec

from posse.core.errors import ProtocolError

WORLD = "world"
"""The sender of the world's answers. The world pays rewards, and is not a party."""
OPERATOR = "operator"
"""The sender of requests from a party's own operator, who is the person that runs the party."""
DURABLE = "durable"
"""Kind of a note in a list of actions.

The runtime stores all received messages on the disk before it sends the messages that follow the
note. A role puts the note before messages whose content depends on the order in which messages of
different parties arrived.
"""


class Message(msgspec.Struct, frozen=True, array_like=True, tag="Message", gc=False):
    """What one party sends to another party. It is encoded as a tagged msgpack array."""


Send: TypeAlias = tuple[str, str, Message]
"""Sender, receiver and message."""


class SendMany(msgspec.Struct, frozen=True, gc=False):
    """Action: send many messages that have one type and one encoded size.

    The roles of all receivers have one class.
    """

    sends: list[Send]


class Ask(msgspec.Struct, frozen=True, array_like=True, tag="Ask", gc=False):
    """Effect: a party's request that only the world can answer."""

    awaits: ClassVar[str] = "a reward"
    """What the party waits for, in words."""
    party: str
    """The party that asks, and that receives the answer."""


class Pull(Ask, frozen=True, array_like=True, tag="Pull", gc=False):
    """Pull an owner's arm; the world answers with a `Reward`."""

    number: int
    """Number of this pull among the owner's pulls, from 0."""


class Reward(Message, frozen=True, array_like=True, tag="Reward", gc=False):
    """The world's answer to a `Pull`."""

    number: int
    """The `number` of the `Pull` that is answered."""
    units: int
    """The reward, in units of 2^-24 (`posse.core.fixed`)."""


class Note(msgspec.Struct, frozen=True, gc=False):
    """Effect: news for an operator, such as the end of a step or the result of the run."""

    party: str
    """The party whose operator may know the news."""
    kind: str
    """What happened, in one word."""
    step: int
    value: object = None
    """Details of the news. Their type depends on `kind`."""


Action: TypeAlias = Send | SendMany | Ask | Note


class Entry(NamedTuple):
    """One entry of a transcript: a message that was delivered."""

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
    """What some parties together saw of a run: what an adversary who controls them knows."""

    parties: tuple[str, ...]
    entries: Sequence[Entry]
    """All messages that one of these parties sent or received, in order, including the world's
    answers.
    """
    secrets: Mapping[str, Mapping[str, Any]]
    """The state of each of these parties, which contains its secrets (`Role.save`)."""
    public: Mapping[str, Any]
    """The terms of the run, which everybody knows."""
    forgotten: int = 0
    """How many messages are missing at the beginning, because the transcript was full."""


class Role(Protocol):
    """One party's part of a protocol.

    A role is deterministic: with the same arguments and messages it reaches the same state and
    returns equivalent actions. Equivalent actions may differ only in bytes that no party depends on
    (nonces, encapsulations, signatures, the randomness of a ciphertext).

    So a runtime can restore a party: it loads the party's last snapshot, and then repeats the
    delivery of all messages that came after the snapshot.
    """

    @property
    def name(self) -> str:
        """The party's name, unique in its federation."""

    @property
    def kind(self) -> str:
        """The kind of role: owner, controller, comp, customer, ..."""

    def start(self) -> Sequence[Action]:
        """Return the actions of the party before its first message arrives."""

    def receive(self, sender: str, message: Message) -> Sequence[Action]:
        """Take one message, and return the actions that follow.

        Raises:
            ProtocolError: The protocol does not allow the message; the state has not changed.
            EarlyError: The message is allowed only after messages of other parties. The runtime
                stores the message for later. A message can be too early after this party lost
                power: one peer continues to send before another peer has repeated the messages
                that were lost.
        """

    # Optional: the attribute `brings`, a message with data of the party that may change during the
    # run, such as a price list. When the operator changes the data, `receive` gets the new message,
    # even before the start.

    # Optional: a static method `receive_all(roles, sends, actions)`, for runtimes that have many
    # roles in one process. `roles` are all roles by name. For each message in `sends`, one after
    # the other, it does what `receive` of the receiver would do, and appends the resulting actions
    # to the list `actions`.

    @property
    def finished(self) -> bool:
        """Whether the role's part is over: the role waits for no message and will send none."""

    def state(self) -> dict[str, object]:
        """Return names and values that the operator of this party may see.

        For example, the party's sum of rewards. Status pages and the studio show these values. If
        the role knows how far the run is, the dictionary has the names `step`, `horizon` and `unit`
        ("pull", "round"). The dictionary never has keys, masks, tokens or seeds; `save` and
        `reveal` return those.
        """

    def reveal(self) -> object:
        """Return the private state of this role, for drawings and attacks in simulations.

        Drawings and attacks read this state instead of the role's private attributes. Each class of
        roles has its own frozen dataclass for the state. The state may share objects with the role:
        do not change them.

        Raises:
            ProtocolError: The role is in a deployed party (`forbid_reveal`).
        """

    def save(self) -> dict[str, Any]:
        """Return the state of this role for `load`.

        Left out is what follows from the role's arguments. The state is as secret as the arguments.
        It consists of plain values that msgpack can encode: None, bool, int in [-2^63, 2^64),
        float, str, bytes, list and dict with str keys. Roles in the same state return equal values.
        """

    def load(self, saved: Mapping[str, Any]) -> None:
        """Restore a state that `save` returned; the state may have been stored with msgpack.

        After `load`, a new role with the same arguments behaves like the role that was saved.

        Raises:
            JournalError: `saved` is damaged, or belongs to another party, kind or run. The role
                must not be used afterwards.
        """


def forbid_reveal(role: Role) -> None:
    """Make `reveal` of this role raise an error.

    Code that deploys a role calls this function before it uses the role.
    """

    def refuse_to_reveal() -> NoReturn:
        raise ProtocolError(
            f"'{role.name}' is in a deployed party, which reveals nothing. Simulate the run to see "
            "the private state of its roles.",
            rule="core.reveal.deployed",
        )

    role.reveal = refuse_to_reveal  # type: ignore[method-assign]
