"""Sealed frames: AES-256-GCM with a version byte, a random nonce and associated data.

    frame = version (1) | nonce (12) | ciphertext | tag (16)

The associated data binds a frame to its run, its step and pass, and its direction; opening it anywhere else raises.
Nothing in a frame names its sender, and no function here takes one. A key seals at most 2^20 frames; then both ends derive
the next one from the root.
"""

from __future__ import annotations

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from posse.core.errors import FrameError
from posse.privacy.crypto.keys import hkdf
from posse.privacy.crypto.streams import NONCE_BYTES, Nonces

VERSION = b"\x01"
OVERHEAD = 1 + NONCE_BYTES + 16
FRAMES_PER_KEY = 1 << 20


class Frames:
    """Seal and open frames of one direction in one run.

    `per_index` frames are sealed for every index (step and pass), so the index tells which key is in use.
    Cost: one AES-GCM call a frame.
    """

    __slots__ = ("_cipher", "_context", "_epoch", "_nonces", "_per_epoch", "_root")

    def __init__(self, root: bytes, run: bytes, direction: bytes, per_index: int) -> None:
        self._root = hkdf(root, b"posse frames " + direction)
        self._context = run + direction
        self._per_epoch = max(1, FRAMES_PER_KEY // per_index)
        self._nonces = Nonces()
        self._rekey(0)

    def _rekey(self, epoch: int) -> None:
        self._epoch = epoch
        self._cipher = AESGCM(hkdf(self._root, b"posse epoch" + epoch.to_bytes(8, "little")))

    def seal(self, index: int, plaintext: bytes) -> bytes:
        """Seal a plaintext for an index."""
        epoch = index // self._per_epoch
        if epoch != self._epoch:
            self._rekey(epoch)
        nonce = self._nonces.take()
        return VERSION + nonce + self._cipher.encrypt(nonce, plaintext, self._context + index.to_bytes(8, "little"))

    def open(self, index: int, frame: bytes) -> bytes:
        """Open a frame of an index; raise `FrameError` if it is anything else."""
        return self.open_all(index, (frame,))[0]

    def open_all(self, index: int, frames: tuple[bytes, ...]) -> list[bytes]:
        """Open all frames of an index, or raise `FrameError` and give none."""
        epoch = index // self._per_epoch
        if epoch != self._epoch:
            self._rekey(epoch)
        decrypt, context = self._cipher.decrypt, self._context + index.to_bytes(8, "little")
        for frame in frames:
            if frame[:1] != VERSION:
                raise FrameError(f"expected a frame of version {VERSION[0]}, got {frame[0] if frame else 'nothing'}.")
        try:
            return [decrypt(frame[1:13], frame[13:], context) for frame in frames]
        except (InvalidTag, ValueError) as error:
            raise FrameError("a frame does not open: altered, or of another run, step, pass or direction.") from error


class ClearFrames:
    """Frames without encryption, for level `paper` with its AES switch off: everyone on the wire reads them."""

    __slots__ = ()

    def seal(self, index: int, plaintext: bytes) -> bytes:
        """Return the plaintext behind a zero version byte."""
        return b"\x00" + plaintext

    def open(self, index: int, frame: bytes) -> bytes:
        """Return what is behind the version byte."""
        if frame[:1] != b"\x00":
            raise FrameError("expected a clear frame, got a sealed one.")
        return frame[1:]

    def open_all(self, index: int, frames: tuple[bytes, ...]) -> list[bytes]:
        """Open all frames of an index."""
        return [self.open(index, frame) for frame in frames]
