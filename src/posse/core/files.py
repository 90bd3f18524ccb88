"""Files that are written completely or not at all, and checks of who may use a file.

After a crash, a full disk or Ctrl-C, the path names the complete old file or the complete new file.
The bytes are written to a hidden file in the same folder. At the end, the hidden file gets the name
of the path; after an error, it is removed. A file with secrets is private from its first byte.
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

PRIVATE = 0o600
"""Permissions of a file that only its owner may read and write."""
PUBLIC = 0o644
"""Permissions of a file that everybody may read."""

_REASONS = {
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


def explain_os_error(error: OSError) -> str:
    """Return the reason and the remedy for a failure of the file system.

    >>> explain_os_error(OSError(errno.ENOSPC, "No space left on device"))
    'no space left on the disk. Free some, or choose another disk.'
    """
    return _REASONS.get(error.errno or 0, f"{error.strerror or error}.")


@contextmanager
def open_whole(
    path: str | Path, *, mode: int | None = None, replace: bool = True, durable: bool = True
) -> Iterator[BinaryIO]:
    """Open a new file for writing. When the block ends, the file appears at `path`.

    If the block raises an error, `path` is as before.

    Args:
        path: The file. If it is a link and `replace` is True, the target of the link is written.
        mode: Permissions from the first byte on; None for the usual permissions of a new file.
        replace: Whether to replace an older file.
        durable: Whether to end the block only when the file is on the disk.

    Raises:
        DataError: The file cannot be written, or it exists and `replace` is False. An OSError in
            the block is raised as this error too.

    >>> with open_whole("no-such-folder/runs.csv") as file:  # doctest: +ELLIPSIS
    ...     _ = file.write(b"run")
    Traceback (most recent call last):
    ...
    posse.core.errors.DataError: [P200] cannot write no-such-folder/runs.csv: the folder does not
    exist. ...
    """
    target = Path(os.path.realpath(Path(path).expanduser())) if replace else Path(path)
    # The name is cut, so that the hidden file's name is not too long for the file system.
    hidden_file = target.with_name(f".{target.name[:80]}.{secrets.token_hex(4)}.part")
    try:
        if target.is_dir():
            raise IsADirectoryError(errno.EISDIR, "Is a directory")
        with _create_file(hidden_file, mode) as file:
            yield file
            if durable:
                file.flush()
                os.fsync(file.fileno())
        if replace:
            hidden_file.replace(target)
        else:
            # `link` fails if a file has the name already; a rename would replace that file.
            os.link(hidden_file, target)
    except OSError as error:
        if isinstance(error, FileExistsError) and not replace:
            raise DataError(
                f"{path} exists and is not overwritten. Move it away, or choose another place.",
                rule="core.path.exists",
            ) from error
        raise DataError(
            f"cannot write {path}: {explain_os_error(error)}", rule="core.path.not-writable"
        ) from error
    finally:
        # A disk that failed at writing may fail here too. The first error is the one to report.
        with suppress(OSError):
            hidden_file.unlink(missing_ok=True)
    if durable:
        sync_folder(target.parent)


def _create_file(path: Path, mode: int | None) -> BinaryIO:
    """Make a new file with exactly the permissions `mode`; None means the usual permissions."""
    if mode is None:
        return path.open("xb")
    file = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb")
    # The umask may have removed permissions.
    os.fchmod(file.fileno(), mode)
    return file


def write_whole(
    path: str | Path,
    data: bytes,
    *,
    mode: int | None = PUBLIC,
    replace: bool = True,
    durable: bool = True,
) -> None:
    """Write `data` to a file, completely or not at all; `open_whole` explains the arguments."""
    with open_whole(path, mode=mode, replace=replace, durable=durable) as file:
        file.write(data)


def sync_data(descriptor: int) -> None:
    """Make the operating system write the data of an open file to the disk."""
    # macOS has no fdatasync. It is looked up at every call, so that a test can remove it.
    getattr(os, "fdatasync", os.fsync)(descriptor)


def sync_folder(folder: Path) -> None:
    """Make the operating system write a folder's list of files to the disk.

    Otherwise a new file could be missing after a crash. Has no effect on file systems that cannot
    write the list on request.
    """
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def forbid_core_dumps() -> None:
    """Forbid the operating system to write this process's memory to the disk after a crash.

    The memory contains keys and tokens. Has no effect on operating systems that lack the necessary
    functions.
    """
    import ctypes
    import resource

    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(OSError, AttributeError):
        # prctl(PR_SET_DUMPABLE, 0): other programs cannot dump this process either.
        ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)


def make_private_folder(folder: Path) -> None:
    """Make a folder that only its owner may enter.

    If the folder exists already, its permissions stay as they are, and are checked: keys and tokens
    must not be stored where others may write.

    Raises:
        DataError: The folder cannot be made.
        CertificateError: Others may write in the folder, or it belongs to another user.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
    except OSError as error:
        raise DataError(
            f"cannot make the folder {folder}: {error.strerror}. Choose another place.",
            rule="core.folder.not-writable",
        ) from error
    _check_only_owner_writes(folder, status)


def read_credential(path: Path, what: str, remedy: str) -> bytes:
    """Read a file that proves who someone is: a certificate, a key or a password.

    Args:
        path: The file.
        what: What the file is, for the error: "the key".
        remedy: How to get such a file, for the error.

    Raises:
        CertificateError: The file cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise CertificateError(
            f"{what} {path} cannot be read: {error.strerror}. {remedy}",
            "unreadable",
            rule="core.identity.not-readable",
        ) from error


def check_private(path: Path) -> None:
    """Check that only the owner of a file may read or write it, because it holds a secret.

    The owner must be this user or root.

    Raises:
        CertificateError: Others may read or write the file, it belongs to another user, or its
            permissions cannot be read.
    """
    status = _file_status(path)
    _check_owner(path, status)
    if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        mode = stat.S_IMODE(status.st_mode)
        raise CertificateError(
            f"{path} can be used by others (mode {mode:o}). Run: chmod go= {path}",
            "permissions",
            rule="core.permissions.used-by-others",
        )


def check_only_owner_writes(path: Path) -> None:
    """Check that only the owner of a file may write it; others may read it.

    The owner must be this user or root.

    Raises:
        CertificateError: Others may write the file, it belongs to another user, or its permissions
            cannot be read.
    """
    _check_only_owner_writes(path, _file_status(path))


def _check_only_owner_writes(path: Path, status: os.stat_result) -> None:
    _check_owner(path, status)
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        mode = stat.S_IMODE(status.st_mode)
        raise CertificateError(
            f"{path} can be written by others (mode {mode:o}). Run: chmod go-w {path}",
            "permissions",
            rule="core.permissions.written-by-others",
        )


def _check_owner(path: Path, status: os.stat_result) -> None:
    """Check that a file belongs to this user or to root. Root can change any file anyway."""
    if status.st_uid not in (os.geteuid(), 0):
        raise CertificateError(
            f"{path} belongs to another user (uid {status.st_uid}). Use a folder of your own.",
            "permissions",
            rule="core.owner.another-user",
        )


def _file_status(path: Path) -> os.stat_result:
    try:
        return path.stat()
    except OSError as error:
        raise CertificateError(
            f"{path} cannot be read: {error.strerror}.",
            "unreadable",
            rule="core.path.not-readable",
        ) from error
