"""The local store of records, shared by the command line and the studio."""

from __future__ import annotations

import builtins
import json
import os
import sqlite3
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from types import TracebackType

import numpy as np
import numpy.typing as npt

from posse.core import check
from posse.core.errors import PosseError, StoreError
from posse.core.files import os_reason
from posse.results.record import ARRAYS, Record, Traffic
from posse.results.values import pack, unpack


class Store:
    """Records in one SQLite file (write-ahead log), by default at `default_path()`.

    Every operation opens the file, does one transaction and closes it again: nothing is held in between, so any
    number of threads and processes may use one file, and a crash leaves whole records only. One that waits longer
    than `timeout` seconds for another writer is a `StoreError`, as is every other failure of the disk or the file.

    >>> import tempfile
    >>> from posse.results.example import example_record
    >>> folder = tempfile.TemporaryDirectory()
    >>> with Store(Path(folder.name) / "runs.sqlite") as store:
    ...     _ = store.save(example_record(id="0a-first"))
    ...     _ = store.save(example_record(id="0b-second", kind="simulate"))
    ...     [row.id for row in store.list()], store.get("0a").kind, store.get("last").id
    (['0b-second', '0a-first'], 'samba', '0b-second')
    >>> folder.cleanup()
    """

    def __init__(self, path: str | Path | None = None, *, timeout: float = 3.0) -> None:
        check.at_least(0, timeout=timeout)
        self.path = default_path() if path is None else Path(path).expanduser()
        self._timeout = timeout
        with self._open():
            pass

    def save(self, record: Record, *, replace: bool = False) -> str:
        """Keep a record and return its id; the whole of it or nothing. An id that is taken needs `replace`."""
        row, blobs = row_of(record), arrays_of(record)
        text = text_of(record)
        with self._open(write=True) as db:
            taken = db.execute("SELECT 1 FROM runs WHERE id = ?", (record.id,)).fetchone()
            if taken and not replace:
                raise StoreError(f"run {record.id} is already in {self.path}. Give it a new id, or pass replace=True.")
            _remove(db, record.id)
            marks = ", ".join("?" * (len(COLUMNS) + 1))
            db.execute(f"INSERT INTO runs ({', '.join(COLUMNS)}, fields) VALUES ({marks})", (*row, text))
            db.executemany("INSERT INTO arrays VALUES (?, ?, ?)", [(record.id, *item) for item in blobs.items()])
        return record.id

    def get(self, id: str) -> Record:
        """Load a record by its id, by a prefix that only one id has, or by the word "last" (saved most recently)."""
        with self._open() as db:
            found = _resolve(db, id, self.path)
            (text,) = db.execute("SELECT fields FROM runs WHERE id = ?", (found,)).fetchone()
            blobs = dict(db.execute("SELECT name, data FROM arrays WHERE run = ?", (found,)))
        return build(text, blobs, f"run {found} in {self.path}")

    def list(self, limit: int | None = None, kind: str | None = None) -> builtins.list[RunRow]:
        """List runs, the one saved last first, without loading their arrays."""
        if limit is not None:
            check.at_least(0, limit=limit)
        query = f"SELECT {', '.join(COLUMNS)} FROM runs WHERE ?1 IS NULL OR kind = ?1 ORDER BY seq DESC LIMIT ?2"
        with self._open() as db:
            # A negative limit is SQLite's word for no limit.
            return [RunRow(*row) for row in db.execute(query, (kind, -1 if limit is None else limit))]

    def delete(self, ids: str | Iterable[str]) -> int:
        """Delete runs by id or unique prefix and return how many; one unknown id, and none is deleted."""
        with self._open(write=True) as db:
            found = {_resolve(db, id, self.path) for id in ([ids] if isinstance(ids, str) else ids)}
            for id in found:
                _remove(db, id)
        return len(found)

    def __len__(self) -> int:
        with self._open() as db:
            (count,) = db.execute("SELECT count(*) FROM runs").fetchone()
        return int(count)

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Do nothing: between operations a store holds nothing that could be closed."""

    @contextmanager
    def _open(self, *, write: bool = False) -> Iterator[sqlite3.Connection]:
        with told(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with closing(connect(self.path, self._timeout)) as db:
                # A writer takes its lock at once: upgrading a reader's lock later can fail without waiting.
                db.execute("BEGIN IMMEDIATE" if write else "BEGIN")
                try:
                    yield db
                    db.execute("COMMIT")
                except BaseException:
                    if db.in_transaction:
                        db.execute("ROLLBACK")
                    raise


def _remove(db: sqlite3.Connection, id: str) -> None:
    db.execute("DELETE FROM arrays WHERE run = ?", (id,))
    db.execute("DELETE FROM runs WHERE id = ?", (id,))


def _resolve(db: sqlite3.Connection, wanted: str, path: Path) -> str:
    """Find the one id that is meant, or say what is there instead."""
    if wanted == "last":
        row = db.execute("SELECT id FROM runs ORDER BY seq DESC LIMIT 1").fetchone()
        if row is None:
            raise StoreError(f"there is no run in {path} yet. Run one first, or set POSSE_HOME to where they are.")
        return str(row[0])
    query = "SELECT id FROM runs WHERE substr(id, 1, length(?1)) = ?1 ORDER BY id = ?1 DESC, seq DESC LIMIT 6"
    close = [str(row[0]) for row in db.execute(query, (wanted,))] if wanted else []
    if close and (close[0] == wanted or len(close) == 1):
        return close[0]
    if close:
        more = ", ..." if len(close) == 6 else ""
        raise StoreError(f"'{wanted}' begins several ids: {', '.join(close[:5])}{more}. Give more characters.")
    recent = tuple(str(row[0]) for row in db.execute("SELECT id FROM runs ORDER BY seq DESC LIMIT 5"))
    hint = check.nearest(wanted, recent) if recent else " The store is empty."
    raise StoreError(f"no run '{wanted}' in {path}.{hint.replace('Known:', 'Most recent:')}")


SCHEMA_VERSION = 1
APPLICATION_ID = 0x706F7373
"""Marks an SQLite file as ours ("poss"), so that another program's database is never written to."""

