"""One party of a federation: what its system makes of its file, what its journal is bound to, and
its process.
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
from typing import Any

from posse.core import check, files
from posse.core.agreement import terms_as_texts
from posse.core.errors import CertificateError, ConfigError
from posse.core.roles import Message, Note, Role
from posse.privacy.crypto.keys import commitment
from posse.runtime.certificates.identity import PartyIdentity, ssl_contexts
from posse.runtime.journal import Disk, Held, Journal, copy
from posse.runtime.network.calling import Proxy
from posse.runtime.network.connection import Timing, Wiring
from posse.runtime.network.engine import Engine, Vocabulary, journalled_nonce
from posse.runtime.network.operate import Control, json_log, party_commands, serve_metrics
from posse.runtime.network.party import Party, Source
from posse.runtime.network.recording import Recorder, RecordingEngine
from posse.runtime.network.vouching import vouch
from posse.runtime.place import ROOT, PartyFile, Place, address, root_of, secrets_of

_REACH = ("url", "timeout")
"""Of a source: where it is and how long it is waited for. Its answers are journalled as they
come.
"""


@dataclass(frozen=True)
class Known:
    """What one party may know of its run so far: for its record, and for its operator at the
    end.
    """

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
    """Tables of what it found out, as a record keeps them (title, columns, rows, notes,
    numeric).
    """
    warnings: Sequence[str] = ()
    """Sentences: signs that the run did not do what was meant, as far as this party can tell."""
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
    """What must be the same in the files of all parties, by the names it has there; public
    (`core.agreement`).
    """
    inputs: Mapping[str, Any] | None = None
    """What the role was made of, by name, to which its journal is bound; a path counts by the
    content of its file. The options of the party's file if not given.
    """
    commands: Mapping[str, Callable[[str], Message]] = field(default_factory=dict)
    """What this party's operator may ask of its role, as messages made of one argument."""
    watch: Callable[[Note], None] | None = None
    """Called with what the role wants known; after a crash the last note of each kind comes
    again.
    """
    needs: Callable[[], Collection[str]] | None = None
    """Names the peers without which this party cannot finish, and when it has, those that cannot
    finish without it; all of them if not given.
    """
    keeps: Mapping[str, bytes] = field(default_factory=dict)
    """Files that stay beside the journal as they are when the run begins, by name."""
    grows: bool = False
    """Whether the file of its source grows while the run goes on: the journal is bound to its path,
    not its content.
    """
    must_sync: str = ""
    """Why a run may not begin with `sync = false`, as the end of a sentence; empty if it may."""
    limits: bool = False
    """Whether the role keeps within [consent]."""
    remarks: tuple[str, ...] = ()
    """What the operator of this role reads before it begins."""
    known: Callable[[], Known] | None = None
    """Gives what this party may know of the run, at any time; without, that its part is over and
    its role's total.
    """
    costs: Callable[[Sequence[int], int], Sequence[Mapping[str, Any]]] | None = None
    """Makes tables of what its own part cost, of calls of primitives (`Engine.calls`) and messages
    that it sent.
    """
    public: Callable[[], Mapping[str, Any]] | None = None
    """Gives the terms that everybody knows, as the views of a simulation have them; without, no
    view is recorded.
    """

    def report(self) -> Known:
        """Return what this party may know."""
        if self.known is not None:
            return self.known()
        total, steps = getattr(self.role, "total", None), self.role.state().get("step")
        outcome = (
            f"the part of {self.role.name} is over" if total is None else f"total reward {total:g}"
        )
        return Known(outcome, total=total, steps=steps if isinstance(steps, int) else None)


Build = Callable[[Place], Deployment]


@dataclass(frozen=True)
class Service:
    """What the parties of one process share that takes part in several runs
    (`runtime.federation`).
    """

    contexts: tuple[ssl.SSLContext, ssl.SSLContext]
    """As server and as client; a renewed certificate is loaded into them."""
    began: Callable[[Party, Deployment], None]
    """Called with a party when it is built, before it runs."""
    log: Callable[..., None]


def _inputs(place: Place, made: Deployment, root: bytes) -> dict[str, str]:
    """Return digests of everything a journal is bound to: all but addresses, sync, patience and
    metrics.
    """
    source = {
        name: value for name, value in (place.file.source or {}).items() if name not in _REACH
    }
    given = place.file.options if made.inputs is None else made.inputs
    named = {**given, **{f"source.{name}": value for name, value in source.items()}}
    by_path = {"source.file"} if made.grows else set()
    digests = {
        name: _digest(value, None if name in by_path else place.folder)
        for name, value in named.items()
    }
    return {**digests, ROOT: commitment(root, ROOT.encode()).hex()}


def _digest(value: object, folder: Path | None) -> str:
    """Digest of an input; files count by their content, and without a folder by their path."""

    def plain(part: object) -> object:
        if isinstance(part, Mapping):
            return {str(key): plain(each) for key, each in part.items()}
        if isinstance(part, list | tuple):
            return [plain(each) for each in part]
        named = isinstance(part, Path) or (isinstance(part, str) and part.startswith("/"))
        if folder is not None and named and (folder / str(part)).is_file():
            return hashlib.sha256((folder / str(part)).read_bytes()).hexdigest()
        return part if isinstance(part, str | int | float | bool | None) else str(part)

    return hashlib.sha256(json.dumps(plain(value), sort_keys=True).encode()).hexdigest()


