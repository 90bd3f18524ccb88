"""Disks for tests: one in memory that can lose its power, and one that fails on demand."""

from __future__ import annotations

import errno
import os
import random
from dataclasses import dataclass, field
from pathlib import Path

from posse.core.errors import JournalError
from posse.runtime.journal import Disk


@dataclass
class _File:
    written: bytearray = field(default_factory=bytearray)
    synced: bytes = b""


class MemoryDisk:
    """Files in memory. `lose_power` leaves of each file what was synced, and a random part of what
    was not.
    """

    def __init__(self) -> None:
        self._files: dict[Path, _File] = {}
        self._open: dict[int, Path] = {}
        self._next = 3
        self._taken: dict[Path, int] = {}

    def take(self, folder: Path) -> int:
        if folder in self._taken:
            raise JournalError(f"the journal in {folder} is in use by another process.")
        self._next += 1
        self._taken[folder] = self._next
        return self._next

    def names(self, folder: Path) -> list[str]:
        return [path.name for path in self._files if path.parent == folder]

    def read(self, path: Path) -> bytes:
        return bytes(self._files[path].written)

    def open(self, path: Path, flags: int) -> int:
        file = self._files.setdefault(path, _File())
        if flags & os.O_TRUNC:
            file.written.clear()
        self._next += 1
        self._open[self._next] = path
        return self._next

    def write(self, file: int, data: bytes) -> int:
        self._files[self._open[file]].written += data
        return len(data)

    def sync(self, file: int) -> None:
        held = self._files[self._open[file]]
        held.synced = bytes(held.written)

    def truncate(self, file: int, size: int) -> None:
        del self._files[self._open[file]].written[size:]

    def close(self, file: int) -> None:
        self._open.pop(file, None)
        self._taken = {folder: lock for folder, lock in self._taken.items() if lock != file}

    def rename(self, old: Path, new: Path) -> None:
        self._files[new] = self._files.pop(old)

    def remove(self, path: Path) -> None:
        self._files.pop(path, None)

    def kill(self) -> None:
        """The process dies: what was written stays."""
        self._open.clear()
        self._taken.clear()

    def lose_power(self, rng: random.Random) -> None:
        """The machine dies: of what was not synced a part stays, cut anywhere."""
        self.kill()
        for file in self._files.values():
            # Files only ever grow between syncs here, so what was synced is a prefix.
            kept = rng.randint(len(file.synced), max(len(file.synced), len(file.written)))
            del file.written[kept:]
            file.synced = bytes(file.written)


class FailingDisk(Disk):
    """The operating system's files, until the `after`-th call of a kind fails."""

    def __init__(
        self, kind: str, after: int, error: int = errno.ENOSPC, *, part: bool = False
    ) -> None:
        self._kind, self._left, self._error, self._part = kind, after, error, part

    def _count(self, kind: str) -> bool:
        if kind != self._kind:
            return False
        self._left -= 1
        return self._left < 0

    def write(self, file: int, data: bytes) -> int:
        if self._count("write"):
            if self._part and len(data) > 1:
                return os.write(file, data[: len(data) // 2])
            raise OSError(self._error, os.strerror(self._error))
        return super().write(file, data)

    def sync(self, file: int) -> None:
        if self._count("sync"):
            raise OSError(self._error, os.strerror(self._error))
        super().sync(file)

    def rename(self, old: Path, new: Path) -> None:
        if self._count("rename"):
            raise OSError(self._error, os.strerror(self._error))
        super().rename(old, new)
