"""The bytes of data files: where they are, whether they are the known ones, whether they are text.

The package ships no data set. It looks in the folder given as `data_dir`, else in the one that the environment variable
POSSE_DATA names, checks size and sha256 of the files it knows, and says where to get one that is missing. A file is
read once and whole: what was verified is what is parsed.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from posse.core.errors import DataError

FilePath = str | os.PathLike[str]

_SPREADSHEET = b"\xd0\xcf\x11\xe0"
_ZIP = b"PK\x03\x04"


@dataclass(frozen=True)
class Document:
    """A text file and the name that errors give it.

    >>> Document("means.csv", b"name,mean").open().read()
    'name,mean'
    >>> Document("means.csv", b"")
    Traceback (most recent call last):
    ...
    posse.core.errors.DataError: [P200] means.csv is empty. Write or download it again.
    """

    name: str
    data: bytes
    frame: bool = False
    """Whether it is a frame written as CSV: its rows are counted without the header."""

    def __post_init__(self) -> None:
        if not self.data.strip():
            raise DataError(f"{self.name} is empty. Write or download it again.")
        if self.data.startswith(_SPREADSHEET) or self.data.startswith(_ZIP):
            raise DataError(f"{self.name} is a spreadsheet or an archive, not text. Save its table as CSV in UTF-8.")
        if self.data[:2] in (b"\xff\xfe", b"\xfe\xff"):
            raise DataError(f"{self.name} is text in UTF-16. Save it as UTF-8.")
        zero = self.data.find(b"\0")
        if zero >= 0:
            raise DataError(
                f"{self.name}, row {self._row(zero)} holds a zero byte: a binary file, not text. Give a CSV."
            )
        try:
            self.data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise DataError(
                f"{self.name}, row {self._row(error.start)} holds byte 0x{self.data[error.start]:02x}, "
                "which is not UTF-8. Save the file as UTF-8."
            ) from None

    def _row(self, position: int) -> int:
        return self.data.count(b"\n", 0, position) + 1

    def open(self) -> io.TextIOWrapper:
        """Open as a stream of lines, without the byte order mark that some editors put first."""
        return io.TextIOWrapper(io.BytesIO(self.data), encoding="utf-8-sig", newline="")


def read_bytes(path: FilePath) -> bytes:
    """Read a file, or say in one line why it cannot be read."""
    try:
        return Path(path).read_bytes()
    except FileNotFoundError:
        raise DataError(f"no file {os.fspath(path)}. Check the path.") from None
    except OSError as error:
        raise DataError(f"cannot read {os.fspath(path)}: {error.strerror}. Give a file you may read.") from None


def read_document(path: FilePath) -> Document:
    """Read a text file."""
    return Document(os.fspath(path), read_bytes(path))


def unzip(name: str, data: bytes) -> dict[str, Document]:
    """Open the text tables (.csv, .dat) of a zip file, by their file name without folders.

    >>> unzip("jester.zip", b"PK and no more")
    Traceback (most recent call last):
    ...
    posse.core.errors.DataError: [P200] jester.zip is not a whole zip file (File is not a zip file). Download it again.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            tables = [info for info in archive.infolist() if info.filename.lower().endswith((".csv", ".dat"))]
            read = {info.filename: archive.read(info) for info in tables}
    # A damaged archive shows in any of these, depending on which byte was lost.
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError, ValueError) as error:
        raise DataError(f"{name} is not a whole zip file ({error}). Download it again.") from None
    return {PurePosixPath(inner).name: Document(f"{name}:{inner}", content) for inner, content in read.items()}


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


VARIABLE = "POSSE_DATA"


class Pin(NamedTuple):
    """What a known file must be, byte for byte."""

    size: int
    sha256: str