_TABLES = (
    """CREATE TABLE runs (
        seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, created TEXT NOT NULL, kind TEXT NOT NULL,
        status TEXT NOT NULL, level TEXT NOT NULL, policy TEXT NOT NULL, problem TEXT NOT NULL, runs INTEGER NOT NULL,
        arms INTEGER NOT NULL, budget INTEGER NOT NULL, total_mean REAL, seconds REAL NOT NULL, version TEXT NOT NULL,
        fields TEXT NOT NULL)""",
    "CREATE TABLE arrays (run TEXT NOT NULL, name TEXT NOT NULL, data BLOB NOT NULL, PRIMARY KEY (run, name))",
)


@dataclass(frozen=True)
class RunRow:
    """One line of a list of runs: what a reader needs to pick one."""

    id: str
    created: str
    kind: str
    status: str
    level: str
    policy: str
    problem: str
    runs: int
    arms: int
    budget: int
    total_mean: float | None
    seconds: float
    version: str


COLUMNS = tuple(field.name for field in fields(RunRow))


def row_of(record: Record) -> tuple[str | int | float | None, ...]:
    """Return the values of a record in the order of `COLUMNS`."""
    return tuple(getattr(record, {"problem": "problem_name"}.get(name, name)) for name in COLUMNS)


def connect(path: Path, timeout: float) -> sqlite3.Connection:
    """Open a store that has our tables, making them in a new file; transactions are begun by the caller."""
    db = sqlite3.connect(path, timeout=timeout, isolation_level=None)
    try:
        # One transaction, or the tables another process is making could appear between two of the reads.
        db.execute("BEGIN")
        version = _version(db, path)
        db.execute("COMMIT")
        if version == 0:
            _create(db, path, timeout)
        # In WAL mode a crash of the machine may lose the last record with NORMAL, never a part of one; FULL keeps it.
        db.execute("PRAGMA synchronous = FULL")
    except BaseException:
        db.close()
        raise
    return db


