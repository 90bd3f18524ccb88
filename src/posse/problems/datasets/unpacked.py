"""Contents of files that come compressed or not, as mirrors have it."""

from __future__ import annotations

import gzip
import os
import zlib

from posse.core.errors import DataError
from posse.problems.datasets.document import FilePath, read_bytes

_GZIP = b"\x1f\x8b"


def unpacked(path: FilePath, home: str) -> bytes:
    """Read a file, and decompress it where it is gzip."""
    data = read_bytes(path)
    if not data.startswith(_GZIP):
        return data
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{os.fspath(path)} is not a whole gzip file ({error}). Get it again from {home}.") from None
