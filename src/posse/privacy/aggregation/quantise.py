"""Real vectors as words modulo 2^32: clip, round at random, check the integer norm, add, read the
sum with its sign.

    x -> x min(1, C / |x|) -> z = floor(s x) + [u < frac(s x)], u uniform        E[z] = s x up to the redraws below

Rounding can lengthen a vector, so what is accounted is the norm of z, not of x: z is drawn again
until |z| <= Delta,

    Delta^2 = min((c + sqrt(d))^2, c^2 + d/4 + sqrt(2 ln(1/beta)) (c + sqrt(d)/2)),    c = s C,  beta = 2^-20,

which a draw misses with probability at most beta. Delta is the sensitivity in integer units.

A sum modulo 2^32 is the true one as long as it is in [-2^31, 2^31). The rule: n ceil(c) + noise
tail < 2^31, where the tail is passed by any of the d coordinates with probability at most 2^-40.
Nothing can detect a sum that went around, so a quantiser for which the rule does not hold is
refused before anything is sent.

Reference: P. Kairouz, Z. Liu, T. Steinke, The Distributed Discrete Gaussian Mechanism for Federated
Learning with Secure Aggregation, ICML 2021 (Delta: conditional randomised rounding, section 4.2).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from posse.core import check
from posse.core.errors import ConfigError, DataError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Ring = NDArray[np.uint32]

CAPACITY = 1 << 31
"""Sums must be smaller than this in size."""
REDRAW = 2.0**-20
"""beta: the probability that a rounding must be drawn again, at most."""
TAIL = 2.0**-40
"""The probability that noise passes its allowance, at most."""
_TRIES = 32


def to_ring(z: Ints) -> Ring:
    """Integers as words modulo 2^32.

    >>> to_ring(np.array([1, -1])).tolist()
    [1, 4294967295]
    """
    return z.astype(np.uint32)


def from_ring(words: Ring) -> Ints:
    """Read words as integers in [-2^31, 2^31).

    >>> from_ring(np.array([1, 4294967295], np.uint32)).tolist()
    [1, -1]
    """
    return words.view(np.int32).astype(np.int64)


def clip_l2(x: Floats, clip: float) -> Floats:
    """Shorten x to length `clip` if it is longer."""
    norm = math.sqrt(
        float(np.square(x).sum())
    )  # summed pairwise by numpy: the same on every machine, unlike BLAS
    if not math.isfinite(norm):
        raise DataError(
            "an update holds NaN, infinity or numbers whose squares overflow. Lower the learning "
            "rate."
        )
    return x * (clip / norm) if norm > clip else x


def round_at_random(y: Floats, generator: np.random.Generator) -> Ints:
    """Round each number up with the probability of its fraction, else down: right on average."""
    floor = np.floor(y)
    return floor.astype(np.int64) + (generator.random(len(y)) < y - floor)


@dataclass(frozen=True)
class Quantiser:
    """How updates of one length become words, for at most `clients` of them.

    Cost of an encoding: a few passes over the vector and one uniform number a coordinate. The draws
    of the rounding may be known to anyone: the accounting rests on the integer norm alone.

    >>> quantiser = Quantiser(clip=1.0, scale=1000.0, length=3, clients=10)
    >>> z = quantiser.encode(np.array([0.25, -0.5, 2.0]), np.random.default_rng(1))
    >>> bool(
    ...     np.abs(quantiser.decode(to_ring(z)) - np.array([0.25, -0.5, 2.0]) / 2.0767).max()
    ...     < 0.001
    ... )
    True
    """

    clip: float
    scale: float
    """Units a whole: 1 is `scale` integer steps."""
    length: int
    clients: int
    """The most clients in one sum."""
    sigma: int = 0
    """Standard deviation of the discrete Gaussian noise that each client adds, in integer steps."""

    def __post_init__(self) -> None:
        check.positive(clip=self.clip)
        check.positive(scale=self.scale)
        check.at_least(1, length=self.length)
        check.at_least(1, clients=self.clients)
        check.at_least(0, sigma=self.sigma)
        if self.largest + self.tail >= CAPACITY:
            # Noise is sized in steps, so it grows with the scale.
            remedy = (CAPACITY - self.clients) / (self.clients * self.clip + self.tail / self.scale)
            raise ConfigError(
                f"a sum must stay below 2^31 = {CAPACITY}: {self.clients} clients x "
                f"{math.ceil(self.clip * self.scale)}"
                f" (clip x scale) + noise tail {self.tail} = {self.largest + self.tail}. Lower the "
                "scale below "
                f"{remedy:.6g}, the clip, the noise or the number of clients."
            )

    @property
    def largest(self) -> int:
        """The largest size of a coordinate of the sum, without noise."""
        return self.clients * math.ceil(self.clip * self.scale)

    @property
    def tail(self) -> int:
        """What the sum of all clients' noise passes in no coordinate but with probability 2^-40 (it
        is subgaussian).
        """
        return math.ceil(
            self.sigma * math.sqrt(2 * self.clients * math.log(2 * self.length / TAIL))
        )

    @cached_property
    def sensitivity_squared(self) -> int:
        """Delta^2 in integer steps: what one client's vector is held to, and what a ledger accounts
        for.
        """
        c, d = self.clip * self.scale, self.length
        likely = c * c + d / 4 + math.sqrt(2 * math.log(1 / REDRAW)) * (c + math.sqrt(d) / 2)
        return math.floor(min((c + math.sqrt(d)) ** 2, likely))

    @property
    def sensitivity(self) -> float:
        """Delta in integer steps."""
        return math.sqrt(self.sensitivity_squared)

    def encode(self, update: Floats, generator: np.random.Generator) -> Ints:
        """Clip, scale and round an update; its integer norm is checked."""
        if update.shape != (self.length,):
            raise ConfigError(
                f"an update must have {self.length} numbers in one row, got {update.shape}."
            )
        y = clip_l2(np.asarray(update, np.float64), self.clip) * self.scale
        for _ in range(_TRIES):
            z = round_at_random(y, generator)
            if self.within(z):
                return z
        raise ConfigError(
            f"no rounding of {_TRIES} has an integer norm of at most {self.sensitivity:.6g}, as "
            "happens to a uniform "
            f"generator with probability 2^-{20 * _TRIES}. Give a generator that is one."
        )

    def within(self, z: Ints) -> bool:
        """Whether the norm of z, computed in integers, is what is accounted for."""
        most = math.ceil(self.clip * self.scale)
        if not -most <= int(z.min(initial=0)) <= int(z.max(initial=0)) <= most:
            return False
        return _squares(z, most) <= self.sensitivity_squared

    def decode(self, total: Ring) -> Floats:
        """Read a sum of encodings as real numbers; divide by the number of clients for their
        mean.
        """
        return from_ring(total) / self.scale


def _squares(z: Ints, most: int) -> int:
    """Sum of squares of integers of at most this size below 2^31, exactly: where it may pass 63
    bits, in two halves.
    """
    if most * most * len(z) < 1 << 63:
        return int(np.dot(z, z))
    squares = z * z
    return (int((squares >> 32).sum()) << 32) + int((squares & 0xFFFFFFFF).sum())
