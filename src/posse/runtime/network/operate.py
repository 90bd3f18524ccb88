"""How an operator reaches a party: a socket in its folder, metrics and health for a monitor, and
its log.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any, TextIO

from cryptography import x509

from posse.core.errors import ConfigError, LinkError, PosseError
from posse.core.roles import Message
from posse.runtime.certificates.identity import CERTIFICATE
from posse.runtime.door import Door
from posse.runtime.metrics import (
    CONTENT_TYPE,
    Metric,
    Page,
    counter,
    folder,
    gauge,
    process,
    serve,
    write,
)
from posse.runtime.network.health import Status, is_stopped, not_answering, starts, status
from posse.runtime.network.leaving import waited_for
from posse.runtime.network.party import Party
from posse.runtime.network.wire import WIRE_VERSION
from posse.version import __version__

SOCKET = "control.sock"
NO_COMMAND = "unknown command"
"""Begins the answer to what cannot be asked here."""
_LONGEST_LINE = 1 << 16
_LONGEST_ANSWER = 64 << 20
"""Bytes of an answer: the status of a service has a line for every run that there ever was."""
_PATIENCE, _MOST = 5.0, 16
"""Seconds that a question may take, and how many may be asked at once."""
_LOOK = 1.0
"""Seconds between two looks at a process that has not answered yet."""
FAILING = 3
"""Failures in a row after which a party's status says that its source fails."""
_LONGEST_PATH = 103
"""Bytes of a socket's path: 107 on Linux, fewer elsewhere."""


@contextmanager
def _socket(folder: Path) -> Iterator[Path]:
    """Where the socket is, as the operating system takes it: short paths only, so a long one goes
    by its folder.
    """
    whole = folder / SOCKET
    if len(os.fsencode(whole)) <= _LONGEST_PATH:
        yield whole
        return
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        short = Path(f"/proc/self/fd/{opened}")
        if not short.exists():
            raise ConfigError(
                f"the path of a journal may have {_LONGEST_PATH - len(SOCKET) - 1} bytes on this "
                f"system, got {folder}. "
                "Choose a shorter one."
            )
        yield short / SOCKET
    finally:
        os.close(opened)


class Control:
    """Answers one line of JSON with another on a socket that only the owner of the folder can
    open.
    """

    def __init__(self, folder: Path, commands: Mapping[str, Callable[[str], object]]) -> None:
        """A command is a word, and takes the rest of its line."""
        self._folder, self._commands = folder, commands
        self._server: asyncio.Server | None = None
        self._serving = 0

    async def start(self) -> None:
        """Open the socket."""
        whole = self._folder / SOCKET
        whole.unlink(missing_ok=True)
        with _socket(self._folder) as path:
            self._server = await asyncio.start_unix_server(self._serve, path, limit=_LONGEST_LINE)
        whole.chmod(0o600)

    def close(self) -> None:
        """Close and remove the socket."""
        if self._server is not None:
            self._server.close()
            (self._folder / SOCKET).unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._serving >= _MOST:
            writer.transport.abort()
            return
        self._serving += 1
        try:
            line = await asyncio.wait_for(reader.readline(), _PATIENCE)
            if not line.endswith(b"\n"):
                return  # half a line may be another command
            answer = self._answer(*line.decode("utf-8", "replace").strip().partition(" ")[::2])
            writer.write(json.dumps(answer, default=str).encode() + b"\n")
            await writer.drain()
        except (OSError, ValueError, TimeoutError):
            pass
        finally:
            self._serving -= 1
            writer.close()

    def _answer(self, name: str, text: str) -> dict[str, object]:
        command = self._commands.get(name)
        if command is None:
            return {"error": f"{NO_COMMAND} '{name[:40]}'."}
        try:
            return {"ok": command(text)}
        except PosseError as error:
            return {"error": error.text}


