"""The file of a store: its path, its tables, how it is opened, and which process writes a row."""

from __future__ import annotations

import os
import platform
import sqlite3
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from posse.core.errors import StoreError
from posse.core.files import explain_os_error

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
"""What makes of the tables of a version those of the next."""

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
    """Open a store that has our tables, making them in a new file; the caller starts
    transactions.

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
    """Return the version of our tables, 0 for an empty file; refuse newer ones and other programs'
    files.
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
    """Name the machine, and on Linux the space in which its process numbers count: containers may
    share a name.
    """
    with suppress(OSError):
        return f"{platform.node()} {os.readlink('/proc/self/ns/pid')}"
    return platform.node()


def process_start(pid: int) -> str | None:
    """Return a mark that no other process of this number has; None where there is none, "" where
    that is not known.

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
    """Return whether a run will never end: its process is gone, or is silent on a machine that we
    cannot ask.

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
