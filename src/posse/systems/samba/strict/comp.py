"""Comp of level `strict`: it holds one share of every score, answers comparisons, and sees a random
place a pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from posse.core.errors import ProtocolError
from posse.core.roles import Action
from posse.core.snapshots import Count, pack
from posse.privacy.crypto.frames import Frames
from posse.privacy.crypto.keys import Identity, Secrets, seal_to, verify
from posse.privacy.crypto.pairwise import present_digest
from posse.privacy.crypto.streams import Words as WordRows
from posse.privacy.sharing.fixed import Words
from posse.privacy.sharing.shuffle import Question, Second
from posse.systems.samba.messages import Agreed, Close, Go
from posse.systems.samba.setup import COMP, CUSTOMER, DEALER, Expected, ParticipantSaved, Peer
from posse.systems.samba.strict import slots, sums
from posse.systems.samba.strict.closing import check_agreed, check_close
from posse.systems.samba.strict.dealer import frames_for_comp
from posse.systems.samba.strict.messages import (
    Ahead,
    Compare,
    Compared,
    Found,
    Opened,
    Placed,
    Ready,
    Relayed,
    Seeds,
    Share,
    Shuffled,
    Streams,
)

STREAM_BYTES = 32
"""Of an owner's stream key."""
BLOCK = 64
"""Passes whose pads are expanded together."""


def pads(stream: bytes, rows: int = 256) -> WordRows:
    """Return an owner's pads: two words a pass, one for its score and one for the reply."""
    return WordRows(stream, b"posse strict pads", 2, rows)


