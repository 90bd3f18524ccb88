"""What a conformance role is made from, after the handshake."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey


class Scorer(Protocol):
    """An owner's scores as integers (section 5.1)."""

    def number(self, index: int, units: int, pulls: int) -> int:
        """Return x of a pass."""

    def learn(self, index: int, chosen: bool) -> None:
        """Take the result of a pass, before the next number."""


@dataclass(frozen=True)
class Session:
    """A party's part of a run whose manifest is signed."""

    name: str
    kind: str
    """owner, controller, comp, dealer or customer."""
    owners: tuple[str, ...]
    """In the order of the manifest."""
    digest: bytes
    root: bytes
    """The party's root of secrets."""
    budget: int
    passes: int
    first: int
    """Index of the first pass."""
    last: int
    """Index of the last pass."""
    slot: float
    """Seconds; 0 without slots."""
    run_keys: Mapping[str, bytes]
    """Public X25519 keys by party."""
    identities: Mapping[str, bytes]
    """Public P-256 keys, compressed points, by party."""
    identity: EllipticCurvePrivateKey
    go: bytes = b""
    """The customer's signature in Go; at the controller only."""
    scorer: Scorer | None = None
    """At owners only."""
