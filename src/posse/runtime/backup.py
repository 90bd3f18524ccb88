"""A backup of one party, and what may be made of it.

A backup holds the party's file, its identity and its journal with `root.key`; it is as secret as
they are. It can be made while the party runs. Restoring never lets a party use its randomness
twice:

| the run | what is restored |
|---|---|
| over for this party | everything: nothing that it sends depends on anything new |
| begun | everything, with a mark: the party goes on if all peers say that it went no further (`network.vouching`) |
| begun, and a journal that is as new or newer is there | nothing: it is refused |
| another one (`journal=False`) | file and identity only: the party's next journal draws secrets of its own |
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import tarfile
import tomllib
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath

from posse.core import files
from posse.core.errors import DataError, JournalError
from posse.runtime import journal as journals
from posse.runtime.certificates.identity import KEY, PartyIdentity
from posse.runtime.network.engine import journalled_nonce
from posse.runtime.network.operate import SOCKET
from posse.runtime.network.vouching import RESTORED
from posse.runtime.place import PartyFile, open_place
from posse.version import __version__

FORMAT = 1
FINISHED = "result.json"
"""In a journal whose party's part is over."""
_INDEX = "backup.json"
_RECORDS = re.compile(r"journal-\d+\.log|snapshot-\d+")
_LEFT_OUT = {"lock", "snapshot.new", SOCKET, RESTORED}
LARGEST = 2 << 30
"""Bytes of a backup that is read."""


@dataclass(frozen=True)
class Backup:
    """What a backup says of itself."""

    party: str
    role: str
    run: str
    made: str
    posse: str
    finished: bool
    """Whether the party's part was over."""
    begun: bool
    kind: str = "party"
    """`party`, or `service` (`federation.care`)."""


def make(file: Path, out: Path) -> Backup:
    """Write a backup of a party, which may run meanwhile."""
    place = open_place(file)
    # The journal is read last: a part that was over by then was over in what is read before.
    held = {
        "party.toml": file.read_bytes(),
        **read_folder(place.identity.folder, "identity", place.journal),
        **read_folder(place.journal, "journal"),
    }
    copy = journals.copy(place.journal)
    held |= {f"journal/{name}": data for name, data in copy.files.items()}
    backup = Backup(
        place.identity.name,
        place.identity.role,
        place.identity.run,
        datetime.now(UTC).isoformat(timespec="seconds"),
        __version__,
        f"journal/{FINISHED}" in held,
        copy.first is not None,
    )
    write(out, backup, held)
    return backup


def write(out: Path, backup: Backup, held: dict[str, bytes]) -> None:
    """Write an archive of files that only its owner reads, with what it says of itself."""
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in held.items()}
    index = json.dumps({"format": FORMAT, **vars(backup), "files": digests}, indent=1).encode()
    with (
        files.open_whole(out, mode=files.PRIVATE) as stream,
        tarfile.open(fileobj=stream, mode="w:gz") as archive,
    ):
        for name, data in {_INDEX: index, **held}.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), files.PRIVATE
            archive.addfile(entry, io.BytesIO(data))


def read_folder(folder: Path, under: str, but: Path | None = None) -> dict[str, bytes]:
    """Return the files of a folder, less those that pass or that a journal's copy has."""
    found = {}
    for path in sorted(folder.rglob("*")) if folder.is_dir() else ():
        name, inside = path.relative_to(folder), but is not None and path.is_relative_to(but)
        passing = path.name in _LEFT_OUT or path.suffix == ".part" or _RECORDS.fullmatch(path.name)
        if path.is_file() and not path.is_symlink() and not passing and not inside:
            found[f"{under}/{name.as_posix()}"] = path.read_bytes()
    return found


def read(archive: Path) -> tuple[Backup, dict[str, bytes]]:
    """Read a backup and check that it is whole."""
    held: dict[str, bytes] = {}
    try:
        with tarfile.open(archive, "r:gz") as opened:
            for entry in opened:
                stream = opened.extractfile(entry) if entry.isreg() else None
                if (
                    stream is None
                    or ".." in PurePosixPath(entry.name).parts
                    or entry.name.startswith("/")
                    or entry.size > LARGEST
                ):
                    raise DataError(
                        f"{archive} holds '{entry.name[:80]}', which no backup does. Use another "
                        "one."
                    )
                held[entry.name] = stream.read()
        index = json.loads(held.pop(_INDEX))
        digests = index.pop("files")
        if index.pop("format") != FORMAT:
            raise DataError(
                f"{archive} is a backup of another version (posse {index.get('posse')}). Restore "
                "it there."
            )
        backup = Backup(**index)
    except (OSError, EOFError, tarfile.TarError, ValueError, LookupError, TypeError) as error:
        raise DataError(
            f"{archive} is no backup, or a damaged one: {error}. Use another one."
        ) from error
    if digests != {name: hashlib.sha256(data).hexdigest() for name, data in held.items()}:
        raise DataError(f"{archive} is damaged: its files are not those it lists. Use another one.")
    return backup, held


