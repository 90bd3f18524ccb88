"""The local store of records, shared by the command line and the studio.

It is one SQLite file. `Store` reads and writes records; below it are the tables of the file, how it
is opened, and which process writes a run that is in progress.
"""

from __future__ import annotations

import builtins
import json
import os
import platform
import sqlite3
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from posse.core import check
from posse.core.errors import PosseError, StoreError
from posse.core.files import explain_os_error
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
    """The status of the record; "running" or "lost" before there is one."""
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
        """How far a run in progress is, such as "1,200 of 10,000"; else empty."""
        return "" if self.time is None else f"{self.time:,} of {self.whole:,}"


class Live(NamedTuple):
    """A run in progress: the process that writes it, its last heartbeat, and how far it is."""

    pid: int
    process: str
    host: str
    beat: float
    time: int
    whole: int

    @property
    def age(self) -> float:
        """Seconds since the last heartbeat."""
        return max(0.0, time.time() - self.beat)

    @property
    def status(self) -> str:
        """Whether it is running, or lost because its process has ended."""
        return "lost" if is_lost(self.pid, self.process, self.host, self.age) else "running"


COLUMNS = tuple(field.name for field in fields(RunRow))[:15]
"""What a row holds of its record."""

_LISTED = ", ".join(f"runs.{name}" for name in COLUMNS)
_LIVE_COLUMNS = ", ".join(f"live.{name}" for name in Live._fields)
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
        """Store a whole record and return its id. An id that is taken needs `replace`."""
        self.insert(record, over=(record.id,) if replace else ())
        return record.id

    def begin(self, head: Record) -> RunHandle:
        """List a run that begins, in this process; `head` is its record as far as it is known."""
        self.insert(head.but(status="running"), live=True)
        return RunHandle(self, head)

    def get(self, id: str) -> Record:
        """Load a record by its id, by a prefix that only one id has, or by the word "last".

        "last" is the record that was saved most recently.
        """
        query = f"SELECT runs.fields, {_LIVE_COLUMNS} {_FROM} WHERE runs.id = ?"
        with self._open() as db:
            run = _resolve(db, id, self.path)
            text, *values = db.execute(query, (run,)).fetchone()
            blobs = dict(db.execute("SELECT name, data FROM arrays WHERE run = ?", (run,)))
        where = f"run {run} in {self.path}"
        for name in ("steps", "reward", "pulls"):
            if name not in blobs:
                raise StoreError(
                    f"{where} is damaged: its array '{name}' is missing. Delete the run, or "
                    "restore a copy.",
                    rule="results.array.missing",
                )
        record = build(text, blobs, where)
        if values[0] is None:
            return record
        live = Live(*values)
        return record.but(status=live.status, summary={**record.summary, "steps_done": live.time})

    def list(self, limit: int | None = None, kind: str | None = None) -> builtins.list[RunRow]:
        """List runs, the one saved last first, without loading their arrays."""
        if limit is not None:
            check.at_least(0, limit=limit)
        query = (
            f"SELECT {_LISTED}, {_LIVE_COLUMNS} {_FROM} WHERE ?1 IS NULL OR kind = ?1 "
            "ORDER BY seq DESC LIMIT ?2"
        )
        with self._open() as db:
            # A negative limit is SQLite's word for no limit.
            rows = db.execute(query, (kind, -1 if limit is None else limit)).fetchall()
        return [_row(row) for row in rows]

    def heads(self, ids: Iterable[str]) -> dict[str, Record]:
        """Load records without their curves, by whole ids, for a list. Damaged ones are omitted."""
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
            words = [ids] if isinstance(ids, str) else ids
            chosen = {_resolve(db, word, self.path) for word in words}
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
        names = ["problem_name" if name == "problem" else name for name in COLUMNS]
        row = [getattr(record, name) for name in names]
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
            _insert(db, f"runs ({', '.join(COLUMNS)}, fields)", (*row, text))
            for name, blob in blobs.items():
                _insert(db, "arrays", (record.id, name, blob))
            if live:
                pid = os.getpid()
                process = process_start(pid) or ""
                mine = Live(pid, process, this_host(), time.time(), 0, record.steps_planned)
                _insert(db, "live", (record.id, *mine))

    def note_progress(self, id: str, done: int, whole: int) -> None:
        """Store how far a run is. This is fast, because it does not wait for the disk."""
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
    """A run in progress in a store (`Store.begin`).

    As a context it lists a run that an exception ended as failed.
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
        """Put the record in the place of the run, and return the id of the record."""
        self._store.insert(record, over=(self.id,))
        self._open = False
        return record.id

    def drop(self) -> None:
        """Remove the run from the store."""
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
        """Remove a run that has not ended, or list it as failed if an exception ended it."""
        if self._open and error is not None:
            with suppress(StoreError):
                self.end(self._head.but(status="failed"))
        self.drop()


def _row(values: tuple[object, ...]) -> RunRow:
    """Return a line of the list from the columns of a record, and those of a run in progress."""
    row = RunRow(*values[: len(COLUMNS)])  # type: ignore[arg-type]
    if values[-1] is None:  # it is not in progress
        return row
    live = Live(*values[len(COLUMNS) :])  # type: ignore[arg-type]
    return replace(
        row,
        status=live.status,
        time=live.time,
        whole=live.whole,
        age=live.age,
        pid=live.pid,
        host=live.host.split()[0],
    )


def _insert(db: sqlite3.Connection, table: str, values: tuple[object, ...]) -> None:
    marks = ", ".join("?" * len(values))
    db.execute(f"INSERT INTO {table} VALUES ({marks})", values)


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
    newest = db.execute("SELECT id FROM runs ORDER BY seq DESC LIMIT 5")
    recent = tuple(str(row[0]) for row in newest)
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
    """Write all other fields as JSON, with NaN and Infinity, so that nothing is lost."""
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


# The file --------------------------------------------------------------------------------------------


SCHEMA_VERSION = 2
APPLICATION_ID = 0x706F7373
"""Marks an SQLite file as ours ("poss"), so that another program's database is never written to."""

