"""Sealed frames: AES-256-GCM with a version byte, a random nonce and associated data.

    frame = version (1) | nonce (12) | ciphertext | tag (16)

The associated data binds a frame to its run, its step and pass, and its direction; opening it
anywhere else raises. Nothing in a frame names its sender, and no function here takes one. A key
seals at most 2^20 frames; then both ends derive the next one from the root.
"""

from __future__ import annotations

import os
import struct
from functools import lru_cache
from itertools import repeat

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from posse.core.errors import FrameError
from posse.privacy.crypto.keys import CALLS, hkdf

VERSION = b"\x01"
NONCE_BYTES = 12
OVERHEAD = 1 + NONCE_BYTES + 16
FRAMES_PER_KEY = 1 << 20
STRETCH = 64
"""Indices whose associated data, and frames whose nonces, are prepared together."""
_NONCES = struct.Struct(f"{NONCE_BYTES}s" * STRETCH)


@lru_cache(maxsize=8)
def _contexts(context: bytes, stretch: int) -> dict[int, bytes]:
    """Associated data of a stretch of indices: run, direction, index. Public, so the parties of a
    process share it.
    """
    return {
        at: context + at.to_bytes(8, "little")
        for at in range(stretch * STRETCH, (stretch + 1) * STRETCH)
    }


class Frames:
    """Seal and open frames of one direction in one run.

    `per_index` frames are sealed for every index (step and pass), so the index tells which key is
    in use. Cost: one AES-GCM call a frame.
    """

    __slots__ = (
        "_context",
        "_contexts",
        "_decrypt",
        "_encrypt",
        "_epoch",
        "_nonces",
        "_per_key",
        "_root",
    )

    def __init__(self, root: bytes, run: bytes, direction: bytes, per_index: int) -> None:
        self._root = hkdf(root, b"posse frames " + direction)
        self._context = run + direction
        self._per_key = max(1, FRAMES_PER_KEY // per_index // STRETCH) * STRETCH
        self._nonces: list[bytes] = []
        self._epoch = -1
        self._contexts: dict[int, bytes] = {}

    def _prepare(self, index: int) -> None:
        """Take the associated data, and if need be the key, of the stretch that `index` is in; draw
        nonces.
        """
        self._contexts = _contexts(self._context, index // STRETCH)
        epoch = index // self._per_key
        if epoch != self._epoch:
            cipher = AESGCM(hkdf(self._root, b"posse epoch" + epoch.to_bytes(8, "little")))
            self._encrypt, self._decrypt = cipher.encrypt, cipher.decrypt
            self._epoch = epoch
        if len(self._nonces) < STRETCH:
            # 96 random bits name no sender, and among the 2^20 frames of a key two are equal with
            # probability below 2^40 / 2^97 = 2^-57.
            self._nonces.extend(_NONCES.unpack(os.urandom(_NONCES.size)))

    def seal(self, index: int, plaintext: bytes) -> bytes:
        """Seal a plaintext for an index."""
        try:
            context = self._contexts[index]
            nonce = self._nonces.pop()
        except LookupError:  # the stretch or the nonces are used up
            self._prepare(index)
            return self.seal(index, plaintext)
        CALLS.sealed += 1
        return VERSION + nonce + self._encrypt(nonce, plaintext, context)

    def open(self, index: int, frame: bytes) -> bytes:
        """Open a frame of an index; raise `FrameError` if it is anything else."""
        return self.open_all(index, frame, 1)[0]

    def open_all(self, index: int, frames: bytes, count: int) -> list[bytes]:
        """Open `count` frames of one size, laid end to end: all of them with different nonces, or
        `FrameError`.
        """
        if index not in self._contexts:
            self._prepare(index)
        size, rest = divmod(len(frames), count)
        if rest or size < OVERHEAD:
            raise FrameError(f"expected {count} frames of one size, got {len(frames)} bytes.")
        if frames[::size] != VERSION * count:
            raise FrameError(f"expected frames of version {VERSION[0]}, got another one.")
        parts = struct.unpack(f"x{NONCE_BYTES}s{size - 13}s" * count, frames)
        nonces, bodies = parts[::2], parts[1::2]
        if len(set(nonces)) != count:
            raise FrameError("two frames of one pass have the same nonce: one was sent twice.")
        try:
            plain = list(map(self._decrypt, nonces, bodies, repeat(self._contexts[index])))
        except (InvalidTag, ValueError) as error:
            raise FrameError(
                "a frame does not open: altered, or of another run, step, pass or direction."
            ) from error
        CALLS.opened += count
        return plain


class ClearFrames:
    """Frames without encryption, for level `paper` with its AES switch off: everyone on the wire
    reads them.
    """

    __slots__ = ()

    def seal(self, index: int, plaintext: bytes) -> bytes:
        """Return the plaintext behind a zero version byte."""
        return b"\x00" + plaintext

    def open(self, index: int, frame: bytes) -> bytes:
        """Return what is behind the version byte."""
        if frame[:1] != b"\x00":
            raise FrameError("expected a clear frame, got a sealed one.")
        return frame[1:]

    def open_all(self, index: int, frames: bytes, count: int) -> list[bytes]:
        """Split `count` frames of one size."""
        size = len(frames) // count
        return [self.open(index, frames[at : at + size]) for at in range(0, size * count, size)]
