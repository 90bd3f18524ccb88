"""The final sum: two additive shares modulo p = 2^127 - 1 that meet at the customer, with a
one-time linear tag.

An owner's number is v = units 2^32 + pulls, and its tag a v + b_i with a and b_i from a key that
owners and customer know and no server does. Comp's shares of both come from the owner's stream key,
the controller's are what the owner sends; each server adds its shares up. The customer knows V and
T of the whole set and checks T = a V + sum of b_i: a server that adds d to V and e to T is found
out unless e = a d, which it guesses with probability 1 / p. One that has an owner's help knows a.
Keys of a set: another set of present owners has other pads and another tag.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from posse.core.errors import ProtocolError
from posse.privacy.crypto.keys import hkdf
from posse.privacy.crypto.streams import keystream

PRIME = (1 << 127) - 1
PULLS = 32
BYTES = 32
"""Of a share: a number and a tag of 16 bytes each."""

Pair = tuple[int, int]


def encode(pair: Pair) -> bytes:
    """Return a number and its tag as bytes."""
    return b"".join((part % PRIME).to_bytes(16, "big") for part in pair)


def decode(data: bytes) -> Pair:
    """Read a number and its tag."""
    number, tag = int.from_bytes(data[:16], "big"), int.from_bytes(data[16:], "big")
    if len(data) != BYTES or max(number, tag) >= PRIME:
        raise ProtocolError(
            f"a share of the sum must be two numbers below 2^127 - 1 in {BYTES} bytes."
        )
    return number, tag


def added(pairs: Iterable[Pair]) -> Pair:
    """Add shares up."""
    number = tag = 0
    for one, other in pairs:
        number, tag = (number + one) % PRIME, (tag + other) % PRIME
    return number, tag


def pad(stream: bytes, present: bytes) -> Pair:
    """Return comp's share for one owner, from the owner's stream key and the digest of the present
    set.
    """
    drawn = keystream(hkdf(stream, b"posse strict sum" + present), 0, 64)
    return int.from_bytes(drawn[:32], "big") % PRIME, int.from_bytes(drawn[32:], "big") % PRIME


def _coefficients(key: bytes, present: bytes, owners: Sequence[str]) -> tuple[int, list[int]]:
    """Return a, and b of every owner named."""
    root = hkdf(key, b"posse strict tag" + present)
    return int.from_bytes(hkdf(root, b"a"), "big") % PRIME, [
        int.from_bytes(hkdf(root, b"b" + owner.encode()), "big") % PRIME for owner in owners
    ]


def share(
    units: int, pulls: int, *, key: bytes, stream: bytes, present: bytes, owner: str
) -> bytes:
    """Return what an owner sends the controller."""
    number = (units << PULLS) + pulls
    slope, (offset,) = _coefficients(key, present, (owner,))
    first, second = pad(stream, present)
    return encode((number - first, slope * number + offset - second))


def opened(
    pairs: Iterable[Pair], *, key: bytes, present: bytes, owners: Sequence[str]
) -> tuple[int, int]:
    """Return the units and pulls of a set from both servers' shares; raise if the tag does not fit.

    >>> key, streams = bytes(32), {"a": b"s" * 32, "b": b"t" * 32, "c": b"u" * 32}
    >>> sent = [share(3, 1, key=key, stream=streams[o], present=b"p", owner=o) for o in streams]
    >>> comp = added(pad(stream, b"p") for stream in streams.values())
    >>> opened((added(map(decode, sent)), comp), key=key, present=b"p", owners=("a", "b", "c"))
    (9, 3)
    """
    number, tag = added(pairs)
    slope, offsets = _coefficients(key, present, owners)
    if tag != (slope * number + sum(offsets)) % PRIME:
        raise ProtocolError("the tag of the total does not fit: a server altered a sum.")
    return number >> PULLS, number & ((1 << PULLS) - 1)
