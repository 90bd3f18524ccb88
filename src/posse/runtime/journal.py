"""A party's journal: what it took in, before it answers.

    journal-<g>.log    records since snapshot g: length (4) | CRC-32 (4) | payload
    snapshot-<g>       one record, written whole: a new file, fsync, rename, fsync of the folder

A record is in the operating system's hands after `write`: it survives the death of the process. It
is on the disk after `sync`: it survives the death of the machine. A torn record at the end, which
only the second kind of death leaves, is cut off when the journal is opened; nobody relied on it. A
record of its own (`_MARK`) says how far the disk was before it: what is damaged before that was
relied upon, and is refused.
"""

from __future__ import annotations

import os
import re
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from posse.core.errors import JournalError
from posse.core.files import sync_data

_HEAD = struct.Struct("<II")
_SNAPSHOT = re.compile(r"snapshot-(\d{8})")
_MARK = b"posse: on the disk "
"""Begins a mark, behind it the number of bytes that were on the disk when it was written."""
LARGEST = 64 << 20
"""Bytes of a record: no message, and no snapshot, is larger."""


class Disk:
    """The few things a journal asks of the operating system, with its paths and descriptors; tests
    let them fail.
    """

    names = staticmethod(os.listdir)
    write = staticmethod(os.write)
    truncate = staticmethod(os.ftruncate)
    close = staticmethod(os.close)

    def take(self, folder: Path) -> int:
        """Make the folder where there is none, and lock it; the lock goes when the process does."""
        import fcntl

        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            raise JournalError(
                f"the journal in {folder} is in use by another process "
                f"({holder(folder) or 'unknown'}). Stop it, or "
                "give this party another folder."
            ) from None
        os.ftruncate(file, 0)
        os.write(file, f"{os.getpid()}\n".encode())
        return file

    def read(self, path: Path) -> bytes:
        """Read a file."""
        return path.read_bytes()

    def open(self, path: Path, flags: int) -> int:
        """Open a file; new files are for their owner only."""
        return os.open(path, flags, 0o600)

    def sync(self, file: int) -> None:
        """Return when everything written is on the disk."""
        sync_data(file)

    def rename(self, old: Path, new: Path) -> None:
        """Put a file in the place of another at once, and wait until the folder is on the disk."""
        os.replace(old, new)
        folder = os.open(new.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def remove(self, path: Path) -> None:
        """Remove a file."""
        path.unlink(missing_ok=True)


class Journal:
    """Records of one party in one folder; opened by one process at a time."""

    def __init__(self, folder: Path, disk: Disk | None = None) -> None:
        """Open or make the journal; `snapshot` and `records()` then tell what it holds."""
        self._folder, self._disk = folder, disk or Disk()
        self.torn = 0
        """Bytes of a torn end that was cut off when this journal was opened."""
        with _disk_errors(folder):
            self._lock = self._disk.take(folder)
            self._generation, self.snapshot = self._newest()
            self._file = self._disk.open(self._log(), os.O_RDWR | os.O_CREAT | os.O_APPEND)
            self._held, self.size = self._read()
        self._waiting: list[bytes] = []
        """`size`: bytes of records since the snapshot."""
        self._on_disk = self._marked = 0

    @property
    def first(self) -> bytes | None:
        """The snapshot, or the first record, of a journal that was just opened; None of an empty
        one.
        """
        return self._held[0] if self.snapshot is None and self._held else self.snapshot

    def records(self) -> Iterator[bytes]:
        """Return the records since the snapshot that were there when the journal was opened,
        once.
        """
        held, self._held = self._held, []
        return iter(held)

    def append(self, record: bytes) -> None:
        """Add a record; it is kept from the next `write` on. None may begin as a mark does: it
        would be read as one.
        """
        if record.startswith(_MARK):
            raise ValueError(f"a record of a journal may not begin with {_MARK!r}.")
        self._waiting.append(framed(record))

    def write(self) -> None:
        """Hand what was added to the operating system: after this the process may die."""
        if not self._waiting:
            return
        if self._on_disk > self._marked:
            self._waiting.insert(0, framed(_MARK + self._on_disk.to_bytes(8, "little")))
            self._marked = self._on_disk
        data = b"".join(self._waiting)
        try:
            written = self._disk.write(self._file, data)
            if written != len(data):
                # A disk that is nearly full takes a part; the torn record would hide what comes
                # after it.
                self._disk.truncate(self._file, self.size)
                raise OSError(28, "No space left on device")
        except OSError as error:
            raise _not_kept(self._folder, error) from error
        self._waiting.clear()
        self.size += len(data)

    def sync(self) -> None:
        """Wait until everything written is on the disk: after this the machine may die."""
        size, generation = self.size, self._generation
        with _disk_errors(self._folder):
            self._disk.sync(self._file)
        if generation == self._generation:
            self._on_disk = size

    def checkpoint(self, snapshot: bytes) -> None:
        """Begin a new generation with a snapshot; older records are not needed any more."""
        self.write()
        generation = self._generation + 1
        whole = self._folder / "snapshot.new"
        with _disk_errors(self._folder):
            file = self._disk.open(whole, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            try:
                data = framed(snapshot)
                if self._disk.write(file, data) != len(data):
                    raise OSError(28, "No space left on device")
                self._disk.sync(file)
            finally:
                self._disk.close(file)
            old, self._generation = self._log(), generation
            log = self._disk.open(self._log(), os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_TRUNC)
            self._disk.rename(whole, self._folder / f"snapshot-{generation:08}")
            self._disk.close(self._file)
            self._file, self.size = log, 0
            self._on_disk = self._marked = 0
            self._disk.remove(old)
            self._disk.remove(self._folder / f"snapshot-{generation - 1:08}")

    def close(self) -> None:
        """Close the files; what was added and not written is lost, as in a crash."""
        self._disk.close(self._file)
        self._disk.close(self._lock)

    def _log(self) -> Path:
        return self._folder / f"journal-{self._generation:08}.log"

    def _newest(self) -> tuple[int, bytes | None]:
        """Find the newest snapshot; it was renamed when whole, so a damaged one is the disk's
        fault.
        """
        numbers = sorted(
            int(match[1])
            for name in self._disk.names(self._folder)
            if (match := _SNAPSHOT.fullmatch(name))
        )
        if not numbers:
            return 0, None
        for old in numbers[:-1]:
            self._disk.remove(self._folder / f"snapshot-{old:08}")
            self._disk.remove(self._folder / f"journal-{old:08}.log")
        path = self._folder / f"snapshot-{numbers[-1]:08}"
        data = self._disk.read(path)
        records, whole = split(data)
        _check_snapshot(path, records, whole == len(data))
        return numbers[-1], records[0]

    def _read(self) -> tuple[list[bytes], int]:
        """Read the records, and cut off a torn end; return them and their size."""
        data = self._disk.read(self._log())
        records, whole = split(data)
        _check_damage(self._log(), data, whole)
        self.torn = len(data) - whole
        if self.torn:
            self._disk.truncate(self._file, whole)
        return [record for record in records if not record.startswith(_MARK)], whole


def _check_damage(path: Path, data: bytes, whole: int) -> None:
    """Raise where what follows the whole records was on the disk once: it is damaged, and no torn
    end.
    """
    at = whole
    while (at := data.find(_MARK, at)) >= 0:
        begins, ends = at - _HEAD.size, at + len(_MARK) + 8
        marked = int.from_bytes(data[at + len(_MARK) : ends], "little")
        if (
            begins >= whole
            and data[begins:ends] == framed(data[at:ends])
            and whole < marked <= begins
        ):
            raise JournalError(
                f"{path} is damaged at byte {whole:,}, and the records after it cannot be read. "
                "Repair the disk, and restore the newest copy of the folder: an older copy would "
                "not match what the peers have."
            )
        at += 1


def holder(folder: Path) -> int:
    """Return the process that has a journal open; 0 of one that nobody has."""
    import fcntl

    try:
        file = os.open(folder / "lock", os.O_RDONLY)
    except OSError:
        return 0
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        text = os.read(file, 20).strip()
        return int(text) if text.isdigit() else 0
    finally:
        os.close(file)
    return 0


@dataclass(frozen=True)
class Condition:
    """What a look at a journal found, without opening it."""

    records: int
    size: int
    """Bytes of the snapshot and of the records since."""
    torn: int
    """Bytes of a torn end, which is cut off when the party starts."""


def look(folder: Path) -> Condition:
    """Read a journal that another process may have open; raise where it is damaged. Nothing is
    written.
    """
    with _disk_errors(folder):
        names = os.listdir(folder) if folder.is_dir() else []
        snapshots = sorted(name for name in names if _SNAPSHOT.fullmatch(name))
        size = 0
        if snapshots:
            path = folder / snapshots[-1]
            data = path.read_bytes()
            records, whole = split(data)
            _check_snapshot(path, records, whole == len(data))
            size = len(data)
        log = folder / f"journal-{int(snapshots[-1][9:]) if snapshots else 0:08}.log"
        data = log.read_bytes() if log.exists() else b""
    records, whole = split(data)
    _check_damage(log, data, whole)
    return Condition(
        sum(not record.startswith(_MARK) for record in records), size + whole, len(data) - whole
    )


@dataclass(frozen=True)
class Copy:
    """The files of a journal as they were at one moment."""

    files: dict[str, bytes]
    generation: int
    size: int
    """Bytes of records since the snapshot: of two copies of one journal, the newer has more, or a
    later generation.
    """
    first: bytes | None
    """As `Journal.first`."""


def copy(folder: Path) -> Copy:
    """Read a journal that another process may have open and write to; nothing is locked or
    written.
    """
    seen = None
    while True:
        with _disk_errors(folder):
            names = os.listdir(folder) if folder.is_dir() else []
            newest = max((name for name in names if _SNAPSHOT.fullmatch(name)), default="")
            generation = int(newest[9:]) if newest else 0
            log = f"journal-{generation:08}.log"
            try:
                snapshot = (folder / newest).read_bytes() if newest else b""
                data = (
                    (folder / log).read_bytes() if log in names or newest not in ("", seen) else b""
                )
            except FileNotFoundError:
                seen = newest  # a newer snapshot took its place; the same one again has no log: a start makes it anew
                continue
        records, whole = split(data)
        _check_damage(folder / log, data, whole)
        kept = split(snapshot)[0] if newest else []
        if newest:
            _check_snapshot(
                folder / newest, kept, sum(map(len, kept)) + _HEAD.size == len(snapshot)
            )
        files = {log: data[:whole]} | ({newest: snapshot} if newest else {})
        return Copy(files, generation, whole, next(iter([*kept, *records]), None))


class Held(Journal):
    """A journal in memory with what a copy holds: it is replayed from, and keeps nothing."""

    def __init__(self, held: Copy) -> None:
        """Take what a copy holds."""
        newest = next(
            (data for name, data in held.files.items() if _SNAPSHOT.fullmatch(name)), None
        )
        log = next(
            (data for name, data in held.files.items() if not _SNAPSHOT.fullmatch(name)), b""
        )
        self.snapshot = None if newest is None else split(newest)[0][0]
        self._held = [record for record in split(log)[0] if not record.startswith(_MARK)]
        self.size, self.torn, self._waiting = held.size, 0, []

    def write(self) -> None:
        """Keep nothing."""
        self._waiting.clear()

    def sync(self) -> None:
        """Keep nothing."""

    def close(self) -> None:
        """Do nothing: no file is open."""


def first_of(data: bytes) -> bytes:
    """Return the first record of a file of a journal; empty of one that holds none."""
    return next(iter(split(data)[0]), b"")


def _check_snapshot(path: Path, records: list[bytes], whole: bool) -> None:
    if len(records) != 1 or not whole:
        raise JournalError(
            f"{path} is damaged. Restore the folder from a copy that was made while it was stopped."
        )


def framed(record: bytes) -> bytes:
    """Put length and checksum before a record."""
    return _HEAD.pack(len(record), zlib.crc32(record)) + record


def split(data: bytes) -> tuple[list[bytes], int]:
    """Split into records up to the first that is not whole; return them and their size."""
    records: list[bytes] = []
    at = 0
    while at + _HEAD.size <= len(data):
        length, crc = _HEAD.unpack_from(data, at)
        record = data[at + _HEAD.size : at + _HEAD.size + length]
        if length > LARGEST or len(record) != length or zlib.crc32(record) != crc:
            break
        records.append(record)
        at += _HEAD.size + length
    return records, at


@contextmanager
def _disk_errors(folder: Path) -> Iterator[None]:
    """Turn what the file system raises into a `JournalError` that names the folder."""
    try:
        yield
    except OSError as error:
        raise _not_kept(folder, error) from error


def _not_kept(folder: Path, error: OSError) -> JournalError:
    return JournalError(
        f"the journal in {folder} cannot be kept: {error.strerror or error}. Mend the disk and "
        "start the party again: "
        "it goes on where it was."
    )
