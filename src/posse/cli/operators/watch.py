"""A federation on this machine while it runs: who is where, how fast it goes, and when it may be
over.

How far a party is is shown for those roles only that its system allows: one whose reward is awaited
is a step behind the others, and would be named.
"""

from __future__ import annotations

import asyncio
import errno
import os
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from posse.cli.progress import FIRST_LINE, NEXT_LINE, about
from posse.cli.screen import err, remark
from posse.core.errors import LinkError, PosseError

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live

    from posse.runtime.local import Layout, Process
    from posse.runtime.network.health import Status

EVERY = 0.4
"""Seconds between two looks."""
MOST_RESTARTS = 10
STYLES = {"connected": "green", "finished": "green", "failed": "red", "killed": "red"}
AGAIN = 60.0
"""Seconds after which what still fails is said again."""
WINDOW = 30.0
"""Seconds over which the pace is measured."""
_CANNOT_LISTEN = (errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.EACCES, errno.EPERM)


@dataclass
class Row:
    """What is shown of one party."""

    name: str
    role: str
    state: str = "starting"
    step: int | None = None


@dataclass
class Pace:
    """Steps a second, over the last half minute."""

    marks: list[tuple[float, int]] = field(default_factory=list)

    def at(self, now: float, step: int) -> float:
        """Note that a step is reached, and return the pace.

        >>> pace = Pace()
        >>> pace.at(0.0, 10), pace.at(2.0, 110)
        (0.0, 50.0)
        """
        self.marks = [*(mark for mark in self.marks if now - mark[0] <= WINDOW), (now, step)]
        began, first = self.marks[0]
        return (step - first) / (now - began) if now > began else 0.0


def state_of(
    status: Status, code: int | None = None, *, answered: bool = True, over: bool = False
) -> str:
    """Say in a few words where a party is; `code` is how its process ended.

    >>> state_of({"waiting": {"comp": "has not called yet"}}, None, answered=True, over=False)
    'waiting for comp'
    >>> state_of({}, 0, answered=True, over=False)
    'stopped'
    """
    if status:
        from posse.runtime.network.health import words

        return words(status)
    if code is None:
        # One that is slow to answer is not named: it may be the one that pulls.
        return "connected" if answered else "starting"
    if code == 0:
        return "finished" if over else "stopped"
    return "killed" if code < 0 else "failed"


def source_failing(name: str, source: Status, file: Path) -> str:
    """Say that a party's source fails at every call, why, and what to do."""
    return (
        f"the source of '{name}' has failed {source['failures']} times in a row: {source['why']}. "
        "Fix what [source] "
        f"in {file} names: it is asked again and again, and the run continues when it answers. A "
        "changed module is read "
        "when the party is started again."
    )


def cannot_listen(error: OSError, file: Path) -> NoReturn:
    """Say that a port is taken; other errors stay as they are."""
    if error.errno not in _CANNOT_LISTEN:
        raise error
    raise LinkError(
        f"cannot listen as {file} says: {error.strerror}. Stop what holds the port, or change "
        "listen or metrics; "
        f"'posse party doctor {file}' looks at both.",
        rule="cli.listen.cannot-listen",
    ) from error


def sentence(result: Status) -> str:
    """Return the outcome of a party in one line."""
    if "parties" in result:
        return f"run {result['run']}: the parts of all {len(result['parties'])} parties are over"
    return f"run {result['run']}: {result['outcome']}"


