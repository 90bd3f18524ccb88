"""What the server takes off the sum of masked vectors, once clients have shown their shares.

    sum of x_u = sum of y_u - sum over survivors u of G(b_u)
                 - sum over dropped v and their surviving neighbours u of  +-G(k_uv)   modulo 2^32

b_u of a survivor and the masking key of a dropped client are reconstructed from t shares each, and compared with the
commitment and the public key that the client signed: a wrong share ends the round instead of spoiling the sum.

Cost for s survivors and r clients dropped after sharing, k neighbours each: s + r reconstructions of t multiplications
(t^2 more for each new set of holders), s + r k streams of the vector's length. Leaks to the server: the sum.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from posse.core.errors import ProtocolError
from posse.privacy.aggregation.masks import pair_stream, self_label, self_stream
from posse.privacy.aggregation.messages import Advertise, Shown
from posse.privacy.aggregation.shamir import reconstruct
from posse.privacy.aggregation.terms import Terms
from posse.privacy.crypto.keys import check_commitment


def leftovers(
    terms: Terms,
    keys: Mapping[str, Advertise],
    sharers: Collection[str],
    survivors: Collection[str],
    shown: Mapping[str, Shown],
) -> Iterator[tuple[bytes, int]]:
    """Yield the keys of all streams left in the sum, each with its sign there."""
    alive = set(survivors)
    seeds = _by_client((holder, message.self_masks) for holder, message in shown.items())
    privates = _by_client((holder, message.mask_keys) for holder, message in shown.items())
    for name in sorted(alive):
        seed = _secret(terms, name, seeds)
        try:
            check_commitment(seed, self_label(terms, name), keys[name].commitment)
        except ProtocolError as error:
            raise _wrong(name) from error
        yield self_stream(seed), 1
    for name in sorted(set(sharers) - alive):
        others = sorted(terms.neighbours(name) & alive)
        if others:
            private = X25519PrivateKey.from_private_bytes(_secret(terms, name, privates))
            if private.public_key().public_bytes_raw() != keys[name].masking:
                raise _wrong(name)
            for other in others:
                key, sign = pair_stream(private, name, other, keys[other].masking, terms)
                yield key, -sign  # it is in the sum as the survivor added it


def _by_client(
    lists: Iterator[tuple[str, tuple[tuple[str, bytes], ...]]],
) -> dict[str, dict[str, bytes]]:
    """Sort shares by the client whose secret they belong to: client -> holder -> share."""
    found: dict[str, dict[str, bytes]] = {}
    for holder, shares in lists:
        for name, share in shares:
            found.setdefault(name, {})[holder] = share
    return found


def _secret(terms: Terms, name: str, shares: Mapping[str, Mapping[str, bytes]]) -> bytes:
    places = {terms.place(holder): share for holder, share in shares.get(name, {}).items()}
    if len(places) < terms.plan.threshold:
        raise ProtocolError(
            f"a secret of {name} needs the shares of {terms.plan.threshold} holders, {len(places)} are left. "
            "Wait for more clients, or run the round again."
        )
    return reconstruct(places, terms.plan.threshold)


def _wrong(name: str) -> ProtocolError:
    return ProtocolError(
        f"the shares of a secret of {name} do not give what it signed: it, or a holder, gave a wrong one. "
        "Run the round again without them."
    )
