"""A party: it holds some features of every context and a share of the model; it learns neither arm
nor reward.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
import numpy as np

from posse.core.agreement import check_terms_digest
from posse.core.errors import DisagreementError, EarlyError, JournalError, ProtocolError
from posse.core.roles import DURABLE, OPERATOR, WORLD, Action, Message, Note
from posse.core.snapshots import VERSION, Snapshot, damaged_snapshot, pack, unpack
from posse.privacy.crypto.keys import Secrets
from posse.privacy.sharing.dealing import Plan, Supply
from posse.privacy.sharing.fixed import Words
from posse.privacy.sharing.session import Rounds, Session
from posse.privacy.sharing.tape import Tape
from posse.privacy.sharing.values import Shared
from posse.systems.mpc_contextual.coins import PartyCoins, common_key, part_of
from posse.systems.mpc_contextual.program import Hand, Layout, input_masks, step
from posse.systems.mpc_contextual.roles import messages
from posse.systems.mpc_contextual.roles.messages import Seed
from posse.systems.mpc_contextual.terms import DEALER, PAYEE, PULLER, Terms

STEP_OVER = "step"
CHECKPOINT = "checkpoint"

Heard = tuple[str, bytes]
Count = Annotated[int, msgspec.Meta(ge=0)]
Rounded = messages.Opening | messages.Choice | messages.Payoff
_decode = msgspec.msgpack.Decoder(
    messages.Hello
    | Seed
    | messages.Dealt
    | Rounded
    | messages.Over
    | messages.Rows
    | messages.End
    | messages.Seen
).decode


class PartySaved(Snapshot, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A party between two steps, and the messages it has received since."""

    inputs: str
    """Digest of its features."""
    parts: dict[str, bytes]
    seed: Seed | None
    step: Count
    model: bytes
    supply: list[tuple[int, bytes]]
    """Corrections of chunks that are not used up."""
    wanted: int
    stash: dict[str, tuple[list[bytes], int, int]]
    """What had come for the step that was about to begin, and of which step and round it was."""
    heard: list[Heard]
    rows: tuple[bytes, ...] = ()
    """Where contexts arrive, those that came and are still needed, the last one last."""
    seen: int = 0
    """How many have come."""
    end: int | None = None
    """The pass before which the run ends, where that is known."""
    ending: bool = False


def inputs_digest(features: Words | None, plan: Plan, start: Words | None = None) -> str:
    """Digest of what a party masks and of how tapes are used: with another of either, masks would
    be used twice.

    Contexts that arrive are no part of it: the journal keeps each of them before it is used.
    """
    given = b"" if features is None else str(features.shape).encode() + features.tobytes()
    first = b"" if start is None else start.tobytes()
    return hashlib.sha256(repr(plan.sizes).encode() + given + first).hexdigest()


@dataclass(frozen=True, eq=False)
class PartySecrets:
    """What a party holds and hides."""

    model: Words | None
    """Its share of the model; none before the seeds and all parts of the common key are here."""
    contexts: Words | None
    """Its features of the pass that is going on, in fixed point; none between two passes."""
    coins: PartyCoins | None
    """Where it reads the dealer's tables of coins; none as long as there is no model."""


