"""One party of a federation: its file, what its system makes of it, and the process that runs it.

A party's file says where its identity and its journal are, which peers it calls or where it listens; the rest is a
table of its system's own. Name, role and federation come from the certificate.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import signal
import ssl
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from posse.core import check, files
from posse.core.agreement import written
from posse.core.errors import CertificateError, ConfigError, JournalError
from posse.core.roles import Message, Note, Role
from posse.core.settings import Settings
from posse.privacy.crypto.keys import Secrets, commitment, hkdf
from posse.runtime.certificates.identity import PartyIdentity, relay_context, ssl_contexts
from posse.runtime.certificates.names import check_name
from posse.runtime.journal import Disk, Journal
from posse.runtime.network.calling import Proxy
from posse.runtime.network.connection import Timing, Wiring
from posse.runtime.network.engine import Engine, Vocabulary, journalled_nonce
from posse.runtime.network.operate import Control, json_log, party_commands, serve_metrics
from posse.runtime.network.party import Party, Source
from posse.runtime.network.recording import LIMIT_MB, Recorder, RecordingEngine
from posse.runtime.network.relay import PREFIX
from posse.runtime.network.vouching import vouch

ROOT = "root.key"
"""Beside a journal: the root of the party's secrets."""
_REACH = ("url", "timeout")
"""Of a source: where it is and how long it is waited for. Its answers are journalled as they come."""


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
    """Folder that 'posse enrol' wrote."""
    journal: Path
    """Folder of this party's journal of this run."""
    role: str | None = None
    """The role that the certificate must say, where it is given."""
    run: str | None = None
    """Name of the run in a federation that has many; without it the run has the name in the certificate."""
    listen: str | None = None
    """host:port where peers call, such as *:7400 for all addresses of both families."""
    connect: dict[str, str] = Field(default_factory=dict)
    """Peers that this party calls, by name: host:port."""
    relays: bool = False
    """Whether this party joins others of its run that cannot call each other ("relay:NAME" in their [connect])."""
    proxy: str | None = None
    """Through which peers are called: http://host:port (CONNECT) or socks5://host:port, with user:password@."""
    metrics: str | None = None
    """host:port for /metrics and /health over plain HTTP; only where a monitor can reach it."""
    log: Literal["info", "warning", "error"] = "info"
    """Least level of the events that are logged."""
    sync: bool = True
    """Wait for the disk before anything that follows from a reward leaves; without, a dead machine asks again."""
    give_up: float | None = None
    """Stop when a peer that is needed has been missing for so many seconds; without, wait for ever."""
    options: dict[str, Any] = Field(default_factory=dict)
    """The table of the system, such as [options] with policy and level."""
    source: dict[str, Any] | None = None
    """Where rewards come from ([source])."""
    consent: Consent | None = None
    """What this party agrees to at most ([consent])."""
    record: Recording = Recording()
    """What this party records for an audit ([record]); nothing if not given."""


@dataclass(frozen=True)
class Known:
    """What one party may know of its run so far: for its record, and for its operator at the end."""

    outcome: str
    """What came out for this party, in one line."""
    level: str = "deployed"
    """Level of protection."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """The terms, with `policy` and `horizon`."""
    steps: int | None = None
    """Decisions made, where it knows."""
    total: float | None = None
    """What it earned, or what all earned, where it knows."""
    pulls: Mapping[str, int] = field(default_factory=dict)
    """How often each arm was pulled, by its name, where it knows."""
    privacy: Sequence[Mapping[str, Any]] = ()
    """Entries of its privacy ledger."""
    learns: Sequence[str] = ()
    """Sentences: what each role learns."""
    leaks: Sequence[str] = ()
    """Sentences: what is not protected."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Further facts of its own, such as the digest of a manifest."""
    words: Mapping[str, str] = field(default_factory=dict)
    """Nouns of this run, beside those of its system."""
    tables: Sequence[Mapping[str, Any]] = ()
    """Tables of what it found out, as a record keeps them (title, columns, rows, notes, numeric)."""
    failure: str = ""
    """Why the run ended without a result, where it did."""


