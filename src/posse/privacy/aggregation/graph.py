"""Who is whose neighbour: everyone, or k others on a Harary graph over a random order.

A Harary graph H(k, n) joins each place of a circle to the floor(k / 2) next on either side and, for odd k, to the place
opposite (n must then be even). It is k-regular and falls apart only when at least k places go. With the order of the
clients drawn from a seed, the neighbours of a client are a uniform set of k others, which makes the tails of `plan`
exact. The seed is public, one a round, and must not be known when it is decided who is corrupt: whoever chooses it
after that can surround a client. A server that follows the protocol may draw it.

Cost: one permutation of n. Reference: J. Bell et al., CCS 2020, section 3.
"""

from __future__ import annotations

from posse.core.errors import ConfigError
from posse.privacy.crypto.keys import hkdf
from posse.privacy.crypto.streams import Permutations

SEED_BYTES = 32


def neighbours(n: int, degree: int, seed: bytes) -> list[tuple[int, ...]]:
    """List, for each of n clients, the numbers of its neighbours in increasing order.

    >>> neighbours(4, 3, bytes(32))
    [(1, 2, 3), (0, 2, 3), (0, 1, 3), (0, 1, 2)]
    >>> [len(row) for row in neighbours(6, 2, bytes(32))]
    [2, 2, 2, 2, 2, 2]
    """
    if len(seed) != SEED_BYTES:
        raise ConfigError(f"the seed of a graph must have {SEED_BYTES} bytes, got {len(seed)}.")
    if not 1 <= degree < n or n * degree % 2:
        raise ConfigError(
            f"{n} clients cannot have {degree} neighbours each: it must be 1 to {n - 1}, and even if {n} is odd."
        )
    if degree == n - 1:
        return [tuple(j for j in range(n) if j != i) for i in range(n)]
    order = Permutations(hkdf(seed, b"posse aggregation graph"), n).at(0).tolist()
    reach = [*range(1, degree // 2 + 1), *range(n - degree // 2, n)] + [n // 2] * (degree % 2)
    rows: list[tuple[int, ...]] = [()] * n
    for place, client in enumerate(order):
        rows[client] = tuple(sorted(order[(place + step) % n] for step in reach))
    return rows
