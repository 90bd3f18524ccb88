"""The local store of records, shared by the command line and the studio."""

from __future__ import annotations

import builtins
import json
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from posse.core import check
from posse.core.errors import PosseError, StoreError
from posse.results.database import (
    connect,
    default_path,
    is_lost,
    process_start,
    store_errors,
    this_host,
)
from posse.results.record import ARRAYS, Record, Traffic
from posse.results.values import pack, unpack

EVERY = 1.0
"""Seconds between two heartbeats."""


@dataclass(frozen=True)
class RunRow:
    """One line of a list of runs: what a reader needs to pick one."""

    id: str
    created: str
    kind: str
    status: str
    """That of the record; "running" or "lost" where it is not there yet."""
    level: str
    policy: str
    problem: str
    runs: int
    arms: int
    horizon: int
    total_mean: float | None
    seconds: float
    version: str
    run_id: str
    party: str
    time: int | None = None
    """Steps done of `whole`, in all runs together, while it is running."""
    whole: int | None = None
    age: float | None = None
    """Seconds since the last heartbeat."""
    pid: int | None = None
    host: str | None = None

    @property
    def progress(self) -> str:
        """How far a run that is not over has come, such as "1,200 of 10,000"; else empty."""
        return "" if self.time is None else f"{self.time:,} of {self.whole:,}"


COLUMNS = tuple(field.name for field in fields(RunRow))[:15]
"""What a row holds of its record."""

_LISTED = ", ".join(f"runs.{name}" for name in COLUMNS)
_LIVE = "live.pid, live.process, live.host, live.beat, live.time, live.whole"
_FROM = "FROM runs LEFT JOIN live ON live.run = runs.id"


