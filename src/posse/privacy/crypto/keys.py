"""Keys: derivation, signatures, and secrets sealed to one party.

HKDF-SHA256 (RFC 5869), ECDSA over P-256 with SHA-256, and HPKE (RFC 9180: X25519, HKDF-SHA256, AES-256-GCM), all from
`cryptography`. Private keys have no representation and do not pickle.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import NoReturn

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from posse.core.errors import ConfigError, ProtocolError

_ECDSA = ec.ECDSA(hashes.SHA256())
_SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)


def hkdf(secret: bytes, info: bytes, length: int = 32) -> bytes:
    """Derive a key for one purpose: HKDF-SHA256 without salt, `info` names the purpose."""
    return HKDF(algorithm=hashes.SHA256(), length=length, salt=None, info=info).derive(secret)


def commitment(secret: bytes, label: bytes) -> bytes:
    """Bind to a 32-byte random secret without showing it: SHA-256 of label and secret (hiding since it is random)."""
    return hashlib.sha256(b"posse commitment" + len(label).to_bytes(2, "little") + label + secret).digest()


def check_commitment(secret: bytes, label: bytes, committed: bytes) -> None:
    """Raise unless `secret` is what was committed to."""
    if not hmac.compare_digest(commitment(secret, label), committed):
        raise ProtocolError("a key does not match its published commitment; the run must not start.")


class Identity:
    """A party's long-term signing key (P-256): a fresh one, or the one given (that of its certificate)."""

    __slots__ = ("_key", "public")

    def __init__(self, key: ec.EllipticCurvePrivateKey | None = None) -> None:
        if key is not None and not isinstance(key.curve, ec.SECP256R1):
            raise ConfigError(f"an identity must be a P-256 key, got one on {key.curve.name}. Make a P-256 key.")
        self._key = ec.generate_private_key(ec.SECP256R1()) if key is None else key
        self.public = self._key.public_key().public_bytes(Encoding.X962, PublicFormat.CompressedPoint)

    def sign(self, purpose: bytes, data: bytes) -> bytes:
        """Sign data for one purpose; a signature never counts for another."""
        return self._key.sign(_framed(purpose, data), _ECDSA)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a private key does not leave its process")


def verify(public: bytes, purpose: bytes, data: bytes, signature: bytes) -> None:
    """Raise unless `signature` was made with the private key of `public` for this purpose and data."""
    try:
        key = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), public)
        key.verify(signature, _framed(purpose, data), _ECDSA)
    except (InvalidSignature, ValueError) as error:
        raise ProtocolError(f"the signature on the {purpose.decode()} does not verify.") from error


def _framed(purpose: bytes, data: bytes) -> bytes:
    return b"posse" + len(purpose).to_bytes(2, "little") + purpose + data


def fingerprint(public: bytes) -> str:
    """Short name of a public key, to compare by telephone."""
    return hashlib.sha256(public).hexdigest()[:16]


class RunKey:
    """A party's X25519 key of one run: others seal secrets to it, and pairs of owners agree on seeds with it.

    A fresh one, or the one of 32 private bytes that a party keeps.
    """

    __slots__ = ("private", "public")

    def __init__(self, private: bytes | None = None) -> None:
        if private is not None and len(private) != 32:
            raise ConfigError(f"a run key is made of 32 private bytes, got {len(private)}.")
        self.private = X25519PrivateKey.generate() if private is None else X25519PrivateKey.from_private_bytes(private)
        self.public = self.private.public_key().public_bytes_raw()

    def open(self, sealed: bytes, info: bytes) -> bytes:
        """Open what was sealed to this key with the same `info`."""
        try:
            return _SUITE.decrypt(sealed, self.private, info)
        except Exception as error:
            raise ProtocolError("a sealed key does not open: it was made for another party or run.") from error

    def __reduce__(self) -> NoReturn:
        raise TypeError("a private key does not leave its process")


def seal_to(public: bytes, secret: bytes, info: bytes) -> bytes:
    """Seal a secret so that only the holder of a run key opens it."""
    try:
        return _SUITE.encrypt(secret, X25519PublicKey.from_public_bytes(public), info)
    except ValueError as error:  # not 32 bytes, or a point of small order
        raise ProtocolError("a run key is not a key that secrets can be sealed to.") from error
