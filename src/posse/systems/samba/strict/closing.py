"""How a run of level `strict` ends: one set of owners, acknowledged by all of them, one total, and
one word that it is over.

    controller -> customer                Spent: the budget is spent
    customer   -> controller -> owners    Close: whom the customer asks for their sums
    owner      -> controller -> customer  Agree: before the budget is spent, a present owner acknowledges set and step
    customer   -> controller -> owners    Agreed: all of them did; from here on the set stands
    owners     -> controller -> customer  Sum, Shares
    customer   -> controller -> everyone  Closed: the customer has an answer

A `Close` with number 0 comes when the budget is spent, and is for all owners. Those with a higher
number end a run early; the customer's operator may correct one by the next until all present owners
have acknowledged it. An owner answers for one set, and only after it has seen the signatures of all
in it, so no two sums are of sets that overlap.

Where an owner is left out no pull count is sent: less than the steps done, it would be that owner's
pulls. There is one total a run, and `Closed` is the same whether the customer accepted or refused
it: whoever could try several totals would learn the true one from those that are refused. Everyone
but the customer has finished when it has the `Closed`.
"""

from __future__ import annotations

from collections.abc import Sequence

from posse.core.errors import ProtocolError
from posse.privacy.crypto.keys import Identity, verify
from posse.privacy.crypto.pairwise import present_digest
from posse.systems.samba.messages import Agree, Agreed, Close
from posse.systems.samba.setup import Manifest

LEAST = 3
"""Owners in a sum, at least; a run of two may sum over both."""


def ask(identity: Identity, present: Sequence[str], number: int, digest: bytes) -> Close:
    """Make the customer's word that it asks these owners for their sums."""
    names = tuple(sorted(set(present)))
    return Close(names, number, identity.sign(b"close", _close_bytes(names, number, digest)))


def agree(identity: Identity, name: str, close: Close, index: int, digest: bytes) -> Agree:
    """Make a present owner's acknowledgement of an early end: it stands before pass `index`."""
    return Agree(
        name, close.number, index, identity.sign(b"agree", _agree_bytes(close, index, digest))
    )


def _close_bytes(present: Sequence[str], number: int, digest: bytes) -> bytes:
    return present_digest(present, digest) + digest + number.to_bytes(8, "big")


def _agree_bytes(close: Close, index: int, digest: bytes) -> bytes:
    return _close_bytes(close.present, close.number, digest) + index.to_bytes(8, "big")


def check_close(close: Close, manifest: Manifest, digest: bytes, customer: bytes) -> None:
    """Raise unless the customer signed it, for enough owners of this run; all of them at the end of
    the budget.
    """
    if not 0 <= close.number < 1 << 32:
        raise ProtocolError(f"an end must have a number from 0 to 2^32 - 1, got {close.number}.")
    verify(customer, b"close", _close_bytes(close.present, close.number, digest), close.signature)
    owners, present = set(manifest.owners), set(close.present)
    least = len(owners) if close.number == 0 else min(LEAST, len(owners))
    if not present <= owners or len(present) < least:
        raise ProtocolError(
            f"expected at least {least} owners of this run in the set, got {len(present)}."
        )


def check_agreed(message: Agreed, manifest: Manifest, digest: bytes) -> int:
    """Raise unless every present owner signed this end before one pass; return that pass."""
    close, first = message.close, message.agrees[0].index if message.agrees else 0
    if (
        [each.name for each in message.agrees] != list(close.present)
        or close.number == 0
        or not 0 <= first < 1 << 62
    ):
        raise ProtocolError("an early end needs the acknowledgement of every owner in its set.")
    for each in message.agrees:
        if (each.number, each.index) != (close.number, first):
            raise ProtocolError(
                f"'{each.name}' acknowledges another end, or stands elsewhere in the run."
            )
        verify(
            manifest.member(each.name).identity,
            b"agree",
            _agree_bytes(close, first, digest),
            each.signature,
        )
    return first


def same(one: Close, other: Close) -> bool:
    """Whether two ends are the same; a customer that was restored has signed its own anew."""
    return (one.number, one.present) == (other.number, other.present)


def refused_end(close: Close, earlier: Close | None, *, settled: bool) -> None:
    """Raise where an end comes too late, or is older than one that was asked for."""
    if settled or (earlier is not None and close.number <= earlier.number):
        raise ProtocolError(
            "a run has one set of owners: another one stands already, or a later end was asked for."
        )
