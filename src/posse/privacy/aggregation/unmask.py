"""What the server takes off the sum of masked vectors, once clients have shown their shares.

    sum of x_u = sum of y_u - sum over survivors u of G(b_u)
                 - sum over dropped v and their surviving neighbours u of  +-G(k_uv)   modulo 2^32

b_u of a survivor and the masking key of a dropped client are reconstructed from t shares each, and compared with the
commitment and the public key that the client signed. Where they differ, a share is wrong: other sets of t holders are
tried, at most 300, and if none is right the round ends instead of spoiling the sum. Where shares are to spare, that
overcomes one wrong holder of any number, and two of 20. Whether a holder altered its share or was dealt a wrong one
cannot be told.

Cost for s survivors and r clients dropped after sharing, k neighbours each: s + r reconstructions of t multiplications
(t^2 more for each new set of holders), s + r k streams of the vector's length. Leaks to the server: the sum.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import combinations, islice

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from posse.core.errors import ProtocolError
from posse.privacy.aggregation.masks import pair_stream, self_label, self_stream
from posse.privacy.aggregation.messages import Advertise, Shown
from posse.privacy.aggregation.shamir import reconstruct
from posse.privacy.aggregation.terms import Terms
from posse.privacy.crypto.keys import commitment

_TRIES = 300
"""Sets of holders that are tried for a secret."""


class WrongShares(ProtocolError):
    """No set of shares gives what a client signed."""

    def __init__(self, name: str, spare: int) -> None:
        super().__init__(
            f"the shares of a secret of {name} do not give what it signed: it, or a holder, gave a wrong one, and "
            f"{spare} were to spare. Run the round again"
            + (f" without {name}." if spare else ", with a plan for more dropouts.")
        )
        self.dealers = (name,) if spare else ()
        """Whom to leave out; nobody where nothing was to spare, since it may have been any holder."""


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
    wrong: Counter[str] = Counter()

    def seed_of(name: str, found: bytes) -> bool:
        return commitment(found, self_label(terms, name)) == keys[name].commitment

    def key_of(name: str, found: bytes) -> bool:
        return X25519PrivateKey.from_private_bytes(found).public_key().public_bytes_raw() == keys[name].masking

    for name in sorted(alive):
        yield self_stream(_secret(terms, name, seeds, seed_of, wrong)), 1
    for name in sorted(set(sharers) - alive):
        others = sorted(terms.neighbours(name) & alive)
        if others:
            private = X25519PrivateKey.from_private_bytes(_secret(terms, name, privates, key_of, wrong))
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


def _secret(
    terms: Terms,
    name: str,
    shares: Mapping[str, Mapping[str, bytes]],
    right: Callable[[str, bytes], bool],
    wrong: Counter[str],
) -> bytes:
    """Reconstruct a secret of a client; `wrong` counts the holders left out so far, who come last from then on."""
    t, held = terms.plan.threshold, shares.get(name, {})
    if len(held) < t:
        raise ProtocolError(
            f"a secret of {name} needs the shares of {t} holders, {len(held)} are left. "
            "Wait for more clients, or run the round again."
        )
    order = sorted(held, key=lambda holder: (wrong[holder], holder))
    for left_out in islice(_sets(order, t), _TRIES):
        used = [holder for holder in order if holder not in left_out][:t]
        try:
            secret = reconstruct({terms.place(holder): held[holder] for holder in used}, t)
        except ProtocolError:
            continue
        if right(name, secret):
            wrong.update(left_out)
            return secret
    raise WrongShares(name, spare=len(held) - t)


def _sets(order: list[str], t: int) -> Iterator[tuple[str, ...]]:
    """Yield whom to leave out: nobody, then one, then two and so on, as long as t are left; each set of t once."""
    for count in range(len(order) - t + 1):
        yield from combinations(order[: t + count - 1], count)
