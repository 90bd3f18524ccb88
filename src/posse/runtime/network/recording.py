"""A party's own view of a run, recorded for an audit: what it sent and received, with its own
secrets.

    view.log    records, framed as in a journal: length (4) | CRC-32 (4) | payload
                the first says whose view it is; then messages, and the party's state from time to
                time

A party records only where its operator asks for it (`[record]` in its file). What is recorded was
in the party's hands anyway: bodies as they came, and the state that its journal keeps as well, so
the file is as secret as the journal. Messages are written behind the journal and before the next
snapshot of it. After a crash the role makes or takes again what the journal holds; messages have
numbers on their links, so none is recorded twice, and what the journal has lost is taken out. A
file that reaches its limit keeps the beginning, where attacks begin. One that cannot be written
stops no party. A message costs a few microseconds and its own size on the disk.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from posse.core import files
from posse.core.errors import DataError
from posse.core.roles import WORLD, Action, Message, Note
from posse.runtime.journal import LARGEST, framed, split
from posse.runtime.network.engine import ANSWER, MESSAGE, REFUSED, Engine
from posse.version import __version__

VIEW = "view.log"
"""In a party's journal folder: the view that it recorded."""
MAGIC, FORMAT = "posse view", 1
LIMIT_MB = 256.0
"""Megabytes of a recorded view, unless the party's file says otherwise."""
FIRST_STATE = 64
"""Messages before the state is first written; then whenever there are twice as many."""
_SEEN, _STATE, _FULL = range(3)

Link = tuple[str, str]
"""Sender and receiver."""


class Header(msgspec.Struct, frozen=True):
    """Whose view it is."""

    magic: str
    format: int
    posse: str
    system: str
    run: str
    party: str
    kind: str


@dataclass(frozen=True)
class Seen:
    """One recorded message."""

    sender: str
    receiver: str
    number: int
    """On its link, from 1; of the world's answers, how many there were."""
    body: bytes
    """As it came; empty where the role refused it."""
    step: int

    @property
    def link(self) -> Link:
        """Sender and receiver."""
        return self.sender, self.receiver


@dataclass
class Recorded:
    """What a file holds."""

    header: Header
    seen: list[Seen] = field(default_factory=list)
    public: Mapping[str, Any] = field(default_factory=dict)
    """Terms that everybody knows, as they were when the state was last written."""
    state: Mapping[str, Any] = field(default_factory=dict)
    """The party's own state with its secrets."""
    full: bool = False
    """Whether it reached its limit: what came later is not in it."""
    whole: int = 0
    """Bytes up to the last whole record."""
    torn: int = 0
    """Bytes behind them."""

    @property
    def missing(self) -> int:
        """Messages that were not recorded, though later ones of their link were."""
        reached: dict[Link, int] = {}
        for one in self.seen:
            reached[one.link] = max(one.number, reached.get(one.link, 0))
        return sum(reached.values()) - len(self.seen)