@dataclass(frozen=True)
class Deployment:
    """What a system makes of a party's file."""

    role: Role
    vocabulary: Vocabulary
    peers: Mapping[str, str]
    """Role of every peer, by name."""
    source: Source | None = None
    terms: Mapping[str, Any] = field(default_factory=dict)
    """What must be the same in the files of all parties, by the names it has there; public (`core.agreement`)."""
    inputs: Mapping[str, Any] | None = None
    """What the role was made of, by name, to which its journal is bound; a path counts by the content of its file. The
    options of the party's file if not given."""
    commands: Mapping[str, Callable[[str], Message]] = field(default_factory=dict)
    """What this party's operator may ask of its role, as messages made of one argument."""
    watch: Callable[[Note], None] | None = None
    """Called with what the role wants known; after a crash the last note of each kind comes again."""
    needs: Callable[[], Collection[str]] | None = None
    """Names the peers without which this party cannot finish, and when it has, those that cannot finish without it; all
    of them if not given."""
    keeps: Mapping[str, bytes] = field(default_factory=dict)
    """Files that stay beside the journal as they are when the run begins, by name."""
    limits: bool = False
    """Whether the role keeps within [consent]."""
    remarks: tuple[str, ...] = ()
    """What the operator of this role reads before it begins."""
    known: Callable[[], Known] | None = None
    """Gives what this party may know of the run, at any time; without, that its part is over and its role's total."""
    public: Callable[[], Mapping[str, Any]] | None = None
    """Gives the terms that everybody knows, as the views of a simulation have them; without, no view is recorded."""

    def report(self) -> Known:
        """Return what this party may know."""
        if self.known is not None:
            return self.known()
        total, steps = getattr(self.role, "total", None), self.role.state().get("step")
        outcome = f"the part of {self.role.name} is over" if total is None else f"total reward {total:g}"
        return Known(outcome, total=total, steps=steps if isinstance(steps, int) else None)


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
        """Name of the run: in the file, or in the certificate of a federation that has one run only."""
        return self.file.run or self.identity.run

    @property
    def begun(self) -> bool:
        """Whether the journal holds anything."""
        logs = self.journal.glob("journal-*.log")
        return any(self.journal.glob("snapshot-*")) or any(log.stat().st_size for log in logs)

    def check_root(self) -> None:
        """Raise where the root of secrets is missing beside a journal: another one would protect other numbers."""
        if self.begun and not (self.journal / ROOT).exists():
            raise JournalError(
                f"{self.journal / ROOT} is missing beside the journal, and a new one would make the run wrong for "
                "everyone. Restore it from a copy, or begin a new run."
            )


Build = Callable[[Place], Deployment]


@dataclass(frozen=True)
class Service:
    """What the parties of one process share that takes part in several runs (`runtime.federation`)."""

    contexts: tuple[ssl.SSLContext, ssl.SSLContext]
    """As server and as client; a renewed certificate is loaded into them."""
    began: Callable[[Party, Deployment], None]
    """Called with a party when it is built, before it runs."""
    log: Callable[..., None]


def open_place(path: Path) -> Place:
    """Read a party's file and its identity; nothing is written."""
    file, folder = PartyFile.make(file=path), path.resolve().parent
    identity = PartyIdentity.load(folder / file.identity)
    if file.role not in (None, identity.role):
        raise ConfigError(
            f"{path.name} is the file of a {file.role}, and the certificate in {file.identity} says '{identity.role}'. "
            "Correct identity."
        )
    if file.run is not None:
        check_name(run=file.run)
    if file.proxy is not None and Proxy.parse(file.proxy).password:
        files.check_private(path)
    return Place(file, folder, identity, Secrets.fresh(), folder / file.journal)


def root_of(place: Place) -> bytes:
    """Read the root of a party's secrets, or draw one for a new journal; it is on the disk before it is used."""
    place.check_root()
    path = place.journal / ROOT
    if not path.exists():
        files.write_whole(path, os.urandom(32), mode=files.PRIVATE, replace=False)
    files.check_private(path)
    return path.read_bytes()