def _version(db: sqlite3.Connection, path: Path) -> int:
    """Return the version of our tables, 0 for an empty file; refuse newer ones and other programs' files."""
    version = int(db.execute("PRAGMA user_version").fetchone()[0])
    owner = int(db.execute("PRAGMA application_id").fetchone()[0])
    empty = db.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone() is None
    if owner != APPLICATION_ID and not (owner == version == 0 and empty):
        raise StoreError(f"{path} is a database of another program. Move it away, or set POSSE_HOME to another folder.")
    if version > SCHEMA_VERSION:
        raise StoreError(
            f"{path} was written by a newer Posse (store version {version}, this one reads up to {SCHEMA_VERSION}). "
            "Upgrade with: pip install -U posse-bandits"
        )
    return version


def _create(db: sqlite3.Connection, path: Path, timeout: float) -> None:
    _use_wal(db, timeout)
    db.execute("BEGIN IMMEDIATE")
    # Another process may have made the tables while this one waited for the lock.
    if _version(db, path) == 0:
        for table in _TABLES:
            db.execute(table)
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    db.execute("COMMIT")


def _use_wal(db: sqlite3.Connection, timeout: float) -> None:
    """Switch to the write-ahead log; the mode is kept in the file.

    SQLite does not always wait for the lock that the switch needs, so we do. On a file system without shared memory
    the mode stays as it was, which is slower and as safe.
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


def arrays_of(record: Record) -> dict[str, bytes]:
    """Pack the arrays of a record; a regret that is not known is absent."""
    arrays = {name: getattr(record, name) for name in ARRAYS}
    return {name: pack(array) for name, array in arrays.items() if array is not None}


def text_of(record: Record) -> str:
    """Write all other fields as JSON (with NaN and Infinity where they occur, so that nothing is lost)."""
    return json.dumps(record.fields(), ensure_ascii=False, separators=(",", ":"))


def build(text: str, blobs: Mapping[str, bytes], where: str) -> Record:
    """Rebuild a record from its parts, or say which part is damaged; `where` names the run and its file."""
    arrays: dict[str, npt.NDArray[np.generic]] = {}
    for name, blob in blobs.items():
        try:
            arrays[name] = unpack(blob)
        except ValueError as error:
            raise StoreError(
                f"{where} is damaged: its array '{name}' {error}. Delete the run, or restore a copy."
            ) from error
    try:
        values = json.loads(text)
        values["traffic"] = tuple(Traffic(**hop) for hop in values["traffic"])
        return Record(**{**values, **arrays})
    except (ValueError, TypeError, KeyError, AttributeError, PosseError) as error:
        raise StoreError(f"{where} is damaged: {error}. Delete the run, or restore a copy.") from error


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
def told(path: Path) -> Iterator[None]:
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
        raise StoreError(f"the run store {path} {reason}") from error
    except OSError as error:
        raise StoreError(f"the run store {path} cannot be used: {os_reason(error)}") from error


FILE = "runs.sqlite"


def default_path() -> Path:
    """Return `$POSSE_HOME/runs.sqlite`, or `posse/runs.sqlite` in the user's data folder.

    The data folder is `%LOCALAPPDATA%` on Windows, `~/Library/Application Support` on macOS, and `$XDG_DATA_HOME`
    or `~/.local/share` elsewhere. Nothing is created here.
    """
    home = os.environ.get("POSSE_HOME")
    return Path(home).expanduser() / FILE if home else _user_data() / "posse" / FILE


def _user_data() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support"
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
