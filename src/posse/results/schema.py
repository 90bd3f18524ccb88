"""The tables of the store, their version, and a connection to them."""

from __future__ import annotations

import sqlite3
import time
from dataclasses import dataclass, fields
from pathlib import Path

from posse.core.errors import StoreError
from posse.results.record import RunRecord

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


def row_of(record: RunRecord) -> tuple[str | int | float | None, ...]:
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
