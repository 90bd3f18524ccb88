"""Files that appear whole or not at all."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from posse.core.errors import DataError

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
def whole(path: str | Path) -> Iterator[BinaryIO]:
    """Open a binary file to write; it takes its name only when everything is on the disk.

    The bytes go to a hidden file in the same folder, which is renamed at the end or removed on any error, so an older
    file of that name stays as it was until then. What the file system refuses is a `DataError`.

    >>> with whole("no-such-folder/runs.csv") as file:  # doctest: +ELLIPSIS
    ...     _ = file.write(b"run")
    Traceback (most recent call last):
    ...
    posse.core.errors.DataError: [P200] cannot write no-such-folder/runs.csv: the folder does not exist. ...
    """
    # A link is followed, so that the file it names is the one replaced.
    target = Path(os.path.realpath(Path(path).expanduser()))
    part = target.with_name(f".{target.name[:80]}.{secrets.token_hex(4)}.part")
    try:
        if target.is_dir():
            raise IsADirectoryError(errno.EISDIR, "Is a directory")
        with part.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(target)
    except OSError as error:
        raise DataError(f"cannot write {path}: {os_reason(error)}") from error
    finally:
        # What stopped the writing may stop the tidying too; the first reason is the one to tell.
        with suppress(OSError):
            part.unlink(missing_ok=True)