def read(path: Path) -> Recorded:
    """Read a recorded view; raises `DataError` on what is none."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DataError(f"cannot read the view {path}: {files.explain_os_error(error)}") from error
    records, whole = split(data)
    try:
        header = msgspec.msgpack.decode(records[0], type=Header)
    except (IndexError, msgspec.MsgspecError, UnicodeDecodeError):
        raise DataError(
            f"{path} is no view that a party recorded: such a file is {VIEW} in its journal."
        ) from None
    if (header.magic, header.format) != (MAGIC, FORMAT):
        raise DataError(
            f"{path} was written by posse {header.posse} in view format {header.format}; this one "
            f"reads {FORMAT}."
        )
    made = Recorded(header, whole=whole, torn=len(data) - whole)
    for record in records[1:]:
        kind, content = msgspec.msgpack.decode(record)
        if kind == _SEEN:
            made.seen.append(Seen(*content))
        elif kind == _STATE:
            made.public, made.state = content
        else:
            made.full = True
    return made


class Recorder:
    """Writes one party's view as it runs."""

    def __init__(
        self,
        folder: Path,
        header: tuple[str, str, str, str],
        public: Callable[[], Mapping[str, Any]],
        state: Callable[[], Mapping[str, Any]],
        *,
        limit_mb: float = LIMIT_MB,
        log: Callable[..., None] | None = None,
    ) -> None:
        """Take up the file where there is one; `header` is system, run, party and kind."""
        self.path = folder / VIEW
        self.full = False
        """Whether nothing more is recorded: the limit is reached."""
        self.step = 0
        """Decisions that the role has noted."""
        self._header = Header(MAGIC, FORMAT, __version__, *header)
        self._public, self._state, self._log = public, state, log or (lambda event, **fields: None)
        self._limit, self._size, self._count = int(limit_mb * 1e6), 0, 0
        self._last: dict[Link, int] = {}
        self._waiting: list[bytes] = []
        self._old: list[Seen] | None = None
        self._encode = msgspec.msgpack.Encoder().encode
        self._file: int | None = None
        self._next_state = FIRST_STATE
        try:
            self._open()
        except OSError as error:
            self._give_up(error)

    def _open(self) -> None:
        self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, files.PRIVATE)
        os.fchmod(self._file, files.PRIVATE)
        if os.fstat(self._file).st_size > 0:
            kept = read(self.path)
            mine = (self._header.system, self._header.run, self._header.party)
            if (kept.header.system, kept.header.run, kept.header.party) != mine:
                raise DataError(
                    f"{self.path} is the view of '{kept.header.party}' in run {kept.header.run}. "
                    "Move it away, or give "
                    "this party a journal of its own."
                )
            self._old, self.full, self._count = kept.seen, kept.full, len(kept.seen)
            self._last = {one.link: one.number for one in kept.seen}
            self._next_state = max(FIRST_STATE, 2 * self._count)
            os.ftruncate(self._file, kept.whole)
            self._size = kept.whole
        else:
            self._append(self._encode(self._header))

    def saw(self, sender: str, receiver: str, number: int, body: bytes) -> None:
        """Record a message, unless it is recorded already."""
        if self.full or self._file is None or number <= self._last.get((sender, receiver), 0):
            return
        self._last[sender, receiver] = number
        self._waiting.append(
            framed(self._encode((_SEEN, (sender, receiver, number, body, self.step))))
        )
        self._count += 1

    def settle(self, reached: Callable[[Link], int]) -> None:
        """After a journal was taken up: take out what it does not know; `reached` gives the last
        number of a link.
        """
        old, self._old = self._old, None
        lost = [one for one in old or () if one.number > reached(one.link)]
        if not lost:
            return
        kept = [one for one in old or () if one.number <= reached(one.link)]
        data = [framed(self._encode(self._header))]
        data += [
            framed(
                self._encode((_SEEN, (one.sender, one.receiver, one.number, one.body, one.step)))
            )
            for one in kept
        ]
        try:
            files.write_whole(self.path, b"".join(data), mode=files.PRIVATE)
            assert self._file is not None
            os.close(self._file)
            self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND)
        except (OSError, DataError) as error:
            self._give_up(error)
            return
        self._size, self.full = sum(map(len, data)), False
        for one in lost:
            self._last[one.link] = min(self._last[one.link], reached(one.link))
        self._count -= len(lost)

    def write(self, *, state: bool = False) -> None:
        """Write what was recorded; to be called when the journal has it. `state`: with the party's
        state.
        """
        if self._file is None or not (self._waiting or state):
            return
        data = b"".join(self._waiting)
        self._waiting.clear()
        try:
            if not self.full and self._size + len(data) > self._limit:
                self.full = True
                self._append(self._encode((_FULL, None)))
                self._log(
                    "view",
                    why=(
                        f"{self.path} has reached its limit of {self._limit / 1e6:g} MB and keeps "
                        "that."
                    ),
                )
                state = True
            elif data and not self.full:
                self._put(data)
            if state or self._count >= self._next_state:
                self._next_state = 2 * max(self._count, FIRST_STATE)
                record = self._encode((_STATE, (dict(self._public()), dict(self._state()))))
                if len(record) <= LARGEST:
                    self._append(record)
        except OSError as error:
            self._give_up(error)

    def close(self) -> None:
        """Close the file; what was not written is lost, as in a crash."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _append(self, record: bytes) -> None:
        self._put(framed(record))

    def _put(self, data: bytes) -> None:
        assert self._file is not None
        written = os.write(self._file, data)
        if written != len(data):
            os.ftruncate(self._file, self._size)
            raise OSError(28, "No space left on device")
        self._size += len(data)

    def _give_up(self, error: Exception) -> None:
        why = files.explain_os_error(error) if isinstance(error, OSError) else str(error)
        self._log(
            "view", why=f"{self.path} cannot be written, and the run goes on without it: {why}"
        )
        self.close()


class RecordingEngine(Engine):
    """An engine that records what its role sends and receives."""

    def __init__(self, *given: Any, view: Recorder, **named: Any) -> None:
        self.view = view
        super().__init__(*given, **named)

    def commit(self) -> bool:
        """Write the view when the journal has what is in it."""
        self._journal.write()
        self.view.write()
        return super().commit()

    def checkpoint(self) -> None:
        """Write the view before a snapshot: what is in the snapshot alone is not made again."""
        self._journal.write()
        self.view.write()
        super().checkpoint()

    def close(self) -> None:
        """Close the view and the journal."""
        self.view.close()
        super().close()

    def _recover(self, change: bool) -> None:
        super()._recover(change)
        self.view.settle(self._reached)
        self.view.write()

    def _reached(self, link: Link) -> int:
        """Return the number of the last message from one party to another, one of which this is."""
        sender, receiver = link
        if sender == WORLD:
            return self._asked - len(self.asks)
        mine = sender == self.role.name
        peer = self.links.get(receiver if mine else sender)
        return 0 if peer is None else peer.sent if mine else peer.received

    def _record(self, kind: int, peer: str, number: int, body: bytes) -> None:
        super()._record(kind, peer, number, body)
        self._saw(kind, peer, number, body, 0)

    def _replay(self, kind: int, peer: str, number: int, body: bytes) -> Sequence[Action]:
        self._saw(kind, peer, number, body, 1)  # an answer's ask is still open
        return super()._replay(kind, peer, number, body)

    def _saw(self, kind: int, peer: str, number: int, body: bytes, still_open: int) -> None:
        if kind == ANSWER:
            self.view.saw(WORLD, self.role.name, self._asked - len(self.asks) + still_open, body)
        elif kind in (MESSAGE, REFUSED):
            self.view.saw(peer, self.role.name, number, body)

    def _carry_out(self, actions: Sequence[Action]) -> None:
        for action in actions:
            if isinstance(action, Note):
                self.view.step = max(self.view.step, action.step)
        super()._carry_out(actions)

    def _send(self, receiver: str, message: Message) -> None:
        super()._send(receiver, message)
        link = self.links[receiver]
        self.view.saw(self.role.name, receiver, link.sent, link.last)
