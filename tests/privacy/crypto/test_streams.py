"""Secret streams: a function of key and index, whatever was read before; permutations are
uniform.
"""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from posse.privacy.crypto.keys import hkdf
from posse.privacy.crypto.streams import Permutations, Words, keystream
from tests.kit.statistics import chi_square, chi_square_limit

KEY, OTHER = bytes(range(32)), bytes(range(1, 33))


def test_the_key_stream_is_aes_256_ctr() -> None:
    """NIST SP 800-38A, F.5.5: plaintext xor ciphertext of the first two blocks."""
    key = bytes.fromhex("603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4")
    counter = int("f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff", 16)
    plain = bytes.fromhex("6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51")
    cipher = bytes.fromhex("601ec313775789a5b7a7f504bbf3d228f443e3ca4d62b59aca84e990cacaf5c5")
    assert keystream(key, counter, 32) == bytes(a ^ b for a, b in zip(plain, cipher, strict=True))


@pytest.mark.parametrize("width", [2, 6, 10])
def test_a_row_is_the_key_stream_at_its_index(width: int) -> None:
    words = Words(KEY, b"purpose", width)
    for index in (0, 1, 255, 256, 1000, 2**32):
        wanted = np.frombuffer(
            keystream(hkdf(KEY, b"purpose"), index * width // 2, 8 * width), "<u8"
        )
        assert words.rows(index, 1)[0].tolist() == wanted.tolist()


def test_rows_do_not_depend_on_the_order_or_the_block_they_are_read_in() -> None:
    forward = Words(KEY, b"purpose", 6)
    rows = {index: forward.rows(index, 1)[0].tolist() for index in range(700)}
    indices = list(rows)
    random.Random(1).shuffle(indices)
    for size in (1, 7, 64, 256):
        backward = Words(KEY, b"purpose", 6, rows=size)
        assert all(backward.rows(index, 1)[0].tolist() == rows[index] for index in indices)


def test_rows_end_with_their_block_and_the_next_go_on() -> None:
    words = Words(KEY, b"purpose", 2, rows=64)
    assert [len(words.rows(index, 50)) for index in (0, 10, 60, 63, 64)] == [50, 50, 4, 1, 50]
    several = words.rows(10, 5)
    assert several.tolist() == [
        Words(KEY, b"purpose", 2).rows(index, 1)[0].tolist() for index in range(10, 15)
    ]


def test_keys_purposes_and_indices_give_different_rows() -> None:
    rows = [
        tuple(Words(key, info, 2).rows(index, 1)[0].tolist())
        for key in (KEY, OTHER)
        for info in (b"a", b"b", b"")
        for index in (0, 1, 256)
    ]
    assert len(set(rows)) == len(rows)
    flat = Words(KEY, b"a", 6).rows(0, 256).ravel()
    assert len(np.unique(flat)) == flat.size


def test_a_row_of_half_a_block_is_refused() -> None:
    with pytest.raises(ValueError, match="whole number of 16-byte blocks"):
        Words(KEY, b"purpose", 3, rows=5)


@pytest.mark.parametrize("size", [2, 3, 10, 101])
def test_a_permutation_is_one_and_the_same_at_any_time(size: int) -> None:
    orders = Permutations(KEY, size)
    seen = {index: orders.at(index).tolist() for index in range(200)}
    assert all(sorted(order) == list(range(size)) for order in seen.values())
    again = Permutations(KEY, size)
    assert all(again.at(index).tolist() == seen[index] for index in reversed(range(200)))
    assert Permutations(OTHER, 101).at(0).tolist() != Permutations(KEY, 101).at(0).tolist()


@pytest.mark.parametrize("size", [3, 4])
def test_a_permutation_is_the_order_of_its_row_of_the_key_stream(size: int) -> None:
    """A run that is begun with one version goes on with the next: what is drawn from a key
    stays.
    """
    raw = keystream(hkdf(KEY, b"posse permutation"), 0, 5 * 8 * 4)
    rows = np.frombuffer(raw, "<u8").reshape(5, 4)  # a whole number of blocks
    assert [Permutations(KEY, size).at(index).tolist() for index in range(5)] == rows[
        :, :size
    ].argsort().tolist()


@pytest.mark.parametrize("size", [3, 4])
def test_permutations_are_uniform(size: int) -> None:
    """False-alarm rate .001, fixed key, n = 24 000. Power above .99 against 30 % more of one."""
    orders = Permutations(KEY, size)
    counts = dict.fromkeys(itertools.permutations(range(size)), 0)
    for index in range(24_000):
        counts[tuple(orders.at(index).tolist())] += 1
    limit = chi_square_limit(len(counts) - 1)
    assert chi_square(list(counts.values())) < limit
    planted = list(counts.values())
    planted[0] += 24_000 * 3 // (10 * len(counts))
    assert chi_square(planted) > limit


def test_permutations_of_neighbouring_steps_are_independent() -> None:
    """Where item 0 goes in two successive steps: 5 x 5 places, false-alarm rate .001, fixed key."""
    orders = Permutations(KEY, 5)
    places = [int(np.argmin(orders.at(index))) for index in range(25_001)]
    pairs = np.bincount([5 * a + b for a, b in itertools.pairwise(places)], minlength=25)
    assert chi_square(pairs) < chi_square_limit(24)