def restore(archive: Path, file: Path, *, journal: bool = True) -> Backup:
    """Put a party back where its file says; the file itself, and parts of the identity, only where
    they are missing.
    """
    backup, held = read(archive)
    if backup.kind != "party":
        raise DataError(
            f"{archive} is the backup of a {backup.kind}. Give the {backup.kind}'s file with it."
        )
    if file.exists():
        settings = PartyFile.make(file=file)
    else:
        settings = PartyFile.make(tomllib.loads(held["party.toml"].decode()))
    folder = file.resolve().parent
    identity = folder / settings.identity
    check_identity(backup, identity)
    at = folder / settings.journal
    if journal:
        check_older(held, at)
    marked = journal and backup.begun and not backup.finished
    if marked:  # first: a restore that is killed leaves no journal without its mark
        mark(backup, at)
    if not file.exists():
        files.write_whole(file, held["party.toml"], mode=files.PRIVATE)
    for name, data in held.items():
        under, _, rest = name.partition("/")
        if under == "identity":
            put(identity / rest, data, keep=True)
        elif under == "journal" and journal:
            put(at / rest, data)
    if journal and not marked:
        (at / RESTORED).unlink(missing_ok=True)
    return backup


def mark(backup: Backup, journal: Path) -> None:
    """Mark a journal as restored: its party goes on when its peers have vouched."""
    put(journal / RESTORED, json.dumps({"made": backup.made, "posse": backup.posse}).encode())


def same_journal(held: dict[str, bytes], folder: Path) -> bool:
    """Whether the journal in a folder, which nobody has open, is that of a backup."""
    kept = {
        name.partition("/")[2]: data for name, data in held.items() if name.startswith("journal/")
    }
    records = {name: data for name, data in kept.items() if _RECORDS.fullmatch(name)}
    return not journals.holder(folder) and journals.copy(folder).files == records


def check_identity(backup: Backup, folder: Path) -> None:
    """Refuse a folder with the identity of another party."""
    if (folder / KEY).exists():
        found = PartyIdentity.load(folder)
        if (found.name, found.role, found.run) != (backup.party, backup.role, backup.run):
            raise DataError(
                f"the backup is of {backup.role} '{backup.party}' in {backup.run}, and {folder} is "
                "the identity of "
                f"{found.role} '{found.name}' in {found.run}. Give the file of the party it is of."
            )


def check_older(held: dict[str, bytes], folder: Path) -> None:
    """Refuse where a process has the journal open, or it is as new as the backup; remove an older
    or damaged one.
    """
    if pid := journals.holder(folder):
        raise JournalError(
            f"process {pid} is using the journal in {folder}, and a running party needs no "
            "backup. Stop it first."
        )
    try:
        there = journals.copy(folder)
    except JournalError:
        _clear(folder)  # damaged: it cannot go on
        return
    if there.first is None:
        return
    names = [name.partition("/")[2] for name in held if name.startswith("journal/")]
    generation = max((int(name[9:]) for name in names if name.startswith("snapshot-")), default=0)
    log = held.get(f"journal/journal-{generation:08}.log", b"")
    first = held.get(f"journal/snapshot-{generation:08}", log)
    other = not first or journalled_nonce(journals.first_of(first)) != journalled_nonce(there.first)
    if other or (generation, len(log)) <= (there.generation, there.size):
        why = "of another beginning" if other else "as new as the backup, or newer"
        raise JournalError(
            f"nothing was restored: {folder} holds a journal that is {why}. Start the party "
            "with that journal. To restore the backup anyway, move the folder away; the "
            "party then asks its peers whether the run has continued."
        )
    _clear(folder)


def _clear(folder: Path) -> None:
    for path in folder.iterdir():
        if _RECORDS.fullmatch(path.name):
            path.unlink()


def put(path: Path, data: bytes, *, keep: bool = False) -> None:
    """Write a file of a backup; with `keep`, only where there is none."""
    if keep and path.exists():
        return
    for folder in reversed([each for each in path.parents if not each.exists()]):
        folder.mkdir(mode=0o700)
    public = path.suffix in (".crt", ".pem")
    files.write_whole(path, data, mode=files.PUBLIC if public else files.PRIVATE)