def party_commands(
    party: Party, more: Mapping[str, Callable[[str], Message]] | None = None
) -> dict[str, Callable[[str], object]]:
    """Return what may be asked of a party; `more` are commands of its protocol, such as ending a
    run early.
    """
    commands: dict[str, Callable[[str], object]] = {
        "status": lambda _: {**status(party), **_own_source(party)},
        "pause": lambda _: party.pause(True),
        "resume": lambda _: party.pause(False),
        "stop": lambda _: asyncio.get_running_loop().call_soon(party.stop) and None,
    }
    for name, make in (more or {}).items():
        commands[name] = lambda text, make=make: party.instruct(make(text))  # type: ignore[misc]
    return commands


def _own_source(party: Party) -> dict[str, object]:
    """Say to a party's own operator, and to no monitor, that its source fails at every call."""
    times, why = party.source_trouble
    return {"source": {"failures": times, "why": why}} if times >= FAILING else {}


def source_trouble(party: Party | None) -> str:
    """Say it in a line; empty where there is nothing to say."""
    times, why = (0, "") if party is None else party.source_trouble
    return f"its source has failed {times} times in a row: {why}" if times >= FAILING else ""


def waits(party: Party | None) -> str:
    """Say for whom a run waits, and why; empty where nobody is missing or refused."""
    waiting = {} if party is None else waited_for(party)
    return ", ".join(f"waits for {peer} ({why})" for peer, why in waiting.items())


async def ask(folder: Path, command: str, *, patience: float = 5.0) -> Any:
    """Ask a party on this machine, by its folder; it answers within `patience` seconds, or counts
    as frozen.

    A process that is stopped (SIGSTOP) is not waited for that long.
    """
    try:
        with _socket(folder) as path:
            reader, writer = await asyncio.open_unix_connection(path, limit=_LONGEST_ANSWER)
        try:
            writer.write(command.encode() + b"\n")
            answer = json.loads(await _line(reader, folder, patience))
        finally:
            writer.close()
            await writer.wait_closed()
    except (OSError, ValueError, TimeoutError) as error:
        if frozen := not_answering(folder):
            raise LinkError(f"the party in {folder} does not answer: {frozen}.") from error
        why = (
            ""
            if isinstance(error, FileNotFoundError | ConnectionRefusedError)
            else f" ({error or 'no answer'})"
        )
        raise LinkError(
            f"no party runs with the journal {folder}{why}. Start it with '{starts(folder)}'."
        ) from error
    if "error" in answer:
        raise LinkError(f"the party in {folder} answers: {answer['error']}")
    return answer["ok"]


async def _line(reader: asyncio.StreamReader, folder: Path, patience: float) -> bytes:
    """Read an answer, with a look at the process every second: one that is stopped gives none.

    Seconds are counted by looks, so that time in which the asking process stood still itself is not
    held against it.
    """
    reading = asyncio.ensure_future(reader.readline())
    try:
        for _ in range(max(1, round(patience / _LOOK))):
            await asyncio.wait({reading}, timeout=_LOOK)
            if reading.done():
                return reading.result()
            if is_stopped(folder):
                break
        raise TimeoutError
    finally:
        reading.cancel()


def metrics(party: Party, journal: Path | None = None, identity: Path | None = None) -> str:
    """Write how a party is as Prometheus reads it; with its folders, also its journal and its
    certificate.

    Peers are counted and never named, and messages are added up over them: whose count moved would
    say who was pulled.
    """
    role, kept = party.engine.role, folder(journal) if journal else ()
    figures = chain(of_run(party), certificate(identity), kept, process())
    return write(figures, party=role.name, role=role.kind, run=party.engine.run)


def of_run(party: Party) -> Iterator[Metric]:
    """Give the figures of a party in its run."""
    return chain(_run(party, status(party)), _traffic(party))