_LIVE = """CREATE TABLE live (
    run TEXT PRIMARY KEY, pid INTEGER NOT NULL, process TEXT NOT NULL, host TEXT NOT NULL, beat REAL NOT NULL,
    time INTEGER NOT NULL, whole INTEGER NOT NULL)"""

_TABLES = (
    """CREATE TABLE runs (
        seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, created TEXT NOT NULL, kind TEXT NOT NULL,
        status TEXT NOT NULL, level TEXT NOT NULL, policy TEXT NOT NULL, problem TEXT NOT NULL, runs INTEGER NOT NULL,
        arms INTEGER NOT NULL, horizon INTEGER NOT NULL, total_mean REAL, seconds REAL NOT NULL, version TEXT NOT NULL,
        fields TEXT NOT NULL, run_id TEXT NOT NULL DEFAULT '', party TEXT NOT NULL DEFAULT '')""",
    "CREATE TABLE arrays (run TEXT NOT NULL, name TEXT NOT NULL, data BLOB NOT NULL, PRIMARY KEY "
    "(run, name))",
    _LIVE,
)

_UPGRADES = {
    1: (
        "ALTER TABLE runs RENAME COLUMN budget TO horizon",
        "ALTER TABLE runs ADD COLUMN run_id TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE runs ADD COLUMN party TEXT NOT NULL DEFAULT ''",
        "UPDATE runs SET run_id = id",
        _LIVE,
    ),
}
"""Statements that bring the tables of a version to the next one."""

FILE = "runs.sqlite"


def default_path() -> Path:
    """Return `$POSSE_HOME/runs.sqlite`, or `posse/runs.sqlite` in the user's data folder.

    The data folder is `%LOCALAPPDATA%` on Windows, `~/Library/Application Support` on macOS, and
    `$XDG_DATA_HOME` or `~/.local/share` elsewhere. Nothing is created here.
    """
    home = os.environ.get("POSSE_HOME")
    return Path(home).expanduser() / FILE if home else _user_data() / "posse" / FILE


def _user_data() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support"
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")


def connect(path: Path, timeout: float) -> sqlite3.Connection:
    """Open a store, and make its tables in a new file. The caller starts transactions.

    The tables of an older version are brought up to date in place.
    """
    db = sqlite3.connect(path, timeout=timeout, isolation_level=None)
    try:
        # One transaction, or the tables another process is making could appear between two of the
        # reads.
        db.execute("BEGIN")
        version = _version(db, path)
        db.execute("COMMIT")
        if version < SCHEMA_VERSION:
            _bring_up_to_date(db, path, timeout)
        # In WAL mode a crash of the machine may lose the last record with NORMAL, never a part of
        # one; FULL keeps it.
        db.execute("PRAGMA synchronous = FULL")
    except BaseException:
        db.close()
        raise
    return db


def _version(db: sqlite3.Connection, path: Path) -> int:
    """Return the version of our tables, 0 for an empty file.

    Raises:
        StoreError: The tables are newer, or the file belongs to another program.
    """
    version = int(db.execute("PRAGMA user_version").fetchone()[0])
    owner = int(db.execute("PRAGMA application_id").fetchone()[0])
    empty = db.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone() is None
    if owner != APPLICATION_ID and not (owner == version == 0 and empty):
        raise StoreError(
            f"{path} is a database of another program. Move it away, or set POSSE_HOME to another "
            "folder.",
            rule="results.store.other-program",
        )
    if version > SCHEMA_VERSION:
        raise StoreError(
            f"{path} was written by a newer Posse (store version {version}, this one reads up to "
            f"{SCHEMA_VERSION}). "
            "Install that version of Posse, or set POSSE_HOME to another folder.",
            rule="results.store.newer",
        )
    return version


