"""Secret streams: words addressed by an index, and permutations, drawn in blocks.

One `cryptography` call costs about as much for a kilobyte as for a byte, so everything is drawn
many steps at a time.
"""

from __future__ import annotations

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from posse.privacy.crypto.keys import hkdf


def keystream(key: bytes, counter: int, length: int) -> bytes:
    """AES-256-CTR key stream from a block counter: a PRF of (key, counter)."""
    encryptor = Cipher(algorithms.AES256(key), modes.CTR(counter.to_bytes(16, "big"))).encryptor()
    return encryptor.update(bytes(length))


class Words:
    """Rows of 64-bit words, one row an index: the same key and index give the same row, whatever
    was read before.
    """

    __slots__ = ("_block", "_key", "_rows", "_start", "width")

    def __init__(self, key: bytes, info: bytes, width: int, rows: int = 256) -> None:
        if width * rows % 2:
            raise ValueError("the rows drawn together must be a whole number of 16-byte blocks")
        self._key = hkdf(key, info)
        self.width = width
        self._rows = rows
        self._start = -1
        self._block: NDArray[np.uint64] = np.zeros((0, width), np.uint64)

    def rows(self, index: int, count: int) -> NDArray[np.uint64]:
        """Up to `count` rows from `index` on; fewer where the drawn block ends."""
        at = index % self._rows
        start = index - at
        if start != self._start:
            raw = keystream(self._key, start * self.width // 2, self._rows * self.width * 8)
            self._block = np.frombuffer(raw, "<u8").reshape(self._rows, self.width)
            self._start = start
        return self._block[at : at + count]


class Permutations:
    """A secret permutation for every index: the order of K 64-bit words of an AES-256-CTR stream.

    Uniform up to the chance of equal words, below K^2 / 2^65 a permutation.
    """

    __slots__ = ("_size", "_words")

    def __init__(self, key: bytes, size: int) -> None:
        self._size = size
        self._words = Words(key, b"posse permutation", size + size % 2, rows=64)

    def at(self, index: int) -> NDArray[np.int64]:
        """Return the permutation of an index: position -> item."""
        return np.argsort(self._words.rows(index, 1)[0, : self._size], kind="stable")