class Party(messages.Ending):
    """Runs the program of every step on its own shares."""

    kind = "party"
    columns: tuple[str, ...] = ()  # names of its features, kept with its shares of the model

    def __init__(
        self,
        name: str,
        terms: Terms,
        plan: Plan,
        features: Words | None,
        secrets: Secrets,
        *,
        checkpoint_every: int = 0,
        start: Words | None = None,
    ) -> None:
        """Take the features of this party, a row a step, in fixed point, and its share of the model
        to start from.

        Without features it asks for those of every step (`Look`).
        """
        self._size = terms.features[terms.parties.index(name)]
        assert (None if features is None else features.shape) == (
            None if terms.arriving else (terms.steps, self._size)
        )
        assert (start is None) == (not terms.start)
        self.name, self.terms, self._start = name, terms, start
        self._plan, self._features, self._every = plan, features, checkpoint_every
        self._layout, self._digest = Layout(terms.dimension), terms.digest()
        self.inputs_digest = inputs_digest(features, plan, start)
        self._peers = [party for party in terms.parties if party != name]
        self._part = part_of(secrets, terms)
        self._parts = {name: self._part}
        self._seed: Seed | None = None
        self._supply: Supply | None = None
        self._coins: PartyCoins | None = None
        self.step = 0
        """Number of the pass that is going on, or comes next: a step, or a batch of steps."""
        self._model: Words | None = None
        self._wanted = -1
        self._rows: deque[bytes] = deque(maxlen=terms.batch + terms.lag)
        self._seen = 0
        self._looking = self._ending = False
        self._row_names: list[str] = []
        self._own_rows: tuple[int, bytes] = (-1, b"")
        self._session: Session | None = None
        self._program: Rounds[Shared] | None = None
        self._expected: dict[str, int] = {}
        self._queues: dict[str, deque[bytes]] = {
            who: deque() for who in (*self._peers, PULLER, *(() if terms.frozen else (PAYEE,)))
        }
        self._last: dict[str, tuple[int, int]] = dict.fromkeys(self._queues, (0, -1))
        self._heard: list[Heard] = []
        self._boundary: Any = ()
        self._encode = msgspec.msgpack.Encoder().encode
        self._mark()

    # Role -----------------------------------------------------------------------------------------

    @property
    def _last_chunk(self) -> int:
        return max(0, self.passes - 1) // self._plan.passes

    @property
    def finished(self) -> bool:
        """Whether all steps are over."""
        return self.step == self.passes and self._program is None and self._model is not None

    def start(self) -> Sequence[Action]:
        """Send every other party the terms and a part of the common key."""
        return [(self.name, peer, messages.Hello(self._digest, self._part)) for peer in self._peers]

    def receive(self, sender: str, message: Message) -> Sequence[Action]:
        """Take one message; rounds go on when everything they wait for is here."""
        match message:
            case messages.Hello() if sender in self._peers:
                self._greet(sender, message)
            case Seed() if sender == DEALER:
                self._take_seed(message)
            case messages.Dealt() if sender == DEALER and self._supply is not None:
                self._supply.take(message.chunk, message.data)
            case messages.Opening() | messages.Choice() | messages.Payoff() if (
                sender in self._queues
            ):
                if self.end is not None and message.step >= self.passes:
                    return ()  # of a pass that another party had begun when the run was ended
                self._queue(sender, message)
            case messages.Over() if sender in self._peers:
                self.ends(sender, message, self.step, self.step + 1)
            case messages.Rows() if sender in self._peers:
                self._compare(sender, message)
            case messages.End() if sender in (OPERATOR, *self._peers):
                self._ending = True
            case messages.Seen() if sender == WORLD and self.end is not None:
                return ()
            case messages.Seen() if sender == WORLD and self._looking:
                self._see(message)
            case _:
                raise ProtocolError(f"{type(message).__name__} of '{sender}' is not expected here.")
        self._heard.append((sender, self._encode(message)))
        actions = self._about_the_end(sender, message)
        self._advance(actions)
        return actions

    def state(self) -> dict[str, object]:
        """Return how far it is."""
        rounds = 0 if self._session is None else self._session.rounds
        return {
            "step": self.terms.learnt(self.step),
            "horizon": self.horizon,
            "unit": "step",
            "rounds": rounds,
        }

    @property
    def model(self) -> Words:
        """This party's share of the model, after the last whole step: a row an arm, P above w."""
        assert self._model is not None
        return self._model

    def reveal(self) -> PartySecrets:
        """Return its share of the model, its features, and its part of the coins."""
        going = self._session is not None
        contexts = self._contexts(self.step * self.terms.batch) if going else None
        return PartySecrets(self._model, contexts, self._coins)

    def tag(self, done: int) -> str:
        """Tag of all shares of the model after so many steps: the same at every party, and of no
        other run.
        """
        key = common_key(self.terms, self._parts)
        return hashlib.sha256(b"posse mpc share %d " % done + self._digest + key).hexdigest()[:32]

    @property
    def awaited(self) -> set[str]:
        """Those from whom something is still to come."""
        names, last = (
            {who for who in self._queues if self._following(who)[0] < self.passes},
            self._last_chunk,
        )
        dealt = self._supply is not None and self._wanted >= last and self._supply.whole(last)
        return names if dealt else {*names, DEALER}

    # Before the first step ------------------------------------------------------------------------

    def _greet(self, sender: str, hello: messages.Hello) -> None:
        check_terms_digest(self._digest, sender, hello.terms)
        if sender in self._parts or len(hello.part) != 32:
            raise ProtocolError(f"a second or damaged Hello of '{sender}'.")
        self._parts[sender] = hello.part
        self._ready()

    def _take_seed(self, seed: Seed) -> None:
        check_terms_digest(self._digest, DEALER, seed.terms)
        if self._seed is not None or len(seed.tapes) != 32 or len(seed.inputs) != 32:
            raise ProtocolError("a second or damaged seed of the dealer's.")
        self._seed = seed
        self._supply = Supply(self._plan, seed.tapes, self.name, self.terms.parties)
        self._ready()

    def _ready(self) -> None:
        """Make the common key when all its parts are here."""
        if len(self._parts) == len(self.terms.parties) and self._seed is not None:
            self._coins = PartyCoins(self.terms, common_key(self.terms, self._parts))
            if self._model is None:
                first = self._layout.start(self.terms.arms, self.terms.bits)
                new = first if self.name == self.terms.parties[0] else np.zeros_like(first)
                self._model = new if self._start is None else self._start

    # Steps ----------------------------------------------------------------------------------------

    def _queue(
        self, sender: str, message: messages.Opening | messages.Choice | messages.Payoff
    ) -> None:
        """Keep what a round will need; it must be the sender's next, and of the right size."""
        party = isinstance(message, messages.Opening)
        if party != (sender in self._peers) or isinstance(message, messages.Choice) != (
            sender == PULLER
        ):
            raise ProtocolError(f"{type(message).__name__} of '{sender}' is not expected.")
        step_, round_ = self._following(sender)
        place = (
            (message.step, message.round)
            if isinstance(message, messages.Opening)
            else (message.step, round_)
        )
        if place != (step_, round_) or message.step >= self.passes:
            raise ProtocolError(
                f"'{sender}' sent round {place[1] + 1} of step {place[0] + 1}, expected "
                f"{round_ + 1} of {step_ + 1}."
            )
        size = self._plan.rounds[round_].expected(sender, party=party)
        if len(message.data) != size:
            raise ProtocolError(
                f"round {round_ + 1} of '{sender}' must have {size} bytes, got {len(message.data)}."
            )
        if message.step > self.step + 1:
            raise EarlyError(
                f"'{sender}' is in step {message.step + 1}, and '{self.name}' in step "
                f"{self.step + 1}."
            )
        self._last[sender] = (step_, round_)
        self._queues[sender].append(message.data)

    def _following(self, sender: str) -> tuple[int, int]:
        """Return the step and round in which this sender sends next."""
        step_, round_ = self._last[sender]
        party = sender in self._peers
        while True:
            round_ += 1
            if round_ == len(self._plan.rounds):
                step_, round_ = step_ + 1, 0
            if self._plan.rounds[round_].expected(sender, party=party):
                return step_, round_

    def _advance(self, actions: list[Action]) -> None:
        """Go on as far as what is here allows."""
        while self._coins is not None:
            if self._program is None:
                if self._ending and self.end is None and self.step < self.choices:
                    self._declare(actions)
                if self.step == self.passes or not self._begin(actions):
                    return
            elif all(self._queues[who] for who in self._expected):
                assert self._session is not None
                self._session.deliver({who: self._queues[who].popleft() for who in self._expected})
            else:
                return
            self._next_round(actions)

    def _begin(self, actions: list[Action]) -> bool:
        """Begin a step, if the dealer has dealt for it."""
        supply = self._supply
        assert supply is not None
        assert self._seed is not None
        assert self._coins is not None
        assert self._model is not None
        # Contexts are on the disk before anything leaves: what does depends on whether they or the
        # end came first.
        durable = (Note(self.name, DURABLE, self.step),) if self.terms.arriving else ()
        chunk = min(self.step // self._plan.passes + messages.AHEAD, self._last_chunk)
        if chunk > self._wanted:
            self._wanted = chunk
            actions.extend(((self.name, DEALER, messages.Want(chunk)), *durable))
        if not supply.ready or not self._look(actions):
            return False
        actions.extend(durable)
        batch, first = self.terms.batch, self.step * self.terms.batch
        features = self._contexts(first)
        masked = features - input_masks(self._seed.inputs, self.step, features.size).reshape(
            features.shape
        )
        self._session = Session(self.name, self.terms.parties, supply.open(self.step))
        pad = self._coins.pad(self.terms.parties.index(self.name), first, batch)
        hand = Hand(masked, self._coins.at(first, batch), pad)
        self._name_rows(actions)
        self._program = step(
            self._session, self.terms, self._layout, Shared(self._session, self._model), hand, None
        )
        return True

    def _contexts(self, first: int) -> Words:
        """Return this party's features of a pass; with overlap of now and before, 0 beyond the
        first and last step.
        """
        known = self._features
        if known is None:
            known = np.frombuffer(b"".join(self._rows), np.uint64).reshape(-1, self._size)
            first += len(known) - self._seen  # the place in what is kept
        if not self.terms.overlap:
            return known[first : first + self.terms.batch]
        rows = np.zeros((2, self._size), np.uint64)
        rows[0] = known[first] if self.step < self.choices else 0
        rows[1] = known[first - 1] if self.step else 0
        return rows

    # Contexts that arrive, and the end of a run ---------------------------------------------------

    def _look(self, actions: list[Action]) -> bool:
        """Ask for the contexts of a pass, one after the other; whether all of them are here."""
        needed = min(self.step + 1, self.choices) * self.terms.batch
        if self._features is not None or self._seen >= needed:
            return True
        if not self._looking:
            self._looking = True
            actions.append(messages.Look(self.name, self._seen))
        return False

    def _see(self, message: messages.Seen) -> None:
        """Take the context of a step, or that no more come."""
        if message.step != self._seen or len(message.data) != (
            0 if message.over else 8 * self._size
        ):
            raise ProtocolError(f"a context of step {message.step + 1}, expected {self._seen + 1}.")
        self._looking = False
        if message.over:
            self._ending = True
            return
        self._rows.append(message.data)
        self._row_names = [*self._row_names, message.row][-self.terms.batch :]
        self._seen += 1

    def _name_rows(self, actions: list[Action]) -> None:
        """Let the other parties compare the identifiers of the rows of this pass, where there are
        some.
        """
        if self._features is None and self.step < self.choices and any(self._row_names):
            key = common_key(self.terms, self._parts)
            said = b"\0".join(name.encode() for name in self._row_names)
            digest = hashlib.sha256(b"posse mpc rows %d " % self.step + key + said).digest()[:16]
            self._own_rows = (self.step, digest)
            actions.extend(
                (self.name, peer, messages.Rows(self.step, digest)) for peer in self._peers
            )

    def _compare(self, sender: str, message: messages.Rows) -> None:
        """Refuse another row than this party's own; where that comes later, the other party
        compares.
        """
        if message.step == self._own_rows[0] < self.choices and message.digest != self._own_rows[1]:
            raise DisagreementError(
                f"'{sender}' has another row in step {message.step * self.terms.batch + 1} than "
                f"'{self.name}'. "
                "Contexts must arrive in the same order at all parties: correct the sources, and "
                "begin a new run."
            )

    def _declare(self, actions: list[Action]) -> None:
        """End the run before the pass that comes next, which no party can have gone through."""
        self.end = self.step
        everyone = (*self._peers, PULLER, PAYEE, DEALER)
        actions.extend((self.name, who, messages.Over(self.step)) for who in everyone)
        self._note_end(actions)

    def _about_the_end(self, sender: str, message: Message) -> list[Action]:
        """Give up a pass that comes after the end; pass the operator's word on to those who have
        not begun this one.

        Only they can end the run before it: no pass that a party has not begun can be over
        anywhere.
        """
        actions: list[Action] = []
        if isinstance(message, messages.Over):
            if self.step == self.passes:
                self._session, self._program, self._expected = None, None, {}
            self._note_end(actions)
        waits = self.terms.arriving and self._session is not None and self._session.rounds == 0
        if isinstance(message, messages.End) and sender == OPERATOR and waits:
            actions.extend((self.name, peer, message) for peer in self._peers)
        return actions

    def _note_end(self, actions: list[Action]) -> None:
        actions.append(
            Note(self.name, DURABLE, self.step)
        )  # a context or the end: what follows depends on their order
        if self.finished:
            actions.append(Note(self.name, STEP_OVER, self.terms.learnt(self.step)))

    def _next_round(self, actions: list[Action]) -> None:
        """Let the program go on to its next round, and send what it asks for."""
        session, program = self._session, self._program
        assert session is not None
        assert program is not None
        try:
            next(program)
        except StopIteration as end:
            self._end_step(end.value.share, actions)
            return
        outgoing = session.outgoing()
        self._expected = outgoing.expected
        if outgoing.broadcast:
            opening = messages.Opening(self.step, session.rounds, outgoing.broadcast)
            actions.extend((self.name, peer, opening) for peer in self._peers)
        if (
            self.step < self.choices
        ):  # what comes after the last step is learnt from, and pulls nothing
            actions.extend(
                (self.name, to, messages.Reveal(self.step, data))
                for to, data in outgoing.reveals.items()
            )

    def _end_step(self, model: Words, actions: list[Action]) -> None:
        assert self._session is not None
        tape = self._session.tape
        assert isinstance(tape, Tape)
        tape.finish()
        self._model, self._session, self._program, self._expected = model, None, None, {}
        self.step += 1
        done = self.terms.learnt(self.step)
        if done:
            actions.append(Note(self.name, STEP_OVER, done))
        if done and self._every and not self.terms.frozen and done % self._every < self.terms.batch:
            actions.append(Note(self.name, CHECKPOINT, done, model.tobytes()))
        self._mark()

    # Saving ---------------------------------------------------------------------------------------

    def _mark(self) -> None:
        """Remember the state between two steps: a program that is going on is not saved, but run
        again from here.
        """
        self._heard = []
        next_, corrections = (0, {}) if self._supply is None else self._supply.save()
        assert next_ == self.step
        self._boundary = (
            dict(self._parts),
            self._seed,
            self.step,
            self._model,
            corrections,
            self._wanted,
            {who: (list(queue), *self._last[who]) for who, queue in self._queues.items()},
            (tuple(self._rows), self._seen, self.end, self._ending),
        )

    def save(self) -> dict[str, Any]:
        """Return the state between two steps and the messages received since."""
        parts, seed, step_, model, supply, wanted, stash, (rows, seen, end, ending) = self._boundary
        return pack(
            PartySaved(
                version=VERSION,
                kind=self.kind,
                name=self.name,
                run=self._digest,
                inputs=self.inputs_digest,
                parts=parts,
                seed=seed,
                step=step_,
                model=b"" if model is None else model.tobytes(),
                supply=[(chunk, data.tobytes()) for chunk, data in supply.items()],
                wanted=wanted,
                stash=stash,
                heard=list(self._heard),
                rows=rows,
                seen=seen,
                end=end,
                ending=ending,
            )
        )

    def load(self, saved: Mapping[str, Any]) -> None:
        """Take up what `save` returned: the state between two steps, and once more the messages
        received since.
        """
        state = unpack(saved, PartySaved, kind=self.kind, name=self.name, run=self._digest)
        if state.inputs != self.inputs_digest:
            raise JournalError(
                f"'{self.name}' began this run with other features, or with another version of "
                "Posse. Restore them: one mask must not hide two numbers."
            )
        if state.parts.get(self.name) != self._part:
            raise JournalError(
                "the snapshot was made with other secrets. Keep root.key with the journal."
            )
        shape = (self.terms.arms, self._layout.size)
        if len(state.model) not in (0, 8 * shape[0] * shape[1]) or set(state.stash) != set(
            self._queues
        ):
            raise damaged_snapshot(self.kind, self.name, "its model has another size.")
        self._parts, self.step, self._wanted = dict(state.parts), state.step, state.wanted
        self._rows.extend(state.rows)
        self._seen, self.end, self._ending = state.seen, state.end, state.ending
        self._model = np.frombuffer(state.model, np.uint64).reshape(shape) if state.model else None
        for who, (queue, step_, round_) in state.stash.items():
            self._queues[who], self._last[who] = deque(queue), (step_, round_)
        if state.seed is not None:
            self._seed, self._supply = (
                state.seed,
                Supply(self._plan, state.seed.tapes, self.name, self.terms.parties),
            )
            self._supply.load(state.step, dict(state.supply))
        self._ready()
        self._mark()
        self._advance([])
        for sender, body in state.heard:
            self.receive(sender, _decode(body))
