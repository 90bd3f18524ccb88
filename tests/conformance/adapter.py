"""Puts a conformance role in the place of a real one: the real party makes the handshake, and the
role takes over when the run starts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any

import msgspec
import numpy as np
from cryptography.hazmat.primitives.asymmetric import ec

from posse.core.fixed import tie_bits
from posse.core.roles import Action, Message, Pull, Reward
from posse.policies import Policy
from posse.systems.samba import messages as common
from posse.systems.samba.kernels import kernels
from posse.systems.samba.messages import Consents, Go
from posse.systems.samba.roles.draws import CommonDraws, OwnSeeds
from posse.systems.samba.setup import CONTROLLER, CUSTOMER
from posse.systems.samba.strict import messages as strict
from posse.systems.samba.strict.messages import Tick, Tock
from posse.systems.samba.twin import selections
from tests.conformance import messages as own
from tests.conformance.comp import Comp
from tests.conformance.controller import Controller
from tests.conformance.customer import Customer
from tests.conformance.dealer import Dealer
from tests.conformance.owner import Owner
from tests.conformance.session import Session
from tests.specification.vectors import Run

ROLES = {
    "owner": Owner,
    "controller": Controller,
    "comp": Comp,
    "dealer": Dealer,
    "customer": Customer,
}
_KINDS = [
    kind
    for module in (common, strict)
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, Message) and kind.__module__ == module.__name__
]
_ANY_MESSAGE: Any = reduce(or_, _KINDS)


def encoded(message: Message) -> bytes:
    """Return the bytes of a message for a conformance role."""
    if isinstance(message, Reward):
        return msgspec.msgpack.encode(own.Reward(message.number, message.units))
    if isinstance(message, Tock):
        return msgspec.msgpack.encode(own.Tock(message.number))
    return msgspec.msgpack.encode(message)


def package_message(message: msgspec.Struct) -> Message:
    """Return the package's message with the same bytes; raise if a field has the wrong type."""
    encoded = msgspec.msgpack.encode(message)
    decoded: Message = msgspec.msgpack.decode(encoded, type=_ANY_MESSAGE)
    return decoded


@dataclass
class PackageScorer:
    """An owner's integers x, with the score functions of the package."""

    policy: Policy
    owner: int
    owners: int
    coins: CommonDraws
    seeds: OwnSeeds

    def __post_init__(self) -> None:
        self.memory = self.policy.start(self.owners)
        self.kinds, self.scales, _ = selections(self.policy)

    def number(self, index: int, units: int, pulls: int) -> int:
        """Return x of a pass."""
        numbers, memories = np.zeros(1, np.int64), np.zeros(1)
        turns = len(self.kinds)
        kernels(self.policy).numbers(
            index // turns,
            index % turns,
            1,
            units,
            pulls,
            self.memory,
            self.owner,
            self.owners,
            tie_bits(self.owners),
            self.policy.parameters(),
            self.kinds,
            self.scales,
            self.coins.rows(index, 1),
            self.seeds.rows(index, 1),
            numbers,
            memories,
        )
        return int(numbers[0])

    def learn(self, index: int, chosen: bool) -> None:
        """Update what the policy remembers after a pass."""
        turn = index % len(self.kinds)
        parameters = self.policy.parameters()
        self.memory = float(kernels(self.policy).learnt(turn, chosen, self.memory, parameters))


class Adapted:
    """A party whose messages after the handshake come from a conformance role."""

    def __init__(self, run: Run, name: str) -> None:
        self.run, self.name = run, name
        self.real: Any = run.role(name)
        self.role: Any = None

    def start(self) -> Sequence[Action]:
        """Start the real party."""
        actions: Sequence[Action] = self.real.start()
        return actions

    def receive(self, sender: str, message: Message) -> Sequence[Action]:
        """Take a message of the handshake, or one of the run."""
        if self.role is not None:
            return self._actions(self.role.receive(sender, encoded(message)))
        if isinstance(message, Go):
            self.real.receive(sender, message)
            self.role = ROLES[self.real.kind](self._session(message.signature))
            return self._actions(self.role.start())
        actions: Sequence[Action] = self.real.receive(sender, message)
        if self.name == CUSTOMER and isinstance(message, Consents):
            self.role = Customer(self._session())
            return [*actions, *self._actions(self.role.start())]
        return actions

    def _session(self, go: bytes = b"") -> Session:
        manifest, digest = self.real.manifest, self.real._digest
        members: Mapping[str, Any] = manifest.by_name
        scalar = self.run.scalars[self.name]
        return Session(
            name=self.name,
            kind=self.real.kind,
            owners=manifest.owners,
            digest=digest,
            root=self.run.roots[self.name],
            budget=manifest.terms.budget,
            passes=manifest.terms.passes,
            first=self.run.start,
            last=self.run.last,
            slot=manifest.terms.slot,
            run_keys={name: member.run_key for name, member in members.items()},
            identities={name: member.identity for name, member in members.items()},
            identity=ec.derive_private_key(scalar, ec.SECP256R1()),
            go=go if self.name == CONTROLLER else b"",
            scorer=self._scorer() if self.real.kind == "owner" else None,
        )

    def _scorer(self) -> PackageScorer:
        policy, owners = self.run.case.policy, self.run.owners
        common_key = self.run.secrets_with(self.real._digest)["common_key"]
        coins = CommonDraws(None, common_key, len(policy.passes()))
        return PackageScorer(
            policy, owners.index(self.name), len(owners), coins, self.real._own_seeds()
        )

    def _actions(self, sends: Sequence[tuple[str, msgspec.Struct]]) -> list[Action]:
        actions: list[Action] = []
        for receiver, message in sends:
            if isinstance(message, own.Pull):
                actions.append(Pull(self.name, message.number))
            elif isinstance(message, own.Tick):
                actions.append(Tick(self.name, message.slot, message.seconds))
            else:
                actions.append((self.name, receiver, package_message(message)))
        return actions
