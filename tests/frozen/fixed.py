"""Fixed randomness, keys and version: with `install`, one process computes the same bytes at every
run.

It names nothing of the package but the place of its version, so that it holds whatever is renamed.
`install` comes before the package is imported. Signatures are deterministic ECDSA (RFC 6979). HPKE
is written out with an ephemeral key from the fixed randomness (RFC 9180, base mode); receivers open
it with the real one.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import random
import sys
from collections import Counter
from types import FrameType
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hpke
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

VERSION = "0.1.0"
_P256_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


class _Stream:
    """Bytes for the operating system's: a stream for each length, so that one more nonce moves no
    key.

    It is for draws of the package, of these tests, and of cryptography (serial numbers of
    certificates). Other libraries draw from the operating system: how often they do depends on what
    is imported and compiled already.
    """

    def __init__(self) -> None:
        self._calls: Counter[int] = Counter()

    def __call__(self, size: int) -> bytes:
        if not _drawn_by(sys._getframe(1)).startswith(_ITS_DRAWS):
            return _REAL_URANDOM(size)
        number = self._calls[size]
        self._calls[size] += 1
        return hashlib.shake_256(f"frozen {size} {number}".encode()).digest(size)

    def restart(self) -> None:
        self._calls.clear()


def _drawn_by(frame: FrameType | None) -> str:
    """The module that draws, itself or through the standard library's generators."""
    while frame is not None and frame.f_globals["__name__"] in ("random", "secrets"):
        frame = frame.f_back
    return "" if frame is None else str(frame.f_globals["__name__"])


_ITS_DRAWS = ("posse.", "tests.", "cryptography.")
_REAL_URANDOM = os.urandom
_STREAM = _Stream()
restart = _STREAM.restart
"""Draw the same bytes again from here on; what one part of a fixture draws does not move the
next.
"""


class _Deterministic(ec.ECDSA):
    def __init__(self, algorithm: Any, deterministic_signing: bool = True) -> None:
        super().__init__(algorithm, deterministic_signing=deterministic_signing)


def _p256_key(curve: ec.EllipticCurve, backend: Any = None) -> ec.EllipticCurvePrivateKey:
    return ec.derive_private_key(
        1 + int.from_bytes(os.urandom(33), "big") % (_P256_ORDER - 1), curve
    )


def _expand(key: bytes, info: bytes, size: int) -> bytes:
    block, data = b"", b""
    while len(data) < size:
        block = hmac.digest(key, block + info + bytes([len(data) // 32 + 1]), "sha256")
        data += block
    return data[:size]


class _Suite:
    """HPKE with X25519, HKDF-SHA256 and AES-256-GCM, whose ephemeral key is drawn from
    `os.urandom`.
    """

    _KEM, _ID = b"KEM\x00\x20", b"HPKE\x00\x20\x00\x01\x00\x02"

    def __init__(self, *suite: Any) -> None:
        assert suite == (hpke.KEM.X25519, hpke.KDF.HKDF_SHA256, hpke.AEAD.AES_256_GCM)
        self._real = _REAL_SUITE(*suite)
        self.decrypt = self._real.decrypt

    def encrypt(self, plaintext: bytes, public: X25519PublicKey, info: bytes = b"") -> bytes:
        ephemeral = X25519PrivateKey.from_private_bytes(os.urandom(32))
        encapsulated = ephemeral.public_key().public_bytes_raw()
        context = encapsulated + public.public_bytes_raw()
        shared = self._extract(self._KEM, b"", b"eae_prk", ephemeral.exchange(public))
        shared = self._labelled(self._KEM, shared, b"shared_secret", context, 32)
        schedule = b"\x00" + self._extract(self._ID, b"", b"psk_id_hash", b"")
        schedule += self._extract(self._ID, b"", b"info_hash", info)
        secret = self._extract(self._ID, shared, b"secret", b"")
        key = self._labelled(self._ID, secret, b"key", schedule, 32)
        nonce = self._labelled(self._ID, secret, b"base_nonce", schedule, 12)
        return encapsulated + AESGCM(key).encrypt(nonce, plaintext, b"")

    def _extract(self, suite: bytes, salt: bytes, label: bytes, secret: bytes) -> bytes:
        return hmac.digest(salt or bytes(32), b"HPKE-v1" + suite + label + secret, "sha256")

    def _labelled(self, suite: bytes, key: bytes, label: bytes, info: bytes, size: int) -> bytes:
        return _expand(key, size.to_bytes(2, "big") + b"HPKE-v1" + suite + label + info, size)


_REAL_SUITE = hpke.Suite


def _signing_as_fixed(builder: Any) -> None:
    sign = builder.sign

    def fixed(self: Any, *given: Any, **named: Any) -> Any:
        return sign(self, *given, **{**named, "ecdsa_deterministic": True})

    builder.sign = fixed


def install(*, randomness: bool = True) -> None:
    """Fix the version, signatures, and unless told otherwise all randomness, in this process for
    good.
    """
    import posse.version

    posse.version.__version__ = VERSION
    ec.ECDSA = _Deterministic  # type: ignore[misc]
    for builder in (
        x509.CertificateBuilder,
        x509.CertificateSigningRequestBuilder,
        x509.CertificateRevocationListBuilder,
    ):
        _signing_as_fixed(builder)
    if not randomness:
        return
    os.urandom = _STREAM
    random._urandom = _STREAM  # type: ignore[attr-defined]
    ec.generate_private_key = _p256_key
    X25519PrivateKey.generate = classmethod(  # type: ignore[method-assign]
        lambda cls: cls.from_private_bytes(os.urandom(32))
    )
    hpke.Suite = _Suite  # type: ignore[misc]