def _run(party: Party, shown: Status) -> Iterator[Metric]:
    yield from gauge("posse_info", "Versions.", 1, version=__version__, wire=str(WIRE_VERSION))
    yield from gauge("posse_step", "Decisions made, where the role sees them.", shown.get("step"))
    yield from gauge("posse_horizon", "Decisions there will be.", shown.get("horizon"))
    for name, text in (
        ("healthy", "1 unless paused or waiting for a peer that is not there."),
        ("paused", "1 while held."),
        ("begun", "1 once all have agreed."),
        ("finished", "1 when the party's part is over."),
    ):
        yield from gauge(f"posse_{name}", text, int(shown[name]))
    yield from gauge("posse_peers", "Other parties of the run.", len(party.wiring.peers))
    yield from gauge("posse_peers_connected", "Those that are connected.", len(party.connections))
    yield from gauge(
        "posse_peers_waited_for", "Those away, paused or silent.", len(shown["waiting"])
    )
    if party.source_answers:
        for name, value in (("seconds", party.source_seconds), ("answers", party.source_answers)):
            text = f"{name.capitalize()} of this party's own source, over all its answers."
            yield Metric(f"posse_source_{name}_total", "counter", text, (({}, value),))


def _traffic(party: Party) -> Iterator[Metric]:
    counts = party.counts
    refused = {
        event.removeprefix("refused "): n
        for event, n in counts.items()
        if event.startswith("refused ")
    }
    yield from counter(
        "posse_refused_total", "Connections and messages refused, by why.", refused, "kind"
    )
    messages = {way: counts[f"messages {way}"] for way in ("in", "out")}
    yield from counter(
        "posse_messages_total", "Messages of the protocol, over all peers.", messages, "way"
    )
    for event in ("connections", "source failures"):
        name = f"posse_{event.replace(' ', '_')}_total"
        yield Metric(name, "counter", f"{event.capitalize()} so far.", (({}, counts[event]),))


def certificate(identity: Path | None) -> Iterator[Metric]:
    """Give when the certificate ends, from its file: it may be renewed while the party runs."""
    if identity is not None:
        with contextlib.suppress(PosseError, OSError, ValueError):
            ends = x509.load_pem_x509_certificate(
                (identity / CERTIFICATE).read_bytes()
            ).not_valid_after_utc
            text = "When this party's certificate expires, in seconds since 1970."
            yield from gauge("posse_certificate_expiry_timestamp_seconds", text, ends.timestamp())


async def serve_metrics(
    party: Party, host: str, port: int, *, journal: Path | None = None, identity: Path | None = None
) -> Door:
    """Serve /health and /metrics over plain HTTP; bind it where only a monitor can reach it."""

    def health() -> Page:
        shown = status(party)
        fine = "200 OK" if shown["healthy"] else "503 Service Unavailable"
        return Page(json.dumps(shown, default=str), "application/json", fine)

    pages = {
        "/metrics": lambda: Page(metrics(party, journal, identity), CONTENT_TYPE),
        "/health": health,
    }
    return await serve(
        pages, host, port, lambda address, why: party.refused(address, why, counted="monitor")
    )


LEVELS = ("info", "warning", "error")
"""Of events in a log; `log` in a party's file leaves out those below."""
_LEVEL = {
    "refused": "warning",
    "lost": "warning",
    "unreachable": "warning",
    "source": "warning",
    "more": "warning",
    "waiting for a reward": "warning",
    "waiting for a context": "warning",
    "failed": "error",
    "not synced": "warning",
    "not renewed": "warning",
    "sheet refused": "warning",
    "unfinished": "warning",
}


def json_log(
    party: str, stream: TextIO | None = None, *, least: str = "info"
) -> Callable[..., None]:
    """Make a log of one JSON object a line; events are few words, and never hold a message's
    content.
    """
    out, lowest = stream or sys.stderr, LEVELS.index(least)

    def log(event: str, **fields: object) -> None:
        # One that was asked to stop has no reason to give.
        level = "error" if event == "stopped" and fields.get("why") else _LEVEL.get(event, "info")
        if LEVELS.index(level) < lowest:
            return
        when = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = json.dumps(
            {"time": when, "level": level, "party": party, "event": event, **fields}, default=str
        )
        with contextlib.suppress(OSError):  # a log that cannot be written must not stop a run
            print(line, file=out, flush=True)

    return log