class Store:
    """Records in one SQLite file (write-ahead log), by default at `default_path()`.

    Every operation opens the file, does one transaction and closes it again: nothing is held in
    between, so any number of threads and processes may use one file, and a crash leaves whole
    records only. One that waits longer than `timeout` seconds for another writer is a `StoreError`,
    as is every other failure of the disk or the file.

    A run in progress is a row too (`begin`), with its process and a heartbeat. It is listed as
    "lost" when its process is gone: an id that ended on this machine, or one on another machine
    that has been silent for minutes.
    """

    def __init__(self, path: str | Path | None = None, *, timeout: float = 3.0) -> None:
        check.at_least(0, timeout=timeout)
        self.path = default_path() if path is None else Path(path).expanduser()
        self._timeout = timeout
        with self._open():
            pass

    def save(self, record: Record, *, replace: bool = False) -> str:
        """Keep a record and return its id; the whole of it or nothing. An id that is taken needs
        `replace`.
        """
        self.insert(record, over=(record.id,) if replace else ())
        return record.id

    def begin(self, head: Record) -> RunHandle:
        """List a run that begins, in this process; `head` is its record as far as it is known."""
        self.insert(head.but(status="running"), live=True)
        return RunHandle(self, head)

    def get(self, id: str) -> Record:
        """Load a record by its id, by a prefix that only one id has, or by the word "last" (saved
        most recently).
        """
        with self._open() as db:
            whole = _resolve(db, id, self.path)
            text, *live = db.execute(
                f"SELECT runs.fields, {_LIVE} {_FROM} WHERE runs.id = ?", (whole,)
            ).fetchone()
            blobs = dict(db.execute("SELECT name, data FROM arrays WHERE run = ?", (whole,)))
        where = f"run {whole} in {self.path}"
        for name in ("steps", "reward", "pulls"):
            if name not in blobs:
                raise StoreError(
                    f"{where} is damaged: its array '{name}' is missing. Delete the run, or "
                    "restore a copy.",
                    rule="results.array.missing",
                )
        record = build(text, blobs, where)
        if live[0] is None:
            return record
        status, _, done, _ = _standing(live)
        return record.but(status=status, summary={**record.summary, "steps_done": done})

    def list(self, limit: int | None = None, kind: str | None = None) -> builtins.list[RunRow]:
        """List runs, the one saved last first, without loading their arrays."""
        if limit is not None:
            check.at_least(0, limit=limit)
        query = (
            f"SELECT {_LISTED}, {_LIVE} {_FROM} WHERE ?1 IS NULL OR kind = ?1 ORDER BY seq DESC "
            "LIMIT ?2"
        )
        with self._open() as db:
            # A negative limit is SQLite's word for no limit.
            rows = db.execute(query, (kind, -1 if limit is None else limit)).fetchall()
        return [_row(row[: len(COLUMNS)], row[len(COLUMNS) :]) for row in rows]

    def heads(self, ids: Iterable[str]) -> dict[str, Record]:
        """Load records without their curves, by whole ids, for a list; damaged ones are left
        out.
        """
        query = (
            "SELECT fields, data FROM runs LEFT JOIN arrays ON run = id AND name = 'pulls' WHERE "
            "id = ?"
        )
        records: dict[str, Record] = {}
        with self._open() as db:
            for id in ids:
                for text, pulls in db.execute(query, (id,)):
                    with suppress(StoreError):
                        records[id] = build(text, {"pulls": pulls} if pulls else {}, id)
        return records

    def delete(self, ids: str | Iterable[str]) -> int:
        """Delete runs by id or unique prefix, and return how many.

        If an id is unknown, no run is deleted.
        """
        with self._open(write=True) as db:
            chosen = {
                _resolve(db, id, self.path) for id in ([ids] if isinstance(ids, str) else ids)
            }
            for id in chosen:
                _remove(db, id)
        return len(chosen)

    def __len__(self) -> int:
        with self._open() as db:
            (count,) = db.execute("SELECT count(*) FROM runs").fetchone()
        return int(count)

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Do nothing: between operations a store holds nothing that could be closed."""

    def insert(self, record: Record, *, over: Iterable[str] = (), live: bool = False) -> None:
        """Validate a record, and insert it in place of those of the ids `over`."""
        record.validate()
        row = tuple(
            getattr(record, {"problem": "problem_name"}.get(name, name)) for name in COLUMNS
        )
        text, blobs = text_of(record), arrays_of(record)
        with self._open(write=True) as db:
            for id in over:
                _remove(db, id)
            if db.execute("SELECT 1 FROM runs WHERE id = ?", (record.id,)).fetchone():
                raise StoreError(
                    f"run {record.id} is already in {self.path}. Give it a new id, or pass "
                    "replace=True.",
                    rule="results.id.taken",
                )
            marks = ", ".join("?" * (len(COLUMNS) + 1))
            db.execute(
                f"INSERT INTO runs ({', '.join(COLUMNS)}, fields) VALUES ({marks})", (*row, text)
            )
            db.executemany(
                "INSERT INTO arrays VALUES (?, ?, ?)",
                [(record.id, *item) for item in blobs.items()],
            )
            if live:
                mine = (
                    record.id,
                    os.getpid(),
                    process_start(os.getpid()) or "",
                    this_host(),
                    time.time(),
                    0,
                )
                db.execute(
                    "INSERT INTO live VALUES (?, ?, ?, ?, ?, ?, ?)", (*mine, record.steps_planned)
                )

    def note_progress(self, id: str, done: int, whole: int) -> None:
        """Note how far a run is; briefly, and without waiting for the disk."""
        with self._open(write=True, timeout=min(0.1, self._timeout), durable=False) as db:
            query = "UPDATE live SET beat = ?, time = ?, whole = ? WHERE run = ?"
            db.execute(query, (time.time(), int(done), int(whole), id))

    @contextmanager
    def _open(
        self, *, write: bool = False, timeout: float | None = None, durable: bool = True
    ) -> Iterator[sqlite3.Connection]:
        with store_errors(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            waits = self._timeout if timeout is None else timeout
            with closing(connect(self.path, waits)) as db:
                if not durable:
                    db.execute("PRAGMA synchronous = NORMAL")
                # A writer takes its lock at once: upgrading a reader's lock later can fail without
                # waiting.
                db.execute("BEGIN IMMEDIATE" if write else "BEGIN")
                try:
                    yield db
                    db.execute("COMMIT")
                except BaseException:
                    if db.in_transaction:
                        db.execute("ROLLBACK")
                    raise


class RunHandle:
    """A run in progress in a store (`Store.begin`); as a context it lists what an exception ended
    as failed.
    """

    def __init__(self, store: Store, head: Record) -> None:
        self._store, self._head = store, head
        self._next = 0.0
        self._open = True

    @property
    def id(self) -> str:
        """The id under which the run is listed."""
        return self._head.id

    def beat(self, done: int, whole: int) -> None:
        """Note that the run is alive and how far it is, at most once per second.

        A busy or full store stops no run.
        """
        now = time.monotonic()
        if self._open and now >= self._next:
            self._next = now + EVERY
            with suppress(StoreError):
                self._store.note_progress(self.id, done, whole)

    def end(self, record: Record) -> str:
        """Put the record in the place of the run, and return its id: that of the run, or one of its
        own.
        """
        self._store.insert(record, over=(self.id,))
        self._open = False
        return record.id

    def drop(self) -> None:
        """Remove a run, and keep nothing of it."""
        if self._open:
            self._open = False
            with suppress(StoreError):
                self._store.delete(self.id)

    def __enter__(self) -> RunHandle:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Forget a run that has not ended; list it as failed where an exception ended it."""
        if self._open and error is not None:
            with suppress(StoreError):
                self.end(self._head.but(status="failed"))
        self.drop()


