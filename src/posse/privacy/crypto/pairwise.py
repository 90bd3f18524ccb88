"""Pairwise-cancelling masks: each owner's number looks uniform, the sum over the present owners is
exact.

Owners i and j share a seed k_ij from X25519. Modulo 2^128, owner i adds

    mask_i = sum over j > i of F(k_ij, ctx) - sum over j < i of F(k_ij, ctx),      sum over i of mask_i = 0,

with F = HMAC-SHA256 cut to 128 bits and owners ordered by name. F's input holds the set of present
owners, so masks for two sets have nothing in common, and dropping an owner spoils the sum instead
of revealing a part. Where there are many owners, the sums run over a few neighbours each, on a
graph that stays connected without those who pool what they know.

What it protects: everyone else together learns of two or more honest owners only the sum of their
numbers. What it does not: a mask hides one number. Two numbers under one (seeds, present, context)
show their difference, so an owner must answer once a context; and a sum over a set and over the set
less one shows the one, so it must answer for one set.

References: K. Bonawitz et al., Practical Secure Aggregation for Privacy-Preserving Machine
Learning, CCS 2017; RFC 7748 (X25519); RFC 5869 (HKDF).
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from posse.core.errors import ConfigError, ProtocolError
from posse.privacy.crypto.keys import framed, hkdf

MODULUS = 1 << 128
"""Masks, and the numbers they hide, live modulo 2^128."""

SEED_BYTES = 32

_VERSION = b"1"
_SEED = b"posse/pairwise/seed"
_MASK = b"posse/pairwise/mask"
_PRESENT = b"posse/pairwise/present"


def pair_seed(
    private: X25519PrivateKey, peer: X25519PublicKey, *, me: str, other: str, manifest: bytes
) -> bytes:
    """Derive the 32-byte seed that two owners share in one run; both ends get the same.

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


def mask(
    seeds: Mapping[str, bytes],
    me: str,
    present: Sequence[str],
    context: bytes,
    neighbours: Iterable[str] | None = None,
) -> int:
    """Compute this owner's mask in [0, 2^128); over all the present owners the masks add to 0
    modulo 2^128.

    `seeds` holds the pair seed of every neighbour (every other present owner, if none are given)
    and of nobody else; two owners are neighbours of each other or not at all. `context` is the
    `present_digest` that the owners signed; F also hashes the names in `present`, so a careless
    context cannot join two sets.

    Cost: one HMAC a neighbour, no message. Leaks: a masked number is uniform to all who lack one of
    its seeds; whoever holds all of them (its neighbours together) reads it.

    >>> seed, names = bytes(range(32)), ["ada", "bob"]
    >>> context = present_digest(names, bytes(32))
    >>> at_ada, at_bob = (
    ...     mask({"bob": seed}, "ada", names, context),
    ...     mask({"ada": seed}, "bob", names, context),
    ... )
    >>> (5 + at_ada + 7 + at_bob) % MODULUS
    12
    """
    names = _ordered(present)
    if me not in names:
        raise ProtocolError(
            f"'{me}' is not among the present owners {names}. An absent owner sends no masked "
            "number."
        )
    if len(names) < 2:
        raise ProtocolError(
            f"a masked sum needs at least 2 present owners, got only '{me}'. Wait for another "
            "owner."
        )
    if not context:
        raise ConfigError("context must not be empty. Pass present_digest(present, manifest).")
    _check_seeds(
        seeds, [name for name in names if name != me] if neighbours is None else sorted(neighbours)
    )
    message = framed(_MASK, _VERSION, context, present_digest(names, bytes(32)))
    return (
        sum(_prf(seed, message) * (1 if name > me else -1) for name, seed in seeds.items())
        % MODULUS
    )


def _prf(seed: bytes, message: bytes) -> int:
    return int.from_bytes(hmac.digest(seed, message, "sha256")[:16], "big")


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


def _check_seeds(seeds: Mapping[str, bytes], others: list[str]) -> None:
    if sorted(seeds) != others:
        missing, extra = sorted(set(others) - set(seeds)), sorted(set(seeds) - set(others))
        raise ProtocolError(
            f"expected the seeds of the neighbours in the set, got {len(seeds)} for {len(others)} "
            f"(missing: {missing}, "
            f"not among them: {extra}). Derive each with pair_seed()."
        )
    short = [name for name, seed in seeds.items() if len(seed) != SEED_BYTES]
    if short:
        raise ConfigError(
            f"a pair seed must have {SEED_BYTES} bytes, not so for {short}. Derive each with "
            "pair_seed()."
        )
