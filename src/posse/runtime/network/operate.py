"""How an operator reaches a party: a socket in its folder, metrics and health for a monitor, and its log."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from posse.core.errors import ConfigError, LinkError, PosseError
from posse.core.roles import Message
from posse.runtime.door import Door, Limits
from posse.runtime.network.health import not_answering, status
from posse.runtime.network.party import Party

SOCKET = "control.sock"
_LONGEST_LINE = 1 << 16
_PATIENCE, _MOST = 5.0, 16
"""Seconds that a question may take, and how many may be asked at once."""
_LONGEST_PATH = 103
"""Bytes of a socket's path: 107 on Linux, fewer elsewhere."""


@contextmanager
def _socket(folder: Path) -> Iterator[Path]:
    """Where the socket is, as the operating system takes it: short paths only, so a long one goes by its folder."""
    whole = folder / SOCKET
    if len(os.fsencode(whole)) <= _LONGEST_PATH:
        yield whole
        return
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        short = Path(f"/proc/self/fd/{opened}")
        if not short.exists():
            raise ConfigError(
                f"the path of a journal may have {_LONGEST_PATH - len(SOCKET) - 1} bytes on this system, got {folder}. "
                "Choose a shorter one."
            )
        yield short / SOCKET
    finally:
        os.close(opened)


class Control:
    """Answers one line of JSON with another on a socket that only the owner of the folder can open."""

    def __init__(self, party: Party, folder: Path, more: Mapping[str, Callable[[str], Message]] | None = None) -> None:
        """`more` are commands of the protocol with one argument, such as ending a run early: messages to the role."""
        self._folder = folder
        self._commands: dict[str, Callable[[str], object]] = {
            "status": lambda _: status(party),
            "pause": lambda _: party.pause(True),
            "resume": lambda _: party.pause(False),
            "stop": lambda _: asyncio.get_running_loop().call_soon(party.stop) and None,
        }
        for name, make in (more or {}).items():
            self._commands[name] = lambda text, make=make: party.instruct(make(text))  # type: ignore[misc]
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
            return {"error": f"unknown command '{name[:40]}'."}
        try:
            return {"ok": command(text)}
        except PosseError as error:
            return {"error": str(error)}


async def ask(folder: Path, command: str) -> Any:
    """Ask a party on this machine, by its folder."""
    try:
        with _socket(folder) as path:
            reader, writer = await asyncio.open_unix_connection(path, limit=_LONGEST_LINE)
        try:
            writer.write(command.encode() + b"\n")
            answer = json.loads(await asyncio.wait_for(reader.readline(), 5))
        finally:
            writer.close()
            await writer.wait_closed()
    except (OSError, ValueError, TimeoutError) as error:
        if frozen := not_answering(folder):
            raise LinkError(f"the party in {folder} does not answer: {frozen}.") from error
        why = "" if isinstance(error, FileNotFoundError | ConnectionRefusedError) else f" ({error or 'no answer'})"
        raise LinkError(f"no party runs with the journal {folder}{why}. Start it with 'posse party'.") from error
    if "error" in answer:
        raise LinkError(f"the party in {folder} answers: {answer['error']}")
    return answer["ok"]


def metrics(party: Party) -> str:
    """Write the counters as Prometheus reads them."""
    engine = party.engine
    labels = f'party="{engine.role.name}",role="{engine.role.kind}",run="{engine.run}"'
    state = engine.role.state()
    lines = [
        "# TYPE posse_step gauge", f"posse_step{{{labels}}} {state.get('step', 0)}",
        "# TYPE posse_horizon gauge", f"posse_horizon{{{labels}}} {state.get('horizon', 0)}",
        "# TYPE posse_peers_connected gauge", f"posse_peers_connected{{{labels}}} {len(party.connections)}",
        "# TYPE posse_peers_waited_for gauge", f"posse_peers_waited_for{{{labels}}} {len(status(party)['waiting'])}",
        "# TYPE posse_source_seconds summary", f"posse_source_seconds_sum{{{labels}}} {party.source_seconds:.6f}",
        f"posse_source_seconds_count{{{labels}}} {party.source_answers}",
        "# TYPE posse_events_total counter",
    ]  # fmt: skip
    lines += [
        f'posse_events_total{{{labels},event="{event}"}} {count}' for event, count in sorted(party.counts.items())
    ]
    return "\n".join([*lines, ""])


async def serve_metrics(party: Party, host: str, port: int) -> Door:
    """Serve /health and /metrics over plain HTTP; bind it where only a monitor can reach it."""

    async def serve(opened: socket.socket, address: str) -> None:
        writer: asyncio.StreamWriter | None = None
        try:
            async with asyncio.timeout(_PATIENCE):
                reader, writer = await asyncio.open_connection(sock=opened, limit=_LONGEST_LINE)
                line = (await reader.readline()).decode("latin-1").split(" ")
                writer.write(_page(party, line[1] if len(line) > 1 else ""))
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (OSError, TimeoutError, ValueError):
            pass
        finally:
            if writer is not None:
                writer.transport.abort()

    door = Door(serve, lambda address, why: party.refused(address, why, counted="monitor"), Limits(64, 32, 16, 8))
    await door.open(host, port)
    return door


def _page(party: Party, path: str) -> bytes:
    """Answer a GET for a path."""
    if path == "/metrics":
        code, kind, body = "200 OK", "text/plain; version=0.0.4; charset=utf-8", metrics(party)
    elif path == "/health":
        shown = status(party)
        code = "200 OK" if shown["healthy"] else "503 Service Unavailable"
        kind, body = "application/json", json.dumps(shown, default=str)
    else:
        code, kind, body = "404 Not Found", "text/plain; charset=utf-8", "not found\n"
    data = body.encode()
    head = f"HTTP/1.1 {code}\r\nContent-Type: {kind}\r\nContent-Length: {len(data)}\r\nConnection: close\r\n\r\n"
    return head.encode() + data


def json_log(party: str, stream: TextIO | None = None) -> Callable[..., None]:
    """Make a log of one JSON object a line; events are few words, and never hold a message's content."""
    out = stream or sys.stderr

    def log(event: str, **fields: object) -> None:
        when = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = json.dumps({"time": when, "party": party, "event": event, **fields}, default=str)
        with contextlib.suppress(OSError):  # a log that cannot be written must not stop a run
            print(line, file=out, flush=True)

    return log