def _row(values: Sequence[Any], live: Sequence[Any]) -> RunRow:
    row = RunRow(*values)
    if live[0] is None:
        return row
    status, age, done, whole = _standing(live)
    pid, _, host, *_ = live
    return replace(
        row, status=status, time=done, whole=whole, age=age, pid=pid, host=str(host).split()[0]
    )


def _standing(live: Sequence[Any]) -> tuple[str, float, int, int]:
    """Return a running run's status, age of its heartbeat, steps done and number of steps."""
    pid, process, host, beat, done, whole = live
    age = max(0.0, time.time() - beat)
    return "lost" if is_lost(pid, process, host, age) else "running", age, done, whole


def _remove(db: sqlite3.Connection, id: str) -> None:
    db.execute("DELETE FROM arrays WHERE run = ?", (id,))
    db.execute("DELETE FROM live WHERE run = ?", (id,))
    db.execute("DELETE FROM runs WHERE id = ?", (id,))


def _resolve(db: sqlite3.Connection, word: str, path: Path) -> str:
    """Return the id that an id, a prefix or "last" means."""
    if word == "last":
        row = db.execute(
            f"SELECT runs.id {_FROM} WHERE live.run IS NULL ORDER BY seq DESC LIMIT 1"
        ).fetchone()
        if row is None:
            raise StoreError(
                f"there is no run in {path} yet. Run one first, or set POSSE_HOME to where they "
                "are.",
                rule="results.id.none",
            )
        return str(row[0])
    query = (
        "SELECT id FROM runs WHERE substr(id, 1, length(?1)) = ?1 ORDER BY id = ?1 DESC, seq DESC "
        "LIMIT 6"
    )
    close = [str(row[0]) for row in db.execute(query, (word,))] if word else []
    if close and (close[0] == word or len(close) == 1):
        return close[0]
    if close:
        more = ", ..." if len(close) == 6 else ""
        raise StoreError(
            f"'{word}' begins several ids: {', '.join(close[:5])}{more}. Give more characters.",
            rule="results.id.ambiguous",
        )
    recent = tuple(
        str(row[0]) for row in db.execute("SELECT id FROM runs ORDER BY seq DESC LIMIT 5")
    )
    hint = check.suggestion(word, recent) if recent else " The store is empty."
    raise StoreError(
        f"no run '{word}' in {path}.{hint.replace('Known:', 'Most recent:')}",
        rule="results.id.unknown",
    )


def arrays_of(record: Record) -> dict[str, bytes]:
    """Pack the arrays of a record; a regret that is not known is absent."""
    arrays = {name: getattr(record, name) for name in ARRAYS}
    return {name: pack(array) for name, array in arrays.items() if array is not None}


def text_of(record: Record) -> str:
    """Write all other fields as JSON (with NaN and Infinity where they occur, so that nothing is
    lost).
    """
    return json.dumps(record.fields(), ensure_ascii=False, separators=(",", ":"))


def build(text: str, blobs: Mapping[str, bytes], where: str) -> Record:
    """Return a record from its stored parts; `where` names the run and its file in errors."""
    arrays: dict[str, npt.NDArray[np.generic]] = {}
    for name, blob in blobs.items():
        try:
            arrays[name] = unpack(blob)
        except ValueError as error:
            raise StoreError(
                f"{where} is damaged: its array '{name}' {error}. Delete the run, or restore a "
                "copy.",
                rule="results.array.damaged",
            ) from error
    try:
        values = json.loads(text)
        values["traffic"] = tuple(Traffic(**hop) for hop in values["traffic"])
        return Record.restored({**values, **arrays})
    except (ValueError, TypeError, KeyError, AttributeError, PosseError) as error:
        raise StoreError(
            f"{where} is damaged: {error}. Delete the run, or restore a copy.",
            rule="results.record.damaged",
        ) from error
