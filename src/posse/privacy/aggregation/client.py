"""A client: gives one vector to a round, and helps to unmask one sum.

Sans-IO: it answers the server stage by stage and asks the world for its vector (`Contribute`) once
its secrets are in safe hands. Its rules are what the server's honesty is not needed for:
- it masks one vector a round, signs one set of survivors and answers one request to unmask;
- it signs no set that it is not in, that has fewer survivors than the plan's minimum, or a survivor
  that never shared;
- it gives of each neighbour one share, of the self-mask seed if the neighbour survived and else of
  the masking key, and refuses a request that asks for anything else;
- it wants the plan's quorum of signatures on the very set that it signed.
Each rule is a function `check_...` that raises `ProtocolError` and changes nothing.

Shares that do not open end its part: it says whose they are (`Complaint`), and nothing else.

A client that stops between two messages goes on from its last snapshot and nothing older: from an
older one it could mask a second vector with the same masks. One that has none drops out of the
round.

Cost for k neighbours and vectors of d words: 4k agreements, k signatures to verify and the
quorum's, k + 1 streams of d words. Sends about 160 bytes of keys, 82 k bytes of shares, 4 d bytes,
71 bytes, 33 k bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

import numpy as np

from posse.core.errors import ConfigError, FrameError, ProtocolError
from posse.core.roles import WORLD, Action, Message
from posse.core.snapshots import VERSION as SNAPSHOT_VERSION
from posse.core.snapshots import Snapshot, damaged_snapshot, pack, unpack
from posse.privacy.aggregation import messages
from posse.privacy.aggregation.masks import (
    PURPOSE_SURVIVORS,
    RoundKeys,
    add_streams,
    check_advertised,
)
from posse.privacy.aggregation.messages import Advertise, Named
from posse.privacy.aggregation.shamir import SHARE_BYTES
from posse.privacy.aggregation.terms import Stage, Terms
from posse.privacy.crypto.keys import Identity, Secrets, verify

SERVER = "server"
M = TypeVar("M", bound=Message)


class ClientSaved(Snapshot, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a client keeps between two messages of a round."""

    stage: int
    asked: bool
    keys: tuple[tuple[str, Advertise], ...]
    held: Named
    survivors: tuple[str, ...]


@dataclass(frozen=True)
class ClientSecrets:
    """What a client holds and hides."""

    keys: RoundKeys
    shares: Mapping[str, bytes]
    """Both shares of each neighbour that shared, and its own."""


