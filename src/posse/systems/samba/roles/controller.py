"""The controller: it forwards, permutes and un-permutes; it opens nothing."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from posse.core.errors import ProtocolError
from posse.core.random import COIN, ORDER, shuffle
from posse.core.roles import Action, Message, Note, Send, SendMany
from posse.core.snapshots import Count, pack
from posse.privacy.crypto.keys import Identity, Secrets
from posse.privacy.crypto.paillier import Ciphertext, sum_of
from posse.privacy.crypto.streams import Permutations
from posse.systems.samba.kernels import kernels
from posse.systems.samba.messages import (
    Agree,
    Batch,
    Choice,
    Close,
    Closed,
    Consent,
    Consents,
    Explore,
    Go,
    Join,
    Keys,
    Masks,
    Offer,
    Proposal,
    Reply,
    Roster,
    Score,
    Sum,
    Total,
)
from posse.systems.samba.roles.draws import Draws
from posse.systems.samba.roles.lanes import frame_bytes, reply_bytes
from posse.systems.samba.setup import (
    COMP,
    CONTROLLER,
    CUSTOMER,
    Expected,
    Handlers,
    Participant,
    ParticipantSaved,
    paillier_key,
)


class Order(Protocol):
    """Where the permutations come from."""

    def at(self, index: int) -> NDArray[np.int64]:
        """Return the permutation of an index: position -> owner."""


class WorldOrder:
    """Permutations of a simulated world at level `paper`: its twin derives the same ones."""

    def __init__(self, seed: int, size: int) -> None:
        self._seed = np.uint64(seed)
        self._size = size

    def at(self, index: int) -> NDArray[np.int64]:
        """Return the permutation of an index."""
        out = np.empty(self._size, np.int64)
        shuffle(self._seed, ORDER, index, out)
        return out


class NoOrder:
    """The identity, for level `paper` with its permutation switched off."""

    def __init__(self, size: int) -> None:
        self._identity = np.arange(size, dtype=np.int64)

    def at(self, index: int) -> NDArray[np.int64]:
        """Return the identity."""
        return self._identity


class ControllerSaved(ParticipantSaved, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of the controller: who has said what in this phase or pass."""

    joins: list[Join]
    consents: list[Consent]
    """Its own without the signature, which it makes again."""
    proposed: bool
    keyed: bool
    end: Close | None
    """The set of owners that the customer asks for; none at level `paper`."""
    agrees: dict[str, Agree]
    settled: bool
    """Whether the set of owners stands."""
    index: Count
    frames: dict[str, bytes]
    """Frames of the pass that have arrived."""
    forwarded: bool
    """Whether the pass is at comp."""
    sums: dict[str, bytes]


@dataclass(frozen=True)
class ControllerSecrets:
    """What the controller holds and hides."""

    order: Order
    """Of the places in which comp sees the owners, at level `paper`."""
    frames: Mapping[str, bytes]
    """Those of the pass that is open, by owner."""


