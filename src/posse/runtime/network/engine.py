"""A durable party: one role, its journal and its links; sans-IO.

Whatever comes in (a message, or the world's answer) is given to the role, journalled, and only then
answered. Roles are deterministic, so after a crash the last snapshot and the inputs journalled
since give the same state and the same outputs again; outputs that a peer has already are dropped
there by their number. Nothing is decided by a clock.

The same holds for what the role was made with, so that a journal is bound to it, and to the terms,
when the first thing has come in: after that others are refused. What may change while a run goes on
(`brings`) is journalled itself, and changes by an instruction of the operator.

The world's answers cannot be asked for again from a peer, so they are on the disk before anything
that follows from them leaves (`sync_answers`); messages can, so their sender keeps them until they
are on the disk here.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Union

import msgspec

from posse.core.agreement import describe_difference
from posse.core.errors import DisagreementError, EarlyError, JournalError, LinkError, ProtocolError
from posse.core.roles import (
    DURABLE,
    OPERATOR,
    WORLD,
    Action,
    Ask,
    Message,
    Note,
    Role,
    SendMany,
    forbid_reveal,
)
from posse.privacy.crypto.keys import CALLS, PRIMITIVES
from posse.runtime.journal import Journal
from posse.runtime.network.links import BehindError, GapError, Link
from posse.version import PROTOCOL_VERSION

FORMAT = 4
"""Of a journal's records and snapshots; one of another format is refused."""
SNAPSHOT_BYTES = 4 << 20
"""A journal longer than this is replaced by a snapshot."""
OUTPUT_BYTES = 16 << 20
"""So is one that made the role send more than this: it would all be made, and kept, again after a
crash.
"""

EXACT, EVERY = 64, 17
"""The time in the role is measured of the first 64 messages of a kind, then of every 17th, which
counts 17 times: to ask for the CPU time of a thread costs as much as a short message.
"""

_START, MESSAGE, ANSWER, REFUSED, _OPERATOR, _BOUND, _CONFIRMED = range(7)


@dataclass(frozen=True)
class Vocabulary:
    """The messages and asks of a protocol, which a runtime must decode and knows nothing else
    of.
    """

    messages: tuple[type[Message], ...]
    asks: tuple[type[Ask], ...] = ()

    def decoder(self) -> msgspec.msgpack.Decoder[Any]:
        """Make a strict decoder of any message."""
        return msgspec.msgpack.Decoder(Union[self.messages])  # noqa: UP007


class _Begin(msgspec.Struct, array_like=True, frozen=True):
    """Whose journal it is: what its first record, and every snapshot, begins with."""

    format: int
    protocol: int
    run: str
    party: str
    nonce: bytes
    """Drawn with the journal: a part of what the party's secrets derive from."""
    brings: bytes
    """What the role began with of what may change, encoded; empty where nothing may."""


class _Bound(msgspec.Struct, array_like=True, frozen=True):
    """What a journal is bound to once something has come in."""

    terms: dict[str, str]
    """What the party was started for (`core.agreement`)."""
    inputs: dict[str, str]
    """Digests of what the role was made of, by name."""


class _Snapshot(msgspec.Struct, array_like=True):
    whose: _Begin
    bound: _Bound
    links: dict[str, tuple[int, int, int, list[bytes], int, int]]
    asks: dict[int, bytes]
    asked: int
    role: dict[str, Any]
    notes: list[Note]
    seconds: float
    calls: tuple[int, ...] = ()  # not known in snapshots of versions that did not count them


def journalled_nonce(first: bytes | None) -> bytes | None:
    """Return the nonce of a journal by what it begins with (`Journal.first`); empty if it is of
    another version.
    """
    begun = None if first is None else _begun(first)
    return None if first is None else b"" if begun is None else begun.nonce


def _begun(record: bytes) -> _Begin | None:
    """Read whose journal it is, from its first record or a snapshot; None of another version's."""
    try:
        first = msgspec.msgpack.decode(record)
        if isinstance(first[0], int):  # a record: kind, peer, number, body
            first = [msgspec.msgpack.decode(first[3])]
        begun = msgspec.convert(first[0], _Begin, builtin_types=(bytes,))
    except (msgspec.MsgspecError, UnicodeDecodeError, LookupError, TypeError):
        return None
    return begun if (begun.format, begun.protocol) == (FORMAT, PROTOCOL_VERSION) else None