def _bring_up_to_date(db: sqlite3.Connection, path: Path, timeout: float) -> None:
    """Make the tables, or change those of an older version; all of it or nothing."""
    _use_wal(db, timeout)
    db.execute("BEGIN IMMEDIATE")
    # Another process may have done it while this one waited for the lock.
    version = _version(db, path)
    statements = [*_TABLES, f"PRAGMA application_id = {APPLICATION_ID}"] if version == 0 else []
    for older in range(version or SCHEMA_VERSION, SCHEMA_VERSION):
        statements += _UPGRADES[older]
    for statement in (*statements, f"PRAGMA user_version = {SCHEMA_VERSION}"):
        db.execute(statement)
    db.execute("COMMIT")


def _use_wal(db: sqlite3.Connection, timeout: float) -> None:
    """Switch to the write-ahead log; the mode is kept in the file.

    SQLite does not always wait for the lock that the switch needs, so we do. On a file system
    without shared memory the mode stays as it was, which is slower and as safe.
    """
    end = time.monotonic() + timeout
    while True:
        try:
            db.execute("PRAGMA journal_mode = WAL").fetchone()
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                raise
            time.sleep(0.01)


_SQLITE = {
    sqlite3.SQLITE_BUSY: "is locked by another process. Wait until it has finished, or stop it, and try again.",
    sqlite3.SQLITE_LOCKED: "is locked by another connection. Try again when it has finished.",
    sqlite3.SQLITE_CORRUPT: "is damaged. Restore a copy, or move it away: a new one is made at the next run.",
    sqlite3.SQLITE_NOTADB: "is not a run store. Move it away, or set POSSE_HOME to another folder.",
    sqlite3.SQLITE_FULL: "cannot grow: no space left. Free some, or set POSSE_HOME to another disk.",
    sqlite3.SQLITE_READONLY: "is read-only. Make it and its folder writable, or set POSSE_HOME to another folder.",
    sqlite3.SQLITE_PERM: "may not be opened. Check its permissions, or set POSSE_HOME to another folder.",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened. Check that its folder exists and is writable, or set POSSE_HOME.",
    sqlite3.SQLITE_IOERR: "cannot be read or written: the disk reports an error. Check the disk.",
}


@contextmanager
def store_errors(path: Path) -> Iterator[None]:
    """Turn what SQLite or the file system raises into a `StoreError` that names the file.

    A mistake in our own SQL (`sqlite3.ProgrammingError`) is a bug and keeps its traceback.
    """
    try:
        yield
    except sqlite3.ProgrammingError:
        raise
    except sqlite3.Error as error:
        # Extended codes carry the plain one in their low byte.
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        reason = _SQLITE.get(code, f"cannot be used: {error}.")
        raise StoreError(f"the run store {path} {reason}", rule="results.store.sqlite") from error
    except OSError as error:
        raise StoreError(
            f"the run store {path} cannot be used: {explain_os_error(error)}",
            rule="results.store.disk",
        ) from error


SILENT = 300.0
"""Seconds without a heartbeat after which a run on another machine counts as lost."""


def this_host() -> str:
    """Return the name of the machine, and on Linux the namespace of its process numbers.

    Containers may share a name.
    """
    with suppress(OSError):
        return f"{platform.node()} {os.readlink('/proc/self/ns/pid')}"
    return platform.node()


def process_start(pid: int) -> str | None:
    """Return a mark that no other process of this number has.

    It is None if there is no such process, and empty if the system has no such mark.

    >>> process_start(os.getpid()) is not None
    True
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return _exists(pid)
    # The name of the program comes before, in brackets, and may hold anything.
    state, *fields = stat.rpartition(")")[2].split()
    return None if state in "ZX" else f"{boot} {fields[18]}"


def _exists(pid: int) -> str | None:
    if sys.platform == "win32":
        return ""  # a signal would end the process there
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except OSError:
        pass
    return ""


def is_lost(pid: int, process: str, host: str, age: float) -> bool:
    """Return whether a run will never end.

    Its process has ended, or it runs on another machine and has been silent for minutes.

    >>> (
    ...     is_lost(os.getpid(), process_start(os.getpid()), this_host(), age=1e6),
    ...     is_lost(1, "", "elsewhere", age=1e6),
    ... )
    (False, True)
    """
    if host == this_host():
        start = process_start(pid)
        if start is None or (start and process):
            return start != process
    return age > SILENT
