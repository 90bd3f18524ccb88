"""What a run draws: at an address of the world seed in a simulation, from AES-256-CTR in a
deployment.

A simulation and its plain twin read the same counter-based numbers (`posse.core.random`). A
deployment has no world seed: there every pass has words of its own from a 256-bit key, and what is
found out about one pass says nothing about another.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from posse.core.compiled import compiled_scalar
from posse.core.random import COIN, TIE, uniform, word_to_uniform, words64
from posse.privacy.crypto.streams import Words

COMMON_WORDS = 3
"""Words of the owners' common stream for one pass: the exploration coin of its step, two for the
tie order.
"""


@compiled_scalar
def _world_rows(seed: int, index: int, passes: int, out: NDArray[np.uint64]) -> None:
    for j in range(out.shape[0]):
        out[j, 0] = words64(seed, COIN, 0, (index + j) // passes, 0)[0]
        out[j, 1], out[j, 2] = words64(seed, TIE, 0, index + j, 0)


class CommonDraws:
    """The owners' common draws: rows of `COMMON_WORDS`, one a pass, that comp and controller do not
    know.
    """

    __slots__ = ("_passes", "_seed", "_words")

    def __init__(self, seed: int | None, secret: bytes, passes: int) -> None:
        self._seed, self._passes = None if seed is None else np.uint64(seed), passes
        self._words = Words(secret, b"posse coins and ties", COMMON_WORDS)

    def rows(self, index: int, count: int) -> NDArray[np.uint64]:
        """Up to `count` rows from pass `index` on."""
        if self._seed is None:
            return self._words.rows(index, count)
        out = np.empty((count, COMMON_WORDS), np.uint64)
        _world_rows(self._seed, index, self._passes, out)
        return out


class OwnSeeds:
    """An owner's own draws: the key that its policy draws from in each pass.

    In a simulation it is the same in all passes. In a deployment it is a fresh word, which gives
    the numbers of one score: whoever found it by search would know that score and nothing else.
    """

    __slots__ = ("_seed", "_words")

    def __init__(self, seed: int | None, secret: bytes) -> None:
        self._seed = seed
        self._words = Words(secret, b"posse own draws", 1)

    def rows(self, index: int, count: int) -> NDArray[np.uint64]:
        """Up to `count` keys from pass `index` on."""
        return (
            self._words.rows(index, count)[:, 0]
            if self._seed is None
            else np.full(count, self._seed, np.uint64)
        )


class Draws:
    """Numbers in [0, 1) for one purpose, one an index."""

    __slots__ = ("_purpose", "_seed", "_words")

    def __init__(self, purpose: int, seed: int | None, secret: bytes) -> None:
        self._purpose, self._seed = purpose, None if seed is None else np.uint64(seed)
        self._words = Words(secret, b"posse draws %d" % purpose, 1)

    def at(self, index: int) -> float:
        """Return the number of an index."""
        if self._seed is None:
            return float(word_to_uniform(self._words.rows(index, 1)[0, 0]))
        return float(uniform(self._seed, self._purpose, 0, index, 0))
