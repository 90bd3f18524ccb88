"""What clients and server say to each other in a round; `terms` is the digest of the round's terms.

Stage by stage, client to server and back: `Advertise`, `Keys`; `Shares`, `Delivery`; `Masked` (or
`Complaint`), `Survivors`; `Signed`, `Unmask`; `Shown`. Lists of names and pairs are in alphabetical
order.
"""

from __future__ import annotations

from posse.core.roles import Ask, Message

Named = tuple[tuple[str, bytes], ...]
"""Something of, or for, each of several clients."""


class Advertise(Message, frozen=True, array_like=True, tag="Advertise", gc=False):
    """Client: its two public keys of this round, a commitment to its self-mask seed, all signed by
    its identity.
    """

    terms: bytes
    sealing: bytes
    masking: bytes
    commitment: bytes
    signature: bytes


class Keys(Message, frozen=True, array_like=True, tag="Keys", gc=False):
    """Server: what the client's neighbours advertised."""

    terms: bytes
    keys: tuple[tuple[str, Advertise], ...]


class Shares(Message, frozen=True, array_like=True, tag="Shares", gc=False):
    """Client: for each neighbour its two shares, sealed so that the server cannot read them."""

    terms: bytes
    frames: Named


class Delivery(Message, frozen=True, array_like=True, tag="Delivery", gc=False):
    """Server: the sealed shares that the client's neighbours made for it."""

    terms: bytes
    frames: Named


class Contribute(Ask, frozen=True, array_like=True, tag="Contribute", gc=False):
    """Effect: the client has its shares and wants its vector; the world answers with a
    `Contribution`.
    """

    round: int


class Contribution(Message, frozen=True, array_like=True, tag="Contribution", gc=False):
    """The world's answer to `Contribute`: little-endian words modulo 2^32. It does not leave the
    client.
    """

    round: int
    words: bytes


class Masked(Message, frozen=True, array_like=True, tag="Masked", gc=False):
    """Client: its vector under all its masks, little-endian words modulo 2^32."""

    terms: bytes
    words: bytes


class Complaint(Message, frozen=True, array_like=True, tag="Complaint", gc=False):
    """Client, instead of `Masked`: whose sealed shares do not open. It drops out of the round."""

    terms: bytes
    names: tuple[str, ...]


class Survivors(Message, frozen=True, array_like=True, tag="Survivors", gc=False):
    """Server: whose masked vectors are in the sum."""

    terms: bytes
    names: tuple[str, ...]


class Signed(Message, frozen=True, array_like=True, tag="Signed", gc=False):
    """Client: its signature on the one set of survivors it will unmask."""

    terms: bytes
    signature: bytes


class Unmask(Message, frozen=True, array_like=True, tag="Unmask", gc=False):
    """Server: whose self-mask shares and whose mask-key shares it wants, and the signatures that
    the plan demands.
    """

    terms: bytes
    self_masks: tuple[str, ...]
    mask_keys: tuple[str, ...]
    signatures: Named


class Shown(Message, frozen=True, array_like=True, tag="Shown", gc=False):
    """Client: the shares asked for, one of the two kinds of each neighbour."""

    terms: bytes
    self_masks: Named
    mask_keys: Named


OfClient = Advertise | Shares | Masked | Complaint | Signed | Shown
"""What a server gets from clients."""


class StageOver(Message, frozen=True, array_like=True, tag="StageOver", gc=False):
    """The server's operator: the stage is over, go on with those that are there."""

    stage: int


MESSAGES = (
    Advertise,
    Keys,
    Shares,
    Delivery,
    Contribution,
    Masked,
    Complaint,
    Survivors,
    Signed,
    Unmask,
    Shown,
    StageOver,
)
"""All of them, for a decoder."""
