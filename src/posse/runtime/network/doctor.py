"""Check a party before it is started: what is fine, and what to mend."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from posse.core.errors import LinkError, PosseError
from posse.runtime import journal
from posse.runtime.certificates import making
from posse.runtime.certificates.identity import PartyIdentity, crl_number, ssl_contexts
from posse.runtime.network.calling import Proxy, opened
from posse.runtime.network.deployment import Build, Deployment, check_effect, check_start
from posse.runtime.network.health import Status, not_answering, progress, starts
from posse.runtime.network.operate import ask
from posse.runtime.network.vouching import backup_time
from posse.runtime.network.wire import (
    OLDEST_WIRE,
    WIRE_VERSION,
    Hello,
    Reader,
    Refused,
    agreed,
    check_versions,
)
from posse.runtime.place import ONE_LISTENS, Place, address, open_place
from posse.version import PROTOCOL_VERSION, __version__

SOON_DAYS = 14
"""A certificate that expires sooner is to be renewed."""
LEAST_FREE = 256 << 20
"""Bytes that should be free where the journal is: a snapshot and the records of some hours."""
PATIENCE = 3.0
"""Seconds in which a peer must answer."""


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    what: str
    fine: bool
    said: str


def examine(
    path: Path, build_of: Callable[[str], Build], *, is_over: bool = False
) -> list[Finding]:
    """Check everything; nothing is started and no reward is asked for.

    Args:
        path: The party's file.
        build_of: Returns what makes a system's roles.
        is_over: Whether the party's part is over: its peers may be gone then.
    """
    try:
        place = open_place(path)
    except PosseError as error:
        return [Finding("file and identity", False, error.text)]
    status = status_of(place.journal)
    role, made = _role(place, build_of)
    versions = (
        f"posse {__version__}, protocol version {PROTOCOL_VERSION}, wire {OLDEST_WIRE} to "
        f"{WIRE_VERSION}"
    )
    return [
        Finding("version", True, versions),
        *_identity(place),
        *_journal(place, None if made is None else build_of(place.file.protocol)),
        role,
        *_ways(place, made, status, is_over),
        *_running(place, status),
    ]


def status_of(folder: Path) -> Status:
    """Ask the process of a party or of a service how it is; nothing where none answers."""
    with suppress(LinkError):
        return dict(asyncio.run(ask(folder, "status")))
    return {}


def _identity(place: Place) -> Iterator[Finding]:
    identity = place.identity
    ends = identity.certificate.not_valid_after_utc
    left = (ends - datetime.now(UTC)).days
    remedy = (
        ""
        if left >= SOON_DAYS
        else ". Enrol again before the next run; a run that has begun keeps its key"
    )
    yield Finding("identity", True, f"{identity.role} '{identity.name}' of run {place.run}")
    yield Finding("certificate", left >= SOON_DAYS, f"until {ends:%Y-%m-%d}, {left} days{remedy}")
    yield from authority(identity)


def authority(identity: PartyIdentity) -> Iterator[Finding]:
    """Say by whom an identity is signed, and what was revoked."""
    spoken = making.spoken(making.fingerprint(making.public_key(identity.authority)))
    yield Finding("authority", True, f"fingerprint {spoken}: compare it with the customer's")
    made = identity.crl.last_update_utc
    yield Finding("revocation list", True, f"number {crl_number(identity.crl)}, of {made:%Y-%m-%d}")


def _journal(place: Place, build: Build | None) -> Iterator[Finding]:
    """Whether the party can go on where it was, and has room to; nothing is opened, and no secret
    is drawn.

    Without `build`, which its options or its source prevent, what the journal is bound to is not
    compared.
    """
    try:
        place.check_root()
        found = journal.look(place.journal)
        if place.begun and build is not None:
            check_start(place, build)
    except PosseError as error:
        yield Finding("journal", False, error.text)
    else:
        torn = f", a torn end of {found.torn} bytes that a start cuts off" if found.torn else ""
        begun = f"begun, {found.size:,} bytes" if place.begun else "not begun yet"
        made = backup_time(place.journal)
        restored = (
            f"; of a backup of {made}: it goes on when all peers say that the run has not"
            if made
            else ""
        )
        yield Finding("journal", True, f"{place.journal}, {begun}{torn}{restored}")
    yield disk(place.journal)


def disk(folder: Path) -> Finding:
    """Say whether there is room, and whether it may be written."""
    where = next(each for each in (folder, *folder.parents) if each.exists())
    free = shutil.disk_usage(where).free
    if not os.access(where, os.W_OK):
        return Finding(
            "disk",
            False,
            f"{where} cannot be written by this user. Start the party as the one it belongs to.",
        )
    fine = free >= LEAST_FREE
    remedy = "" if fine else ". Make room: a full disk stops the party"
    return Finding("disk", fine, f"{free / 2**20:,.0f} MiB free in {where}{remedy}")


def _role(place: Place, build_of: Callable[[str], Build]) -> tuple[Finding, Deployment | None]:
    what = "options" if place.file.source is None else "options and source"
    try:
        made = build_of(place.file.protocol)(place)
        check_effect(place.file, made)
    except PosseError as error:
        return Finding(what, False, error.text), None
    except (
        Exception
    ) as error:  # a module of the owner's own may raise anything while it is imported
        return Finding(
            what, False, f"{type(error).__name__}: {error}. Correct what [source] names."
        ), None
    return Finding(what, True, f"{place.file.protocol}, as {place.identity.role}"), made


def _ways(
    place: Place, made: Deployment | None, status: Status, is_over: bool
) -> Iterator[Finding]:
    """How this party reaches its peers, or they reach it."""
    if is_over and not status:
        yield Finding(
            "run", True, "the part of this party is over, and peers may be gone: none was called"
        )
        return
    for name, text in place.file.connect.items():
        if made is not None and name not in made.peers:
            known = ", ".join(made.peers)
            yield Finding(
                f"way to {name}", False, f"'{name}' has no part here. [connect] may name: {known}."
            )
        elif status and name not in status["missing"]:
            yield Finding(
                f"way to {name}",
                True,
                "its part is over" if name in status["over"] else "connected",
            )
        else:
            yield way(place.identity, name, text, place.file.proxy, place.file.protocol)
    if place.file.listen is not None:
        yield listening("listen", place.file.listen, status)
    elif made is not None:
        for name in sorted(set(made.peers) - set(place.file.connect)):
            yield Finding(f"way to {name}", False, f"no address. {ONE_LISTENS}")
    if place.file.metrics is not None:
        yield listening("metrics", place.file.metrics, status)


def way(
    identity: PartyIdentity, name: str, text: str, proxy: str | None, protocol: str | None
) -> Finding:
    """Call a peer as this party would, and listen to its first words; nothing is said to it.

    Without a protocol it is the founder of a federation, who waits for the caller's first word.
    """
    what = f"way to {name}"
    try:
        host, port = address(text)
        with _opened(host, port, proxy) as raw:
            raw.settimeout(PATIENCE)
            with ssl_contexts(identity)[1].wrap_socket(raw, server_hostname=None) as tls:
                peer = identity.check(tls.getpeercert(binary_form=True), datetime.now(UTC))
                if peer.name != name:
                    remedy = "its address" if protocol else f'home, or give founder = "{peer.name}"'
                    return Finding(
                        what, False, f"at {text} is {peer.role} '{peer.name}'. Correct {remedy}."
                    )
                if protocol is None:
                    return Finding(what, True, f"{text} answers")
                return _first_words(what, text, tls, protocol)
    except PosseError as error:
        return Finding(what, False, f"{text}: {error.text}")
    except ssl.SSLCertVerificationError as error:
        return Finding(what, False, f"{text}: its certificate is refused: {error.verify_message}.")
    except ssl.SSLError as error:
        return Finding(
            what,
            False,
            f"{text} answers, and not as a party: {error.reason or error}. Check the port.",
        )
    except ConnectionRefusedError:
        return Finding(
            what,
            False,
            f"{text}: '{name}' is not running yet, or its part is over: the machine answers, and "
            "nothing listens at this port. Ask its operator to start it, or check the port.",
        )
    except OSError as error:
        why = error.strerror or str(error) or "no answer"
        return Finding(
            what, False, f"{text}: {why}. Check address and firewall, and that it is started."
        )


def _opened(host: str, port: int, proxy: str | None) -> socket.socket:
    if proxy is None:
        return socket.create_connection((host, port), timeout=PATIENCE)
    return asyncio.run(asyncio.wait_for(opened(host, port, Proxy.parse(proxy)), PATIENCE))


def _first_words(what: str, text: str, tls: ssl.SSLSocket, protocol: str) -> Finding:
    reader, spoken = Reader(), agreed(tls.selected_alpn_protocol())
    try:
        while data := tls.recv(4096):
            for frame in reader.feed(data):
                if isinstance(frame, Refused):
                    return Finding(what, False, f"{text} refuses this party: {frame.reason}")
                if isinstance(frame, Hello):
                    check_versions(frame.name, frame, spoken, protocol)
                    said = (
                        f"posse {frame.posse}, protocol version {frame.protocol_version}, wire "
                        f"{frame.wire}"
                    )
                    return Finding(what, True, f"{text} answers: {said}")
    except OSError as error:
        return Finding(what, False, f"{text} hung up: {error}. Its operator's log says why.")
    return Finding(what, False, f"{text} hung up without a word. Its operator's log says why.")


def listening(what: str, text: str, status: Status) -> Finding:
    """Say whether an address is free, or taken by the party itself."""
    try:
        host, port = address(text)
        if status:
            return Finding(what, True, f"{text}, by the running party")
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("" if host == "*" else host, port))
    except PosseError as error:
        return Finding(what, False, error.text)
    except OSError as error:
        why = error.strerror or str(error)
        return Finding(
            what, False, f"{text}: {why}. Stop what holds the port, or choose another address."
        )
    return Finding(what, True, f"{text} is free")


def _running(place: Place, status: Status) -> Iterator[Finding]:
    if not status:
        frozen = not_answering(place.journal)
        yield Finding(
            "process", not frozen, frozen or f"none; start it with '{starts(place.journal)}'"
        )
        return
    yield Finding("process", True, f"{status['pid']}, posse {status['version']}")
    done = f"{progress(status)}, " if status.get("step") else ""
    held = ", paused: 'posse party resume' lets it go on" if status["paused"] else ""
    waits = ", ".join(f"{peer} ({why})" for peer, why in status["waiting"].items()) or "nobody"
    over = f"; over for {', '.join(status['over'])}" if status["over"] else ""
    yield Finding("running", bool(status["healthy"]), f"{done}waits for {waits}{held}{over}")
    if source := status.get("source"):
        yield Finding(
            "source", False, f"has failed {source['failures']} times in a row: {source['why']}"
        )
    if status.get("digest"):
        yield Finding(
            "manifest",
            True,
            f"{status['digest']}: all parties must see the same, compare by telephone",
        )