# MovieLens names the files of every edition alike, so its pins go with the folder of one edition.
PINS = {
    "ml-latest-small/ratings.csv": Pin(2483723, "aa289ca83157595d0df6aea1be6a4ded676ddc4385472e8313a8ed9805352646"),
    "ml-latest-small/movies.csv": Pin(494431, "5a5f32dd9bb3797b8e728a1b98958789d2b13f294a69fdfbc5727f8a9611aa07"),
    "jester-data-1.zip": Pin(3400621, "4adf783a1e03bd3be063315cb6e0a064fe63e983fd289d01b8e401a8e6c41e5f"),
    "jester-data-1.csv": Pin(11712553, "4692895acc91263ec11592cb94687725e28afdd451845ab46c2ac6ba3ebc414e"),
    "steam.zip": Pin(823340, "befdc608cb06f83b97f9d7a34437ca3d76a8ad648dd9304d837ebe3fdf92a77e"),
    "game_play.dat": Pin(954135, "86ac428985a323da0c6cee634b2c8d8851bb028048426a6381c68c96554d0b14"),
    "game_purchase.dat": Pin(1713633, "d353d441b6325862be2162292b6ad6b501fa16380b9625a96daa8fa456c4ec52"),
    "item_info.dat": Pin(138405, "0f799721e472a14ef3c7a06e0771532d47611ec18e87c158e4864074ed5c5c60"),
}


def data_folder(data_dir: FilePath | None = None) -> Path:
    """Give the folder of data files: the argument, else POSSE_DATA."""
    given = os.environ.get(VARIABLE, "") if data_dir is None else os.fspath(data_dir)
    if not given:
        raise DataError(f"no folder of data files is set. Give data_dir (--data-dir), or set {VARIABLE} to the folder.")
    if not Path(given).is_dir():
        source = f"{VARIABLE} names" if data_dir is None else "data_dir is"
        raise DataError(f"{source} {given}, which is not a folder. Give the folder that holds the data sets.")
    return Path(given)


def find(candidates: Sequence[str], home: str, data_dir: FilePath | None = None) -> Path:
    """Give the first candidate (a path below the folder of data files) that exists, or say where to get it."""
    folder = data_folder(data_dir)
    for candidate in candidates:
        if (folder / candidate).exists():
            return folder / candidate
    raise DataError(
        f"no {candidates[0]} in {folder}. Get it from {home} (mind its terms), put it there, "
        f"or give another folder by data_dir (--data-dir) or {VARIABLE}."
    )


def read_known(path: FilePath, home: str, verify: bool = True, pins: Mapping[str, Pin] = PINS) -> bytes:
    """Read a file, decompressed where it is gzip, and check that it is the same where it is one that is pinned."""
    file = Path(path)
    data, name = unpacked(file, home), file.name.removesuffix(".gz")
    pin = pins.get(f"{file.parent.name}/{name}") or pins.get(name)
    if verify and pin is not None:
        check_pin(os.fspath(path), data, pin, home)
    return data


def read_known_text(path: Path, home: str, verify: bool = True) -> Document:
    """Read a text file in the same way."""
    return Document(os.fspath(path), read_known(path, home, verify))


def check_pin(name: str, data: bytes, pin: Pin, home: str) -> None:
    """Refuse a file that is not the pinned one.

    >>> check_pin("a.csv", b"one", Pin(3, "0" * 64), "example.org")
    Traceback (most recent call last):
    ...
    posse.core.errors.DataError: [P200] a.csv is not the known file: expected 3 bytes with sha256 000000000000..., found
    3 bytes with 7692c3ad3540.... Download it again from example.org, or pass verify=False to use it as it is.
    """
    found = hashlib.sha256(data).hexdigest()
    if len(data) != pin.size or found != pin.sha256:
        raise DataError(
            f"{name} is not the known file: expected {pin.size} bytes with sha256 {pin.sha256[:12]}..., "
            f"found {len(data)} bytes with {found[:12]}.... "
            f"Download it again from {home}, or pass verify=False to use it as it is."
        )
