from __future__ import annotations

from itertools import combinations, product

import gmpy2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posse.core.errors import ConfigError, ProtocolError
from posse.privacy.aggregation.shamir import (
    PRIME,
    SHARE_BYTES,
    evaluate,
    reconstruct,
    share,
    weights,
)

SECRET = bytes(range(32))
KEY = bytes(range(100, 132))


def test_the_prime_is_the_first_one_above_all_secrets():
    assert gmpy2.is_prime(PRIME)
    assert gmpy2.next_prime(1 << 256) == PRIME


def test_vector():
    """Coefficients read off the AES-256-CTR stream by hand: 48 bytes each, modulo the prime."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    stream = Cipher(algorithms.AES256(KEY), modes.CTR(bytes(16))).encryptor().update(bytes(96))
    a, b = (int.from_bytes(stream[at : at + 48], "big") for at in (0, 48))
    s = int.from_bytes(SECRET, "big")
    shares = share(SECRET, [1, 2, 7], 3, KEY)
    assert {x: int.from_bytes(y, "big") for x, y in shares.items()} == {
        x: (s + a * x + b * x * x) % PRIME for x in (1, 2, 7)
    }
    assert {x: y.hex() for x, y in shares.items()} == {
        1: "007c9672ea1d931770b4e585a88511dbd384140e56a2effb0747509b109f937304",
        2: "00665a6fc24901418eb200db9e53b1ba1668a3edc80da7691ec411bdd0e44bdfd7",
        7: "005ce8931b2e4986b55738549860e708cd77b49aaf052898e1bee7e6738ec57159",
    }


@settings(max_examples=40, deadline=None)
@given(st.binary(min_size=32, max_size=32), st.integers(1, 12), st.data())
def test_any_threshold_of_holders_reconstructs(secret, threshold, data):
    holders = data.draw(
        st.lists(st.integers(1, 2000), min_size=threshold, max_size=threshold + 6, unique=True)
    )
    shares = share(secret, holders, threshold, KEY)
    assert {len(y) for y in shares.values()} == {SHARE_BYTES}
    some = data.draw(st.permutations(holders))[:threshold]
    assert reconstruct({x: shares[x] for x in some}, threshold) == secret
    assert reconstruct(shares, threshold) == secret


@pytest.mark.parametrize("secret", [bytes(32), b"\xff" * 32])
def test_extreme_secrets(secret):
    assert reconstruct(share(secret, range(1, 6), 4, KEY), 4) == secret


def test_one_share_less_fits_every_candidate_secret():
    """For t - 1 shares and any secret there is a polynomial of degree t - 1 through them: they
    exclude nothing.
    """
    shares = share(SECRET, range(1, 6), 4, KEY)
    held = {x: int.from_bytes(shares[x], "big") for x in (1, 3, 5)}
    for candidate in (0, 1, int.from_bytes(SECRET, "big"), (1 << 256) - 1, 0xDEADBEEF << 200):
        # the value at 2 that the candidate calls for, from the weights of the four points 0, 1, 3,
        # 5 moved to 2
        points = {0: candidate, **held}
        at_two = sum(y * _lagrange(tuple(points), x, 2) for x, y in points.items()) % PRIME
        completed = {x: y.to_bytes(SHARE_BYTES, "big") for x, y in {**held, 2: at_two}.items()}
        assert reconstruct(completed, 4) == candidate.to_bytes(32, "big")


def _lagrange(xs: tuple[int, ...], x: int, at: int) -> int:
    value = 1
    for other in xs:
        if other != x:
            value = value * (at - other) * pow(x - other, -1, PRIME) % PRIME
    return value


def test_one_share_less_has_the_same_distribution_for_every_secret():
    """In a field of 7 elements, all polynomials: each pair of shares comes from each secret equally
    often.
    """
    prime = 7
    for places in combinations(range(1, 5), 2):
        for secret in range(prime):
            pairs = [
                tuple(evaluate([secret, a, b], x, prime) for x in places)
                for a, b in product(range(prime), repeat=2)
            ]
            assert len(set(pairs)) == prime**2
            for a, b in ((1, 5), (6, 0)):
                three = {x: evaluate([secret, a, b], x, prime) for x in (*places, 5)}
                found = (
                    sum(
                        w * y
                        for w, y in zip(weights(tuple(three), prime), three.values(), strict=True)
                    )
                    % prime
                )
                assert found == secret


def test_too_few_shares_and_wrong_shares():
    shares = share(SECRET, range(1, 6), 4, KEY)
    with pytest.raises(ProtocolError, match="needs the shares of 4 holders, got 3"):
        reconstruct({x: shares[x] for x in (1, 2, 3)}, 4)
    with pytest.raises(ProtocolError, match="33 bytes"):
        reconstruct({**shares, 1: bytes(32)}, 4)
    with pytest.raises(ProtocolError, match="33 bytes"):
        reconstruct({**shares, 1: b"\xff" * 33}, 4)
    altered = (int.from_bytes(shares[1], "big") ^ 1).to_bytes(33, "big")
    assert reconstruct({**shares, 1: altered}, 4) != SECRET


def test_a_result_that_is_no_secret_is_refused():
    with pytest.raises(ProtocolError, match="not those of one secret"):
        reconstruct({1: (1 << 256).to_bytes(33, "big")}, 1)


@pytest.mark.parametrize(
    ("secret", "holders", "threshold", "key"),
    [
        (bytes(31), [1, 2], 2, KEY),
        (SECRET, [1, 2], 3, KEY),
        (SECRET, [1, 2], 0, KEY),
        (SECRET, [0, 1], 2, KEY),
        (SECRET, [1, 1], 2, KEY),
        (SECRET, [1, 2], 2, b""),
    ],
)
def test_sharing_refuses_what_would_show_the_secret_or_lose_it(secret, holders, threshold, key):
    with pytest.raises(ConfigError):
        share(secret, holders, threshold, key)
