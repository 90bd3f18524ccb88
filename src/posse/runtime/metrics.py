"""What a monitor reads: figures as Prometheus scrapes them, and a page for them over plain HTTP.

One writer for everything that runs for long: a party, a service, a fleet of devices. Whoever fills
it keeps the rule of `network.health`: no figure says whose answer or reward is pending, and how
long an answer took is shown only by the party that gave it, over all its answers.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from posse.runtime.door import Door, Limits

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""Of the text format that Prometheus scrapes."""
_LONGEST_LINE, _PATIENCE = 1 << 16, 5.0
"""Bytes of a request's line, and seconds that it may take."""
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


@dataclass(frozen=True)
class Metric:
    """Figures of one name, each with its labels."""

    name: str
    kind: str
    """`gauge`, which goes up and down, or `counter`, whose name ends in `_total`."""
    help: str
    samples: tuple[tuple[Mapping[str, str], float], ...]


def gauge(name: str, help: str, value: float | None, **labels: str) -> Iterator[Metric]:
    """Make a figure that goes up and down; none where it is not known."""
    if value is not None:
        yield Metric(name, "gauge", help, ((labels, value),))


def counter(name: str, help: str, values: Mapping[str, float], label: str) -> Iterator[Metric]:
    """Make a figure that only grows, for each value of a label; none where nothing was counted."""
    if values:
        yield Metric(
            name,
            "counter",
            help,
            tuple(({label: key}, value) for key, value in sorted(values.items())),
        )


def write(metrics: Iterable[Metric], **labels: str) -> str:
    r"""Write figures as Prometheus reads them; `labels` are added to every one.

    >>> print(write(gauge("posse_step", "Steps made.", 12), party='a "b"'), end="")
    # HELP posse_step Steps made.
    # TYPE posse_step gauge
    posse_step{party="a \"b\""} 12
    """
    lines: list[str] = []
    for metric in metrics:
        lines += [f"# HELP {metric.name} {metric.help}", f"# TYPE {metric.name} {metric.kind}"]
        for own, value in metric.samples:
            pairs = ",".join(
                f'{name}="{text.translate(_ESCAPES)}"' for name, text in {**labels, **own}.items()
            )
            lines.append(
                f"{metric.name}{{{pairs}}} {value:.15g}" if pairs else f"{metric.name} {value:.15g}"
            )
    return "".join(f"{line}\n" for line in lines)


def line(metrics: Iterable[Metric], at: float) -> str:
    r"""Write figures as one line of JSON, with the time in seconds since 1970; those with labels by
    their values.

    >>> line(counter("posse_refused_total", "Refusals.", {"late": 2}, "why"), 1.5)
    '{"time": 1.5, "posse_refused_total": {"late": 2}}\n'
    """
    shown: dict[str, object] = {"time": round(at, 3)}
    for metric in metrics:
        values = {",".join(own.values()): value for own, value in metric.samples}
        shown[metric.name] = values.get("", values)
    return json.dumps(shown) + "\n"


_STARTED = time.time()


def process() -> Iterator[Metric]:
    """Give memory, descriptors and CPU time of this process, under the names that dashboards
    know.
    """
    used = resource.getrusage(resource.RUSAGE_SELF)
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    resident = descriptors = None
    with suppress(OSError, IndexError, ValueError):  # Linux only
        resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        descriptors = len(os.listdir("/proc/self/fd")) - 1  # less the one that lists them
    yield from gauge("process_resident_memory_bytes", "Memory in use.", resident)
    yield from gauge(
        "process_peak_memory_bytes", "Most memory in use so far.", used.ru_maxrss * 1024.0
    )
    yield from gauge("process_open_fds", "Open descriptors.", descriptors)
    yield from gauge(
        "process_max_fds",
        "Most descriptors allowed.",
        None if soft == resource.RLIM_INFINITY else soft,
    )
    yield from gauge(
        "process_start_time_seconds", "When the process started, in seconds since 1970.", _STARTED
    )
    seconds = used.ru_utime + used.ru_stime
    yield Metric("process_cpu_seconds_total", "counter", "CPU time used.", (({}, seconds),))


def folder(path: Path) -> Iterator[Metric]:
    """Give the bytes in a folder of a journal, and what is free beside it."""
    with suppress(OSError):
        size = sum(entry.stat().st_size for entry in os.scandir(path) if entry.is_file())
        disk = os.statvfs(path)
        yield from gauge("posse_journal_bytes", "Bytes in the folder of the journal.", size)
        yield from gauge(
            "posse_disk_free_bytes",
            "Bytes free where the journal is.",
            disk.f_bavail * disk.f_frsize,
        )


@dataclass(frozen=True)
class Page:
    """What a path answers."""

    body: str
    kind: str = "text/plain; charset=utf-8"
    status: str = "200 OK"

    def response(self) -> bytes:
        """Encode it as HTTP."""
        data = self.body.encode()
        head = (
            f"HTTP/1.1 {self.status}\r\nContent-Type: {self.kind}\r\nContent-Length: "
            f"{len(data)}\r\n"
        )
        return f"{head}Connection: close\r\n\r\n".encode() + data


async def serve(
    pages: Mapping[str, Callable[[], Page]],
    host: str,
    port: int,
    refused: Callable[[str, str], None],
) -> Door:
    """Serve pages by their paths over plain HTTP, to few at a time; bind it where only a monitor
    can reach it.
    """

    async def answer(opened: socket.socket, address: str) -> None:
        writer: asyncio.StreamWriter | None = None
        try:
            async with asyncio.timeout(_PATIENCE):
                reader, writer = await asyncio.open_connection(sock=opened, limit=_LONGEST_LINE)
                line = (await reader.readline()).decode("latin-1").split(" ")
                page = pages.get(line[1]) if len(line) > 1 else None
                writer.write((_NOT_FOUND if page is None else page()).response())
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (OSError, TimeoutError, ValueError):
            pass
        finally:
            if writer is not None:
                writer.transport.abort()

    door = Door(answer, refused, Limits(64, 32, 16, 8))
    await door.open(host, port)
    return door


_NOT_FOUND = Page("not found\n", status="404 Not Found")
