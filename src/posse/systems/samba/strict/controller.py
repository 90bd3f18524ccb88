"""The controller of level `strict`: it holds the other share of every score, and learns a random
order a pass.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from posse.core.errors import ProtocolError
from posse.core.roles import DURABLE, Action, Note, Send, SendMany
from posse.core.snapshots import pack
from posse.privacy.crypto.keys import Identity, Secrets, verify
from posse.privacy.sharing.shuffle import ALL_PAIRS, PAIRS, First, Question, passes
from posse.systems.samba.messages import (
    Agree,
    Agreed,
    Choice,
    Close,
    Go,
    Keys,
    Reply,
    Spent,
    Sum,
)
from posse.systems.samba.roles.controller import Controller, ControllerSaved, ControllerSecrets
from posse.systems.samba.setup import COMP, CONTROLLER, CUSTOMER, DEALER, Expected
from posse.systems.samba.strict import slots, sums
from posse.systems.samba.strict.closing import check_agreed, check_close, refused_end, same
from posse.systems.samba.strict.messages import (
    Again,
    Ahead,
    Compare,
    Compared,
    Dealing,
    Dealt,
    DealtPairs,
    Found,
    Keyring,
    Opened,
    Placed,
    Ready,
    Relayed,
    Share,
    Shares,
    Shuffled,
    Stream,
    Streams,
    Want,
)

FRAME = 8
"""Bytes of an owner's frame, and of the reply to it; with slots a frame has another such word."""


def pairs_in_store(owners: int) -> int:
    """Comparisons that are dealt ahead: what two passes take, almost always."""
    return owners * (owners - 1) if owners <= ALL_PAIRS else 5 * owners + PAIRS


