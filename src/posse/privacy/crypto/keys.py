"""Keys: derivation, a party's root of secrets, signatures, and secrets sealed to one party.

HKDF-SHA256 (RFC 5869), ECDSA over P-256 with SHA-256, and HPKE (RFC 9180: X25519, HKDF-SHA256,
AES-256-GCM), all from `cryptography`. Private keys have no representation and do not pickle.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from threading import local
from typing import NoReturn

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from posse.core.errors import ConfigError, ProtocolError

ROOT_BYTES = 32
LARGEST_KEY = 255 * 32
"""What HKDF-SHA256 gives at most."""
_PURPOSE = b"posse/secrets/1"
_ECDSA = ec.ECDSA(hashes.SHA256())
_SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)


class Calls(local):
    """Calls of the counted primitives by this thread, so that a run can charge them to its
    roles.
    """

    sealed = opened = encrypted = decrypted = 0

    def so_far(self) -> tuple[int, int, int, int]:
        """AES-GCM encryptions and decryptions, Paillier encryptions and decryptions so far."""
        return self.sealed, self.opened, self.encrypted, self.decrypted


CALLS = Calls()
PRIMITIVES = (
    "AES-GCM encryptions",
    "AES-GCM decryptions",
    "Paillier encryptions",
    "Paillier decryptions",
)


def hkdf(secret: bytes, info: bytes, length: int = 32) -> bytes:
    """Derive a key for one purpose: HKDF-SHA256 without salt, `info` names the purpose."""
    return HKDF(algorithm=hashes.SHA256(), length=length, salt=None, info=info).derive(secret)


def framed(*parts: bytes) -> bytes:
    """Join parts, each preceded by its length, so that no two lists of parts give the same
    bytes.
    """
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


def commitment(secret: bytes, label: bytes) -> bytes:
    """Bind to a 32-byte random secret without showing it: SHA-256 of label and secret (hiding since
    it is random).
    """
    return hashlib.sha256(
        b"posse commitment" + len(label).to_bytes(2, "little") + label + secret
    ).digest()


def check_commitment(secret: bytes, label: bytes, committed: bytes) -> None:
    """Raise unless `secret` is what was committed to."""
    if not hmac.compare_digest(commitment(secret, label), committed):
        raise ProtocolError(
            "a key does not match its published commitment; the run must not start."
        )


class Identity:
    """A party's long-term signing key (P-256): a fresh one, or the one given (that of its
    certificate).
    """

    __slots__ = ("_key", "public")

    def __init__(self, key: ec.EllipticCurvePrivateKey | None = None) -> None:
        if key is not None and not isinstance(key.curve, ec.SECP256R1):
            raise ConfigError(
                f"an identity must be a P-256 key, got one on {key.curve.name}. Make a P-256 key."
            )
        self._key = ec.generate_private_key(ec.SECP256R1()) if key is None else key
        self.public = self._key.public_key().public_bytes(
            Encoding.X962, PublicFormat.CompressedPoint
        )

    def sign(self, purpose: bytes, data: bytes) -> bytes:
        """Sign data for one purpose; a signature never counts for another."""
        return self._key.sign(_signed(purpose, data), _ECDSA)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a private key does not leave its process")


def verify(public: bytes, purpose: bytes, data: bytes, signature: bytes) -> None:
    """Raise unless `signature` was made with the private key of `public` for this purpose and
    data.
    """
    try:
        key = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), public)
        key.verify(signature, _signed(purpose, data), _ECDSA)
    except (InvalidSignature, ValueError) as error:
        raise ProtocolError(f"the signature on the {purpose.decode()} does not verify.") from error


def _signed(purpose: bytes, data: bytes) -> bytes:
    return b"posse" + len(purpose).to_bytes(2, "little") + purpose + data


def fingerprint(public: bytes) -> str:
    """Short name of a public key, to compare by telephone."""
    return hashlib.sha256(public).hexdigest()[:16]


class RunKey:
    """A party's X25519 key of one run: others seal secrets to it, and pairs of owners agree on
    seeds with it.

    A fresh one, or the one of 32 private bytes that a party keeps.
    """

    __slots__ = ("private", "public")

    def __init__(self, private: bytes | None = None) -> None:
        if private is not None and len(private) != 32:
            raise ConfigError(f"a run key is made of 32 private bytes, got {len(private)}.")
        self.private = (
            X25519PrivateKey.generate()
            if private is None
            else X25519PrivateKey.from_private_bytes(private)
        )
        self.public = self.private.public_key().public_bytes_raw()

    def open(self, sealed: bytes, info: bytes) -> bytes:
        """Open what was sealed to this key with the same `info`."""
        try:
            return _SUITE.decrypt(sealed, self.private, info)
        except Exception as error:
            raise ProtocolError(
                "a sealed key does not open: it was made for another party or run."
            ) from error

    def __reduce__(self) -> NoReturn:
        raise TypeError("a private key does not leave its process")


def seal_to(public: bytes, secret: bytes, info: bytes) -> bytes:
    """Seal a secret so that only the holder of a run key opens it."""
    try:
        return _SUITE.encrypt(secret, X25519PublicKey.from_public_bytes(public), info)
    except ValueError as error:  # not 32 bytes, or a point of small order
        raise ProtocolError("a run key is not a key that secrets can be sealed to.") from error


class Secrets:
    """One root from which all secrets of a party in one run are derived, so that a restarted party
    has them again.

    Keys for named purposes: HKDF-SHA256(root; info = version, purpose, context, size, each preceded
    by its length).

    Keys for two purposes, contexts or sizes are independent: no key is the beginning of another,
    and no two lists of parts give one info.

    Make one for each party and run, and keep it where the run's journal is kept. A party that is
    restored from its journal derives the same keys and meets the same inputs, so under each key it
    protects the same plaintexts again: nobody learns more than before. What would not be safe is
    one root for two histories: a run begun anew, or one taken back to a snapshot without the inputs
    that came after it. Then one mask, dither or noise hides two different numbers, and whoever sees
    both reads their difference. So a key that is used when the terms of a run are known has their
    digest in its context: a root in use for two runs by mistake gives them nothing in common but
    the run key.

    >>> secrets = Secrets(bytes(range(32)))
    >>> secrets.key(b"tokens").hex()[:16], secrets.key(b"tokens", 8).hex()
    ('2b9b14ea1fade5b6', '1fcccc9851d648ef')
    >>> secrets
    Secrets(withheld)

    Reference: RFC 5869 (HKDF).
    """

    __slots__ = ("_root",)

    def __init__(self, root: bytes) -> None:
        if len(root) != ROOT_BYTES:
            raise ConfigError(
                f"a root of secrets must have {ROOT_BYTES} bytes, got {len(root)}. Take "
                "Secrets.fresh()."
            )
        self._root = bytes(root)

    @classmethod
    def fresh(cls) -> Secrets:
        """Draw a root from the operating system."""
        return cls(os.urandom(ROOT_BYTES))

    def key(self, purpose: bytes, size: int = 32, *, context: bytes = b"") -> bytes:
        """Derive `size` bytes for a purpose; `context` says for whom and in which run."""
        if not purpose or not 1 <= size <= LARGEST_KEY:
            raise ConfigError(
                f"a key needs a purpose and 1 to {LARGEST_KEY} bytes, got '{purpose!r}' and {size}."
            )
        return hkdf(self._root, framed(_PURPOSE, purpose, context, size.to_bytes(4, "big")), size)

    def number(self, purpose: bytes, *, context: bytes = b"") -> int:
        """Derive a number of 64 bits: the seed of a simulated source."""
        return int.from_bytes(self.key(purpose, 8, context=context), "little")

    def export(self) -> bytes:
        """Give the root away, to be kept with the journal and nowhere else."""
        return self._root

    def __repr__(self) -> str:
        return "Secrets(withheld)"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a root of secrets is neither pickled nor copied; call export() to keep it with the "
            "journal"
        )
