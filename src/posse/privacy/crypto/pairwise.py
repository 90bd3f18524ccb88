"""Seeds that two parties share, and the digest of the set of parties that a sum is over.

A seed comes from X25519 between the run keys that the signed manifest lists; `privacy.aggregation`
makes masks of it that cancel in the sum. The digest binds signatures and keys to one set.

References: RFC 7748 (X25519); RFC 5869 (HKDF).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import lru_cache

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from posse.core.errors import ConfigError, ProtocolError
from posse.privacy.crypto.keys import framed, hkdf

SEED_BYTES = 32

_VERSION = b"1"
_SEED = b"posse/pairwise/seed"
_PRESENT = b"posse/pairwise/present"


def pair_seed(
    private: X25519PrivateKey, peer: X25519PublicKey, *, me: str, other: str, manifest: bytes
) -> bytes:
    """Derive the 32-byte seed that two parties share in one run; both ends get the same.

    k_ij = HKDF-SHA256(X25519(i, j); info = purpose, version, manifest digest, name and public key
    of the smaller name, then of the larger). `manifest` is the 32-byte digest of the signed
    manifest, `peer` the key it lists for `other`.

    Cost: one X25519 agreement, no message. Leaks nothing beyond the two public keys.

    >>> ada, bob = X25519PrivateKey.generate(), X25519PrivateKey.generate()
    >>> at_ada = pair_seed(ada, bob.public_key(), me="ada", other="bob", manifest=bytes(32))
    >>> at_bob = pair_seed(bob, ada.public_key(), me="bob", other="ada", manifest=bytes(32))
    >>> at_ada == at_bob
    True
    """
    names = _ordered([me, other])
    mine, theirs = private.public_key().public_bytes_raw(), peer.public_bytes_raw()
    if mine == theirs:
        raise ProtocolError(
            f"'{other}' lists the public key of '{me}'. Give every owner a key of its own."
        )
    try:
        secret = private.exchange(peer)
    except ValueError:
        # A point of small order gives all zeros with every private key: a seed that the whole world
        # can derive.
        raise ProtocolError(
            f"the X25519 key of '{other}' is a point of small order, which makes the shared secret "
            "all zeros. "
            f"Ask '{other}' for a new key and sign a new manifest."
        ) from None
    keys = {me: mine, other: theirs}
    parts = [part for name in names for part in (name.encode(), keys[name])]
    return hkdf(secret, framed(_SEED, _VERSION, _digest(manifest), *parts), SEED_BYTES)


def present_digest(names: Iterable[str], manifest: bytes) -> bytes:
    """Digest the set of owners that take part in a sum, whatever their order: 32 bytes to sign and
    to put in `context`.

    SHA-256(purpose, version, manifest digest, names in order), each part preceded by its length.

    >>> present_digest(["bob", "ada"], bytes(32)) == present_digest(["ada", "bob"], bytes(32))
    True
    """
    return _present_digest(tuple(names), _digest(manifest))


@lru_cache(maxsize=4)
def _present_digest(names: tuple[str, ...], manifest: bytes) -> bytes:
    """Digest a set; it is public, so the parties of a process share the work."""
    ordered = [name.encode() for name in _ordered(names)]
    return hashlib.sha256(framed(_PRESENT, _VERSION, manifest, *ordered)).digest()


def _ordered(names: Iterable[str]) -> list[str]:
    ordered = sorted(names)
    if "" in ordered or len(set(ordered)) != len(ordered):
        raise ProtocolError(
            f"owners' names must be distinct and not empty, got {ordered}. Correct the roster."
        )
    return ordered


def _digest(manifest: bytes) -> bytes:
    if len(manifest) != 32:
        raise ConfigError(
            f"manifest must be a digest of 32 bytes, got {len(manifest)}. Pass the manifest's "
            "SHA-256."
        )
    return manifest
