"""Federations moved input by input, whose roles can be made again at any point; and what an output
means.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from posse.core.roles import WORLD, Action, Ask, Message, Note, Role, SendMany
from posse.privacy.crypto.keys import Secrets
from posse.privacy.crypto.paillier import Ciphertext, PrivateKey
from posse.systems.samba.messages import (
    Agree,
    Choice,
    Close,
    Closed,
    Consent,
    Consents,
    Go,
    Join,
    Keys,
    Offer,
    Roster,
    Score,
    Sum,
    Total,
)
from posse.systems.samba.roles.comp import Comp
from posse.systems.samba.roles.controller import Controller
from posse.systems.samba.roles.customer import Customer
from posse.systems.samba.roles.owner import Owner
from posse.systems.samba.strict.comp import Comp as StrictComp
from posse.systems.samba.strict.controller import StrictController
from posse.systems.samba.strict.customer import StrictCustomer
from posse.systems.samba.strict.dealer import Dealer
from posse.systems.samba.strict.messages import (
    Dealing,
    Dealt,
    Keyring,
    Relayed,
    Seeds,
    Share,
    Shares,
    Stream,
    Streams,
)
from posse.systems.samba.strict.owner import StrictOwner


class Input(NamedTuple):
    """What a role is about to be given."""

    receiver: str
    sender: str
    message: Message


class Moved:
    """Roles, what they have asked for, and how each is made anew; a slow world answers when nothing
    else is left.
    """

    def __init__(
        self, roles: Iterable[Role], world: Any, anew: Callable[[Role], Any], *, slow: bool = False
    ) -> None:
        self.roles: dict[str, Any] = {role.name: role for role in roles}
        self.world, self.anew, self.slow = world, anew, slow
        self.notes: list[Note] = []
        self.queue: deque[Action] = deque()
        for role in self.roles.values():
            self.queue.extend(role.start())

    def inputs(self) -> Iterator[Input]:
        """Yield every message and every answer of the world just before it arrives."""
        while self.queue:
            action = self.queue.popleft()
            if (
                self.slow
                and isinstance(action, Ask)
                and not all(isinstance(other, Ask) for other in self.queue)
            ):
                self.queue.append(action)
            elif isinstance(action, SendMany):
                self.queue.extendleft(reversed(action.sends))
            elif isinstance(action, Note):
                self.notes.append(action)
            else:
                given = (
                    Input(action.party, WORLD, self.world(action))
                    if isinstance(action, Ask)
                    else Input(action[1], action[0], action[2])
                )
                yield given
                self.queue.extend(self.give(given))

    def give(self, given: Input) -> Any:
        return self.roles[given.receiver].receive(given.sender, given.message)

    def restart(self, name: str) -> None:
        """Put a fresh role in the place of one, with what that one saved."""
        fresh = self.anew(self.roles[name])
        fresh.load(packed(self.roles[name].save()))
        self.roles[name] = fresh

    def finish(self) -> Moved:
        for _ in self.inputs():
            pass
        return self


class Life(NamedTuple):
    """One role's run: what it saved before each input (and at the end), the inputs, and what the
    outputs meant.
    """

    role: Any
    saved: list[dict[str, Any]]
    inputs: list[Input]
    meant: list[object]


class Recorded(Moved):
    """A run of which every role's life is kept."""

    def __init__(self, *args: Any, meaning: Callable[[Any, Any], object]) -> None:
        super().__init__(*args)
        self.lives = {name: Life(role, [], [], []) for name, role in self.roles.items()}
        self.meaning = meaning

    def give(self, given: Input) -> Any:
        role, life = self.roles[given.receiver], self.lives[given.receiver]
        life.saved.append(packed(role.save()))
        life.inputs.append(given)
        actions = role.receive(given.sender, given.message)
        life.meant.append(self.meaning(role, actions))
        return actions

    def finish(self) -> Recorded:
        super().finish()
        for name, life in self.lives.items():
            life.saved.append(packed(self.roles[name].save()))
        return self


def packed(saved: dict[str, Any]) -> dict[str, Any]:
    """What is left of a snapshot after a way through msgpack: all of it."""
    again: dict[str, Any] = msgspec.msgpack.decode(msgspec.msgpack.encode(saved))
    assert again == saved
    return again


def samba_anew(role: Any) -> Any:
    """Make a role of Samba with the arguments another one was made with."""
    secrets, common = (
        Secrets(role._secrets.export()),
        (role._identity, role._customer, role._expected),
    )
    if isinstance(role, StrictOwner):
        return StrictOwner(role.name, *common, role._world_seed, secrets=secrets)
    if isinstance(role, StrictController):
        return StrictController(*common, role._owners, secrets=secrets)
    if isinstance(role, StrictComp | Dealer):
        return type(role)(*common, secrets=secrets)
    if isinstance(role, StrictCustomer):
        return StrictCustomer(
            role._identity, role._expected, role._terms, role._admitted, secrets=secrets
        )
    if isinstance(role, Owner):
        return Owner(role.name, *common, role._world_seed, secrets=secrets)
    if isinstance(role, Controller):
        return Controller(*common, role._owners, role._world_seed, secrets=secrets)
    if isinstance(role, Comp):
        return Comp(*common, role._world_seed, secrets=secrets)
    assert isinstance(role, Customer)
    return Customer(
        role._identity, role._expected, role._terms, role._admitted, role._key, secrets=secrets
    )


def samba_meaning(key: PrivateKey) -> Callable[[Any, Any], object]:
    """What the actions of a role mean: without nonces, encapsulations, signatures and the
    randomness of Paillier.
    """

    def opened(role: Any, message: Message) -> object:
        if isinstance(message, (Join, Consent, Go, Close, Closed, Agree, Offer)):
            return msgspec.structs.replace(message, signature=b"")
        if isinstance(message, (Roster, Consents)):
            return [opened(role, part) for part in getattr(message, message.__struct_fields__[0])]
        if isinstance(message, Keys):  # the commitments bind to the keys
            sizes = {name: len(sealed) for name, sealed in message.sealed.items()}
            return sizes, message.frame_commitment, message.own_commitment
        if isinstance(message, Keyring):
            return [opened(role, keys) for keys in message.keys]
        if isinstance(message, Dealing):
            return len(message.controller.sealed), len(message.comp.sealed)
        if isinstance(message, (Stream, Seeds, Share)):
            return len(message.sealed)
        if isinstance(message, Streams):
            return [len(stream.sealed) for stream in message.streams]
        if isinstance(message, Dealt):
            return message.chunk, message.controller, role._frames.open(message.chunk, message.comp)
        if isinstance(message, Relayed):
            return message.chunk, len(message.sealed)
        if isinstance(message, Shares):
            return message.controller, len(message.comp.sealed)
        if isinstance(message, Sum) and isinstance(role, StrictOwner):
            return message
        if isinstance(message, Score) and isinstance(role, StrictOwner):
            return message
        if isinstance(message, Score):
            return message.index, role._lane._frames.open(message.index, message.frame)
        if isinstance(message, Choice):
            return message.index, role._replies.open_all(
                message.index, message.replies, role._owners
            )
        if isinstance(message, (Sum, Total)):
            return key.decrypt(Ciphertext.from_bytes(message.ciphertext, key.public_key))
        return message

    def meaning(role: Any, actions: Any) -> object:
        flat = [
            part
            for action in actions
            for part in (action.sends if isinstance(action, SendMany) else [action])
        ]
        return [(a[0], a[1], opened(role, a[2])) if isinstance(a, tuple) else a for a in flat]

    return meaning