class Watch:
    """Follows the processes of a federation to their end."""

    def __init__(self, again: Callable[[Path], Process], federation: Layout) -> None:
        """`again` restarts a party that was killed; the federation says whose steps may be
        shown.
        """
        self._again, self._federation = again, federation
        self.processes: list[Process] = []
        self.signal = 0
        """Number of the signal that ends this process."""
        self.reached, self.line = "", "starting"
        """How far the run is: with its unit, and with its pace."""
        self._left = ""
        self._say: Callable[[str], None] = remark
        self._rows: dict[str, Row] = {}
        self._seen: set[str] = set()
        self._restarts: dict[str, int] = {}
        self._failing: dict[str, float] = {}
        """When it was last said that a party's source fails."""
        self._pace = Pace()

    def take(self, process: Process) -> None:
        """Take a process that was started."""
        self.processes.append(process)
        self._rows[process.name] = Row(process.name, self._federation.role_of(process.name))

    def follow(self) -> None:
        """Show how far it is until all have ended, or one has failed."""
        live, next_line = _live(), time.monotonic() + FIRST_LINE
        if live is not None:
            self._say = live.console.print
        with nullcontext() if live is None else live:
            while not self.signal and any(
                process.handle.poll() is None for process in self.processes
            ):
                if any((process.handle.poll() or 0) > 0 for process in self.processes):
                    return
                self._look()
                if live is not None:
                    live.update(self._picture(), refresh=True)
                elif time.monotonic() > next_line:
                    remark(f"{self.line}{self._left}")
                    next_line = time.monotonic() + NEXT_LINE
                time.sleep(EVERY)

    def _look(self) -> None:
        from posse.systems.parties import RESULT

        statuses = asyncio.run(_ask_all([process.file for process in self.processes]))
        over = {
            process.name
            for process in self.processes
            if (process.file.with_suffix("") / "journal" / RESULT).exists()
        }
        for number, (process, status) in enumerate(zip(self.processes, statuses, strict=True)):
            code = process.handle.poll()
            row = self._rows[process.name]
            if status:
                self._seen.add(process.name)
                # Nobody waits for who has done its part.
                for peer in over:
                    status["waiting"].pop(peer, None)
                self._look_at_source(process, status)
            row.state = state_of(
                status, code, answered=process.name in self._seen, over=process.name in over
            )
            if row.role in self._federation.shown and status:
                row.step = status.get("step")
            if code is not None and code < 0 and not status:
                self._start_again(number, -code)
        leading = [status for status in statuses if status.get("role") == self._federation.lead]
        self._measure(leading[0] if leading else {})

    def _look_at_source(self, process: Process, status: Status) -> None:
        """Print once a minute that every call of a source fails. The run waits until the
        source is fixed.
        """
        if not (source := status.get("source")):
            self._failing.pop(process.name, None)
        elif time.monotonic() - self._failing.get(process.name, -AGAIN) >= AGAIN:
            self._failing[process.name] = time.monotonic()
            self._say(source_failing(process.name, source, process.file))

    def _start_again(self, number: int, signal: int) -> None:
        process = self.processes[number]
        self._restarts[process.name] = self._restarts.get(process.name, 0) + 1
        if self._restarts[process.name] > MOST_RESTARTS:
            raise PosseError(
                f"'{process.name}' was killed {MOST_RESTARTS + 1} times (signal {signal}). See "
                f"{process.log}, and "
                "whether the machine has memory enough; the same command continues.",
                rule="cli.party.killed-too-often",
            )
        self._say(
            f"'{process.name}' was killed (signal {signal}) and is started again; it continues where "
            "it was."
        )
        self._seen.discard(process.name)
        self.processes[number] = self._again(process.file)

    def _measure(self, lead: Status) -> None:
        from posse.runtime.network.health import progress

        step, unit = lead.get("step"), lead.get("unit", "step")
        missing = lead.get("waiting")
        absent = ""
        if missing and not lead.get("finished"):
            absent = ", without " + ", ".join(f"{peer} ({why})" for peer, why in missing.items())
        if not step:
            self.line = f"starting{absent}"
            return
        pace = self._pace.at(time.monotonic(), step)
        self.reached = progress(lead)
        self.line = f"{self.reached}, {pace:,.0f} {unit}s/s{absent}"
        # While somebody is missing nobody knows how long it takes.
        left = (
            int(lead.get("horizon") or self._federation.steps) - step
        )  # a run may have ended before its last step
        self._left = "" if missing or not pace or left <= 0 else f", {about(left / pace)}"

    def _picture(self) -> RenderableType:
        from rich import box
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        picture = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
        for column in ("party", "role", "state"):
            picture.add_column(column)
        picture.add_column("step", justify="right")
        for row in self._rows.values():
            step = "" if row.step is None else f"{row.step:,}"
            picture.add_row(
                row.name, row.role, Text(row.state, style=STYLES.get(row.state, "yellow")), step
            )
        return Group(picture, Text(f"{self.line}{self._left}"))


def wait_for(condition: Callable[[], bool], seconds: float) -> bool:
    """Wait until a condition holds; return False if it does not within so many seconds."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True


async def _ask_all(files: list[Path]) -> list[Status]:
    return list(await asyncio.gather(*(status_of(file) for file in files)))


async def status_of(file: Path) -> Status:
    """Ask a party on this machine for its status; nothing where it does not answer soon."""
    from posse.runtime.network.operate import ask
    from posse.runtime.place import PartyFile

    try:
        journal = file.resolve().parent / PartyFile.make(file=file).journal
        status: Status = await asyncio.wait_for(ask(journal, "status"), 2)
    except (PosseError, TimeoutError):
        return {}
    return status


def _live() -> Live | None:
    """Make a table that is drawn again and again, where there is a terminal for it."""
    if not sys.stderr.isatty() or os.environ.get("TERM") in ("dumb", "unknown"):
        return None
    from rich.live import Live

    return Live(console=err(), auto_refresh=False, transient=True)
