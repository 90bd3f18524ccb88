"""What the parties of Samba say to each other; numbers in brackets are the paper's steps.

`index` counts passes: t * passes + pass. Everything goes through the controller, which forwards
without opening.
"""

from __future__ import annotations

from posse.core.roles import Ask, Message


class Join(Message, frozen=True, array_like=True, tag="Join", gc=False):
    """A party offers its keys: the run key is signed with the identity key."""

    name: str
    kind: str
    identity: bytes
    run_key: bytes
    signature: bytes


class Proposal(Message, frozen=True, array_like=True, tag="Proposal", gc=False):
    """(0) The customer says what it wants: budget, policy, level; encoded `Terms`."""

    terms: bytes


class Roster(Message, frozen=True, array_like=True, tag="Roster", gc=False):
    """All who joined, for the customer to check against the identities it admitted."""

    joins: tuple[Join, ...]


class Offer(Message, frozen=True, array_like=True, tag="Offer", gc=False):
    """(1) The manifest, signed by the customer."""

    manifest: bytes
    signature: bytes


class Consent(Message, frozen=True, array_like=True, tag="Consent", gc=False):
    """A party's signature on the manifest."""

    name: str
    signature: bytes


class Consents(Message, frozen=True, array_like=True, tag="Consents", gc=False):
    """Everyone's signature, for the customer."""

    consents: tuple[Consent, ...]


class Go(Message, frozen=True, array_like=True, tag="Go", gc=False):
    """The customer saw every signature on the same manifest."""

    signature: bytes


class Keys(Message, frozen=True, array_like=True, tag="Keys", gc=False):
    """The first owner's secrets, sealed to those entitled; the same bytes for all."""

    sealed: dict[str, bytes]
    frame_commitment: bytes
    own_commitment: bytes
    signature: bytes


class Masks(Message, frozen=True, array_like=True, tag="Masks", gc=False):
    """(1) At level `paper` the controller draws the keys of the owners' masks and coins."""

    masks: bytes
    coins: bytes


class Score(Message, frozen=True, array_like=True, tag="Score", gc=False):
    """(2) One owner's sealed masked score."""

    index: int
    frame: bytes


class Batch(Message, frozen=True, array_like=True, tag="Batch", gc=False):
    """(3) All frames of a pass in permuted order, end to end."""

    index: int
    frames: bytes


class Explore(Message, frozen=True, array_like=True, tag="Explore", gc=False):
    """(3) At level `paper`: this pass needs no scores, any of the arms will do."""

    index: int


class Choice(Message, frozen=True, array_like=True, tag="Choice", gc=False):
    """(4) Comp's answers in permuted order, end to end."""

    index: int
    replies: bytes


class Reply(Message, frozen=True, array_like=True, tag="Reply", gc=False):
    """(5) One owner's answer."""

    index: int
    reply: bytes


class Spent(Message, frozen=True, array_like=True, tag="Spent", gc=False):
    """The budget is spent; these owners are present."""

    present: tuple[str, ...]


class Close(Message, frozen=True, array_like=True, tag="Close", gc=False):
    """The customer asks these owners for their sums: all (0), or those left by its `number`-th
    early end.
    """

    present: tuple[str, ...]
    number: int
    signature: bytes


class Agree(Message, frozen=True, array_like=True, tag="Agree", gc=False):
    """A present owner acknowledges an early end, before pass `index`."""

    name: str
    number: int
    index: int
    signature: bytes


class Agreed(Message, frozen=True, array_like=True, tag="Agreed", gc=False):
    """All present owners' acknowledgements of an early end; returned by the customer, they make it
    final.
    """

    close: Close
    agrees: tuple[Agree, ...]


class Closed(Message, frozen=True, array_like=True, tag="Closed", gc=False):
    """The customer has an answer, whichever: the run is over."""

    signature: bytes


class End(Message, frozen=True, array_like=True, tag="End", gc=False):
    """The customer's operator ends the run early, with the owners that are left."""

    present: tuple[str, ...]


class Sum(Message, frozen=True, array_like=True, tag="Sum", gc=False):
    """(6) One owner's encrypted sum."""

    ciphertext: bytes


class Total(Message, frozen=True, array_like=True, tag="Total", gc=False):
    """(7) The product of all, an encryption of the total."""

    ciphertext: bytes


# A run in use: decisions when they are wanted (`live`).


class Turn(Ask, frozen=True, array_like=True, tag="Turn", gc=False):
    """A role is ready for the step of pass `index`; the world answers with `Now` when a decision is
    wanted.
    """

    index: int


class Now(Message, frozen=True, array_like=True, tag="Now", gc=False):
    """A decision is wanted: the answer to a `Turn`."""

    index: int


class Forgone(Message, frozen=True, array_like=True, tag="Forgone", gc=False):
    """The reward of a `Pull` will not come."""

    number: int
