"""Files of data sets: where they are, and whether they are the known ones.

The package ships no data set. It looks in the folder given as `data_dir`, else in the one that the
environment variable POSSE_DATA names, checks size and sha256 of the files it knows, and says where
to get one that is missing. A file is read once and whole: what was verified is what is parsed.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import os
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from posse.core.errors import DataError
from posse.problems.tables.text import Document, FilePath, read_bytes


def unzip(name: str, data: bytes) -> dict[str, Document]:
    """Open the text tables (.csv, .dat) of a zip file, by their file name without folders.

    >>> unzip("jester.zip", b"PK and no more")
    Traceback (most recent call last):
    ...
    posse.core.errors.DataError: [P200] jester.zip is not a whole zip file (File is not a zip file).
    Download it again.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            files = [file for file in archive.namelist() if file.lower().endswith((".csv", ".dat"))]
            contents = {file: archive.read(file) for file in files}
    except _DAMAGED as error:
        raise DataError(
            f"{name} is not a whole zip file ({error}). Download it again.",
            rule="problems.file.not-a-zip",
        ) from None
    return {
        PurePosixPath(file).name: Document(f"{name}:{file}", content)
        for file, content in contents.items()
    }


_DAMAGED = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    OSError,
    NotImplementedError,
    RuntimeError,
    ValueError,
)
"""Errors about a damaged archive; it depends on the lost byte which one Python raises."""

_GZIP = b"\x1f\x8b"


def unpacked(path: FilePath, home: str) -> bytes:
    """Read a file, and decompress it if it is gzip."""
    data = read_bytes(path)
    if not data.startswith(_GZIP):
        return data
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(
            f"{os.fspath(path)} is not a whole gzip file ({error}). Get it again from {home}.",
            rule="problems.file.not-gzip",
        ) from None


VARIABLE = "POSSE_DATA"


class Pin(NamedTuple):
    """Size and digest of a known file."""

    size: int | None
    """None if its publisher gives only a digest."""
    sha256: str


@cache
def known_files() -> dict[str, Pin]:
    """Return the known files, uncompressed, by name.

    The name has a folder if editions have files of the same name.

    >>> known_files()["ml-latest-small/ratings.csv"].size
    2483723
    """
    return read_pins(resources.files(__package__).joinpath("data", "known-files.csv"))


def read_pins(table: Traversable) -> dict[str, Pin]:
    """Read a table of known files, with size and sha256."""
    with table.open(encoding="utf-8") as stream:
        rows = csv.DictReader(stream)
        return {
            row["file"]: Pin(int(row["size"]) if row["size"] else None, row["sha256"])
            for row in rows
        }


def data_folder(data_dir: FilePath | None = None) -> Path:
    """Return the folder of data files: the argument, else POSSE_DATA."""
    folder = os.environ.get(VARIABLE, "") if data_dir is None else os.fspath(data_dir)
    if not folder:
        raise DataError(
            f"no folder of data files is set. Give data_dir (--data-dir), or set {VARIABLE} to the "
            "folder.",
            rule="problems.data_dir.not-set",
        )
    if not Path(folder).is_dir():
        source = f"{VARIABLE} names" if data_dir is None else "data_dir is"
        raise DataError(
            f"{source} {folder}, which is not a folder. Give the folder that holds the data sets.",
            rule="problems.data_dir.not-a-folder",
        )
    return Path(folder)


def find(
    files: Sequence[str],
    home: str,
    data_dir: FilePath | None = None,
    folders: Sequence[str] = ("",),
) -> Path:
    """Return the first of some files that exists; the error names where to get it.

    Args:
        files: Names of the file, or paths.
        home: Where to get it.
        data_dir: The folder of data files.
        folders: Folders in it that may hold the file, the first ones before the others.
    """
    folder = data_folder(data_dir)
    places = [Path(inner, file) for inner in folders for file in files]
    present = [folder / place for place in places if (folder / place).exists()]
    if present:
        return present[0]
    raise DataError(
        f"no {places[0].as_posix()} in {folder}. Get it from {home} (mind its terms), put it "
        f"there, or give another folder by data_dir (--data-dir) or {VARIABLE}.",
        rule="problems.data_dir.file-missing",
    )


def content(path: Path) -> bytes:
    """Return the digest of a file, or of all files of a folder with their names.

    It is empty without a file.
    """
    if path.is_dir():
        files = filter(Path.is_file, sorted(path.rglob("*")))
        digests = [(bytes(file.relative_to(path)), content(file)) for file in files]
        return hashlib.sha256(repr(digests).encode()).digest()
    if not path.is_file():
        return b""
    state = path.stat()
    digest = _digest if state.st_size > LARGE else _digest.__wrapped__
    return digest(path, state.st_size, state.st_mtime_ns)


LARGE = 1 << 20
"""Bytes of a file that is not read again if its size and time have not changed."""


@cache
def _digest(path: Path, size: int, changed: int) -> bytes:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").digest()


def read_known(
    path: FilePath, home: str, verify: bool = True, pins: Mapping[str, Pin] | None = None
) -> bytes:
    """Read a file, and decompress it if it is gzip.

    With `verify`, a file that is one of `pins` (by default of `known_files`) must have its digest.
    """
    file = Path(path)
    data = unpacked(file, home)
    name = file.name.removesuffix(".gz")
    pinned = known_files() if pins is None else pins
    pin = pinned.get(f"{file.parent.name}/{name}") or pinned.get(name)
    if verify and pin is not None:
        check_pin(os.fspath(path), data, pin, home)
    return data


def read_known_text(path: Path, home: str, verify: bool = True) -> Document:
    """Read a text file in the same way."""
    return Document(os.fspath(path), read_known(path, home, verify))


def check_pin(name: str, data: bytes, pin: Pin, home: str) -> None:
    """Raise if a file is not the pinned one.

    >>> check_pin("a.csv", b"one", Pin(3, "0" * 64), "example.org")
    Traceback (most recent call last):
    ...
    posse.core.errors.DataError: [P200] a.csv is not the known file: expected 3 bytes with sha256
    000000000000..., found
    3 bytes with 7692c3ad3540.... Download it again from example.org, or switch verify off where
    there is such a
    setting.
    """
    digest = hashlib.sha256(data).hexdigest()
    if pin.size not in (None, len(data)) or digest != pin.sha256:
        size = "" if pin.size is None else f"{pin.size} bytes with "
        raise DataError(
            f"{name} is not the known file: expected {size}sha256 {pin.sha256[:12]}..., found "
            f"{len(data)} bytes with {digest[:12]}.... Download it again from {home}, or switch "
            "verify off where there is such a setting.",
            rule="problems.file.not-the-known-one",
        )
