"""A look over a party before it is started: what is fine, and what to mend."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from posse.core.errors import LinkError, PosseError
from posse.runtime.certificates import making
from posse.runtime.network.deployment import Build, Place, address, open_place
from posse.runtime.network.operate import ask
from posse.version import PROTOCOL_VERSION, __version__

SOON_DAYS = 14
"""A certificate that expires sooner is told."""


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    what: str
    fine: bool
    said: str


def examine(path: Path, protocol: Callable[[str], Build]) -> list[Finding]:
    """Look everything over; nothing is started and no reward is asked for."""
    try:
        place = open_place(path)
    except PosseError as error:
        return [Finding("file and identity", False, str(error))]
    return [
        Finding("version", True, f"posse {__version__}, protocol version {PROTOCOL_VERSION}"),
        *_identity(place),
        _role(place, protocol),
        *_peers(place),
        _running(place),
    ]


def _identity(place: Place) -> Iterator[Finding]:
    identity = place.identity
    who = f"{identity.role} '{identity.name}' of run {identity.run}"
    left = (identity.certificate.not_valid_after_utc - datetime.now(UTC)).days
    yield Finding("identity", True, who)
    yield Finding("certificate", left >= SOON_DAYS, f"expires in {left} days")
    spoken = making.spoken(making.fingerprint(making.public_key(identity.authority)))
    yield Finding("authority", True, f"fingerprint {spoken}: compare it with the customer's")


def _role(place: Place, protocol: Callable[[str], Build]) -> Finding:
    try:
        protocol(place.file.protocol)(place)
    except PosseError as error:
        return Finding("options and source", False, str(error))
    return Finding("options and source", True, f"{place.file.protocol}, as {place.identity.role}")


def _peers(place: Place) -> Iterator[Finding]:
    for name, text in place.file.connect.items():
        try:
            host, port = address(text)
            with socket.create_connection((host, port), timeout=3):
                yield Finding(f"way to {name}", True, f"{text} answers")
        except (OSError, PosseError) as error:
            yield Finding(f"way to {name}", False, f"{text}: {error}. Check address, firewall, and that it is started.")
    if place.file.listen is not None:
        yield _listening(place.file.listen)


def _listening(text: str) -> Finding:
    try:
        host, port = address(text)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except (OSError, PosseError) as error:
        return Finding("listening", False, f"{text}: {error}. Stop what holds the port, or choose another.")
    return Finding("listening", True, f"{text} is free")


def _running(place: Place) -> Finding:
    import asyncio

    try:
        found = asyncio.run(ask(place.journal, "status"))
    except LinkError:
        return Finding("running", True, "not now")
    missing = ", ".join(found["missing"]) or "nobody"
    digest = f", manifest {found['digest']}: compare it by telephone" if found.get("digest") else ""
    return Finding("running", not found["missing"], f"step {found.get('step', 0)}, missing {missing}{digest}")
