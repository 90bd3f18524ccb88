"""Gaussian noise in whole numbers, for counts.

What is protected are counts, so w + noise is rounded to a whole number. Rounding after the noise is
post-processing: it costs no privacy, and since w is whole it may as well be done to the noise
alone. It also hides the low-order bits of a floating-point number, from which unrounded noise can
be read (Mironov: On significance of the least significant bits for differential privacy, CCS 2012).
What remains of the machine's arithmetic: numbers of 53 bits have no tail beyond 12 standard
deviations.

`SeededNoise` is for simulations: whoever knows the key knows the noise, so it protects nothing.
`SecretNoise` is for deployments: a party that restarts draws the same noise for the same release.
"""

from __future__ import annotations

import math
from typing import NoReturn

import numpy as np

from posse.core import check
from posse.core.compiled import compiled_scalar
from posse.core.errors import ConfigError
from posse.core.exact import log, normals
from posse.core.random import NOISE
from posse.privacy.crypto.streams import Words

_UNIT = 2.0**-53
_MOST = (1 << 32) - 1


@compiled_scalar
def whole_noise(key: int, release: int, producer: int, sigma: float) -> tuple[float, float]:
    """Return two independent rounded normal numbers at the address (key, producer, release).

    One draw of `normals`, 1.27 attempts on average; sigma = 0 gives exactly (0, 0) and draws
    nothing.

    >>> whole_noise(42, 0, 3, 0.0)
    (0.0, 0.0)
    """
    if sigma == 0.0:
        return 0.0, 0.0
    first, second, _ = normals(key, NOISE, producer, release, 0)
    return np.floor(first * sigma + 0.5), np.floor(second * sigma + 0.5)


class SeededNoise:
    """The noise of a simulation: a function of (key, release, producer), so that every run path
    draws the same.

    >>> SeededNoise(42).pair(0, 3, 100.0) == whole_noise(42, 0, 3, 100.0)
    True
    """

    __slots__ = ("_key",)

    def __init__(self, key: int) -> None:
        self._key = np.uint64(key)

    def pair(self, release: int, producer: int, sigma: float) -> tuple[float, float]:
        """Return two independent whole numbers, normal of standard deviation `sigma` and
        rounded.
        """
        check.at_least(0, sigma=sigma)
        first, second = whole_noise(self._key, release, producer, sigma)
        return float(first), float(second)


class SecretNoise:
    """The noise of a deployment: AES-256-CTR under a secret key of 32 bytes, at the address
    (release, producer).

    A party that is restored after a crash makes its last release again; with the same noise it is
    the same release, with fresh noise it would be a second one of the same window, which nobody has
    paid for. So the key must be of one party in one run, and kept: two *different* windows with
    noise of one address would show their difference.

    >>> noise = SecretNoise(bytes(32))
    >>> noise.pair(0, 3, 100.0) == noise.pair(0, 3, 100.0) != noise.pair(1, 3, 100.0)
    True
    """

    __slots__ = ("_words",)

    def __init__(self, key: bytes) -> None:
        if len(key) != 32:
            raise ConfigError(
                f"the key of noise must have 32 bytes, got {len(key)}. Take Secrets.key()."
            )
        self._words = Words(key, b"posse dp noise at an address", 2, rows=16)

    def pair(self, release: int, producer: int, sigma: float) -> tuple[float, float]:
        """Return two independent whole numbers, normal of standard deviation `sigma` and
        rounded.
        """
        check.at_least(0, sigma=sigma)
        check.between(0, _MOST, release=release)
        check.between(0, _MOST, producer=producer)
        if sigma == 0.0:
            return 0.0, 0.0
        # One 16-byte block an attempt; 2^64 attempts lie between two addresses.
        at, found = (release << 96) | (producer << 64), None
        while found is None:
            found = polar(*self._words.rows(at, 1)[0].tolist())
            at += 1
        return math.floor(found[0] * sigma + 0.5) * 1.0, math.floor(found[1] * sigma + 0.5) * 1.0

    def __reduce__(self) -> NoReturn:
        raise TypeError("secret noise is neither pickled nor copied: its key would leave with it")


Noise = SeededNoise | SecretNoise
"""A source of noise for the pair (units bought, good units) of one producer in one release."""


def polar(first: int, second: int) -> tuple[float, float] | None:
    """Make two standard normal numbers of two 64-bit words, or none of words outside the unit disc
    (chance .21).

    The polar method of Marsaglia and Bray (1964), as `posse.core.exact.normals` has it.
    """
    a = 2.0 * ((first >> 11) * _UNIT) - 1.0
    b = 2.0 * ((second >> 11) * _UNIT) - 1.0
    square = a * a + b * b
    if not 0.0 < square < 1.0:
        return None
    factor = math.sqrt(-2.0 * log(square) / square)
    return a * factor, b * factor