class Client:
    """One client's part of one round.

    `secrets` is a root of its own for each run of this client; keys of two rounds differ by the
    terms. `stage` is what it will send next.
    """

    kind = "client"

    def __init__(self, name: str, terms: Terms, identity: Identity, secrets: Secrets) -> None:
        if name not in terms.positions or terms.identity(name) != identity.public:
            raise ConfigError(
                f"the terms do not list '{name}' with this identity. Correct the roster, or the "
                "key."
            )
        self.name, self.stage = name, Stage.KEYS
        self.terms, self._identity = terms, identity
        self._own = RoundKeys(name, terms, secrets)
        mark = secrets.key(b"aggregation mark", context=terms.digest + name.encode())
        self._run = hashlib.sha256(terms.digest + mark).digest()
        self._asked = False
        self._keys: dict[str, Advertise] = {}
        """What the neighbours advertised."""
        self._held: dict[str, bytes] = {}
        """Both shares of each neighbour that shared, and its own."""
        self._survivors: tuple[str, ...] = ()

    def start(self) -> Sequence[Action]:
        """Advertise the keys of the round."""
        if self.stage != Stage.KEYS:
            raise ProtocolError(
                f"{self.name} has advertised its keys already; a round has one start."
            )
        self.stage = Stage.SHARES
        return (self._send(self._own.advertise(self._identity)),)

    def receive(self, sender: str, message: Message) -> Sequence[Action]:
        """Take one message; what the protocol does not allow is refused with the state as it
        was.
        """
        if sender == WORLD and isinstance(message, messages.Contribution):
            return self._contribute(message)
        if sender != SERVER:
            raise ProtocolError(f"{self.name} listens to '{SERVER}', got a message of '{sender}'.")
        match message:
            case messages.Keys():
                return self._share(self._now(message.terms, message, Stage.SHARES))
            case messages.Delivery():
                return self._take_shares(self._now(message.terms, message, Stage.MASKED))
            case messages.Survivors():
                return self._sign(self._now(message.terms, message, Stage.SURVIVORS))
            case messages.Unmask():
                return self._show(self._now(message.terms, message, Stage.UNMASK))
        raise ProtocolError(
            f"{self.name} got a {type(message).__name__}, which is nothing that a server sends."
        )

    @property
    def finished(self) -> bool:
        """Whether it has answered the request to unmask, or dropped out."""
        return self.stage == Stage.OVER

    def state(self) -> dict[str, object]:
        """What an operator standing at this client may see."""
        return {
            "round": self.terms.round,
            "stage": self.stage.name.lower(),
            "neighbours": len(self._keys),
            "survivors": len(self._survivors),
        }

    def reveal(self) -> ClientSecrets:
        """Return its keys of the round, and the shares that it holds."""
        return ClientSecrets(self._own, dict(self._held))

    def save(self) -> dict[str, object]:
        """Return the whole state; it holds shares of the neighbours' secrets."""
        return pack(
            ClientSaved(
                version=SNAPSHOT_VERSION,
                kind=self.kind,
                name=self.name,
                run=self._run,
                stage=int(self.stage),
                asked=self._asked,
                keys=tuple(self._keys.items()),
                held=tuple(self._held.items()),
                survivors=self._survivors,
            )
        )

    def load(self, saved: Mapping[str, object]) -> None:
        """Take up what `save` returned."""
        read = unpack(saved, ClientSaved, kind=self.kind, name=self.name, run=self._run)
        keys, held = dict(read.keys), dict(read.held)
        known = keys.keys() | {self.name}
        named = keys.keys() <= self.terms.neighbours(self.name) and held.keys() <= known
        if read.stage not in list(map(int, Stage)) or not named:
            raise damaged_snapshot(
                self.kind, self.name, "it names a stage or clients that the terms do not."
            )
        self.stage, self._asked, self._survivors = Stage(read.stage), read.asked, read.survivors
        self._keys, self._held = keys, held

    def _now(self, terms: bytes, message: M, stage: Stage) -> M:
        """Refuse what is of another round or comes out of turn: a second message of its kind,
        too.
        """
        if terms != self.terms.digest:
            raise ProtocolError(
                f"{self.name} is in round {self.terms.round}, got a {type(message).__name__} of "
                "another one."
            )
        if self.stage != stage or (stage == Stage.MASKED and self._asked):
            raise ProtocolError(
                f"{self.name} takes one {type(message).__name__} a round and in its turn; its "
                "stage is "
                f"{self.stage.name.lower()}."
            )
        return message

    def _share(self, message: messages.Keys) -> Sequence[Action]:
        keys, terms, me = dict(message.keys), self.terms, self.name
        check_names(me, (name for name, _ in message.keys), terms.neighbours(me))
        check_holders(me, terms, len(keys) + 1)
        for name, advertised in keys.items():
            check_advertised(name, advertised, terms)
        made = self._own.shares([me, *keys])
        frames = [
            (name, self._own.seal(name, keys[name].sealing, made[name])) for name in sorted(keys)
        ]
        self._keys, self._held, self.stage = keys, {me: made[me]}, Stage.MASKED
        return (self._send(messages.Shares(terms.digest, tuple(frames))),)

    def _take_shares(self, message: messages.Delivery) -> Sequence[Action]:
        check_names(self.name, (name for name, _ in message.frames), self._keys)
        check_holders(self.name, self.terms, len(message.frames) + 1)
        opened = {name: self._opened(name, frame) for name, frame in message.frames}
        bad = tuple(
            sorted(name for name, shares in opened.items() if len(shares) != 2 * SHARE_BYTES)
        )
        if bad:
            self._held, self.stage = {}, Stage.OVER
            return (self._send(messages.Complaint(self.terms.digest, bad)),)
        self._held, self._asked = {**self._held, **opened}, True
        return (messages.Contribute(self.name, self.terms.round),)

    def _opened(self, name: str, frame: bytes) -> bytes:
        """Open two shares; what does not open is empty."""
        try:
            return self._own.open(name, self._keys[name].sealing, frame)
        except FrameError:
            return b""

    def _contribute(self, message: messages.Contribution) -> Sequence[Action]:
        length, stage = 4 * self.terms.length, self.stage.name.lower()
        if self.stage != Stage.MASKED or not self._asked or message.round != self.terms.round:
            raise ProtocolError(
                f"{self.name} gives one vector to round {self.terms.round} and when it asks for "
                "it, got one for round "
                f"{message.round} at stage {stage}."
            )
        if len(message.words) != length:
            raise ProtocolError(
                f"a vector of this round has {length} bytes, 4 a word; got {len(message.words)}."
            )
        words = np.frombuffer(message.words, "<u4").astype(np.uint32)
        others = ((name, self._keys[name].masking) for name in self._held if name != self.name)
        add_streams(words, self._own.mask_streams(others))
        self.stage = Stage.SURVIVORS
        return (
            self._send(
                messages.Masked(self.terms.digest, words.astype("<u4", copy=False).tobytes())
            ),
        )

    def _sign(self, message: messages.Survivors) -> Sequence[Action]:
        check_survivors(self.name, self.terms, self._held, message.names)
        self._survivors, self.stage = message.names, Stage.UNMASK
        signature = self._identity.sign(
            PURPOSE_SURVIVORS, self.terms.survivors_digest(message.names)
        )
        return (self._send(messages.Signed(self.terms.digest, signature)),)

    def _show(self, message: messages.Unmask) -> Sequence[Action]:
        check_request(self.name, self._held, self._survivors, message)
        check_quorum(self.name, self.terms, self._survivors, message.signatures)
        self_masks = tuple((name, self._held[name][:SHARE_BYTES]) for name in message.self_masks)
        mask_keys = tuple((name, self._held[name][SHARE_BYTES:]) for name in message.mask_keys)
        self._held, self.stage = {}, Stage.OVER
        return (self._send(messages.Shown(self.terms.digest, self_masks, mask_keys)),)

    def _send(self, message: Message) -> tuple[str, str, Message]:
        return (self.name, SERVER, message)


