"""The data owner of level `strict`: one word a pass, its score less a pad that comp knows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from posse.core.errors import ProtocolError
from posse.core.roles import WORLD, Action, Message
from posse.core.snapshots import Count, pack
from posse.privacy.crypto.keys import Identity, Secrets, seal_to
from posse.privacy.crypto.pairwise import present_digest
from posse.systems.samba.messages import Agreed, Close, Go, Masks, Reply, Score, Sum
from posse.systems.samba.roles.draws import CommonDraws
from posse.systems.samba.roles.owner import Owner, OwnerSaved
from posse.systems.samba.setup import COMP, Expected
from posse.systems.samba.strict import slots, sums
from posse.systems.samba.strict.closing import agree, check_agreed, check_close, refused_end, same
from posse.systems.samba.strict.lane import StrictLane
from posse.systems.samba.strict.messages import Again, Keyring, Stream, Tick, Tock


class StrictOwnerSaved(OwnerSaved, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of an owner: also how many slots it answered in, how many of them its own pulls overran, and
    whether one runs.
    """

    slot: Count
    overruns: Count
    ticking: bool


class StrictOwner(Owner):
    """One arm.

    In a deployment secrets derive from a nonce that is drawn and synced with the journal. A journal
    begun anew has other pads, and one that goes on repeats the frames it sent, byte for byte. With
    slots (`slots`), what depends on a pull leaves at the end of a slot only.
    """

    def __init__(
        self,
        name: str,
        identity: Identity,
        customer: bytes,
        expected: Expected,
        world_seed: int | None,
        *,
        secrets: Secrets | None = None,
    ) -> None:
        super().__init__(name, identity, customer, expected, world_seed, secrets=secrets)
        self._slot = self.overruns = 0
        self._ticking = False
        del self._handlers[Masks]
        self._handlers |= {
            Again: self._on_again,
            Close: self._on_close,
            Agreed: self._on_agreed,
        }

    def receive(self, sender: str, message: Message) -> Sequence[Action]:
        """Take one message."""
        if type(message) is Tock and sender == WORLD:
            return self._on_tock(message)
        return super().receive(sender, message)

    def _on_go(self, message: Go) -> Sequence[Action]:
        """Send comp the key of this owner's pads; the first owner also draws the owners' common
        keys.
        """
        self.go(message)
        self._enter()
        info = self.info("stream", self.name)
        sealed = seal_to(self.manifest.member(COMP).run_key, self._stream(), info)
        actions = list(
            self.to_controller(Stream(sealed, self._identity.sign(b"stream", info + sealed)))
        )
        if self._is_first:
            actions += self.to_controller(Keyring(self.make_keyring()))
        return actions

    def _stream(self) -> bytes:
        """Return the stream key of this run and start."""
        return self._secrets.key(b"samba strict stream", context=self._context())

    def _open_lane(self) -> bool:
        if self._keys is None:
            return False
        stream = self._stream()
        if self._seconds:
            self._slot_pads = slots.slot_pads(stream)
            self._ready_words = slots.ready_words(
                self._secrets.key(b"samba strict ready", context=stream)
            )
        coins = CommonDraws(self._world_seed, self._keys[1], self._passes)
        self._lane = self._strict_lane(stream, coins)
        return True

    def _strict_lane(self, stream: bytes, coins: CommonDraws) -> StrictLane:
        return StrictLane(self._arm, self._policy, stream, coins, self._own_seeds())

    # Slots ----------------------------------------------------------------------------------------

    @property
    def _seconds(self) -> float:
        return self.manifest.terms.slot

    def _tick(self) -> Sequence[Action]:
        self._ticking = True
        return (Tick(self.name, self._slot, self._seconds),)

    def _ready(self) -> Sequence[Action]:
        pull = super()._ready()
        return (*self._tick(), *pull) if pull and self._seconds else pull

    def _on_reply(self, message: Reply) -> Sequence[Action]:
        if not self._seconds:
            return super()._on_reply(message)
        index = self._index
        if message.index == index and (self._pulling or self._ticking):
            raise ProtocolError(
                "a pass went on before this owner was ready, and the run must not go on."
            )
        actions = super()._on_reply(message)
        if self._index == index:
            return actions
        if self._pulling:
            self._prepare()  # for nothing: it takes the time that the others take
        return (*self._tick(), *actions)

    def _next(self) -> Sequence[Action]:
        going = self._end is None and self._index <= self._last
        if self._seconds:
            self._listening = going
            self._prepare()
            return ()
        if going:
            return super()._next()
        self._listening = False
        return self._sum(self._end.present) if self._end is not None and self._settled else ()

    def _prepare(self) -> None:
        """Make one number at a time, so that every owner has the same work in every slot."""
        if self._index <= self._last and self._seconds and self._lane is not None:
            self._lane.prepare(self._index)

    def _on_tock(self, message: Tock) -> Sequence[Action]:
        """Answer at the end of a slot, ready or not."""
        if not self._ticking or message.number != self._slot:
            return ()
        assert self._lane is not None
        self._ticking = False
        if self._end is not None:
            if not self._settled:
                return ()
            return self._tick() if self._pulling else self._sum(self._end.present)
        slot, ready, score = self._slot, 0, bytes(8)
        if self._pulling:
            word, noise = self._ready_words.rows(slot, 1)[0]
            ready, score = int(word) or 1, noise.tobytes()
            self.overruns += 1
        elif self._index <= self._last:
            score = self._lane.compose(self._index)
        self._slot += 1
        return self.to_controller(
            Score(self._index, slots.answer(score, ready, self._slot_pads, slot))
        )

    def _on_again(self, message: Again) -> Sequence[Action]:
        if self._end is not None:
            return ()
        if self._ticking or message.slot != self._slot - 1:
            raise ProtocolError(
                f"this owner has not answered in slot {message.slot}, or has answered again."
            )
        return self._tick()

    # Step 6 ---------------------------------------------------------------------------------------

    def _on_close(self, message: Close) -> Sequence[Action]:
        """Take the set that the customer asks for: answer at the end of the budget, acknowledge it
        before.
        """
        check_close(message, self.manifest, self._digest, self._customer)
        refused_end(message, self._end, settled=self._settled)
        early = message.number > 0
        if not (self._lane is not None if early else self._index > self._last):
            raise ProtocolError("the sums are asked for before the budget is spent.")
        self._end, self._listening = message, False
        if not early:
            return self._settle()
        if self.name not in message.present:
            return ()  # it was left out, and may be asked after all if the end is corrected
        return self.to_controller(
            agree(self._identity, self.name, message, self._index, self._digest)
        )

    def _on_agreed(self, message: Agreed) -> Sequence[Action]:
        """Answer an early end when all in its set have acknowledged it, and stand where this owner
        does.
        """
        end, me = self._end, self.name
        if end is None or not same(message.close, end) or self._settled or me not in end.present:
            raise ProtocolError(
                "an owner answers for one set of owners a run: the one that it acknowledged last."
            )
        if check_agreed(message, self.manifest, self._digest) != self._index:
            raise ProtocolError("the other owners stand elsewhere in the run.")
        return self._settle()

    def _settle(self) -> Sequence[Action]:
        """Let the set stand; who waits for a reward answers when it has it.

        With slots all are ready after the last one, and the sum of an early end leaves at the end
        of a slot.
        """
        assert self._end is not None
        self._settled = True
        if self._seconds and self._end.number > 0:
            return () if self._ticking else self._tick()
        return () if self._pulling else self._sum(self._end.present)

    def _sum(self, present: tuple[str, ...]) -> Sequence[Action]:
        """Send the controller's share of the sum, of the pull count if nobody is left out, and of
        their tag.
        """
        assert self._keys is not None
        share = sums.share(
            self._arm.units,
            self._counted(present),
            key=self._keys[0],
            stream=self._stream(),
            present=present_digest(present, self._digest),
            owner=self.name,
        )
        return self.to_controller(Sum(share))

    def _counted(self, present: tuple[str, ...]) -> int:
        """Return the pull count; nothing where an owner is left out, for what is missing would be
        that owner's.
        """
        return self._arm.pulls if len(present) == self._arm.owners else 0

    # Saving ---------------------------------------------------------------------------------------

    def save(self) -> dict[str, Any]:
        """Return the whole state; it holds the arm and the owners' common keys."""
        return pack(
            StrictOwnerSaved(
                **self._common(), slot=self._slot, overruns=self.overruns, ticking=self._ticking
            )
        )

    def _restore(self, saved: Mapping[str, Any]) -> None:
        read = self._loaded(saved, StrictOwnerSaved)
        self._slot, self.overruns, self._ticking = read.slot, read.overruns, read.ticking
        self._take_up(read)
        if self._listening and self._seconds:
            self._prepare()
