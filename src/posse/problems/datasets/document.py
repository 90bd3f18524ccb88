"""The bytes of a data file, checked to be text before anything reads them.

A file is read once and whole: what was verified is what is parsed.
"""

from __future__ import annotations

import io
import os
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

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
