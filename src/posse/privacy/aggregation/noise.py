"""Discrete Gaussian noise, sampled exactly, and what it is worth when every client adds its part.

    P[X = x] proportional to exp(-x^2 / (2 sigma^2)),  x whole, sigma a whole number of steps

Sampled with integers alone (Canonne, Kamath, Steinke): a discrete Laplace number Y of scale sigma
is accepted with probability exp(-(|Y| - sigma)^2 / (2 sigma^2)), and a coin of probability
exp(-a/b) is made of uniform integers. No floating-point number is involved, so there are no
low-order bits from which the noise could be read.

Where the noise is added decides what the server sees:
- at the server: it sees the exact sum of every round and adds the noise before anyone else sees the
  model. The figure holds against those who see the models, with amplification by the secret
  sampling of clients; not against the server.
- at the clients: it sees the sum with noise, and the figure holds against it too. It knows who took
  part, so there is no amplification by sampling against it. Corrupt clients may leave out their
  noise and dropped ones take theirs along, so each adds enough for the fewest honest survivors;
  with more of them the sum has more noise than is claimed.

A sum of discrete Gaussians is not one itself. With m honest survivors, each of sigma, and
sensitivity Delta in d coordinates the sum satisfies rho-zCDP with rho = e^2 / 2,

    e = min(sqrt(Delta^2 / (m sigma^2) + tau d / 2), Delta / (sqrt(m) sigma) + tau sqrt(d)),
    tau = 10 sum over k = 1..m-1 of exp(-2 pi^2 sigma^2 k / (k + 1)).

References: C. Canonne, G. Kamath, T. Steinke, The Discrete Gaussian for Differential Privacy,
NeurIPS 2020, algorithms 1-3; P. Kairouz, Z. Liu, T. Steinke, ICML 2021, theorem 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from posse.core import check
from posse.core.errors import ConfigError
from posse.privacy.aggregation.quantise import Ints
from posse.privacy.crypto.streams import keystream

LARGEST_SIGMA = 1 << 24
"""Above it, the integers of the sampler would not fit in 63 bits."""

Bits = NDArray[np.bool_]


class _Integers:
    """Uniform integers from a secret key: AES-256-CTR words, those that would bias a remainder
    drawn again.
    """

    def __init__(self, key: bytes) -> None:
        if len(key) != 32:
            raise ConfigError(f"a key of noise must have 32 bytes, got {len(key)}.")
        self._key, self._at = key, 0

    def _words(self, count: int) -> NDArray[np.uint64]:
        blocks = (count + 1) // 2
        words = np.frombuffer(keystream(self._key, self._at, 16 * blocks), "<u8")[:count]
        self._at += blocks
        return words

    def below(self, bound: Ints) -> Ints:
        """Draw one integer of [0, bound) for each bound, exactly uniform."""
        b = bound.astype(np.uint64)
        excess = (np.uint64(2**64 - 1) % b + np.uint64(1)) % b  # 2^64 mod b
        words = self._words(len(b)).copy()
        again = np.flatnonzero(words > np.uint64(2**64 - 1) - excess)
        while len(again):
            words[again] = self._words(len(again))
            again = again[words[again] > np.uint64(2**64 - 1) - excess[again]]
        return (words % b).astype(np.int64)


def _coin(a: Ints, b: Ints, draw: _Integers) -> Bits:
    """Toss coins of probability exp(-a/b), 0 <= a <= b: is the first K at which a/(bK) fails odd?
    (algorithm 1)
    """
    heads = np.zeros(len(a), np.bool_)
    active, k = np.arange(len(a)), 1
    while len(active):
        went_on = draw.below(b[active] * k) < a[active]
        heads[active[~went_on]] = k % 2 == 1
        active, k = active[went_on], k + 1
    return heads


def _coins_of_e(times: Ints, draw: _Integers) -> Ints:
    """Toss coins of probability 1/e until one fails, at most `times` of them; count those
    before.
    """
    passed = np.zeros(len(times), np.int64)
    active = np.flatnonzero(times > 0)
    while len(active):
        one = np.ones(len(active), np.int64)
        active = active[_coin(one, one, draw)]
        passed[active] += 1
        active = active[passed[active] < times[active]]
    return passed


def _laplace(scale: int, count: int, draw: _Integers) -> Ints:
    """Draw discrete Laplace numbers, P[y] proportional to exp(-|y| / scale); about .6 `count` of
    them (algorithm 2).
    """
    scales = np.full(count, scale, np.int64)
    rest = draw.below(scales)
    rest = rest[_coin(rest, scales, draw)]
    size = rest + scale * _coins_of_e(np.full(len(rest), 1 << 30, np.int64), draw)
    negative = draw.below(np.full(len(size), 2, np.int64)) == 1
    signed: Ints = np.where(negative, -size, size)
    kept: Ints = signed[~(negative & (size == 0))]
    return kept


def _accept(y: Ints, sigma: int, draw: _Integers) -> Bits:
    """Toss coins of probability exp(-(|y| - sigma)^2 / (2 sigma^2)) (algorithm 3, with the Laplace
    scale sigma).
    """
    over = np.full(len(y), 2 * sigma * sigma, np.int64)
    whole, rest = np.divmod((np.abs(y) - sigma) ** 2, over)
    passed: Bits = _coins_of_e(whole, draw) == whole
    return passed & _coin(rest, over, draw)


def discrete_gaussian(sigma: int, length: int, key: bytes) -> Ints:
    """Draw `length` integers of a discrete Gaussian; a key is for one vector, and whoever knows it
    knows the noise.

    Cost: about 20 words of AES a number (0.4 s for 500,000).

    >>> discrete_gaussian(3, 8, bytes(32)).tolist()
    [-3, -3, -2, 3, 5, -2, -2, -3]
    """
    check.at_least(0, length=length)
    if not (isinstance(sigma, int) and 0 <= sigma <= LARGEST_SIGMA):
        raise ConfigError(
            f"sigma must be a whole number of steps from 0 to 2^24, got {sigma}. Round it up."
        )
    if sigma == 0:
        return np.zeros(length, np.int64)
    draw, parts, missing = _Integers(key), [np.zeros(0, np.int64)], length
    while missing > 0:
        y = _laplace(sigma, int(missing * 2.5) + 16, draw)
        parts.append(y[_accept(y, sigma, draw)][:missing])
        missing -= len(parts[-1])
    return np.concatenate(parts)


@dataclass(frozen=True)
class NoisePlan:
    """Noise of each client such that the fewest honest survivors together reach a standard
    deviation.

    >>> plan = NoisePlan.sized(total=1000.0, honest_survivors=50, sensitivity=500.0, length=100)
    >>> plan.sigma, round(plan.rho, 4)
    (142, 0.124)
    """

    sigma: int
    """Of each client, in steps."""
    honest_survivors: int
    sensitivity: float
    """Delta: norm of the integer vector of one client (`Quantiser.sensitivity`)."""
    length: int

    @classmethod
    def sized(
        cls, *, total: float, honest_survivors: int, sensitivity: float, length: int
    ) -> NoisePlan:
        """Size the noise for a standard deviation `total` of the sum, in steps;
        `Plan.honest_survivors` gives m.
        """
        check.positive(total=total)
        check.at_least(1, honest_survivors=honest_survivors)
        check.positive(sensitivity=sensitivity)
        check.at_least(1, length=length)
        return cls(
            math.ceil(total / math.sqrt(honest_survivors)), honest_survivors, sensitivity, length
        )

    @property
    def rho(self) -> float:
        """What one round costs in zero-concentrated differential privacy, against the server
        too.
        """
        m, s = self.honest_survivors, self.sigma
        tau = 10 * sum(math.exp(-2 * (math.pi * s) ** 2 * k / (k + 1)) for k in range(1, m))
        ratio = self.sensitivity / (math.sqrt(m) * s)
        return (
            min(math.sqrt(ratio**2 + tau * self.length / 2), ratio + tau * math.sqrt(self.length))
            ** 2
            / 2
        )

    @property
    def note(self) -> str:
        """What the figure covers, to be kept with it."""
        return (
            f"one round: {self.rho:.6g}-zCDP; unit: one client's vector of norm "
            f"{self.sensitivity:.6g} in steps, "
            f"present or all zeros; noise: discrete Gaussian, {self.sigma} steps at each client, "
            "for at least "
            f"{self.honest_survivors} honest survivors; holds against the server, without "
            "amplification by sampling; "
            "does not cover who took part, nor the number of survivors"
        )
