"""What each role keeps of a run: its snapshot, less the keys that derive from its root of secrets."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from posse.core.snapshots import Snapshot
from posse.protocols.samba.messages import Batch, Consent, Explore, Join, Masks, Reply

Count = Annotated[int, Meta(ge=0)]


class PartySaved(Snapshot, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of every party: `run` is its public run key."""

    manifest: bytes
    """As it was signed; empty before."""
    going: bool


class OwnerSaved(PartySaved, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of an owner: its arm, where it stands, and the owners' common keys."""

    units: Count
    pulls: Count
    memory: float
    index: Count
    pulling: bool
    listening: bool
    keyed: bool
    keys: bytes
    """k_frame and s_own; empty at the owner that drew them."""
    masks: Masks | None
    early: list[Reply]
    closed: list[str] | None
    left_out: bool


class ControllerSaved(PartySaved, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of the controller: who has said what in this phase or pass."""

    joins: list[Join]
    consents: list[Consent]
    """Its own without the signature, which it makes again."""
    proposed: bool
    keyed: bool
    closed: bool
    present: list[str]
    """Owners whose sums were asked for; empty before."""
    index: Count
    frames: dict[str, bytes]
    """Frames of the pass that have arrived."""
    forwarded: bool
    """Whether the pass is at comp."""
    sums: dict[str, bytes]


class CompSaved(PartySaved, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of comp: the frame key, and the set of frames it answered last, from which it makes the answer again."""

    k_frame: bytes
    index: Count
    answered: Batch | Explore | None
    ended: bool


class CustomerSaved(PartySaved, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of the customer."""

    closed: bool
    early: list[str] | None
    """Owners that were left when the run was ended early."""
    pulls: Count
    total: float | None
