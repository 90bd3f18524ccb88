"""The primitives of samba-strict/1 (section 4)."""

from collections.abc import Callable

import msgspec
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from tests.conformance import codec
from tests.conformance.session import Session

HPKE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)


def mp(*items: object) -> bytes:
    """Return mp(items): a MessagePack array (section 1)."""
    return msgspec.msgpack.encode(items)


def framed(*parts: bytes) -> bytes:
    """Return framed(parts) (section 1)."""
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


def hkdf(key: bytes, info: bytes) -> bytes:
    """Return HKDF(key, info)."""
    return HKDF(SHA256(), 32, None, info).derive(key)


def key_stream(key: bytes, block: int, length: int) -> bytes:
    """Return CTR(key, b, L)."""
    cipher = Cipher(algorithms.AES(key), modes.CTR(block.to_bytes(16, "big")))
    return cipher.encryptor().update(bytes(length))


def stream_words(key: bytes, start: int, count: int) -> list[int]:
    """Return W(key, a, m)."""
    odd = start % 2
    return codec.unpack(key_stream(key, start // 2, 8 * (odd + count)))[odd:]


def rows(key: bytes, info: bytes) -> Callable[[int], tuple[int, int]]:
    """Return Rows(key, info, 2) as a function of the row."""
    derived = hkdf(key, info)
    return lambda row: tuple(stream_words(derived, 2 * row, 2))


def labelled(kind: bytes, label: bytes, message: bytes) -> bytes:
    """Return what Sign and Commit take: kind ‖ LE_2(length of label) ‖ label ‖ message."""
    return kind + len(label).to_bytes(2, "little") + label + message


def derive(session: Session, purpose: str, context: bytes) -> bytes:
    """Return Key(purpose, context)."""
    length = (32).to_bytes(4, "big")
    return hkdf(session.root, framed(b"posse/secrets/1", purpose.encode(), context, length))


def secret(session: Session, purpose: str, suffix: str = "") -> bytes:
    """Return Key(purpose, ctx ‖ suffix)."""
    context = mp(session.kind, session.name, session.digest)
    return derive(session, purpose, context + suffix.encode())


def chunk_cipher(seed: bytes, digest: bytes, chunk: int) -> tuple[AESGCM, bytes]:
    """Return the cipher of a chunk from dealer to comp, and its associated data (section 5.7)."""
    key = hkdf(hkdf(seed, b"posse strict dealt to comp"), b"posse frames dealt")
    epoch = (chunk >> 20).to_bytes(8, "little")
    cipher = AESGCM(hkdf(key, b"posse epoch" + epoch))
    return cipher, digest + b"dealt" + chunk.to_bytes(8, "little")