class StrictSaved(ControllerSaved, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of the controller: where it was before the pass that goes on, and comp's answers since."""

    keyring: Keyring | None
    streams: dict[str, Stream]
    dealing: Dealing | None
    number: int
    compared: int
    dealt: dict[int, bytes]
    pairs: dict[int, bytes]
    kept: dict[int, bytes]
    """The dealer's chunks for comp that are not relayed yet."""
    wanted: tuple[int, int]
    ahead: Ahead | None
    answers: list[bytes]
    place: bool
    """Whether the largest of the pass is found and comp is asked for its place."""
    gate: slots.Gate
    share: Share | None


@dataclass(frozen=True)
class StrictControllerSecrets(ControllerSecrets):
    """What the controller of level `strict` holds and hides."""

    dealing: Dealing | None
    """The sealed seeds of both servers."""
    search: First | None
    """Its part of the search, with its share of the dealer's numbers."""


class StrictController(Controller):
    """Collects one share of every score, shuffles, asks comp to compare, and hands every owner its
    own bit, masked.
    """

    def __init__(
        self,
        identity: Identity,
        customer: bytes,
        expected: Expected,
        owners: Sequence[str],
        *,
        secrets: Secrets | None = None,
    ) -> None:
        super().__init__(identity, customer, expected, owners, None, secrets=secrets)
        self._everyone = (*self._owners, COMP, DEALER)
        self._keyring: Keyring | None = None
        self._streams: dict[str, Stream] = {}
        self._dealing: Dealing | None = None
        self._first: First | None = None
        self._start = 0
        self._kept: dict[int, bytes] = {}
        self._wanted = (-1, -1)
        self._ahead: Ahead | None = None
        self._mark: tuple[int, int, dict[int, bytes], dict[int, bytes]] = (-1, 0, {}, {})
        self._answers: list[bytes] = []
        self._begun = self._waits = self._place = False
        self._share: Share | None = None
        self.gate = slots.Gate()
        del self._handlers[Keys], self._handlers[Choice]
        self._handlers |= {
            Keyring: self._on_keyring,
            Stream: self._on_stream,
            Dealing: self._on_dealing,
            Dealt: self._on_dealt,
            DealtPairs: self._on_pairs,
            Ahead: self._on_ahead,
            Compared: self._on_compared,
            Placed: self._on_placed,
            Share: self._on_share,
            Opened: self._on_opened,
            Close: self._on_close,
            Agree: self._on_agree,
            Agreed: self._on_agreed,
        }

    # Setup ----------------------------------------------------------------------------------------

    def _on_go(self, sender: str, message: Go) -> Sequence[Action]:
        self._expect(sender, CUSTOMER)
        self.go(message)
        self._enter_strict()
        return [(CONTROLLER, name, message) for name in self._everyone]

    def _enter_strict(self) -> None:
        terms = self.manifest.terms
        self._start = self._index = self._expected.start(self.manifest)
        self._last = (terms.budget + 1) * terms.passes - 1
        self._frame_bytes, self._reply_bytes = 2 * FRAME if terms.slot else FRAME, FRAME
        self._awaited = set(self._owners)

    def _on_keyring(self, sender: str, message: Keyring) -> Sequence[Action]:
        self._expect(sender, self._owners[0])
        if self._keyring is not None or not self._going or len(message.keys) != self._size + 1:
            raise ProtocolError(
                "the keys of all owners and the customer are relayed once, after the start."
            )
        if len({(keys.frame_commitment, keys.own_commitment) for keys in message.keys}) > 1:
            raise ProtocolError(
                f"'{sender}' commits to other secrets for one party than for another."
            )
        self._keyring = message
        return self._relay()

    def _on_stream(self, sender: str, message: Stream) -> Sequence[Action]:
        self._expect(sender, *self._owners)
        if sender in self._streams or not self._going:
            raise ProtocolError(f"'{sender}' has sent its stream key already, or before the start.")
        self._streams[sender] = message
        return self._relay()

    def _on_dealing(self, sender: str, message: Dealing) -> Sequence[Action]:
        self._expect(sender, DEALER)
        if self._dealing is not None or not self._going:
            raise ProtocolError("the dealer's seeds come once, after the start.")
        self._open(message)
        self._dealing = message
        return self._relay()

    def _open(self, message: Dealing) -> None:
        info, seeds = self.info("seed", CONTROLLER), message.controller
        verify(self.manifest.member(DEALER).identity, b"seed", info + seeds.sealed, seeds.signature)
        own = self._secrets.key(b"samba strict search", context=self._context())
        self._first = First(self._size, self._run_key.open(seeds.sealed, info), own)

    def _relay(self) -> Sequence[Action]:
        """Hand on what owners and dealer sealed, all at once: so that no link depends on who came
        first.
        """
        if self._keyring is None or self._dealing is None or len(self._streams) < self._size:
            return ()
        self._keyed = True
        streams, slot = (
            Streams(tuple(self._streams[name] for name in self._owners)),
            self.manifest.terms.slot,
        )
        keys = zip((*self._owners, CUSTOMER), self._keyring.keys, strict=True)
        return [
            (CONTROLLER, COMP, self._dealing.comp),
            (CONTROLLER, COMP, streams),
            *((CONTROLLER, name, key) for name, key in keys),
            *(self._want(0) if self._index <= self._last else ()),
            *(
                [(CONTROLLER, CUSTOMER, Spent(self._owners))]
                if self._last < self._index and not slot
                else []
            ),
        ]

    # Dealing --------------------------------------------------------------------------------------

    def _chunk(self, number: int) -> int:
        """Return the chunk of a pass, of those that there are."""
        return min(number, self._last - self._start) // passes(self._size)

    def _want(self, more: int) -> Sequence[Action]:
        """Ask for what this pass and the next ones need, and for so many comparisons beside."""
        first = self._first
        assert first is not None
        number = self._index - self._start
        upto = -(-(first.compared + pairs_in_store(self._size) + more) // PAIRS)
        wanted = (
            max(self._wanted[0], self._chunk(number + passes(self._size) + 1)),
            max(self._wanted[1], upto),
        )
        if wanted == self._wanted:
            return ()
        self._wanted = wanted
        return ((CONTROLLER, DEALER, Want(*wanted)),)

    def _on_dealt(self, sender: str, message: Dealt) -> Sequence[Action]:
        self._expect(sender, DEALER)
        if self._first is None or message.chunk in self._kept or message.chunk > self._wanted[0]:
            raise ProtocolError(f"chunk {message.chunk} was not asked for.")
        self._first.deal(message.chunk, message.controller)
        if (
            message.chunk == 0
        ):  # comp begins the first pass with it; later ones go out at the pass that needs them
            return ((CONTROLLER, COMP, Relayed(0, message.comp)),)
        self._kept[message.chunk] = message.comp
        return self._go_on()

    def _on_pairs(self, sender: str, message: DealtPairs) -> Sequence[Action]:
        self._expect(sender, DEALER)
        if self._first is None or message.chunk > self._wanted[1]:
            raise ProtocolError(f"comparisons {message.chunk} were not asked for.")
        self._first.deal_pairs(message.chunk, message.data)
        return self._go_on()

    # Steps 2 to 5 ---------------------------------------------------------------------------------

    def _on_ahead(self, sender: str, message: Ahead) -> Sequence[Action]:
        self._expect(sender, COMP)
        if message.index != self._start or self._ahead is not None or self._index != self._start:
            raise ProtocolError("comp begins the first pass once.")
        self._take_ahead(message)
        return () if self._awaited else self._forward()

    def _take_ahead(self, message: Ahead) -> None:
        if len(message.share) != FRAME * self._size or len(message.replies) != FRAME * self._size:
            raise ProtocolError(f"expected {self._size} masked shares and replies of comp.")
        self._ahead = message

    def _forward(self) -> Sequence[Action]:
        """Go on after the last owner's frame; with slots, first ask comp whether all are ready."""
        if not self.manifest.terms.slot:
            return self._go_on()
        if self._ahead is None and self._index <= self._last:
            return ()  # the dealer is slower than the owners: comp is asked once it has begun
        word = (
            sum(int.from_bytes(frame[FRAME:], "little") for frame in self._frames.values())
            % slots.WORD
        )
        return ((CONTROLLER, COMP, Ready(self.gate.slot, word)),)

    def _on_opened(self, sender: str, message: Opened) -> Sequence[Action]:
        """Begin the pass if all owners were ready; else all answer again in the next slot."""
        self._expect(sender, COMP)
        if self._end is not None:
            return ()
        gate, owners = self.gate, self._owners
        asked = self.manifest.terms.slot and not gate.open and not self._awaited
        if (
            not asked
            or message.slot != gate.slot
            or len(message.pads) not in (0, FRAME * self._size)
        ):
            raise ProtocolError(f"comp opens slot {message.slot}, and was not asked.")
        gate.slot, gate.open = gate.slot + 1, bool(message.pads)
        if not gate.open:
            gate.overruns += 1
            self._frames, self._awaited = {}, set(owners)
            return (SendMany([(CONTROLLER, name, Again(message.slot)) for name in owners]),)
        words = np.frombuffer(b"".join([self._frames[name][:FRAME] for name in owners]), "<u8")
        opened = (words + np.frombuffer(message.pads, "<u8")).tobytes()
        self._frames = dict(
            zip(owners, struct.unpack(f"{FRAME}s" * self._size, opened), strict=True)
        )
        return (
            self._go_on() if self._index <= self._last else ((CONTROLLER, CUSTOMER, Spent(owners)),)
        )

    def _go_on(self) -> Sequence[Action]:
        """Do what waited for the dealer, for comp or for the last owner."""
        if self._end is not None:
            return ()
        if self._waits:
            return self._ask(None)
        first, number = self._first, self._index - self._start
        if (
            first is None
            or self._begun
            or self._awaited
            or self._ahead is None
            or self._index > self._last
        ):
            return ()
        if self.manifest.terms.slot and not self.gate.open:
            return ()
        following = self._chunk(number + 1)
        if not first.has(number) or not first.has(min(number + 1, self._last - self._start)):
            return ()
        self._mark = (*first.save(), first.save_pairs())
        relayed = (
            [(CONTROLLER, COMP, Relayed(following, self._kept.pop(following)))]
            if following in self._kept
            else []
        )
        return [*relayed, *self._begin_pass(), *self._want(0)]

    def _begin_pass(self) -> Sequence[Action]:
        """Shuffle the scores of a pass after the last has arrived (3)."""
        first, ahead = self._first, self._ahead
        assert first is not None
        assert ahead is not None
        share = np.frombuffer(b"".join([self._frames[name] for name in self._owners]), "<u8")
        self._begun, self._answers, self._place = True, [], False
        self._masked: bytes = first.begin(self._index - self._start, share, ahead.share)
        return self._ask(None)

    def _ask(self, answer: bytes | None) -> Sequence[Action]:
        """Ask comp to compare, or where the largest is; wait for the dealer where it has not dealt
        enough.
        """
        assert self._first is not None
        asked = self._first.ask(answer)
        self._waits = asked is None
        if asked is None:
            return self._want(self._first.lacking)
        if isinstance(asked, Question):
            parts = asked.champion, asked.places, asked.shifts
            if self._answers:
                return ((CONTROLLER, COMP, Compare(self._index, *parts)),)
            return ((CONTROLLER, COMP, Shuffled(self._index, self._masked, *parts)),)
        self._place = True
        return ((CONTROLLER, COMP, Found(self._index, asked)),)

    def _on_compared(self, sender: str, message: Compared) -> Sequence[Action]:
        self._expect(sender, COMP)
        if self._end is not None:
            return ()
        if message.index != self._index or not self._begun or self._waits or self._place:
            raise ProtocolError(
                f"comp answers a question of pass {self._index}, and was not asked."
            )
        assert self._first is not None
        self._first.check(message.answer)
        self._answers.append(message.answer)
        return self._ask(message.answer)

    def _on_placed(self, sender: str, message: Placed) -> Sequence[Action]:
        """Hand every owner its bit, masked by comp and opened by nobody else (5)."""
        self._expect(sender, COMP)
        if self._end is not None:
            return ()
        ahead, last = message.ahead, self._index == self._last
        if message.index != self._index or not self._place or (ahead is None) != last:
            raise ProtocolError(f"comp names a place of pass {self._index}, and was not asked.")
        assert self._first is not None
        assert self._ahead is not None
        replies, size = np.frombuffer(self._ahead.replies, "<u8"), len(self._owners)
        if ahead is not None:
            if ahead.index != self._index + 1:
                raise ProtocolError(f"comp begins pass {self._index + 1} next.")
            self._take_ahead(ahead)
        replies = replies ^ self._first.undo(message.bits)
        index = self._index
        sends: list[Send] = [
            (CONTROLLER, name, Reply(index, reply))
            for name, reply in zip(
                self._owners, struct.unpack(f"{FRAME}s" * size, replies.tobytes()), strict=True
            )
        ]
        self._index, self._frames, self._awaited = index + 1, {}, set(self._owners)
        self._begun = self._place = self.gate.open = False
        self._answers = []
        passes_ = self.manifest.terms.passes
        actions: list[Action] = [SendMany(sends)]
        if self._index % passes_ == 0:
            actions.append(Note(self.name, "step", index // passes_))
        if last and not self.manifest.terms.slot:
            actions.append((CONTROLLER, CUSTOMER, Spent(self._owners)))
        return actions

    # Steps 6 and 7 --------------------------------------------------------------------------------

    def _on_close(self, sender: str, message: Close) -> Sequence[Action]:
        """Ask for the sums; an early end stops the pass that goes on, and what still comes of it is
        dropped.
        """
        self._expect(sender, CUSTOMER)
        check_close(message, self.manifest, self._digest, self._customer)
        refused_end(message, self._end, settled=self._settled)
        if not (self._keyed if message.number else self._index > self._last):
            raise ProtocolError("the sums are asked for once, after the budget is spent.")
        self._end, self._agrees, self._settled = message, {}, message.number == 0
        self._awaited, self._begun, self._waits = set(), False, False
        asked: list[Action] = [(CONTROLLER, name, message) for name in self._owners]
        if self._settled:
            return [*asked, (CONTROLLER, COMP, message)]
        return [self._order_kept(), *asked]

    def _order_kept(self) -> Note:
        """What follows depends on which message came first, and that must not be forgotten."""
        return Note(self.name, DURABLE, self._index // self.manifest.terms.passes)

    def _on_agree(self, sender: str, message: Agree) -> Sequence[Action]:
        end = self._end
        if end is None or self._settled or message.number > end.number or message.name != sender:
            raise ProtocolError(f"'{sender}' acknowledges an end that was not asked for.")
        if message.number < end.number:
            return ()  # it was corrected since
        if sender not in end.present or sender in self._agrees:
            raise ProtocolError(
                f"'{sender}' has acknowledged this end already, or is left out of it."
            )
        self._agrees[sender] = message
        if len(self._agrees) < len(end.present):
            return ()
        agrees = tuple(self._agrees[name] for name in end.present)
        return (self._order_kept(), (CONTROLLER, CUSTOMER, Agreed(end, agrees)))

    def _on_agreed(self, sender: str, message: Agreed) -> Sequence[Action]:
        self._expect(sender, CUSTOMER)
        if self._end is None or not same(message.close, self._end) or self._settled:
            raise ProtocolError("this end was not asked for, or is final already.")
        check_agreed(message, self.manifest, self._digest)
        self._settled = True
        return [(CONTROLLER, name, message) for name in (*self._end.present, COMP)]

    def _on_sum(self, sender: str, message: Sum) -> Sequence[Action]:
        self._expect(sender, *self._present)
        if not self._settled or sender in self._sums:
            raise ProtocolError(f"'{sender}' has sent its sum already, or before it was asked for.")
        sums.decode(message.ciphertext)
        self._sums[sender] = message.ciphertext
        return self._total()

    def _on_share(self, sender: str, message: Share) -> Sequence[Action]:
        self._expect(sender, COMP)
        if not self._settled or self._share is not None:
            raise ProtocolError("comp sends its share of the sum once, when it is asked for.")
        self._share = message
        return self._total()

    def _total(self) -> Sequence[Action]:
        if self._share is None or len(self._sums) < len(self._present):
            return ()
        mine = sums.encode(sums.added(map(sums.decode, self._sums.values())))
        return ((CONTROLLER, CUSTOMER, Shares(mine, self._share)),)

    @property
    def _forwarded(self) -> bool:
        return self._begun

    def reveal(self) -> StrictControllerSecrets:
        """Return the frames of this pass, and its part of the search."""
        return StrictControllerSecrets(self._order, dict(self._frames), self._dealing, self._first)

    # Saving ---------------------------------------------------------------------------------------

    def save(self) -> dict[str, Any]:
        """Return where it was before the pass that goes on, and what came since."""
        first = self._first
        number, compared, dealt, pairs = self._mark
        if first is not None:
            now = first.save()
            if not self._begun:
                number, compared = now[0], now[1]
                dealt, pairs = {}, {}
            dealt, pairs = {**dealt, **now[2]}, {**pairs, **first.save_pairs()}
        return pack(
            StrictSaved(
                **self._common(),
                keyring=None if self._keyed else self._keyring,
                streams={} if self._keyed else self._streams,
                dealing=self._dealing,
                number=number + 1,
                compared=compared,
                dealt=dealt,
                pairs=pairs,
                kept=self._kept,
                wanted=self._wanted,
                ahead=self._ahead,
                answers=self._answers,
                place=self._place,
                share=self._share,
                gate=self.gate,
            )
        )

    def _restore(self, saved: Mapping[str, Any]) -> None:
        read = self._loaded(saved, StrictSaved)
        self._take_setup(read)
        if self._going:
            self._enter_strict()
            inside = self._index <= read.index <= self._last + 1
            if not inside or not set(read.frames) | set(read.sums) <= self._awaited:
                raise ProtocolError("it stands outside the run.")
        elif read.index or read.frames or read.sums or read.forwarded:
            raise ProtocolError("it is in a step before the start.")
        self._keyring, self._streams, self._dealing = read.keyring, dict(read.streams), read.dealing
        self._index, self._frames, self._sums, self._share = (
            read.index,
            dict(read.frames),
            dict(read.sums),
            read.share,
        )
        self._awaited = set() if self._end is not None else self._awaited - set(self._frames)
        self._kept, self._wanted, self._ahead, self.gate = (
            dict(read.kept),
            read.wanted,
            read.ahead,
            read.gate,
        )
        if self._dealing is None:
            return
        self._open(self._dealing)
        assert self._first is not None
        self._first.load(read.number - 1, read.compared, read.dealt)
        self._first.load_pairs(read.pairs)
        if read.forwarded:
            self._mark = (*self._first.save(), self._first.save_pairs())
            self._begin_pass()
            for answer in read.answers:
                self._answers.append(answer)
                self._ask(answer)