class CompSaved(ParticipantSaved, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of comp: where it was before the pass that goes on, and what the controller asked since."""

    seed: bytes
    streams: list[bytes]
    index: Count
    compared: Count
    dealt: dict[int, bytes]
    asked: list[Shuffled | Compare]
    found: Found | None
    """The last question of the pass before, with its answer, where nothing was asked since."""
    placed: Placed | None
    gate: slots.Gate
    closed: list[str] | None


@dataclass(frozen=True)
class CompSecrets:
    """What comp holds and hides."""

    start: int
    """The first pass of this run."""
    pads: Sequence[WordRows]
    """Of every owner, two a pass: for its score and for the reply."""
    slot_pads: Sequence[WordRows]
    """Of every owner, two a slot."""


class Comp(Peer):
    """Begins every pass ahead of its scores; answers each question once.

    The same question again gets the same bytes, any other for its place is refused: two sets of
    numbers never meet one piece of randomness.
    """

    def __init__(
        self,
        identity: Identity,
        customer: bytes,
        expected: Expected,
        *,
        secrets: Secrets | None = None,
    ) -> None:
        super().__init__(COMP, "comp", identity, customer, expected, secrets=secrets)
        self._seed = b""
        self._streams: list[bytes] = []
        self._pads_of: list[WordRows] = []
        self._slot_pads: list[WordRows] = []
        self.gate = slots.Gate()
        self._second: Second | None = None
        self._frames: Frames | None = None
        self._block: Words = np.zeros((0, 2, 0), np.uint64)
        self._block_start = -1
        self._index = self._start = self._last = 0
        self._ahead = False
        """Whether the pass `index` is begun."""
        self._mark = 0
        """Comparisons before the pass that goes on."""
        self._asked: list[Shuffled | Compare] = []
        self._answered: tuple[Shuffled | Compare | Found, Compared | Placed] | None = None
        self._closed: tuple[str, ...] | None = None
        self._handlers |= {
            Go: self._on_go,
            Seeds: self._on_seeds,
            Streams: self._on_streams,
            Relayed: self._on_relayed,
            Shuffled: self._on_question,
            Compare: self._on_question,
            Found: self._on_question,
            Ready: self._on_ready,
            Close: self._on_close,
            Agreed: self._on_agreed,
        }

    # Setup ----------------------------------------------------------------------------------------

    def _on_go(self, message: Go) -> Sequence[Action]:
        self.go(message)
        self._enter()
        return ()

    def _enter(self) -> None:
        terms = self.manifest.terms
        self._index = self._start = self._expected.start(self.manifest)
        self._last = (terms.budget + 1) * terms.passes - 1

    def _on_seeds(self, message: Seeds) -> Sequence[Action]:
        if not self._going or self._seed:
            raise ProtocolError("the dealer's seed comes once, after the start.")
        info = self.info("seed", COMP)
        verify(
            self.manifest.member(DEALER).identity, b"seed", info + message.sealed, message.signature
        )
        seed = self._run_key.open(message.sealed, info)
        if len(seed) != 32:
            raise ProtocolError("the dealer's seed has the wrong length.")
        self._seed = seed
        return self._ready()

    def _on_streams(self, message: Streams) -> Sequence[Action]:
        owners = self.manifest.owners
        if not self._going or self._streams or len(message.streams) != len(owners):
            raise ProtocolError(
                f"the stream keys of {len(owners)} owners come once, after the start."
            )
        found = []
        for owner, stream in zip(owners, message.streams, strict=True):
            info = self.info("stream", owner)
            verify(
                self.manifest.member(owner).identity,
                b"stream",
                info + stream.sealed,
                stream.signature,
            )
            found.append(self._run_key.open(stream.sealed, info))
            if len(found[-1]) != STREAM_BYTES:
                raise ProtocolError(f"the stream key of '{owner}' has the wrong length.")
        if len(set(found)) != len(found):
            raise ProtocolError("two owners have the same stream key.")
        self._streams = found
        return self._ready()

    def _ready(self) -> Sequence[Action]:
        if self._seed and self._streams and self._second is None:
            own = self._secrets.key(b"samba strict labels", context=self._context())
            self._second = Second(len(self._streams), self._seed, own)
            self._frames = frames_for_comp(self._seed, self._digest)
            self._pads_of = [pads(stream, BLOCK) for stream in self._streams]
            self._slot_pads = [slots.slot_pads(stream) for stream in self._streams]
        return ()

    def _on_relayed(self, message: Relayed) -> Sequence[Action]:
        if self._second is None or self._frames is None:
            raise ProtocolError("nothing is dealt before the seeds.")
        self._second.deal(message.chunk, self._frames.open(message.chunk, message.sealed))
        if self._ahead or self._index > self._start:
            return ()
        return self.to_controller(self._begin())

    # Passes ---------------------------------------------------------------------------------------

    def _pads(self, index: int) -> Words:
        """Return both pads of every owner in a pass."""
        start = index - index % BLOCK
        if start != self._block_start:
            drawn = np.stack([each.rows(start, BLOCK) for each in self._pads_of])
            self._block = np.ascontiguousarray(drawn.transpose(1, 2, 0))
            self._block_start = start
        both: Words = self._block[index - start]
        return both

    def _begin(self) -> Ahead:
        """Begin the pass `index` ahead of its scores."""
        assert self._second is not None
        self._mark, self._asked, self._ahead = self._second.compared, [], True
        scores, replies = self._pads(self._index)
        share, bits = self._second.ahead(self._index - self._start, scores)
        return Ahead(self._index, share, (replies ^ bits).tobytes())

    def _on_ready(self, message: Ready) -> Sequence[Action]:
        """Add the pads of a slot to the controller's sum; reveal those of the scores if all owners
        are ready.
        """
        gate = self.gate
        again = message.slot == gate.slot - 1 and message.word == gate.word
        if not again:
            expected = (
                bool(self._slot_pads and self.manifest.terms.slot)
                and not gate.open
                and self._closed is None
            )
            if (
                not (expected and (self._ahead or self._index > self._last))
                or message.slot != gate.slot
            ):
                raise ProtocolError(
                    f"slot {message.slot} is answered, or is asked about out of turn."
                )
            gate.slot, gate.word = gate.slot + 1, message.word
        drawn = np.stack([each.rows(message.slot, 1)[0] for each in self._slot_pads])
        ready = (message.word + int(drawn[:, 1].sum(dtype=np.uint64))) % slots.WORD == 0
        if not again:
            gate.open, gate.overruns = ready, gate.overruns + (not ready)
        return self.to_controller(Opened(message.slot, drawn[:, 0].tobytes() if ready else b""))

    def _on_question(self, message: Shuffled | Compare | Found) -> Sequence[Action]:
        if self._answered is not None and message == self._answered[0]:
            return self.to_controller(self._answered[1])
        if (
            not self._ahead
            or message.index != self._index
            or isinstance(message, Shuffled) != (not self._asked)
        ):
            raise ProtocolError(f"pass {message.index} is answered, or is asked about out of turn.")
        if self.manifest.terms.slot and not self.gate.open:
            raise ProtocolError(f"pass {message.index} is asked about before all owners are ready.")
        answer = self._placed(message) if isinstance(message, Found) else self._compared(message)
        self._answered = message, answer
        return self.to_controller(answer)

    def _compared(self, message: Shuffled | Compare) -> Compared:
        second = self._second
        assert second is not None
        if isinstance(message, Shuffled):
            second.shuffle(message.masked)
        try:
            answer = second.answer(Question(message.champion, message.places, message.shifts))
        except ProtocolError:
            if isinstance(message, Shuffled):
                second.forget()
            raise
        self._asked.append(message)
        return Compared(message.index, answer)

    def _placed(self, message: Found) -> Placed:
        """End a pass, and begin the next ahead of its scores."""
        second, more = self._second, self._index < self._last
        assert second is not None
        if more and not second.has(self._index + 1 - self._start):
            raise ProtocolError("the dealer's chunk of the next pass comes before this one ends.")
        bits, self.gate.open = second.place(message.place), False
        self._index, self._ahead, self._mark, self._asked = (
            self._index + 1,
            False,
            second.compared,
            [],
        )
        return Placed(message.index, bits, self._begin() if more else None)

    # Steps 6 and 7 --------------------------------------------------------------------------------

    def _on_close(self, message: Close) -> Sequence[Action]:
        check_close(message, self.manifest, self._digest, self._customer)
        if message.number or self._index <= self._last:
            raise ProtocolError(
                "the sums are asked for after the budget is spent, or when all present owners "
                "agreed."
            )
        return self._sum(message.present)

    def _on_agreed(self, message: Agreed) -> Sequence[Action]:
        check_close(message.close, self.manifest, self._digest, self._customer)
        check_agreed(message, self.manifest, self._digest)
        if not self._streams:
            raise ProtocolError("the sums are asked for before the first step.")
        return self._sum(message.close.present)

    def _sum(self, present: tuple[str, ...]) -> Sequence[Action]:
        """Send the customer its share of the sum of a set, one set a run."""
        owners = self.manifest.owners
        if self._closed is not None:
            raise ProtocolError("comp answers for one set of owners a run, once.")
        self._closed, self._ahead = present, False
        digest = present_digest(present, self._digest)
        pads = (
            sums.pad(stream, digest)
            for owner, stream in zip(owners, self._streams, strict=True)
            if owner in present
        )
        info = self.info("sum", COMP) + digest
        sealed = seal_to(
            self.manifest.member(CUSTOMER).run_key, sums.encode(sums.added(pads)), info
        )
        return self.to_controller(Share(sealed, self._identity.sign(b"sum", info + sealed)))

    def state(self) -> dict[str, object]:
        """What comp's operator may see: how far the run is."""
        return self.progress(self._index)

    def reveal(self) -> CompSecrets:
        """Return the pads of all owners."""
        return CompSecrets(self._start, self._pads_of, self._slot_pads)

    # Saving ---------------------------------------------------------------------------------------

    def save(self) -> dict[str, Any]:
        """Return where it was before the pass that goes on, and what was asked since."""
        dealt = {} if self._second is None else self._second.save()[2]
        question, answer = self._answered or (None, None)
        found = question if isinstance(question, Found) else None
        placed = answer if isinstance(answer, Placed) else None
        return pack(
            CompSaved(
                **self._saved(),
                seed=self._seed,
                streams=self._streams,
                index=self._index,
                compared=self._mark,
                dealt=dealt,
                asked=self._asked,
                found=found,
                placed=placed,
                gate=self.gate,
                closed=None if self._closed is None else list(self._closed),
            )
        )

    def _restore(self, saved: Mapping[str, Any]) -> None:
        read = self._loaded(saved, CompSaved)
        if self._going:
            self._enter()
        if not self._index <= read.index <= self._last + 1:
            raise ProtocolError("it stands outside the run.")
        if {len(stream) for stream in read.streams} - {STREAM_BYTES} or len(read.seed) not in (
            0,
            32,
        ):
            raise ProtocolError("its keys have the wrong length.")
        self._seed, self._streams, self._index, self._mark = (
            read.seed,
            list(read.streams),
            read.index,
            read.compared,
        )
        self._closed, self.gate = None if read.closed is None else tuple(read.closed), read.gate
        self._ready()
        if self._second is None:
            return
        self._second.load(self._index - self._start - 1, read.compared, read.dealt)
        if (
            self._second.has(self._index - self._start)
            and self._index <= self._last
            and self._closed is None
        ):
            self._begin()
            for question in read.asked:
                self._on_question(question)
        if read.found is not None and read.placed is not None:
            self._answered = read.found, read.placed
