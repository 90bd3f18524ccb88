"""Counter-based randomness: known answers, addresses, uniformity, independence, permutations.

Statistical tests have a false-alarm rate of .001 each; their seeds are fixed.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posse.core.random import (
    COIN,
    DERIVE,
    ORDER,
    REWARD,
    _philox,
    derive_key,
    shuffle,
    uniform,
    uniforms,
    words64,
)
from tests.kit.statistics import KS_LIMIT, SIGMAS, chi_square, chi_square_limit, ks

DRAWS = 1 << 17
keys = st.integers(0, 2**64 - 1).map(np.uint64)
small = st.integers(0, 2**24 - 1)
indices = st.integers(0, 2**32 - 1)


# Random123 (Salmon et al.), kat_vectors: philox4x32-10.
@pytest.mark.parametrize(
    ("counter_and_key", "answer"),
    [
        ((0,) * 6, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 6, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344, 0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_gives_the_published_answers(
    counter_and_key: tuple[int, ...], answer: tuple[int, ...]
) -> None:
    assert _philox(*map(np.uint64, counter_and_key)) == answer


@settings(deadline=None)
@given(keys, st.integers(0, 255), small, indices, indices)
def test_words_are_philox_of_the_address(
    key: int, purpose: int, party: int, index: int, attempt: int
) -> None:
    address = (index, attempt, party, purpose, int(key) & 0xFFFFFFFF, int(key) >> 32)
    c = _philox(*map(np.uint64, address))
    assert words64(key, purpose, party, index, attempt) == (c[0] << 32 | c[1], c[2] << 32 | c[3])
    assert words64.py_func(key, purpose, party, index, attempt) == words64(
        key, purpose, party, index, attempt
    )


@settings(deadline=None)
@given(keys, st.integers(0, 255), small, indices, indices)
def test_uniforms_are_the_top_53_bits_of_the_words(
    key: int, purpose: int, party: int, index: int, n: int
) -> None:
    pair = uniforms(key, purpose, party, index, n)
    assert pair == tuple((word >> 11) / 2**53 for word in words64(key, purpose, party, index, n))
    assert uniform(key, purpose, party, index, n) == pair[0]
    assert all(0.0 <= u < 1.0 for u in pair)


def test_every_part_of_an_address_counts_and_no_two_addresses_share_a_word() -> None:
    near = [(1, 2, 255), (0, 1, 2**24 - 1), (0, 1, 2**32 - 1), (0, 1, 2**32 - 1)]
    key_parts = [np.uint64(key) for key in (0, 1, 2**32, 2**64 - 1)]
    drawn = [
        word
        for key in key_parts
        for rest in itertools.product(*near)
        for word in words64(key, *rest)
    ]
    assert len(set(drawn)) == len(drawn)


def test_a_draw_does_not_depend_on_what_was_drawn_before() -> None:
    addresses = [
        (np.uint64(9), REWARD, party, index, 0) for party in range(5) for index in range(40)
    ]
    forward = {address: uniform(*address) for address in addresses}
    random.Random(1).shuffle(addresses)
    assert all(uniform(*address) == forward[address] for address in addresses)


# Along every part of the address: the simulator walks along indices and parties, users along seeds.
WALKS: dict[str, Callable[[int], tuple[int, ...]]] = {
    "index": lambda i: (np.uint64(1), REWARD, 3, i, 0),
    "party": lambda i: (np.uint64(1), COIN, i, 5, 0),
    "attempt": lambda i: (np.uint64(1), REWARD, 3, 7, i),
    "seed": lambda i: (np.uint64(i), REWARD, 3, 7, 0),
}


@pytest.mark.parametrize("walk", WALKS)
def test_draws_are_uniform_along_every_part_of_the_address(walk: str) -> None:
    """Power above .99 against u^1.03, whose distribution is .011 away: sqrt(n) D = 4.0, limit 1.95,
    sd at most .5.
    """
    drawn = [uniform(*WALKS[walk](i)) for i in range(DRAWS)]
    assert ks(drawn, lambda u: u) < KS_LIMIT
    assert ks([u**1.03 for u in drawn], lambda u: u) > KS_LIMIT
    # The low bits too, which Kolmogorov's distance does not see: 64 classes of the last six bits.
    counts = np.bincount([int(u * 2**53) & 63 for u in drawn], minlength=64)
    assert chi_square(counts) < chi_square_limit(63)


@pytest.mark.parametrize("walk", WALKS)
def test_neighbours_are_independent_along_every_part_of_the_address(walk: str) -> None:
    """Neighbours, and the two numbers of one address. Power above .99 against a correlation of
    .02.
    """
    pairs = np.array([uniforms(*WALKS[walk](i)) for i in range(DRAWS)])
    first, second = pairs[:, 0], pairs[:, 1]

    def sigmas(a: np.ndarray, b: np.ndarray) -> float:
        return abs(float(np.corrcoef(a, b)[0, 1])) * math.sqrt(len(a))

    assert sigmas(first[:-1], first[1:]) < SIGMAS
    assert sigmas(first, second) < SIGMAS
    assert sigmas(first[:-1], second[1:]) < SIGMAS
    assert sigmas(first[:-1], first[1:] + 0.02 * first[:-1]) > SIGMAS
    # Dependence without correlation: 8 x 8 classes of neighbours.
    classes = (first[:-1] * 8).astype(int) * 8 + (first[1:] * 8).astype(int)
    assert chi_square(np.bincount(classes, minlength=64)) < chi_square_limit(63)


def permutation_counts(draw: Callable[[int], tuple[int, ...]], runs: int) -> list[int]:
    counts = dict.fromkeys(itertools.permutations(range(4)), 0)
    for index in range(runs):
        counts[draw(index)] += 1
    return list(counts.values())


def test_shuffle_is_uniform_over_all_permutations() -> None:
    """24 permutations, 24 000 draws. Power above .99 against the wrong shuffle that swaps with any
    place.
    """
    out = np.empty(4, np.int64)

    def drawn(index: int) -> tuple[int, ...]:
        shuffle(np.uint64(5), ORDER, index, out)
        return tuple(out.tolist())

    def wrong(index: int) -> tuple[int, ...]:
        items = list(range(4))
        for i in range(4):
            j = int(uniform(np.uint64(5), ORDER, i, index, 0) * 4)
            items[i], items[j] = items[j], items[i]
        return tuple(items)

    assert chi_square(permutation_counts(drawn, 24_000)) < chi_square_limit(23)
    assert chi_square(permutation_counts(wrong, 24_000)) > chi_square_limit(23)


@settings(deadline=None)
@given(keys, indices, st.integers(1, 50))
def test_shuffle_writes_a_permutation_and_the_source_writes_the_same(
    key: int, index: int, size: int
) -> None:
    compiled, source = np.full(size, -1), np.full(size, -1)
    shuffle(key, ORDER, index, compiled)
    shuffle.py_func(key, ORDER, index, source)
    assert sorted(compiled.tolist()) == list(range(size))
    assert compiled.tolist() == source.tolist()


def test_derived_keys_differ_between_parties_and_seeds_and_are_not_other_draws() -> None:
    derived = [derive_key(seed, party) for seed in range(50) for party in range(50)]
    assert len(set(derived)) == len(derived)
    assert derive_key(3, 4) == words64(np.uint64(3), DERIVE, 4, 0, 0)[0]
    assert derive_key(2**63 - 1, 0) == words64(np.uint64(2**63 - 1), DERIVE, 0, 0, 0)[0]
