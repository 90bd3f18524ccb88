"""What a disk or a database can do to us, in one line that says what to do about it."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from posse.core.errors import StoreError

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

_OS = {
    errno.ENOSPC: "no space left on the disk. Free some, or choose another disk.",
    errno.EDQUOT: "the disk quota is used up. Free some space, or choose another disk.",
    errno.EACCES: "permission denied. Choose a place you may write to.",
    errno.EPERM: "permission denied. Choose a place you may write to.",
    errno.EROFS: "the disk is read-only. Choose another place.",
    errno.ENOENT: "the folder does not exist. Create it first.",
    errno.ENOTDIR: "a part of the path is a file, not a folder. Choose another place.",
    errno.EEXIST: "a part of the path is a file, not a folder. Choose another place.",
    errno.EISDIR: "it is a folder. Give the name of a file.",
    errno.ENAMETOOLONG: "the name is too long. Choose a shorter one.",
    errno.EFBIG: "the file grows past what the system allows. Export fewer runs.",
}


def os_reason(error: OSError) -> str:
    """Tell a failure of the file system as reason and remedy.

    >>> os_reason(OSError(errno.ENOSPC, "No space left on device"))
    'no space left on the disk. Free some, or choose another disk.'
    """
    return _OS.get(error.errno or 0, f"{error.strerror or error}.")


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
