"""Folders in one file each, the same at every writing, with the modes that secrets ask for."""

from __future__ import annotations

import re
import socket
import zipfile
from pathlib import Path

HERE = b"@FOLDER@"
_ADDRESS = re.compile(rb"127\.0\.0\.1:\d+")
_PLACE = re.compile(rb"127\.0\.0\.1:@(\d+)@")
_TEXT = {".toml", ".json", ".cnf"}
_LEFT_OUT = {"lock", "world.lock"}


def pack(folder: Path, archive: Path) -> None:
    """Write a folder, without addresses of this machine and without its place."""
    ports: dict[bytes, bytes] = {}

    def numbered(match: re.Match[bytes]) -> bytes:
        return ports.setdefault(match[0], b"127.0.0.1:@%d@" % len(ports))

    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for path in sorted(folder.rglob("*")):
            if not path.is_file() or path.name in _LEFT_OUT:
                continue
            data = path.read_bytes()
            if path.suffix in _TEXT:
                data = _ADDRESS.sub(numbered, data.replace(str(folder).encode(), HERE))
            place = str(folder.parent).encode()
            if path.suffix == ".sqlite":  # its pages have places for texts of one length only
                data = data.replace(place, b"/frozen".ljust(len(place), b"-"))
            assert place not in data, f"{path} names a place of this machine"
            entry = zipfile.ZipInfo(path.relative_to(folder).as_posix(), (2026, 1, 1, 0, 0, 0))
            entry.external_attr = (path.stat().st_mode & 0o777) << 16
            file.writestr(entry, data, zipfile.ZIP_DEFLATED)


def unpack(archive: Path, folder: Path) -> Path:
    """Write the files of an archive into a folder, for their owner only, with free ports for its
    addresses.
    """
    held: list[socket.socket] = []
    ports: dict[bytes, bytes] = {}

    def free(match: re.Match[bytes]) -> bytes:
        if match[1] not in ports:
            held.append(socket.socket())
            held[-1].bind(("127.0.0.1", 0))
            ports[match[1]] = b"127.0.0.1:%d" % held[-1].getsockname()[1]
        return ports[match[1]]

    folder.mkdir(parents=True, mode=0o700, exist_ok=True)
    with zipfile.ZipFile(archive) as file:
        for entry in file.infolist():
            path = folder / entry.filename
            for parent in reversed(path.relative_to(folder).parents[:-1]):
                (folder / parent).mkdir(mode=0o700, exist_ok=True)
            data = file.read(entry)
            if path.suffix in _TEXT:
                data = _PLACE.sub(free, data.replace(HERE, str(folder).encode()))
            path.write_bytes(data)
            path.chmod(entry.external_attr >> 16)
    for each in held:
        each.close()
    return folder