def secrets_of(root: bytes, nonce: bytes) -> Secrets:
    """Make a party's secrets of its root and the nonce of its journal: a journal begun anew has other ones."""
    return Secrets(hkdf(root, b"posse journal" + nonce))


def _inputs(place: Place, made: Deployment, root: bytes) -> dict[str, str]:
    """Return digests of everything a journal is bound to: all but addresses, sync, patience and metrics."""
    source = {name: value for name, value in (place.file.source or {}).items() if name not in _REACH}
    given = place.file.options if made.inputs is None else made.inputs
    named = {**given, **{f"source.{name}": value for name, value in source.items()}}
    digests = {name: _digest(value, place.folder) for name, value in named.items()}
    return {**digests, ROOT: commitment(root, ROOT.encode()).hex()}


def _digest(value: object, folder: Path) -> str:
    def plain(part: object) -> object:
        if isinstance(part, Mapping):
            return {str(key): plain(each) for key, each in part.items()}
        if isinstance(part, list | tuple):
            return [plain(each) for each in part]
        named = isinstance(part, Path) or (isinstance(part, str) and part.startswith("/"))
        if named and (folder / str(part)).is_file():
            return hashlib.sha256((folder / str(part)).read_bytes()).hexdigest()
        return part if isinstance(part, str | int | float | bool | None) else str(part)

    return hashlib.sha256(json.dumps(plain(value), sort_keys=True).encode()).hexdigest()


def address(text: str) -> tuple[str, int]:
    """Split host:port.

    >>> address("127.0.0.1:7400")
    ('127.0.0.1', 7400)
    """
    host, colon, port = text.rpartition(":")
    if not (host and colon and port.isdigit() and int(port) < 65536):
        raise ConfigError(f"an address must be host:port, such as 10.0.0.5:7400, got '{text}'.")
    return host.strip("[]"), int(port)


def relayed_by(file: PartyFile) -> dict[str, str]:
    """Return the peers that a party meets at another one, by name, and that one; it must be called itself."""
    found = {name: text.removeprefix(PREFIX) for name, text in file.connect.items() if text.startswith(PREFIX)}
    for name, hub in found.items():
        if hub not in file.connect or hub in found:
            raise ConfigError(
                f"'{name}' is met at '{hub}', which has no address. Give [connect] with {hub} = \"host:port\"."
            )
    return found


def check_effect(file: PartyFile, made: Deployment) -> None:
    """Refuse tables that have no effect for the role that was made."""
    if file.consent is not None and not made.limits:
        raise ConfigError(f"[consent] has no effect in {file.protocol}. Remove it.")
    if file.record.view and made.public is None:
        raise ConfigError(f"{file.protocol} has no attacks on a recorded view. Remove [record].")
    if file.source is not None and made.source is None:
        raise ConfigError(f"[source] has no effect at a {made.role.kind}, whom the world does not answer. Remove it.")


def make_party(
    place: Place,
    build: Build,
    *,
    log: Callable[..., None] | None = None,
    watch: Callable[[Note], None] | None = None,
    timing: Timing | None = None,
    disk: Disk | None = None,
    now: Callable[[], datetime] | None = None,
    change: bool = False,
    service: Service | None = None,
) -> tuple[Party, Deployment]:
    """Build a party from its place; nothing is opened but its journal.

    With `change` the role takes what it brings now, such as a new price list, in place of what it brought before. A
    party of a `service` does not listen itself.
    """
    journal = Journal(place.journal, disk)
    try:
        root, nonce = root_of(place), journalled_nonce(journal.first)
        nonce = os.urandom(32) if nonce is None else nonce
        made = build(replace(place, secrets=secrets_of(root, nonce)))
        file = place.file
        if file.give_up is not None:
            check.positive(give_up=file.give_up)
        check_effect(file, made)
        unknown = sorted(set(file.connect) - set(made.peers))
        if unknown:
            raise ConfigError(f"connect names '{unknown[0]}', which has no part here. Known: {', '.join(made.peers)}.")
        engine = _engine(place, made, log)(
            made.role, journal, list(made.peers), made.vocabulary, run=place.run, terms=written(made.terms),
            nonce=nonce, inputs=_inputs(place, made, root), change=change, sync_answers=file.sync,
        )  # fmt: skip
        for name, data in made.keeps.items():
            if not engine.bound or not (place.journal / name).exists():
                files.write_whole(place.journal / name, data, mode=files.PRIVATE)
    except BaseException:
        journal.close()
        raise
    server, client = ssl_contexts(place.identity) if service is None else service.contexts
    relayed = relayed_by(file)
    wiring = Wiring(
        file.protocol, made.peers, {name: address(text) for name, text in file.connect.items() if name not in relayed},
        None if file.listen is None or service is not None else address(file.listen), server, client,
        None if file.proxy is None else Proxy.parse(file.proxy), relayed,
        relay_context(place.identity) if relayed else None, file.relays,
    )  # fmt: skip
    clock = now or (lambda: datetime.now(UTC))
    checker = Checker(place.identity, clock)
    party = Party(
        engine, wiring, checker, made.source, timing=timing, log=log, watch=_both(made.watch, watch),
        give_up=file.give_up, needs=made.needs,
    )  # fmt: skip
    return party, made