class Engine:
    """Runs one role so that it can die at any point and go on exactly."""

    def __init__(
        self,
        role: Role,
        journal: Journal,
        peers: Sequence[str],
        vocabulary: Vocabulary,
        *,
        run: str,
        terms: Mapping[str, str] | None = None,
        inputs: Mapping[str, str] | None = None,
        nonce: bytes = b"",
        change: bool = False,
        sync_answers: bool = True,
        snapshot_bytes: int = SNAPSHOT_BYTES,
    ) -> None:
        """Take up the journal; with `change`, what the role brings now is taken in place of what it
        brought before.
        """
        forbid_reveal(role)
        self.role, self.run = role, run
        self.terms = dict(terms or {})
        self._bound, self._nonce = _Bound(self.terms, dict(inputs or {})), nonce
        self.journal_id = hashlib.sha256(b"posse journal id" + nonce).hexdigest()[:16]
        self.links = {peer: Link(peer) for peer in peers}
        self.asks: dict[int, Ask] = {}
        """What the world has not answered yet, by number."""
        self.notes: list[Note] = []
        """What the role wants known, since the caller last looked; after a crash the last of each
        kind comes again.
        """
        self.refusals: list[tuple[str, str]] = []
        """Messages that the role refused, and why, since the caller last looked."""
        self._journal, self._sync_answers, self._snapshot_bytes = (
            journal,
            sync_answers,
            snapshot_bytes,
        )
        self.decoder = vocabulary.decoder()
        """Decodes any message of the protocol."""
        self._ask_decoder = None
        if vocabulary.asks:
            self._ask_decoder = msgspec.msgpack.Decoder(Union[vocabulary.asks])  # noqa: UP007
        self._encode = msgspec.msgpack.Encoder().encode
        self._asked = 0
        self._must_sync = self.started = self._beside = self._holding = self.bound = False
        """`started`: the role has. `bound`: something came in under these terms, so the journal
        takes no others.
        """
        self.seconds = 0.0
        self.calls: tuple[int, ...] = (0,) * len(PRIMITIVES)
        """CPU seconds inside the role and its calls of `PRIMITIVES` (none: not known) so far;
        replays count again.
        """
        self._received: dict[type, int] = {}
        self._output = 0
        """Bytes that the role has sent since the last snapshot."""
        self._inputs = self._on_disk = 0
        """Inputs journalled in this life, and those of them that are on the disk."""
        self.touched: set[str] = set()
        """Peers with new messages to send, since the caller last looked."""
        self.new = journal.first is None
        """Whether the journal was empty: this party has sent nothing in an earlier life."""
        self._start = self._whose()
        """The last start in the journal."""
        self._recover(change)

    @property
    def _brings(self) -> bytes:
        brings: Message | None = getattr(self.role, "brings", None)
        return b"" if brings is None else self._encode(brings)

    def _whose(self) -> _Begin:
        return _Begin(FORMAT, PROTOCOL_VERSION, self.run, self.role.name, self._nonce, self._brings)

    def begin(self) -> None:
        """Let the role start, if it has not in an earlier life; it then takes what has come
        before.
        """
        if not self.started:
            self.started = self._must_sync = True  # what leaves may derive from the nonce
            self._append(_START, self.role.name, 0, self._encode(self._whose()))
            self._carry_out(self._timed(self.role.start))
            self._take_all_held()

    def receive(self, peer: str, number: int, body: bytes) -> bool:
        """Take message `number` of a peer; False if it was here before, the role refuses it, or has
        not started.
        """
        link = self.links[peer]
        if not link.take(number):
            return False
        if link.crowded and self.started and not self._behind:
            raise GapError(
                f"'{peer}' sent more than can be held before all peers have connected; connect "
                "again."
            )
        link.held.append(body)
        new = self.started and self._take_held(link)
        if new and self._holding:
            self._take_all_held()
        return new

    def answer(self, number: int, answer: Message) -> None:
        """Take the world's answer to an ask; the first one is kept, later ones are dropped."""
        ask = self.asks.get(number)
        if ask is None:
            return
        actions = self._timed(
            self.role.receive, WORLD, answer
        )  # an answer that the role refuses leaves the ask open
        del self.asks[number]
        self._record(ANSWER, ask.party, number, self._encode(answer))
        self._must_sync = self._must_sync or self._sync_answers
        self._carry_out(actions)
        if self._holding:
            self._take_all_held()

    def instruct(self, message: Message, needed: Collection[str] | None = None) -> None:
        """Take what this party's own operator asks for; it is on the disk before anything follows
        from it.

        What follows would take the numbers of messages that peers have, if this party has forgotten
        those. So the peers that are `needed`, all of them if not given, must have connected before.
        """
        if not self.started:
            raise ProtocolError(
                "the run has not begun: not all parties are here. Try again when they are."
            )
        unmet = [
            peer
            for peer, link in self.links.items()
            if not link.met and (needed is None or peer in needed)
        ]
        if names := ", ".join([*self._behind, *unmet]):
            raise BehindError(
                f"this party may have lost what it last sent to {names}. Try again later."
            )
        actions = self._timed(self.role.receive, OPERATOR, message)
        self._record(_OPERATOR, OPERATOR, 0, self._encode(message))
        self._must_sync = True
        self._carry_out(actions)

    def confirmed(self, peer: str) -> None:
        """Remember that a peer needs no message any more: when this party comes back after its end,
        it may be gone.
        """
        self._journal.append(self._encode((_CONFIRMED, peer, self.links[peer].sent, b"")))
        self._journal.write()

    def commit(self) -> bool:
        """Hand the journal to the operating system; after it, outputs may leave. True if the disk
        was waited for.
        """
        self._journal.write()
        synced = self._must_sync
        if synced:
            self.sync()
        long = self._journal.size > self._snapshot_bytes or self._output > OUTPUT_BYTES
        if long and self.bound and not self._beside:
            self.checkpoint()
        return synced

    def _marks(self) -> tuple[int, dict[str, int]]:
        """Write, and tell what is written now: after a sync that begins later, it is on the
        disk.
        """
        self._journal.write()
        return self._inputs, {peer: link.received for peer, link in self.links.items()}

    @contextmanager
    def syncing(self) -> Iterator[Callable[[], None]]:
        """Yield a function that waits for the disk, to call beside the loop; peers may then know
        what is durable.

        To be called by the clock: marks that moved when an answer had to be on the disk would show
        who was answered.
        """
        (inputs, received), self._beside = self._marks(), True
        try:
            yield self._journal.sync
            self._on_disk = max(self._on_disk, inputs)
            for peer, number in received.items():
                self.links[peer].durable = number
        finally:
            self._beside = False

    def sync(self) -> None:
        """Wait for the disk; what peers know of it stays as it is."""
        inputs, _ = self._marks()
        self._journal.sync()
        self._must_sync, self._on_disk = False, inputs

    def checkpoint(self) -> None:
        """Replace the journal by a snapshot."""
        links = {peer: link.save() for peer, link in self.links.items()}
        asks = {number: self._encode(ask) for number, ask in self.asks.items()}
        role, notes, spent = self.role.save(), self._last_notes(), (self.seconds, self.calls)
        snapshot = _Snapshot(
            self._whose(), self._bound, links, asks, self._asked, role, notes, *spent
        )
        self._journal.checkpoint(self._encode(snapshot))
        self._must_sync, self._output, self._on_disk = False, 0, self._inputs

    def close(self) -> None:
        """Close the journal: another life may open it."""
        self._journal.close()

    @property
    def durable(self) -> bool:
        """Whether everything taken in is on the disk, and peers may know it."""
        return self._on_disk == self._inputs and all(
            link.durable == link.received for link in self.links.values()
        )

    @property
    def _behind(self) -> list[str]:
        """Peers that have messages of this party that it does not remember sending."""
        return [peer for peer, link in self.links.items() if link.behind]

    def _take_all_held(self) -> None:
        """Take what was held, now that something new is known."""
        while any(link.held and self._take_held(link) for link in self.links.values()):
            pass
        self._holding = any(link.held for link in self.links.values())

    def _take_held(self, link: Link) -> bool:
        """Take the first message held for a link, or hold it on.

        A party that is behind hears again what its peers have kept for it, in the order of each and
        not in the order of all: a message that cannot come yet may come after another. Until all
        peers have connected it does not know whether it is behind: it then holds what its role
        calls early. What does not decode is never early.
        """
        try:
            actions = self._timed(self.role.receive, link.peer, self.decoder.decode(link.held[0]))
        except DisagreementError:
            raise  # it is not taken: when the file is corrected it comes again
        except ProtocolError as error:
            early = isinstance(error, EarlyError) and not all(
                other.met for other in self.links.values()
            )
            if early or self._behind:
                self._holding = True
            else:
                self._refuse(link, str(error))
            return False
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            self._refuse(link, str(error))
            return False
        body = link.held.popleft()
        link.took(link.received + 1, body)
        self._record(MESSAGE, link.peer, link.received, body)
        self._carry_out(actions)
        return True

    def _refuse(self, link: Link, why: str) -> None:
        """Leave the role as it was; that the number is used up must survive, or a replay would take
        another path.
        """
        link.held.popleft()
        link.took(link.received + 1, b"")
        self._record(REFUSED, link.peer, link.received, b"")
        self.refusals.append((link.peer, why))

    def _timed(self, call: Callable[..., Sequence[Action]], *arguments: object) -> Sequence[Action]:
        kind = type(arguments[-1]) if arguments else Role
        number = self._received[kind] = self._received.get(kind, 0) + 1
        weight = 1 if number <= EXACT else 0 if number % EVERY else EVERY
        before, started = CALLS.so_far(), time.thread_time() if weight else 0.0
        try:
            return call(*arguments)
        finally:
            self.seconds += (time.thread_time() - started) * weight if weight else 0.0
            if self.calls and (now := CALLS.so_far()) != before:
                self.calls = tuple(
                    a + b - c for a, b, c in zip(self.calls, now, before, strict=True)
                )

    def _record(self, kind: int, peer: str, number: int, body: bytes) -> None:
        if not self.bound:
            self.bound = self._must_sync = True
            self._append(_BOUND, self.role.name, 0, self._encode(self._bound))
        self._inputs += 1
        self._append(kind, peer, number, body)

    def _append(self, kind: int, peer: str, number: int, body: bytes) -> None:
        self._journal.append(self._encode((kind, peer, number, body)))

    def _carry_out(self, actions: Sequence[Action]) -> None:
        for action in actions:
            match action:
                case (_, receiver, message):
                    self._send(receiver, message)
                case SendMany():
                    for _, receiver, message in action.sends:
                        self._send(receiver, message)
                case Note():
                    self.notes.append(action)
                    self._must_sync = self._must_sync or action.kind == DURABLE
                case _:
                    self._asked += 1
                    self.asks[self._asked] = action

    def _send(self, receiver: str, message: Message) -> None:
        body = self._encode(message)
        self._output += len(body)
        self.links[receiver].send(body)
        self.touched.add(receiver)

    # Recovery -------------------------------------------------------------------------------------

    def _recover(self, change: bool) -> None:
        """Take up the last snapshot and what was journalled since."""
        given: Message | None = getattr(self.role, "brings", None)
        if self._journal.snapshot is not None:
            self._load(self._journal.snapshot)
        for record in self._journal.records():
            self._carry_out(
                self._replay(*msgspec.msgpack.decode(record, type=tuple[int, str, int, bytes]))
            )
        for link in self.links.values():
            link.durable = link.received
            link.unsent = link.durable_there + 1
        if self.started and given is not None and self._encode(given) != self._brings:
            self._change(given, change)
        if self.started:
            self.sync()  # what only the operating system had is durable after this
        self.notes = self._last_notes()

    def _change(self, given: Message, change: bool) -> None:
        if not change:
            raise JournalError(
                f"'{self.role.name}' is in this run with other {type(given).__name__.lower()} than "
                "its file has now. "
                "Put them back, or take the new ones from the next decision on with 'posse party update' "
                "and its file."
            )
        self.instruct(given, ())  # no peer can have connected yet

    def _last_notes(self) -> list[Note]:
        """Return the last note of each kind: the caller may have died before it looked."""
        return list({note.kind: note for note in self.notes}.values())

    def _load(self, body: bytes) -> None:
        self._check_whose(body)
        snapshot = msgspec.msgpack.decode(body, type=_Snapshot)
        self._check_bound(snapshot.bound)
        self.role.load(snapshot.role)
        for peer, saved in snapshot.links.items():
            if peer not in self.links:
                raise LinkError(
                    f"the journal has a link to '{peer}', the federation has not. Restore the "
                    "federation file."
                )
            self.links[peer].load(*saved)
        assert self._ask_decoder is not None or not snapshot.asks
        self.asks = {number: self._ask_decoder.decode(ask) for number, ask in snapshot.asks.items()}  # type: ignore[union-attr]
        self._asked = snapshot.asked
        self.notes, self.seconds, self.calls = (
            list(snapshot.notes),
            snapshot.seconds,
            snapshot.calls,
        )

    def _check_whose(self, record: bytes) -> _Begin:
        """Refuse a journal of another format, party or run; `record` is its first one, or a
        snapshot.
        """
        begun = _begun(record)
        if begun is None:
            raise JournalError(
                f"the journal of '{self.role.name}' was begun by another version of Posse; this "
                "one reads journal "
                f"format {FORMAT} of protocol version {PROTOCOL_VERSION}. Finish the run with the "
                "version that began "
                "it, or begin a new run."
            )
        if (begun.run, begun.party) != (self.run, self.role.name):
            raise JournalError(
                f"the journal is of '{begun.party}' in run {begun.run}, this is '{self.role.name}' "
                f"in run {self.run}. "
                "Give each party and run a folder of its own."
            )
        return begun

    def _check_bound(self, before: _Bound) -> None:
        """Refuse to replay with other terms or inputs: one noise or mask would hide two different
        numbers.
        """
        self.started = self.bound = True
        if text := describe_difference(
            before.terms, self.terms, ("when it agreed", "in its file now")
        ):
            raise JournalError(
                f"'{self.role.name}' agreed to other terms in this run than its file has now: "
                f"{text}. Put its file "
                "back; to change the terms for everyone, begin a new run."
            )
        names = {**before.inputs, **self._bound.inputs}
        other = sorted(
            name for name in names if before.inputs.get(name) != self._bound.inputs.get(name)
        )
        if other:
            raise JournalError(
                f"'{self.role.name}' began this run with other inputs than it has now: "
                f"{', '.join(other)} changed. "
                "Put back what it began with, or begin a new run."
            )

    def _replay(self, kind: int, peer: str, number: int, body: bytes) -> Sequence[Action]:
        """Give the role once more what it took in before."""
        if kind == _START:  # of the life in which something came in, if there was one
            self._start = self._check_whose(self._encode((kind, peer, number, body)))
            return ()
        if kind == _BOUND:
            self._check_bound(msgspec.msgpack.decode(body, type=_Bound))
            if self._start.brings:
                self.role.receive(OPERATOR, self.decoder.decode(self._start.brings))
            return self._timed(self.role.start)
        if kind == _OPERATOR:
            return self._timed(self.role.receive, OPERATOR, self.decoder.decode(body))
        if kind == ANSWER:
            del self.asks[number]
            return self._timed(self.role.receive, WORLD, self.decoder.decode(body))
        if kind == _CONFIRMED:
            self.links[peer].unsent = number + 1
            self.links[peer].acknowledged(number)
            return ()
        self.links[peer].took(number, body)
        return (
            self._timed(self.role.receive, peer, self.decoder.decode(body))
            if kind == MESSAGE
            else ()
        )
