"""What all parties of a round agree on: the plan, the graph of neighbours, and the terms named by
their digest.

**Plan**: how many neighbours and shares a round needs, with the probabilities that it leaks or
fails. Among n clients at most c are corrupt (they pool what they know with the server) and at most
d drop out, at any stage. Every client shares its two secrets with its k neighbours and itself, so
that t holders reconstruct.

Up to 128 clients all are neighbours: k = n - 1, t = n - d. Nothing is left to chance: c < t corrupt
clients cannot reconstruct, n - d remaining ones can.

Above, k and t are the smallest for which, with neighbours drawn uniformly (sums of exact
hypergeometric tails),

    leak:  n P[H(n - 1, c, k) >= t] + n^2/2 C(c + d, 2h) / C(n, 2h) <= 2^-40      h = floor(k / 2)
    fail:  n P[H(n - 1, d, k) > k - t]                              <= 2^-20

The first term of `leak` bounds the event that t neighbours of some client are corrupt; the second
that the honest survivors fall into two parts, whose sums would then be known apart (two gaps of h
places each must open in the circle of the graph). `fail` bounds the event that less than t
neighbours of some client remain. The unions are over all n clients. At n = 1,000: k = 45, t = 26
for shares of .1 and .1; k = 98, t = 54 for .2 and .2. They hold for dropouts that do not depend on
the graph.

A quorum of floor((n + c) / 2) + 1 signatures makes the set of survivors unique, since an honest
client signs one set: a server that shows two sets, to collect both secrets of a client, gets a
quorum for one. The plan has one where all are neighbours and n - d survivors reach it. Without it,
and on sparse graphs (where a server that chooses who drops can cut a small group off), the server
must follow the protocol.

**Graph**: who is whose neighbour, everyone or k others on a Harary graph over a random order. H(k,
n) joins each place of a circle to the floor(k / 2) next on either side and, for odd k, to the place
opposite (n must then be even). It is k-regular and falls apart only when at least k places go. With
the order of the clients drawn from a seed, the neighbours of a client are a uniform set of k
others, which makes the tails above exact. The seed is public, one a round, and must not be known
when it is decided who is corrupt: whoever chooses it after that can surround a client. A server
that follows the protocol may draw it.

**Terms**: public and the same for everyone. Every message carries their digest and every signature
and key is bound to it, so nothing of one round counts in another.

References: J. Bell et al., CCS 2020, sections 3 and 3.2, Theorem 3.10; K. Bonawitz et al., CCS
2017, section 6.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property, lru_cache
from itertools import pairwise

import msgspec

from posse.core import check
from posse.core.errors import ConfigError
from posse.privacy.crypto.keys import hkdf
from posse.privacy.crypto.streams import Permutations

VERSION = 2
SEED_BYTES = 32
COMPLETE_UP_TO = 128
SECURITY = 40.0
CORRECTNESS = 20.0
_ROUNDING = 1e-9
"""What binary fractions such as 0.07 n may be off by."""


@dataclass(frozen=True)
class Plan:
    """The numbers of a round; `str` gives them with the probabilities."""

    clients: int
    corrupt: int
    dropouts: int
    degree: int
    threshold: int
    quorum: int
    """Signatures that a client wants to see on the set of survivors; 0: none."""
    leak: float
    """Logarithm (base 2) of the probability that a sum of fewer clients leaks, at most."""
    fail: float
    """Logarithm of the probability that the round fails though no more than `dropouts` are lost, at
    most.
    """

    @property
    def survivors(self) -> int:
        """The fewest survivors of which a sum is made."""
        return self.clients - self.dropouts

    @property
    def honest_survivors(self) -> int:
        """The fewest honest clients in a sum: what noise at clients is sized for."""
        return self.survivors - self.corrupt

    @property
    def complete(self) -> bool:
        """Whether all are neighbours."""
        return self.degree == self.clients - 1


def complete_plan(clients: int, *, corrupt: int, dropouts: int) -> Plan:
    """Plan a round in which all are neighbours, for numbers of corrupt and dropped clients.

    >>> made = complete_plan(10, corrupt=2, dropouts=3)
    >>> made.degree, made.threshold, made.quorum
    (9, 7, 7)
    """
    check.at_least(0, corrupt=corrupt)
    check.at_least(0, dropouts=dropouts)
    left = clients - dropouts - corrupt
    if left < 2:
        raise ConfigError(
            f"a sum must hold at least 2 honest clients: {clients} clients - {dropouts} dropouts - "
            f"{corrupt} corrupt = "
            f"{left}. Allow for fewer dropouts, or wait for more clients."
        )
    threshold, quorum = clients - dropouts, (clients + corrupt) // 2 + 1
    none = float("-inf")
    quorum = quorum if quorum <= threshold else 0
    return Plan(clients, corrupt, dropouts, clients - 1, threshold, quorum, none, none)


@lru_cache(maxsize=64)
def plan(
    clients: int,
    *,
    corrupt: float,
    dropout: float,
    security: float = SECURITY,
    correctness: float = CORRECTNESS,
) -> Plan:
    """Plan a round for shares of corrupt and dropped clients; `security` and `correctness` are
    bits.

    Cost: the tails for each k up to the one found, below 0.5 s for 1,000 clients.

    >>> made = plan(1000, corrupt=0.1, dropout=0.1)
    >>> made.degree, made.threshold, round(made.leak, 1), round(made.fail, 1)
    (45, 26, -42.0, -20.5)
    """
    check.between(0, 1, corrupt=corrupt)
    check.between(0, 1, dropout=dropout)
    check.positive(security=security)
    check.positive(correctness=correctness)
    c, d = math.ceil(corrupt * clients - _ROUNDING), math.floor(dropout * clients + _ROUNDING)
    whole = complete_plan(clients, corrupt=c, dropouts=d)
    if clients <= COMPLETE_UP_TO:
        return whole
    for k in range(2, clients - 1):
        if clients * k % 2:
            continue  # no graph has an odd number of odd degrees
        found = _threshold(clients, c, d, k, security, correctness)
        if found:
            return Plan(clients, c, d, k, found[0], 0, found[1], found[2])
    return whole


def _threshold(
    n: int, c: int, d: int, k: int, security: float, correctness: float
) -> tuple[int, float, float] | None:
    """Find the smallest threshold at which k neighbours do not leak, and see whether enough
    remain.
    """
    for t in range(2, k + 1):
        # Both terms of `leak` over their common denominator.
        gaps, draws = math.comb(n, k // 2 * 2), math.comb(n - 1, k)
        apart = n * n * math.comb(min(c + d, n), k // 2 * 2) * draws
        leak = _log2_ratio(n * _tail(n - 1, c, k, t) * 2 * gaps + apart, 2 * gaps * draws)
        if leak <= -security:
            fail = _log2_ratio(n * _tail(n - 1, d, k, k - t + 1), draws)
            return (t, leak, fail) if fail <= -correctness else None
    return None


def _tail(population: int, marked: int, drawn: int, least: int) -> int:
    """Count the draws with at least `least` marked ones: comb(population, drawn) P[H >= least]."""
    clear = population - marked
    return sum(
        math.comb(marked, x) * math.comb(clear, drawn - x)
        for x in range(least, min(drawn, marked) + 1)
    )


def _log2_ratio(numerator: int, denominator: int) -> float:
    return math.log2(numerator) - math.log2(denominator) if numerator else float("-inf")


def neighbours(n: int, degree: int, seed: bytes) -> list[tuple[int, ...]]:
    """List, for each of n clients, the numbers of its neighbours in increasing order; costs one
    permutation of n.

    >>> neighbours(4, 3, bytes(32))
    [(1, 2, 3), (0, 2, 3), (0, 1, 3), (0, 1, 2)]
    >>> [len(row) for row in neighbours(6, 2, bytes(32))]
    [2, 2, 2, 2, 2, 2]
    """
    if not 1 <= degree < n or n * degree % 2:
        raise ConfigError(
            f"{n} clients cannot have {degree} neighbours each: it must be 1 to {n - 1}, and even "
            f"if {n} is odd."
        )
    if degree == n - 1:
        return [tuple(j for j in range(n) if j != i) for i in range(n)]
    order = Permutations(hkdf(seed, b"posse aggregation graph"), n).at(0).tolist()
    reach = [*range(1, degree // 2 + 1), *range(n - degree // 2, n)] + [n // 2] * (degree % 2)
    rows: list[tuple[int, ...]] = [()] * n
    for place, client in enumerate(order):
        rows[client] = tuple(sorted(order[(place + step) % n] for step in reach))
    return rows


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

    `identities` are the public signing keys, in the order of `clients`. Clients that have them from
    the server trust it to have told the truth; clients that have them from elsewhere need not.
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

    A client takes part with those alone that signed the digest of its own terms, so all vectors of
    a sum are computed from one subject, or the clients that were told another one are not in it.
    """

    def __post_init__(self) -> None:
        check.at_least(0, round=self.round)
        check.at_least(1, length=self.length)
        if "" in self.clients or any(a >= b for a, b in pairwise(self.clients)):
            raise ConfigError(
                "clients must be different names, none empty, in alphabetical order. Sort them."
            )
        if not len(self.clients) == len(self.identities) == self.plan.clients:
            raise ConfigError(
                f"expected {self.plan.clients} clients with an identity each, as planned, got "
                f"{len(self.clients)} and "
                f"{len(self.identities)} identities. Make a plan for this cohort."
            )
        if len(set(self.identities)) != len(self.identities):
            raise ConfigError("two clients have one identity. Give every client a key of its own.")
        if len(self.seed) != SEED_BYTES:
            raise ConfigError(
                f"the seed of the graph must have {SEED_BYTES} bytes, got {len(self.seed)}."
            )
        if len(self.subject) not in (0, 32):
            raise ConfigError(
                f"the subject of a round must be a digest of 32 bytes, got {len(self.subject)}."
            )

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
