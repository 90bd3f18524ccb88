"""A party's file and what lies beside it: its identity, its journal and the root of its secrets.

A party's file says where its identity and its journal are, which peers it calls or where it
listens; the rest is a table of its system's own. Name, role and federation come from the
certificate.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from posse.core import files
from posse.core.errors import ConfigError, JournalError
from posse.core.settings import Settings
from posse.privacy.crypto.keys import Secrets, hkdf
from posse.runtime.certificates.identity import PartyIdentity
from posse.runtime.certificates.names import check_name
from posse.runtime.network.calling import Proxy
from posse.runtime.network.recording import LIMIT_MB

ROOT = "root.key"
"""Beside a journal: the root of the party's secrets."""
ONE_LISTENS = (
    "Give listen to one of the two members, and its address to the other ([connect], NAME = "
    '"host:port"). If neither can be called, connect them through a VPN or a tunnel.'
)
"""What to do about two members that cannot reach each other."""


class Consent(Settings):
    """The table [consent]: what this party agrees to at most; it signs nothing beyond."""

    budget: int | None = None
    """Decisions of one run."""


class Recording(Settings):
    """The table [record]: what this party keeps for an audit of its own, beside its journal."""

    view: bool = False
    """Record every message that it sends and receives, and its own state (`posse audit FILE`)."""
    limit_mb: float = LIMIT_MB
    """Megabytes after which nothing more is recorded; the beginning is kept."""


class PartyFile(Settings):
    """What every party's file says; paths are relative to the file."""

    protocol: str
    """Name of the system."""
    identity: Path
    """Folder that 'posse party enrol' wrote."""
    journal: Path
    """Folder of this party's journal of this run."""
    role: str | None = None
    """The role that the certificate must say, where it is given."""
    run: str | None = None
    """Name of the run in a federation that has many; without it the run has the name in the
    certificate.
    """
    listen: str | None = None
    """host:port where peers call, such as *:7400 for all addresses of both families."""
    connect: dict[str, str] = Field(default_factory=dict)
    """Peers that this party calls, by name: host:port."""
    proxy: str | None = None
    """Through which peers are called: http://host:port (CONNECT) or socks5://host:port, with
    user:password@.
    """
    metrics: str | None = None
    """host:port for /metrics and /health over plain HTTP; only where a monitor can reach it."""
    log: Literal["info", "warning", "error"] = "info"
    """Least level of the events that are logged."""
    sync: bool = True
    """Wait for the disk before anything that follows from a reward leaves; without, a dead machine
    asks again.
    """
    give_up: float | None = None
    """Stop when a peer that is needed has been missing for so many seconds; without, wait for
    ever.
    """
    stalled_after: float = 3600.0
    """Stop when a party that is needed has been missing or refused for so many seconds; 0 for
    never.
    """
    options: dict[str, Any] = Field(default_factory=dict)
    """The table of the system, such as [options] with policy and level."""
    source: dict[str, Any] | None = None
    """Where rewards come from ([source])."""
    consent: Consent | None = None
    """What this party agrees to at most ([consent])."""
    record: Recording = Recording()
    """What this party records for an audit ([record]); nothing if not given."""

    @model_validator(mode="before")
    @classmethod
    def _of_one_party(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Refuse a federation's file, with a table for each of its parties, and a service's, which
        has many runs.
        """
        if "protocol" not in given and {"home", "authority"} & set(given):
            raise ConfigError(
                "this is the file of a service, and not of one party. Start it with 'posse party serve'."
            )
        tables = [
            name
            for name, value in given.items()
            if isinstance(value, list) and dict in map(type, value)
        ]
        if tables and "identity" not in given:
            raise ConfigError(
                f"this is a federation's file, with [[{tables[0]}]], and not a party's. Give it to "
                "'posse up', which "
                "writes a file for every party, or give one of those."
            )
        if "relays" in given:
            raise ConfigError(f"relays was removed in 0.2. Remove it. {ONE_LISTENS}")
        return given

    @field_validator("connect")
    @classmethod
    def _without_relays(cls, connect: dict[str, str]) -> dict[str, str]:
        """Refuse the relays of 0.1."""
        for name, text in connect.items():
            if text.startswith("relay:"):
                raise ConfigError(
                    f"connect has '{text}' for '{name}', and relays were removed in 0.2. "
                    f"{ONE_LISTENS}"
                )
        return connect


@dataclass(frozen=True)
class Place:
    """What a system is given to build a party from."""

    file: PartyFile
    folder: Path
    identity: PartyIdentity
    secrets: Secrets
    """For this look only, until the journal is opened (`make_party`)."""
    journal: Path

    @property
    def run(self) -> str:
        """Name of the run: in the file, or in the certificate of a federation that has one run
        only.
        """
        return self.file.run or self.identity.run

    @property
    def begun(self) -> bool:
        """Whether the journal holds anything."""
        logs = self.journal.glob("journal-*.log")
        return any(self.journal.glob("snapshot-*")) or any(log.stat().st_size for log in logs)

    def check_root(self) -> None:
        """Raise where the root of secrets is missing beside a journal: another one would protect
        other numbers.
        """
        if self.begun and not (self.journal / ROOT).exists():
            raise JournalError(
                f"{self.journal / ROOT} is missing beside the journal, and a new one would make "
                "the run wrong for "
                "everyone. Restore it from a copy, or begin a new run."
            )


def open_place(path: Path) -> Place:
    """Read a party's file and its identity; nothing is written."""
    file, folder = PartyFile.make(file=path), path.resolve().parent
    identity = PartyIdentity.load(folder / file.identity)
    if file.role not in (None, identity.role):
        raise ConfigError(
            f"{path.name} is the file of a {file.role}, and the certificate in {file.identity} "
            f"says '{identity.role}'. "
            "Correct identity."
        )
    if file.run is not None:
        check_name(run=file.run)
    if file.proxy is not None and Proxy.parse(file.proxy).password:
        files.check_private(path)
    return Place(file, folder, identity, Secrets.fresh(), folder / file.journal)


def root_of(place: Place) -> bytes:
    """Read the root of a party's secrets, or draw one for a new journal; it is on the disk before
    it is used.
    """
    place.check_root()
    path = place.journal / ROOT
    if not path.exists():
        files.write_whole(path, os.urandom(32), mode=files.PRIVATE, replace=False)
    files.check_private(path)
    return path.read_bytes()


def secrets_of(root: bytes, nonce: bytes) -> Secrets:
    """Make a party's secrets of its root and the nonce of its journal: a journal begun anew has
    other ones.
    """
    return Secrets(hkdf(root, b"posse journal" + nonce))


def address(text: str) -> tuple[str, int]:
    """Split host:port.

    >>> address("127.0.0.1:7400")
    ('127.0.0.1', 7400)
    """
    host, colon, port = text.rpartition(":")
    if not (host and colon and port.isdigit() and int(port) < 65536):
        raise ConfigError(f"an address must be host:port, such as 10.0.0.5:7400, got '{text}'.")
    return host.strip("[]"), int(port)