def check_names(me: str, names: Iterable[str], allowed: Collection[str]) -> None:
    """Refuse a list that names a client twice, or one that is not allowed in it."""
    listed = list(names)
    if len(set(listed)) != len(listed):
        raise ProtocolError(f"{me} got two things of one client where it takes one.")
    strangers = sorted(set(listed) - set(allowed))
    if strangers:
        raise ProtocolError(
            f"{me} got something of '{strangers[0]}', of whom it expects nothing here."
        )


def check_holders(me: str, terms: Terms, count: int) -> None:
    """Refuse to go on with fewer holders of shares than reconstruct a secret."""
    if count < terms.plan.threshold:
        raise ProtocolError(
            f"{me} needs {terms.plan.threshold} holders of its shares, itself among them, got "
            f"{count}. "
            "Run the round again with more clients, or plan for more dropouts."
        )


def check_survivors(me: str, terms: Terms, held: Collection[str], names: tuple[str, ...]) -> None:
    """Refuse a set of survivors without me, below the minimum, or with a neighbour that never
    shared.

    A neighbour that never shared has no mask with me: to count it would leave its vector unmasked
    on my side.
    """
    if any(a >= b for a, b in pairwise(names)) or not set(names) <= terms.positions.keys():
        raise ProtocolError(
            "the survivors must be clients of the round, each once and in alphabetical order."
        )
    if me not in names:
        raise ProtocolError(f"{me} was declared dropped and helps to unmask nothing.")
    if len(names) < terms.plan.survivors:
        raise ProtocolError(
            f"{me} helps with a sum of at least {terms.plan.survivors} survivors, got "
            f"{len(names)}. "
            "Run the round again, or plan for more dropouts."
        )
    strangers = (terms.neighbours(me) & set(names)) - set(held)
    if strangers:
        raise ProtocolError(f"'{min(strangers)}' is said to survive and shared nothing with {me}.")


def kinds(
    held: Collection[str], survivors: Collection[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Whose self-mask shares, and whose mask-key shares, the holder of some shares may show."""
    alive = set(held) & set(survivors)
    return tuple(sorted(alive)), tuple(sorted(set(held) - alive))


def check_request(
    me: str, held: Collection[str], survivors: Collection[str], request: messages.Unmask
) -> None:
    """Refuse a request for both shares of a client, or for another set than the one signed."""
    both = set(request.self_masks) & set(request.mask_keys)
    if both:
        raise ProtocolError(
            f"both shares of '{min(both)}' were asked for; {me} gives one of each neighbour."
        )
    allowed = kinds(held, survivors)
    if (request.self_masks, request.mask_keys) != allowed:
        raise ProtocolError(
            f"{me} shows self-mask shares of the {len(allowed[0])} survivors it holds shares of "
            "and mask-key shares of "
            f"the {len(allowed[1])} others, and was asked for another choice. Ask for the set that "
            "was signed."
        )


def check_quorum(me: str, terms: Terms, survivors: tuple[str, ...], signatures: Named) -> None:
    """Refuse unless enough different survivors signed this very set, as the plan demands."""
    check_names(me, (name for name, _ in signatures), survivors)
    if len(signatures) < terms.plan.quorum:
        raise ProtocolError(
            f"{me} wants {terms.plan.quorum} signatures on the set of survivors, got "
            f"{len(signatures)}. "
            "Wait for more clients to sign."
        )
    signed = terms.survivors_digest(survivors)
    for name, signature in signatures[: terms.plan.quorum]:
        verify(terms.identity(name), PURPOSE_SURVIVORS, signed, signature)
