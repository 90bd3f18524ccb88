"""What the server and all clients of a round agree on: public, the same for everyone, and named by its digest.

Every message carries the digest and every signature and key is bound to it, so nothing of one round counts in another.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from itertools import pairwise

import msgspec

from posse.core import check
from posse.core.errors import ConfigError
from posse.privacy.aggregation.graph import SEED_BYTES, neighbours
from posse.privacy.aggregation.plan import Plan

VERSION = 2


class Stage(IntEnum):
    """The stages of a round, in order; each is named for what the clients send in it."""

    KEYS = 0
    SHARES = 1
    MASKED = 2
    SURVIVORS = 3
    UNMASK = 4
    OVER = 5


@dataclass(frozen=True)
class Terms:
    """One round: who may take part, with which identities, how long the vectors are, and the plan.

    `identities` are the public signing keys, in the order of `clients`. Clients that have them from the server trust it
    to have told the truth; clients that have them from elsewhere need not.
    """

    run: str
    round: int
    clients: tuple[str, ...]
    identities: tuple[bytes, ...]
    length: int
    plan: Plan
    seed: bytes
    """Of the graph; public, fresh every round."""
    subject: bytes = b""
    """SHA-256 of what the vectors are computed from; empty where they are bound to nothing.

    A client takes part with those alone that signed the digest of its own terms, so all vectors of a sum are computed
    from one subject, or the clients that were told another one are not in it.
    """

    def __post_init__(self) -> None:
        check.at_least(0, round=self.round)
        check.at_least(1, length=self.length)
        if "" in self.clients or any(a >= b for a, b in pairwise(self.clients)):
            raise ConfigError("clients must be different names, none empty, in alphabetical order. Sort them.")
        if not len(self.clients) == len(self.identities) == self.plan.clients:
            raise ConfigError(
                f"expected {self.plan.clients} clients with an identity each, as planned, got {len(self.clients)} and "
                f"{len(self.identities)} identities. Make a plan for this cohort."
            )
        if len(set(self.identities)) != len(self.identities):
            raise ConfigError("two clients have one identity. Give every client a key of its own.")
        if len(self.seed) != SEED_BYTES:
            raise ConfigError(f"the seed of the graph must have {SEED_BYTES} bytes, got {len(self.seed)}.")
        if len(self.subject) not in (0, 32):
            raise ConfigError(f"the subject of a round must be a digest of 32 bytes, got {len(self.subject)}.")

    @cached_property
    def digest(self) -> bytes:
        """Name of the round: SHA-256 of everything above."""
        plan = self.plan
        numbers = (plan.corrupt, plan.dropouts, plan.degree, plan.threshold, plan.quorum)
        who = (self.run, self.round, self.clients, self.identities)
        parts = (VERSION, *who, self.length, numbers, self.seed, self.subject)
        return hashlib.sha256(b"posse aggregation\x00" + msgspec.msgpack.encode(parts)).digest()

    @cached_property
    def positions(self) -> dict[str, int]:
        """Number of each client, from 0."""
        return {name: at for at, name in enumerate(self.clients)}

    @cached_property
    def _neighbours(self) -> list[frozenset[str]]:
        rows = neighbours(len(self.clients), self.plan.degree, self.seed)
        return [frozenset(self.clients[at] for at in row) for row in rows]

    def neighbours(self, name: str) -> frozenset[str]:
        """Whom a client shares masks with."""
        return self._neighbours[self.positions[name]]

    def holders(self, name: str) -> frozenset[str]:
        """Who holds shares of a client's secrets: its neighbours and itself."""
        return self.neighbours(name) | {name}

    def place(self, holder: str) -> int:
        """Where a holder's shares are taken: its number from 1, the same for every secret."""
        return self.positions[holder] + 1

    def identity(self, name: str) -> bytes:
        """Public signing key of a client."""
        return self.identities[self.positions[name]]

    def survivors_digest(self, names: tuple[str, ...]) -> bytes:
        """What clients sign: the round and its set of survivors."""
        return hashlib.sha256(self.digest + msgspec.msgpack.encode(names)).digest()
