"""Shamir's secret sharing: any t holders reconstruct a 32-byte secret, t - 1 know nothing of it.

    f(x) = s + a_1 x + ... + a_(t-1) x^(t-1)  modulo  P = 2^256 + 297,    the holder at x > 0 has f(x),
    s = sum over t holders of  f(x_i) prod over j != i of  x_j / (x_j - x_i).

P is the smallest prime above 2^256, so every 32-byte string is a secret and every share has 33
bytes. For t - 1 shares and any candidate s' there is exactly one polynomial through them and (0,
s'), so they say nothing. Shares are not verifiable by themselves; the aggregation compares what it
reconstructs with a public key or a commitment.

Cost: n t multiplications modulo P to share; t^2 for the weights of a set of holders (kept for the
next secret of the same holders), t a secret to reconstruct.

Reference: A. Shamir, How to share a secret, CACM 1979.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

from posse.core.errors import ConfigError, ProtocolError
from posse.privacy.crypto.streams import keystream

PRIME = (1 << 256) + 297
SECRET_BYTES = 32
SHARE_BYTES = 33
_DRAW = 48
"""Bytes drawn for a coefficient: reduced modulo P, they are uniform up to 2^-127."""


def share(secret: bytes, holders: Iterable[int], threshold: int, key: bytes) -> dict[int, bytes]:
    """Share a secret among holders, numbered from 1; the coefficients come from a 32-byte key that
    is used once.

    >>> shares = share(bytes(range(32)), [1, 2, 3], 2, bytes(32))
    >>> reconstruct({1: shares[1], 3: shares[3]}, 2) == bytes(range(32))
    True
    """
    xs = list(holders)
    if len(secret) != SECRET_BYTES or len(key) != 32:
        raise ConfigError(
            f"a secret and a key must have 32 bytes each, got {len(secret)} and {len(key)}."
        )
    if not 1 <= threshold <= len(xs):
        raise ConfigError(
            f"a threshold must be in [1, {len(xs)}] for {len(xs)} holders, got {threshold}."
        )
    if len(set(xs)) != len(xs) or min(xs) < 1:
        raise ConfigError(
            "holders must be different numbers from 1 on: the number 0 is the place of the secret."
        )
    stream = keystream(key, 0, _DRAW * (threshold - 1))
    drawn = (
        int.from_bytes(stream[at : at + _DRAW], "big") % PRIME
        for at in range(0, len(stream), _DRAW)
    )
    coefficients = [int.from_bytes(secret, "big"), *drawn]
    return {x: evaluate(coefficients, x).to_bytes(SHARE_BYTES, "big") for x in xs}


def reconstruct(shares: Mapping[int, bytes], threshold: int) -> bytes:
    """Reconstruct a secret from the shares of at least `threshold` holders; wrong shares give
    another secret.

    >>> reconstruct({1: bytes(33)}, 2)
    Traceback (most recent call last):
    ...
    posse.core.errors.ProtocolError: [P500] a secret needs the shares of 2 holders, got 1. Wait for
    more of them.
    """
    if len(shares) < threshold:
        raise ProtocolError(
            f"a secret needs the shares of {threshold} holders, got {len(shares)}. Wait for more "
            "of them."
        )
    xs = tuple(sorted(shares)[:threshold])
    ys = [_read(shares[x]) for x in xs]
    secret = sum(weight * y for weight, y in zip(weights(xs), ys, strict=True)) % PRIME
    if secret >> 256:
        raise ProtocolError("the shares are not those of one secret: a holder gave a wrong one.")
    return secret.to_bytes(SECRET_BYTES, "big")


def evaluate(coefficients: list[int], x: int, prime: int = PRIME) -> int:
    """Value of a polynomial at x, lowest coefficient first (Horner)."""
    value = 0
    for coefficient in reversed(coefficients):
        value = (value * x + coefficient) % prime
    return value


@lru_cache(maxsize=64)
def weights(xs: tuple[int, ...], prime: int = PRIME) -> tuple[int, ...]:
    """Lagrange's weights at 0 for holders at different xs; public, so all secrets of the same
    holders share them.
    """
    found = []
    for x in xs:
        above, below = 1, 1
        for other in xs:
            if other != x:
                above, below = above * other % prime, below * (other - x) % prime
        found.append(above * pow(below, -1, prime) % prime)
    return tuple(found)


def _read(data: bytes) -> int:
    value = int.from_bytes(data, "big")
    if len(data) != SHARE_BYTES or value >= PRIME:
        raise ProtocolError(
            f"a share must be {SHARE_BYTES} bytes below 2^256 + 297, got {len(data)} bytes."
        )
    return value