def _engine(place: Place, made: Deployment, log: Callable[..., None] | None) -> Callable[..., Engine]:
    """Return how to make the engine, with the party's view where its file asks for it."""
    given = place.file.record
    if not given.view:
        return Engine
    assert made.public is not None
    check.positive(limit_mb=given.limit_mb)
    header = place.file.protocol, place.run, made.role.name, made.role.kind
    view = Recorder(place.journal, header, made.public, made.role.save, limit_mb=given.limit_mb, log=log)
    return partial(RecordingEngine, view=view)


def _both(*watchers: Callable[[Note], None] | None) -> Callable[[Note], None]:
    def watch(note: Note) -> None:
        for each in filter(None, watchers):
            each(note)

    return watch


class Checker:
    """Says whose certificate a peer shows; reads the revocation list again when its file changes."""

    def __init__(self, identity: PartyIdentity, now: Callable[[], datetime]) -> None:
        self._identity, self._now, self._path = identity, now, identity.folder / "crl.pem"
        self._read = self._changed()

    def __call__(self, certificate: bytes | None) -> tuple[str, str]:
        """Return role and name, or raise `CertificateError`."""
        if (changed := self._changed()) != self._read:
            with contextlib.suppress(CertificateError):  # an older or damaged list: keep the one we have
                self._identity = self._identity.with_crl()
            self._read = changed
        peer = self._identity.check(certificate, self._now())
        return peer.role, peer.name

    def _changed(self) -> int:
        with contextlib.suppress(OSError):
            return self._path.stat().st_mtime_ns
        return 0


Beside = Callable[[Party, Deployment], AbstractAsyncContextManager[object]]
"""What goes on beside a party while it runs."""


async def run_party(place: Place, build: Build, beside: Beside, service: Service | None = None) -> Deployment:
    """Run a party to the end of its part, with its socket, its metrics and its log; SIGTERM stops it cleanly.

    The party of a `service` is stopped by it, and has no metrics of its own.
    """
    log = json_log(place.identity.name, least=place.file.log) if service is None else service.log
    party, made = make_party(place, build, log=log, service=service)
    control = Control(place.journal, party_commands(party, made.commands))
    await control.start()
    metrics = place.file.metrics and await serve_metrics(
        party, *address(place.file.metrics), journal=place.journal, identity=place.identity.folder
    )
    caught: list[int] = []

    def stop(number: int) -> None:
        caught.append(number)
        party.stop()

    if service is None:
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop, number)
    else:
        service.began(party, made)
    try:
        async with beside(party, made):
            await vouch(party, place.journal, lambda turn: None if service is None else service.began(turn, made))
            await party.run()
        if isinstance(party.engine, RecordingEngine):
            party.engine.view.write(state=True)
    finally:
        control.close()
        party.engine.close()
        if metrics:
            metrics.close()
    if signal.SIGINT in caught and not made.role.finished:
        raise KeyboardInterrupt
    return made
