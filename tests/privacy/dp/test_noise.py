"""Noise: the same on every path, whole, and normal.

The statistical tests look at 40,000 pairs (80,000 numbers) with a false-alarm rate of .001 each.
With power .99 they find a mean off by .02 sigma, a standard deviation off by 1.5 %, a correlation
of .029 and a distribution function off by .012; halved noise or a shared draw is far beyond. The
key of the system's noise is fixed for them.
"""

from __future__ import annotations

import copy
import math
import pickle
from statistics import NormalDist

import numba
import numpy as np
import pytest
from numpy.typing import NDArray

from posse.core.errors import ConfigError
from posse.core.exact import normals
from posse.core.random import NOISE, words64
from posse.privacy.dp.noise import SecretNoise, SeededNoise, polar, whole_noise
from tests.kit.statistics import KS_LIMIT, SIGMAS

PAIRS = 40_000


@numba.njit
def _many(key: int, producers: int, sigma: float, out: NDArray[np.float64]) -> None:
    for i in range(out.shape[0]):
        out[i, 0], out[i, 1] = whole_noise(key, i // producers, i % producers, sigma)


def seeded(sigma: float) -> NDArray[np.float64]:
    out = np.empty((PAIRS, 2))
    _many(np.uint64(7), 20, sigma, out)
    return out


def secret(sigma: float) -> NDArray[np.float64]:
    noise = SecretNoise(bytes(range(32)))
    return np.array([noise.pair(i // 20, i % 20, sigma) for i in range(PAIRS)])


@pytest.fixture(scope="module", params=[seeded, secret], ids=["seeded", "secret"])
def pairs(request: pytest.FixtureRequest) -> NDArray[np.float64]:
    """Pairs of standard deviation 2.66: the tight noise at a capacity of 1, where rounding is
    coarsest.
    """
    drawn: NDArray[np.float64] = request.param(2.66)
    return drawn


def test_whole_numbers(pairs: NDArray[np.float64]) -> None:
    assert (pairs == np.floor(pairs)).all()


def test_mean_and_variance(pairs: NDArray[np.float64]) -> None:
    n, variance = pairs.size, 2.66**2 + 1 / 12
    assert abs(pairs.mean()) < SIGMAS * math.sqrt(variance / n)
    assert abs(pairs.var() / variance - 1) < SIGMAS * math.sqrt(2 / n)


def test_the_two_of_a_pair_are_independent(pairs: NDArray[np.float64]) -> None:
    n = len(pairs)
    assert abs(np.corrcoef(pairs.T)[0, 1]) < SIGMAS / math.sqrt(n)
    assert abs(np.corrcoef((pairs**2).T)[0, 1]) < SIGMAS / math.sqrt(n)
    neighbours = np.corrcoef(pairs[:-1, 1], pairs[1:, 0])[0, 1]
    assert abs(neighbours) < SIGMAS / math.sqrt(n)


def test_rounded_normal(pairs: NDArray[np.float64]) -> None:
    """Kolmogorov's distance at the steps of the rounded distribution; his limit is on the safe side
    there.
    """
    steps = np.arange(pairs.min(), pairs.max() + 1)
    wanted = np.array([NormalDist(0, 2.66).cdf(step + 0.5) for step in steps])
    found = np.searchsorted(np.sort(pairs, axis=None), steps, side="right") / pairs.size
    assert math.sqrt(pairs.size) * abs(found - wanted).max() < KS_LIMIT


def test_every_address_has_its_own_draw() -> None:
    drawn = {
        whole_noise(np.uint64(7), release, producer, 1e9)
        for release in range(20)
        for producer in range(20)
    }
    assert len(drawn) == 400


@pytest.mark.parametrize("key", [0, 42, 2**63 + 5, 2**64 - 1])
def test_seeded_noise_is_whole_noise_is_plain_python(key: int) -> None:
    noise = SeededNoise(key)
    for release, producer, sigma in ((0, 0, 1.0), (7, 29, 1234.5), (3, 2**20, 1e6)):
        pair = noise.pair(release, producer, sigma)
        assert pair == whole_noise(np.uint64(key), release, producer, sigma)
        first, second, _ = normals(np.uint64(key), NOISE, producer, release, 0)
        assert pair == (math.floor(first * sigma + 0.5), math.floor(second * sigma + 0.5))
        assert all(type(value) is float for value in pair)


def test_the_system_s_noise_is_made_by_the_same_method() -> None:
    for index in range(50):
        attempt = 0
        while (
            found := polar(*(int(word) for word in words64(np.uint64(5), NOISE, 3, index, attempt)))
        ) is None:
            attempt += 1
        assert (*found, attempt + 1) == normals(np.uint64(5), NOISE, 3, index, 0)


def test_no_noise_is_exactly_none() -> None:
    for noise in (SeededNoise(1), SecretNoise(bytes(32))):
        assert noise.pair(0, 0, 0.0) == (0.0, 0.0)
        with pytest.raises(ConfigError, match="sigma must be at least 0"):
            noise.pair(0, 0, -1.0)


def test_secret_noise_is_a_function_of_key_and_address() -> None:
    """Whatever is drawn before: a report that is made again has the noise it had."""
    key, last = bytes(range(32)), (1 << 32) - 1
    addresses = [
        (release, producer) for release in (*range(20), last) for producer in (*range(20), last)
    ]
    noise = SecretNoise(key)
    drawn = {address: noise.pair(*address, 1e9) for address in addresses}
    assert len(set(drawn.values())) == len(addresses)
    for address in reversed(addresses):
        assert noise.pair(*address, 1e9) == drawn[address] == SecretNoise(key).pair(*address, 1e9)
    assert SecretNoise(bytes(32)).pair(0, 0, 1e9) != drawn[0, 0]
    assert drawn[0, 0] == (
        -350418402.0,
        1665257931.0,
    )  # a change here would release kept windows twice


def test_addresses_of_secret_noise_that_cannot_be() -> None:
    for release, producer in ((-1, 0), (0, -1), (1 << 32, 0), (0, 1 << 32)):
        with pytest.raises(ConfigError, match="must be in"):
            SecretNoise(bytes(32)).pair(release, producer, 1.0)
    with pytest.raises(ConfigError, match="32 bytes"):
        SecretNoise(b"short")


def test_secret_noise_does_not_leave_its_process() -> None:
    noise = SecretNoise(bytes(range(32)))
    for leave in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="neither pickled nor copied"):
            leave(noise)
