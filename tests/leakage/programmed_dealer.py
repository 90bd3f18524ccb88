"""A dealer that is programmed: other data, and a coalition that cannot tell.

Given a run, one honest party and other data of its own, find the honest roles' streams (of the
honest party's tape, of its, the puller's and the payee's input masks) with which a run on the other
data shows the coalition the same bytes. Streams are outputs of AES at places that only the dealer
and their owner know, so uniform to the coalition; that such streams exist for all data, one for
one, is what makes its view independent of the data.

They are found by running the program once more, on sums instead of shares: a session of a single
"party" that holds everything. What is opened is given by the recorded messages, the mask is what is
missing to it, and what is dealt is computed from the masks. Of every sum the honest party receives
what the coalition's unchanged tapes leave over. The result is then played by unchanged roles, the
dealer's included: only the streams are replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from posse.privacy.crypto.streams import keystream
from posse.privacy.sharing import dealing as sharing_dealing
from posse.privacy.sharing.dealing import Plan
from posse.privacy.sharing.fixed import LIMIT, Words
from posse.privacy.sharing.session import Rounds, Rows, Session
from posse.privacy.sharing.tape import TRACKS, Deal, Shape
from posse.privacy.sharing.values import Bits, Interpolated, Lookup, Masked, Raw, Shared, Tabulated
from posse.systems.mpc_contextual import program as mpc_program
from posse.systems.mpc_contextual.coins import Dealt as DealtCoins
from posse.systems.mpc_contextual.program import Deals, Hand, Layout, step
from posse.systems.mpc_contextual.roles.messages import Choice, Dealt, Opening, Payoff
from posse.systems.mpc_contextual.roles.puller_and_payee import encode_reward
from posse.systems.mpc_contextual.terms import PAYEE, PULLER, Terms
from tests.leakage.mpc_game import Data, Played, block_of, coins_from, dealer_keys, turns_of

Place = tuple[bytes, int]
"""Key and counter of a stream."""
ALL = "everyone"
_ARGMAX = import_module(
    "posse.privacy.sharing.comparison"
)  # the package has a function of this name


class Said:
    """What was sent to parties in a run, read front to back in every round."""

    def __init__(self, played: Played) -> None:
        self._parties = played.terms.parties
        self._said: dict[tuple[int, str], dict[int, bytes]] = {}
        for _, sender, _, message, *_ in played:
            if isinstance(message, Opening):
                self._said.setdefault((message.step, sender), {})[message.round] = message.data
            elif isinstance(message, Choice | Payoff):
                self._said.setdefault((message.step, sender), {})[-1] = message.data
        self._at: dict[tuple[int, int, str], int] = {}

    def take(self, step_: int, round_: int, sender: str, like: Any, shape: Shape) -> Raw:
        """Return the next numbers of a sender."""
        if sender not in self._parties:
            round_ = -1
        place = (step_, round_, sender)
        at, size = self._at.get(place, 0), int(np.prod(shape, dtype=np.int64))
        found = np.frombuffer(self._said[step_, sender][round_], like, size, at).reshape(shape)
        self._at[place] = at + found.nbytes
        return found

    def opened(self, step_: int, round_: int, like: Any, shape: Shape, *, xor: bool) -> Raw:
        """Return what the next openings of all parties come to."""
        each = [self.take(step_, round_, party, like, shape) for party in self._parties]
        total: Raw = np.bitwise_xor.reduce(each) if xor else np.sum(each, axis=0, dtype=like)
        return total

    def check_read(self) -> None:
        """Check that every byte was used."""
        for (step_, sender), rounds in self._said.items():
            for round_, data in rounds.items():
                assert self._at[step_, round_, sender] == len(data)


class SumTape:
    """The sums of all parties' tapes: free tracks as solved for, computed ones as the dealer would
    compute them.
    """

    deals, opens = False, True
    lead: Shape = ()

    def __init__(self) -> None:
        self.solved: Raw | None = None
        self.tracks: dict[str, list[NDArray[Any]]] = {name: [] for name in TRACKS}

    def mask(self, shape: Shape) -> Words:
        return self._given("mask", shape, np.uint64)

    def bits(self, shape: Shape) -> NDArray[np.uint8]:
        return self._given("bits", shape, np.uint8)

    def wide(self, shape: Shape, deal: Deal) -> Words:
        return self._keep("wide", np.broadcast_to(deal(), shape).astype(np.uint64))

    def narrow(self, shape: Shape, deal: Deal) -> Words:
        return self._keep("narrow", np.broadcast_to(deal(), shape).astype(np.uint32)).astype(
            np.uint64
        )

    def table(self, shape: Shape, deal: Deal) -> NDArray[np.uint8]:
        return self._keep("table", np.broadcast_to(deal(), shape).astype(np.uint8))

    def _given(self, name: str, shape: Shape, kind: Any) -> NDArray[Any]:
        assert self.solved is not None, f"'{name}' is read where nothing was solved"
        found, self.solved = self.solved, None
        assert found.shape == shape
        assert found.dtype == kind
        return self._keep(name, found)

    def _keep(self, name: str, found: NDArray[Any]) -> NDArray[Any]:
        self.tracks[name].append(found.ravel())
        return found


class SumSession(Session):
    """All parties as one, whose masks are such that what was said is said again."""

    tape: SumTape

    def __init__(self, said: Said, step_: int, clear: Callable[[str], Words]) -> None:
        super().__init__(ALL, (ALL,), SumTape())
        self._said, self._step, self._clear = said, step_, clear
        self._taken: dict[str, bytes] = {}
        self.input_masks: dict[str, Words] = {}

    def mask(self, x: Shared) -> Masked:
        self.tape.solved = x.share - self._seen(np.uint64, x.shape)
        return super().mask(x)

    def truncate(self, x: Shared, bits: int, label: str = "") -> Masked:
        self.tape.solved = self._seen(np.uint64, x.shape) - (x + (1 << LIMIT)).share
        return super().truncate(x, bits, label)

    def tabulate(self, x: Shared, bits: int, width: int, rows: Rows, label: str = "") -> Tabulated:
        self.tape.solved = self._seen(np.uint64, x.shape) - (x + (1 << LIMIT)).share
        return super().tabulate(x, bits, width, rows, label)

    def interpolate(self, x: Shared, *how: Any) -> Interpolated:
        self.tape.solved = self._seen(np.uint64, x.shape) - (x + (1 << LIMIT)).share
        return super().interpolate(x, *how)

    def look_up(
        self, x: Bits, rows: Callable[[NDArray[np.uint16]], NDArray[np.uint8]], width: int
    ) -> Lookup:
        kind = np.uint8 if x.width <= 8 else np.uint16
        solved = self._seen(kind, x.share.shape, xor=True) ^ x.share.astype(kind)
        split = [solved, solved >> np.uint16(8)] if kind is np.uint16 else []
        self.tape.solved = np.stack(split, axis=-1).astype(np.uint8) if split else solved
        return super().look_up(x, rows, width)

    def choose(self, bits: Bits) -> None:
        """Solve the masks of what `choose` opens."""
        self.tape.solved = self._seen(np.uint8, bits.share.shape, xor=True) ^ bits.share.astype(
            np.uint8
        )

    def input(
        self, owner: str, shape: Shape, deal: Callable[[], Words], own: Words | None = None
    ) -> Masked:
        words = self._said.take(self._step, self.rounds, owner, np.uint64, shape)
        self._taken[owner] = self._taken.get(owner, b"") + words.tobytes()
        self.input_masks[owner] = self._clear(owner) - words
        return super().input(owner, shape, lambda: self.input_masks[owner])

    def end_round(self) -> None:
        """Take the inputs as they were sent."""
        taken, self._taken = self._taken, {}
        self.deliver(taken)

    def _seen(self, kind: Any, shape: Shape, *, xor: bool = False) -> Raw:
        return self._said.opened(self._step, self.rounds, kind, shape, xor=xor)


@dataclass
class Programme:
    """Streams with which other data looks the same, and what that run must come to."""

    streams: dict[Place, bytes]
    arms: list[int]
    model: Words


def programme(
    played: Played, honest: str, data: Data, coins: bytes, outside: tuple[str, ...] = ()
) -> Programme:
    """Solve for the streams of the honest party and of those of puller and payee that are not in
    the coalition.

    `data` differs from the run's in the honest party's block and in the rewards; `coins` is the
    dealer's key of coins.
    """
    terms, keys, said = played.terms, dealer_keys(played.terms, played.seed), Said(played)
    plan, layout, words = mpc_program.plan(terms), Layout(terms.dimension), data.words(terms)
    turns, dealt = turns_of(terms, played.seed), coins_from(terms, coins).batched(terms.batch)
    made = Programme({}, [], layout.start(terms.arms, terms.bits))
    tapes = _Tapes(played, plan, honest)
    programmed = [name for name in (honest, PULLER, PAYEE) if name not in outside]
    nothing = np.zeros((1, words.shape[1]), np.uint64)
    around = np.concatenate([nothing, words, nothing])
    pulled = (
        {PULLER: np.zeros((1, terms.arms), np.uint64), PAYEE: np.zeros(1, np.uint64)}
        if terms.overlap
        else {}
    )
    for number in range(terms.passes):
        rows = slice(number * terms.batch, (number + 1) * terms.batch)
        met = around[[number + 1, number]] if terms.overlap else words[rows]
        clear = {**{party: met[:, block_of(terms, party)] for party in terms.parties}, **pulled}
        session = SumSession(said, number, clear.__getitem__)
        row = DealtCoins(
            dealt.explore[number], dealt.arms[number], dealt.ties[number], dealt.normals[number]
        )
        hand, model = Hand(np.zeros(0, np.uint64), turns[rows]), Shared(session, made.model)
        with _choosing(session):
            running = step(session, terms, layout, model, hand, Deals(row, _never))
            made.model = _played(
                session, running, terms, data, pulled if terms.overlap else clear, made.arms
            )
        made.streams[keys.tapes[honest], number << sharing_dealing._PASS] = tapes.left_over(
            number, session.tape
        )
        for owner, masks in session.input_masks.items():
            if owner in programmed:
                made.streams[keys.inputs[owner], number << mpc_program._STEP] = masks.tobytes()
            else:  # The coalition's own masks are as they were.
                drawn = mpc_program.input_masks(keys.inputs[owner], number, masks.size)
                np.testing.assert_array_equal(masks.ravel(), drawn)
    said.check_read()
    return made


def _played(
    session: SumSession,
    running: Rounds[Shared],
    terms: Terms,
    data: Data,
    clear: dict[str, Words],
    arms: list[int],
) -> Words:
    """Run one pass on sums; returns the new model. `clear` takes the arm and the reward, for this
    pass or the next.
    """
    while True:
        try:
            next(running)
        except StopIteration as end:
            model: Words = end.value.share
            return model
        revealed = session.outgoing().reveals.get(PULLER)
        if revealed is not None and len(arms) < terms.steps:
            hot = (
                np.frombuffer(revealed, np.uint8).astype(np.uint64).reshape(terms.batch, terms.arms)
            )
            assert (hot.sum(axis=1) == 1).all()
            paid = [
                data.pay(step_, arm)
                for step_, arm in enumerate(hot.argmax(axis=1).tolist(), len(arms))
            ]
            arms += hot.argmax(axis=1).tolist()
            clear[PULLER] = hot
            clear[PAYEE] = np.array([encode_reward(units, terms.bits) for units in paid], np.uint64)
        session.end_round()


def _never(owner: str, shape: Shape) -> Words:
    raise AssertionError("masks of inputs are solved for")


@contextmanager
def _choosing(session: SumSession) -> Iterator[None]:
    """Let the session know what `choose` is about to open: it draws its mask itself."""
    choose = _ARGMAX.choose

    def told(s: Session, bits: Bits, x: Masked) -> Rounds[Shared]:
        session.choose(bits)
        found: Shared = yield from choose(s, bits, x)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_ARGMAX, "choose", told)
        yield


class _Tapes:
    """The coalition's tapes, as they were."""

    def __init__(self, played: Played, plan: Plan, honest: str) -> None:
        self._plan, self._honest, self._keys = (
            plan,
            honest,
            dealer_keys(played.terms, played.seed).tapes,
        )
        self._dealt: dict[tuple[str, int], NDArray[np.uint8]] = {}
        for _, _, to, message, *_ in played:
            if isinstance(message, Dealt):
                rows = np.frombuffer(message.data, np.uint8).reshape(plan.passes, -1)
                self._dealt |= {
                    (to, message.chunk * plan.passes + at): row for at, row in enumerate(rows)
                }

    def left_over(self, number: int, sums: SumTape) -> bytes:
        """Return the honest party's stream: of every track the sum, less what the coalition has."""
        sizes = self._plan.sizes
        others = [
            sizes.cut(self._tape(party, number)) for party in self._keys if party != self._honest
        ]
        stream = self._plan.stream(self._keys[self._honest], number).copy()
        for name, track in sizes.cut(stream).items():
            left = np.concatenate([np.zeros(0, track.dtype), *sums.tracks[name]])
            assert left.shape == track.shape
            for other in others:
                left = left ^ other[name] if name in ("bits", "table") else left - other[name]
            assert np.shares_memory(track, stream) or not track.size
            track[:] = left
        return stream.tobytes()

    def _tape(self, party: str, number: int) -> NDArray[np.uint8]:
        stream = self._plan.stream(self._keys[party], number)
        dealt = self._dealt.get((party, number))
        return (
            stream
            if dealt is None
            else np.concatenate([stream[: self._plan.sizes.free_bytes], dealt])
        )


@contextmanager
def programmed_streams(streams: dict[Place, bytes]) -> Iterator[set[Place]]:
    """Replace streams; yields the set of those that were read."""
    read: set[Place] = set()

    def replaced(key: bytes, counter: int, length: int) -> bytes:
        found = streams.get((key, counter))
        if found is None:
            return keystream(key, counter, length)
        assert length <= len(found)
        read.add((key, counter))
        return found[:length]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sharing_dealing, "keystream", replaced)
        patch.setattr(mpc_program, "keystream", replaced)
        yield read