class Controller(Participant):
    """Relays the setup, then for every pass collects K frames, permutes them, and hands comp's
    answers back.
    """

    def __init__(
        self,
        identity: Identity,
        customer: bytes,
        expected: Expected,
        owners: Sequence[str],
        world_seed: int | None,
        *,
        secrets: Secrets | None = None,
    ) -> None:
        super().__init__(CONTROLLER, "controller", identity, customer, expected, secrets=secrets)
        self._policy = expected.policy
        self._world_seed = world_seed
        self._owners = tuple(owners)
        self._size = len(self._owners)
        self._everyone = (*self._owners, COMP)
        self._joins: dict[str, Join] = {}
        self._consents: dict[str, Consent] = {}
        self._proposed = self._keyed = self._settled = False
        self._end: Close | None = None
        self._agrees: dict[str, Agree] = {}
        self._order: Order = NoOrder(0)
        self._index = self._last = 0
        self._awaited: set[str] = set()
        self._frames: dict[str, bytes] = {}
        self._frame_bytes = self._reply_bytes = 0
        self._permuted: list[int] = []
        self._coins: Draws | None = None
        self._sums: dict[str, bytes] = {}
        self._handlers: Handlers = {
            Join: self._on_join,
            Proposal: self._on_proposal,
            Offer: self._on_offer,
            Consent: self._on_consent,
            Go: self._on_go,
            Keys: self._on_keys,
            Choice: self._on_choice,
            Sum: self._on_sum,
            Closed: self._on_closed,
        }

    def start(self) -> Sequence[Action]:
        """Wait for the others."""
        return ()

    def receive(self, sender: str, message: Message) -> Sequence[Action]:
        """Take one message.

        A controller that lost power may hear its peers again in another order, and must send on
        each link what it sent before. So it refuses consents, Go and Closed before it has sent what
        they answer, and the runtime holds them.
        """
        if isinstance(message, Score):
            actions: list[Action] = []
            self.take_scores([(sender, self.name, message)], actions)
            return actions
        handler = self._handlers.get(type(message))
        return self.unexpected(sender, message) if handler is None else handler(sender, message)

    @staticmethod
    def receive_all(
        roles: Mapping[str, Controller], sends: Iterable[Send], actions: list[Action]
    ) -> None:
        """Take scores (2), one an owner and pass; forward the pass when the last has arrived
        (3).
        """
        roles[CONTROLLER].take_scores(sends, actions)

    def take_scores(self, sends: Iterable[Send], actions: list[Action]) -> None:
        """Take scores, and append what follows from them."""
        index, size = self._index, self._frame_bytes
        awaited, frames = self._awaited, self._frames
        for sender, _, message in sends:
            if self._ended_early:
                continue
            if type(message) is not Score or message.index != index or sender not in awaited:
                raise ProtocolError(
                    f"expected one frame an owner of pass {index}, got another from '{sender}'."
                )
            if len(message.frame) != size:
                raise ProtocolError(
                    f"expected a frame of {size} bytes, got {len(message.frame)} from '{sender}'."
                )
            awaited.remove(sender)
            frames[sender] = message.frame
            if not awaited:
                actions.extend(self._forward())

    # Setup ----------------------------------------------------------------------------------------

    def _expect(self, sender: str, *senders: str) -> None:
        if sender not in senders:
            raise ProtocolError(f"the controller does not take this message from '{sender}'.")

    def _on_join(self, sender: str, message: Join) -> Sequence[Action]:
        self._expect(sender, *self._everyone)
        if message.name != sender or sender in self._joins:
            raise ProtocolError(f"'{sender}' has joined already, or joins under another name.")
        self._joins[sender] = message
        return self._roster()

    def _on_proposal(self, sender: str, message: Proposal) -> Sequence[Action]:
        self._expect(sender, CUSTOMER)
        if self._proposed:
            raise ProtocolError("the customer proposes once.")
        self._proposed = True
        return self._roster()

    def _roster(self) -> Sequence[Action]:
        if not self._proposed or len(self._joins) < len(self._everyone):
            return ()
        return (
            (
                CONTROLLER,
                CUSTOMER,
                Roster((*(self._joins[name] for name in self._everyone), self.join())),
            ),
        )

    def _on_offer(self, sender: str, message: Offer) -> Sequence[Action]:
        self._expect(sender, CUSTOMER)
        self._consents[CONTROLLER] = self.consider(message)
        return [(CONTROLLER, name, message) for name in self._everyone]

    def _on_consent(self, sender: str, message: Consent) -> Sequence[Action]:
        self._expect(sender, *self._everyone)
        if message.name != sender or sender in self._consents or CONTROLLER not in self._consents:
            raise ProtocolError(
                f"'{sender}' has signed already, signs for another, or before there is an offer."
            )
        self._consents[sender] = message
        if len(self._consents) < len(self._everyone) + 1:
            return ()
        return ((CONTROLLER, CUSTOMER, Consents(tuple(self._consents.values()))),)

    def go(self, message: Go) -> None:
        """Take the customer's word that everyone signed the same manifest, which has the signatures
        from here.
        """
        if len(self._consents) < len(self._everyone) + 1:
            raise ProtocolError("the run starts once the customer has all signatures.")
        super().go(message)

    def _on_go(self, sender: str, message: Go) -> Sequence[Action]:
        self._expect(sender, CUSTOMER)
        self.go(message)
        keys = self._enter()
        return [
            *((CONTROLLER, name, message) for name in self._everyone),
            *((CONTROLLER, name, keys) for name in self._owners),
        ]

    def _enter(self) -> Masks:
        """Stand before the first pass; return the keys of masks and coins."""
        terms = self.manifest.terms
        size = len(self._owners)
        self._index = self._expected.start(self.manifest)
        self._last = (terms.budget + 1) * terms.passes - 1
        self._frame_bytes, self._reply_bytes = frame_bytes(terms.off), reply_bytes(terms.off)
        self._awaited = set(self._owners)
        if "permutation" in terms.off:
            self._order = NoOrder(size)
        elif self._world_seed is not None:
            self._order = WorldOrder(self._world_seed, size)
        else:
            self._order = Permutations(
                self._secrets.key(b"samba permutations", context=self._context()), size
            )
        purposes = (b"samba paper masks", b"samba paper coins")
        keys = Masks(*(self._secrets.key(purpose, context=self._context()) for purpose in purposes))
        self._coins = Draws(COIN, self._world_seed, keys.coins)
        return keys

    def _on_keys(self, sender: str, message: Keys) -> Sequence[Action]:
        self._expect(sender, self._owners[0])
        if self._keyed or not self._going:
            raise ProtocolError("the keys are relayed once, after the start.")
        self._keyed = True
        relayed = [(CONTROLLER, name, message) for name in (COMP, *self._owners)]
        return [*relayed, *self._begin()]

    # Steps 2 to 5 ---------------------------------------------------------------------------------

    def _forward(self) -> Sequence[Action]:
        """Permute the frames of a pass after the last has arrived (3)."""
        self._permuted = self._order.at(self._index).tolist()
        return (
            (
                CONTROLLER,
                COMP,
                Batch(
                    self._index, b"".join([self._frames[self._owners[i]] for i in self._permuted])
                ),
            ),
        )

    @property
    def _ended_early(self) -> bool:
        return self._end is not None and self._end.number > 0

    def _on_choice(self, sender: str, message: Choice) -> Sequence[Action]:
        self._expect(sender, COMP)
        size = self._reply_bytes
        if (
            message.index != self._index
            or len(message.replies) != size * self._size
            or not self._permuted
        ):
            raise ProtocolError(
                f"expected {self._size} answers to pass {self._index}, got something else."
            )
        index = self._index
        permuted = struct.unpack(f"{size}s" * self._size, message.replies)
        replies = list(permuted)
        for reply, owner in zip(permuted, self._permuted, strict=True):
            replies[owner] = reply
        sends: list[Send] = [
            (CONTROLLER, name, Reply(index, reply))
            for name, reply in zip(self._owners, replies, strict=True)
        ]
        actions: list[Action] = [SendMany(sends)]
        self._index += 1
        self._awaited = set(self._owners)
        self._frames = {}
        self._permuted = []
        passes = self.manifest.terms.passes
        if self._index % passes == 0:
            actions.append(Note(self.name, "step", index // passes))
        actions.extend(self._begin())
        return actions

    def _begin(self) -> Sequence[Action]:
        """Before a pass: exploring needs no scores (shortcut)."""
        terms = self.manifest.terms
        if self._index > self._last:
            return ()
        last_pass = self._index % terms.passes == terms.passes - 1
        if not self._policy.explores or not last_pass or "shortcut" in terms.off:
            return ()
        assert self._coins is not None
        step = self._index // terms.passes
        size = len(self._owners)
        if not kernels(self._policy).exploring(
            self._coins.at(step), step, size, self._policy.parameters()
        ):
            return ()
        self._awaited = set()
        self._permuted = self._order.at(self._index).tolist()
        return ((CONTROLLER, COMP, Explore(self._index)),)

    # Steps 6 and 7 --------------------------------------------------------------------------------

    def _on_closed(self, sender: str, message: Closed) -> Sequence[Action]:
        self._expect(sender, CUSTOMER)
        if self._over or len(self._sums) < len(self._present):
            raise ProtocolError("the run is over once, when the customer has an answer.")
        self.close(message)
        return [(CONTROLLER, name, message) for name in self._everyone]

    @property
    def _present(self) -> tuple[str, ...]:
        """Owners whose sums are asked for."""
        return self._owners if self._end is None else self._end.present

    @property
    def needs(self) -> tuple[str, ...]:
        """Everyone but owners that were left out: they must have the word that the run is over."""
        parties = (*self._present, *self._everyone[self._size :])
        return parties if self._over else (*parties, CUSTOMER)

    def _on_sum(self, sender: str, message: Sum) -> Sequence[Action]:
        self._expect(sender, *self._present)
        if self._index <= self._last or sender in self._sums:
            raise ProtocolError(
                f"'{sender}' has sent its sum already, or before the budget is spent."
            )
        key = paillier_key(self.manifest.terms.paillier_n)
        clear = "paillier" in self.manifest.terms.off
        if clear and len(message.ciphertext) != 16:
            raise ProtocolError(
                f"expected a sum of 16 bytes, got {len(message.ciphertext)} from '{sender}'."
            )
        if not clear:
            Ciphertext.from_bytes(message.ciphertext, key)
        self._sums[sender] = message.ciphertext
        if len(self._sums) < len(self._present):
            return ()
        if clear:
            total = sum(int.from_bytes(value, "big") for value in self._sums.values())
            return ((CONTROLLER, CUSTOMER, Total(total.to_bytes(32, "big"))),)
        product = sum_of(Ciphertext.from_bytes(value, key) for value in self._sums.values())
        return ((CONTROLLER, CUSTOMER, Total(product.rerandomise().to_bytes())),)

    def state(self) -> dict[str, object]:
        """What the controller's operator may see: how far the run is, never who was chosen."""
        return {**self.progress(self._index), "arrived": len(self._frames)}

    def reveal(self) -> ControllerSecrets:
        """Return the permutations, and the frames of this pass."""
        return ControllerSecrets(self._order, dict(self._frames))

    def save(self) -> dict[str, Any]:
        """Return the whole state; permutations and seeds derive from the secrets."""
        return pack(ControllerSaved(**self._common()))

    def _common(self) -> dict[str, Any]:
        unsigned = {CONTROLLER: Consent(CONTROLLER, b"")} if CONTROLLER in self._consents else {}
        return {
            **self._saved(),
            "joins": list(self._joins.values()),
            "consents": list({**self._consents, **unsigned}.values()),
            "proposed": self._proposed,
            "keyed": self._keyed,
            "end": self._end,
            "agrees": self._agrees,
            "settled": self._settled,
            "index": self._index,
            "frames": self._frames,
            "forwarded": self._forwarded,
            "sums": self._sums,
        }

    @property
    def _forwarded(self) -> bool:
        return bool(self._permuted)

    def _take_setup(self, read: ControllerSaved) -> None:
        """Take up what was said before the first step, and whether the sums were asked for."""
        self._joins = {join.name: join for join in read.joins}
        self._consents = {consent.name: consent for consent in read.consents}
        if CONTROLLER in self._consents:
            self._consents[CONTROLLER] = self.consent()
        self._proposed, self._keyed, self._settled = read.proposed, read.keyed, read.settled
        self._end, self._agrees = read.end, dict(read.agrees)

    def _restore(self, saved: Mapping[str, Any]) -> None:
        read = self._loaded(saved, ControllerSaved)
        self._take_setup(read)
        if self._going:
            self._enter()
            if (
                not self._index <= read.index <= self._last + 1
                or not set(read.frames) | set(read.sums) <= self._awaited
            ):
                raise ProtocolError("it stands outside the run.")
        elif read.index or read.frames or read.sums or read.forwarded:
            raise ProtocolError("it is in a step before the start.")
        self._index, self._frames, self._sums = read.index, dict(read.frames), dict(read.sums)
        self._awaited = set() if read.forwarded else self._awaited - set(self._frames)
        if read.forwarded:
            self._permuted = self._order.at(self._index).tolist()
