"""Files that appear whole or not at all, private from their first byte where they hold a secret.

A crash, a full disk or Ctrl-C leaves the old file or the new one, never half of one. The bytes go
to a hidden file in the same folder, which takes the name at the end or is removed on any error.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from posse.core.errors import CertificateError, DataError

PRIVATE, PUBLIC = 0o600, 0o644

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
    """Return the reason and the remedy for a failure of the file system.

    >>> os_reason(OSError(errno.ENOSPC, "No space left on device"))
    'no space left on the disk. Free some, or choose another disk.'
    """
    return _OS.get(error.errno or 0, f"{error.strerror or error}.")


@contextmanager
def whole(
    path: str | Path, *, mode: int | None = None, replace: bool = True, durable: bool = True
) -> Iterator[BinaryIO]:
    """Open a binary file to write; it takes its name only when everything is written, and a
    `durable` one on the disk.

    Until then an older file of that name stays as it was; without `replace` it stays for good and
    this raises. `mode` holds from the first byte on (default: what the process gives to new files).
    What the file system refuses is a `DataError`.

    >>> with whole("no-such-folder/runs.csv") as file:  # doctest: +ELLIPSIS
    ...     _ = file.write(b"run")
    Traceback (most recent call last):
    ...
    posse.core.errors.DataError: [P200] cannot write no-such-folder/runs.csv: the folder does not
    exist. ...
    """
    # A link is followed, so that the file it names is the one replaced.
    target = Path(os.path.realpath(Path(path).expanduser())) if replace else Path(path)
    part = target.with_name(f".{target.name[:80]}.{secrets.token_hex(4)}.part")
    try:
        if target.is_dir():
            raise IsADirectoryError(errno.EISDIR, "Is a directory")
        created = os.open(
            part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666 if mode is None else mode
        )
        with open(created, "wb") as file:
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            yield file
            if durable:
                file.flush()
                os.fsync(file.fileno())
        if replace:
            part.replace(target)
        else:
            # A link fails where the name is taken; a rename would not.
            os.link(part, target)
    except OSError as error:
        if isinstance(error, FileExistsError) and not replace:
            raise DataError(
                f"{path} exists and is not overwritten. Move it away, or choose another place."
            ) from error
        raise DataError(f"cannot write {path}: {os_reason(error)}") from error
    finally:
        # What stopped the writing may stop the tidying too; the first reason is the one to report.
        with suppress(OSError):
            part.unlink(missing_ok=True)
    if durable:
        sync_folder(target.parent)


def write_whole(
    path: str | Path,
    data: bytes,
    *,
    mode: int | None = PUBLIC,
    replace: bool = True,
    durable: bool = True,
) -> None:
    """Write a file that takes its name only when all of it is there; see `whole`."""
    with whole(path, mode=mode, replace=replace, durable=durable) as file:
        file.write(data)


def sync_data(descriptor: int) -> None:
    """Return when everything written to a file is on the disk."""
    # macOS has no fdatasync. Looked up here, not on import, so that a test can take it away.
    getattr(os, "fdatasync", os.fsync)(descriptor)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder survive a crash; file systems that cannot do this are left as they
    are.
    """
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def no_core_dumps() -> None:
    """Let no crash of this process write its memory, with keys and tokens in it, to a disk."""
    import ctypes
    import resource

    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(
            4, 0, 0, 0, 0
        )  # PR_SET_DUMPABLE: none, not even to a program that asked for them


def make_folder(folder: Path) -> None:
    """Make a folder that only its owner enters, or check one that exists: nobody else may write in
    it.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
    except OSError as error:
        raise DataError(
            f"cannot make the folder {folder}: {error.strerror}. Choose another place."
        ) from error
    _check(folder, found, stat.S_IWGRP | stat.S_IWOTH, "be written by others", "go-w")


def read(path: Path, what: str, remedy: str) -> bytes:
    """Read a file of an identity, or say which is missing and how to get it."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise CertificateError(
            f"{what} {path} cannot be read: {error.strerror}. {remedy}", "unreadable"
        ) from error


def check_private(path: Path) -> None:
    """Raise where others may read or write a file that holds a secret, or where it belongs to
    somebody else.
    """
    _check(path, _status(path), stat.S_IRWXG | stat.S_IRWXO, "be used by others", "go=")


def check_trusted(path: Path) -> None:
    """Raise where others may write a file that is relied on."""
    _check(path, _status(path), stat.S_IWGRP | stat.S_IWOTH, "be written by others", "go-w")


def _status(path: Path) -> os.stat_result:
    try:
        return path.stat()
    except OSError as error:
        raise CertificateError(f"{path} cannot be read: {error.strerror}.", "unreadable") from error


def _check(path: Path, status: os.stat_result, forbidden: int, can: str, remedy: str) -> None:
    if os.name != "posix":
        return
    if status.st_uid not in (os.geteuid(), 0):
        raise CertificateError(
            f"{path} belongs to another user (uid {status.st_uid}). Use a folder of your own.",
            "permissions",
        )
    if status.st_mode & forbidden:
        mode = stat.S_IMODE(status.st_mode)
        raise CertificateError(
            f"{path} can {can} (mode {mode:o}). Run: chmod {remedy} {path}", "permissions"
        )
