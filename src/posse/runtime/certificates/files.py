"""Files that appear whole or not at all, private from their first byte."""

from __future__ import annotations

import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path

from posse.core.errors import CertificateError, DataError

PRIVATE, PUBLIC = 0o600, 0o644


def write_whole(path: Path, data: bytes, *, mode: int = PUBLIC, replace: bool = True) -> None:
    """Write a file that takes its name only when it is on the disk; without `replace`, never over another one."""
    part = path.with_name(f".{path.name[:80]}.{secrets.token_hex(4)}.part")
    try:
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if replace:
            part.replace(path)
        else:
            # A link fails where the name is taken; a rename would not.
            os.link(part, path)
    except FileExistsError as error:
        raise DataError(f"{path} exists and is not overwritten. Move it away, or choose another place.") from error
    except OSError as error:
        raise DataError(f"cannot write {path}: {error.strerror}. Choose a place you may write to.") from error
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder survive a crash; file systems that cannot are let be."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Make a folder that only its owner enters, or check one that exists: nobody else may write in it."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
    except OSError as error:
        raise DataError(f"cannot make the folder {folder}: {error.strerror}. Choose another place.") from error
    _check(folder, found, stat.S_IWGRP | stat.S_IWOTH, "be written by others", "go-w")


def read(path: Path, what: str, remedy: str) -> bytes:
    """Read a file, or say which is missing and how to get it."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise CertificateError(f"{what} {path} cannot be read: {error.strerror}. {remedy}", "unreadable") from error


def check_private(path: Path) -> None:
    """Raise where others may read or write a file that holds a secret, or where it is somebody else's."""
    try:
        found = path.stat()
    except OSError as error:
        raise CertificateError(f"{path} cannot be read: {error.strerror}.", "unreadable") from error
    _check(path, found, stat.S_IRWXG | stat.S_IRWXO, "be used by others", "go=")


def check_trusted(path: Path) -> None:
    """Raise where others may write a file that is relied on."""
    try:
        found = path.stat()
    except OSError as error:
        raise CertificateError(f"{path} cannot be read: {error.strerror}.", "unreadable") from error
    _check(path, found, stat.S_IWGRP | stat.S_IWOTH, "be written by others", "go-w")


def _check(path: Path, found: os.stat_result, forbidden: int, can: str, remedy: str) -> None:
    if os.name != "posix":
        return
    if found.st_uid not in (os.geteuid(), 0):
        raise CertificateError(
            f"{path} belongs to another user (uid {found.st_uid}). Use a folder of your own.", "permissions"
        )
    if found.st_mode & forbidden:
        mode = stat.S_IMODE(found.st_mode)
        raise CertificateError(f"{path} can {can} (mode {mode:o}). Run: chmod {remedy} {path}", "permissions")