def check_effect(file: PartyFile, made: Deployment) -> None:
    """Refuse tables that have no effect for the role that was made."""
    if file.consent is not None and not made.limits:
        raise ConfigError(f"[consent] has no effect in {file.protocol}. Remove it.")
    if file.record.view and made.public is None:
        raise ConfigError(f"{file.protocol} has no attacks on a recorded view. Remove [record].")
    if file.source is not None and made.source is None:
        raise ConfigError(
            f"[source] has no effect at a {made.role.kind}, whom the world does not answer. Remove "
            "it."
        )


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

    With `change` the role takes what it brings now, such as a new price list, in place of what it
    brought before. A party of a `service` does not listen itself, and waits for ever: the service
    shows for whom.
    """
    journal = Journal(place.journal, disk)
    try:
        root, nonce = root_of(place), journalled_nonce(journal.first)
        begun = nonce is not None
        nonce = os.urandom(32) if nonce is None else nonce
        made = build(replace(place, secrets=secrets_of(root, nonce)))
        file = place.file
        if made.must_sync and not file.sync:
            if not begun:
                raise ConfigError(f"sync must be true: {made.must_sync}. Remove sync = false.")
            if log is not None:
                log(
                    "not synced",
                    why=f"{made.must_sync}. Remove sync = false and start the party again.",
                )
        if file.give_up is not None:
            check.positive(give_up=file.give_up)
        check.at_least(0, stalled_after=file.stalled_after)
        check_effect(file, made)
        unknown = sorted(set(file.connect) - set(made.peers))
        if unknown:
            raise ConfigError(
                f"connect names '{unknown[0]}', which has no part here. Known: "
                f"{', '.join(made.peers)}."
            )
        engine = _engine(place, made, log)(
            made.role,
            journal,
            list(made.peers),
            made.vocabulary,
            run=place.run,
            terms=terms_as_texts(made.terms),
            nonce=nonce,
            inputs=_inputs(place, made, root),
            change=change,
            sync_answers=file.sync,
        )
        for name, data in made.keeps.items():
            if not engine.bound or not (place.journal / name).exists():
                files.write_whole(place.journal / name, data, mode=files.PRIVATE)
    except BaseException:
        journal.close()
        raise
    server, client = ssl_contexts(place.identity) if service is None else service.contexts
    wiring = Wiring(
        file.protocol,
        made.peers,
        {name: address(text) for name, text in file.connect.items()},
        None if file.listen is None or service is not None else address(file.listen),
        server,
        client,
        None if file.proxy is None else Proxy.parse(file.proxy),
    )
    party = Party(
        engine,
        wiring,
        Checker(place.identity, now or (lambda: datetime.now(UTC))),
        made.source,
        timing=timing,
        log=log,
        watch=_both(made.watch, watch),
        give_up=file.give_up,
        stalled_after=file.stalled_after if service is None else 0.0,
        needs=made.needs,
    )
    return party, made


def check_start(place: Place, build: Build) -> None:
    """Raise what a start of a party that has begun would: its history is replayed in memory with
    what its file has now.

    Nothing is locked, written or sent, so the party may run meanwhile. Costs what a start costs.
    """
    journal = Held(copy(place.journal))
    nonce = journalled_nonce(journal.first)
    if nonce is None:
        return
    root = root_of(place)
    made = build(replace(place, secrets=secrets_of(root, nonce)))
    Engine(
        made.role,
        journal,
        list(made.peers),
        made.vocabulary,
        run=place.run,
        terms=terms_as_texts(made.terms),
        nonce=nonce,
        inputs=_inputs(place, made, root),
        sync_answers=place.file.sync,
    )


def _engine(
    place: Place, made: Deployment, log: Callable[..., None] | None
) -> Callable[..., Engine]:
    """Return how to make the engine, with the party's view where its file asks for it."""
    given = place.file.record
    if not given.view:
        return Engine
    assert made.public is not None
    check.positive(limit_mb=given.limit_mb)
    header = place.file.protocol, place.run, made.role.name, made.role.kind
    view = Recorder(
        place.journal, header, made.public, made.role.save, limit_mb=given.limit_mb, log=log
    )
    return partial(RecordingEngine, view=view)


def _both(*watchers: Callable[[Note], None] | None) -> Callable[[Note], None]:
    def watch(note: Note) -> None:
        for each in filter(None, watchers):
            each(note)

    return watch


class Checker:
    """Says whose certificate a peer shows; reads the revocation list again when its file
    changes.
    """

    def __init__(self, identity: PartyIdentity, now: Callable[[], datetime]) -> None:
        self._identity, self._now, self._path = identity, now, identity.folder / "crl.pem"
        self._read = self._changed()

    def __call__(self, certificate: bytes | None) -> tuple[str, str]:
        """Return role and name, or raise `CertificateError`."""
        if (changed := self._changed()) != self._read:
            with contextlib.suppress(
                CertificateError
            ):  # an older or damaged list: keep the one we have
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


async def run_party(
    place: Place, build: Build, beside: Beside, service: Service | None = None
) -> Deployment:
    """Run a party to the end of its part, with its socket, its metrics and its log; SIGTERM stops
    it cleanly.

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
            await vouch(
                party,
                place.journal,
                lambda turn: None if service is None else service.began(turn, made),
            )
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
