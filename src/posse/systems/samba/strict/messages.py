"""What travels at level `strict` beside the messages of every level; numbers in brackets are the
paper's steps.

Everything goes through the controller. What it must not read is sealed to its receiver (HPKE, or
AES-256-GCM under a key that the dealer and comp share) or is one of two shares.
"""

from __future__ import annotations

from posse.core.roles import Ask, Message
from posse.systems.samba.messages import Keys


class Keyring(Message, frozen=True, array_like=True, tag="Keyring", gc=False):
    """The first owner's secrets for every owner and the customer, each sealed and signed by
    itself.
    """

    keys: tuple[Keys, ...]


class Stream(Message, frozen=True, array_like=True, tag="Stream", gc=False):
    """An owner's stream key of this run and start, sealed to comp; and its signature."""

    sealed: bytes
    signature: bytes


class Streams(Message, frozen=True, array_like=True, tag="Streams", gc=False):
    """All owners' stream keys, in the order of the manifest."""

    streams: tuple[Stream, ...]


class Seeds(Message, frozen=True, array_like=True, tag="Seeds", gc=False):
    """The dealer's seed for one server, sealed to it; and the dealer's signature."""

    sealed: bytes
    signature: bytes


class Dealing(Message, frozen=True, array_like=True, tag="Dealing", gc=False):
    """The dealer's seeds for both servers."""

    controller: Seeds
    comp: Seeds


class Want(Message, frozen=True, array_like=True, tag="Want", gc=False):
    """The controller asks the dealer to deal up to these chunks of passes and of comparisons."""

    passes: int
    pairs: int


class Dealt(Message, frozen=True, array_like=True, tag="Dealt", gc=False):
    """A chunk of passes: for the controller, and sealed for comp."""

    chunk: int
    controller: bytes
    comp: bytes


class DealtPairs(Message, frozen=True, array_like=True, tag="DealtPairs", gc=False):
    """A chunk of comparisons for the controller."""

    chunk: int
    data: bytes


class Relayed(Message, frozen=True, array_like=True, tag="Relayed", gc=False):
    """The dealer's chunk of passes for comp."""

    chunk: int
    sealed: bytes


class Ahead(Message, frozen=True, array_like=True, tag="Ahead", gc=False):
    """What comp says before the scores of a pass are there: its masked share, and its part of the
    replies.
    """

    index: int
    share: bytes
    replies: bytes


class Shuffled(Message, frozen=True, array_like=True, tag="Shuffled", gc=False):
    """(3) The scores of a pass, shuffled by the controller and masked; and the first comparisons it
    asks for.
    """

    index: int
    masked: bytes
    champion: int
    places: bytes
    shifts: bytes


class Compare(Message, frozen=True, array_like=True, tag="Compare", gc=False):
    """(4) Further comparisons: of a champion with each place, or (-1) of all pairs of places."""

    index: int
    champion: int
    places: bytes
    shifts: bytes


class Compared(Message, frozen=True, array_like=True, tag="Compared", gc=False):
    """(4) Comp's answer, which tells the controller the order of each pair and nothing else."""

    index: int
    answer: bytes


class Found(Message, frozen=True, array_like=True, tag="Found", gc=False):
    """(4) Where the largest score is, in the order that both have shuffled."""

    index: int
    place: int


class Placed(Message, frozen=True, array_like=True, tag="Placed", gc=False):
    """(4) The same place before comp's shuffle, masked; and what comp says ahead of the next
    pass.
    """

    index: int
    bits: bytes
    ahead: Ahead | None


class Tick(Ask, frozen=True, array_like=True, tag="Tick", gc=False):
    """Wait for the end of a slot, so many seconds from now; the world answers with a `Tock`."""

    number: int
    seconds: float


class Tock(Message, frozen=True, array_like=True, tag="Tock", gc=False):
    """The world's answer to a `Tick`."""

    number: int


class Ready(Message, frozen=True, array_like=True, tag="Ready", gc=False):
    """The controller's share of the sum of all ready words of a slot."""

    slot: int
    word: int


class Opened(Message, frozen=True, array_like=True, tag="Opened", gc=False):
    """Comp's answer: the pads of the slot's scores where all owners are ready, nothing where one is
    not.
    """

    slot: int
    pads: bytes


class Again(Message, frozen=True, array_like=True, tag="Again", gc=False):
    """Not all owners were ready: everybody answers in the next slot."""

    slot: int


class Share(Message, frozen=True, array_like=True, tag="Share", gc=False):
    """(6) Comp's share of the sum and its tag, sealed to the customer; and comp's signature."""

    sealed: bytes
    signature: bytes


class Shares(Message, frozen=True, array_like=True, tag="Shares", gc=False):
    """(7) Both servers' shares of the sum."""

    controller: bytes
    comp: Share
