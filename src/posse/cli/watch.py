"""A federation on this machine while it runs: who is where, how fast it goes, and when it may be over.

Steps of owners are not shown: the one whose reward is awaited is a step behind the others, and would be named.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posse.cli.progress import FIRST_LINE, NEXT_LINE
from posse.cli.screen import err, remark
from posse.core.errors import PosseError

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live

    from posse.runtime.local import Layout, Process

RESULT = "result.json"
"""In a party's journal: written when its part is over; at the customer it holds the total."""
EVERY = 0.4
"""Seconds between two looks."""
MOST_RESTARTS = 10
WINDOW = 30.0
"""Seconds over which the pace is told."""


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
        """Take a step, and give the pace.

        >>> pace = Pace()
        >>> pace.at(0.0, 10), pace.at(2.0, 110)
        (0.0, 50.0)
        """
        self.marks = [*(mark for mark in self.marks if now - mark[0] <= WINDOW), (now, step)]
        began, first = self.marks[0]
        return (step - first) / (now - began) if now > began else 0.0


def state_of(found: Mapping[str, Any], code: int | None, *, seen: bool, over: bool) -> str:
    """Say in a few words where a party is; `found` is its status, `code` how its process ended.

    >>> state_of({"missing": {"comp": "has not called yet"}}, None, seen=True, over=False)
    'waiting for comp'
    >>> state_of({}, 0, seen=True, over=False)
    'stopped'
    """
    if found:
        if found.get("finished"):
            return "finished"
        if found.get("paused"):
            return "paused"
        return f"waiting for {', '.join(found['missing'])}" if found.get("missing") else "connected"
    if code is None:
        # One that is slow to answer is not named: it may be the one that pulls.
        return "connected" if seen else "starting"
    if code == 0:
        return "finished" if over else "stopped"
    return "killed" if code < 0 else "failed"


class Watch:
    """Follows the processes of a federation to their end."""

    def __init__(self, budget: int, again: Callable[[Path], Process], federation: Layout) -> None:
        """`again` starts a party anew that was killed; the federation says whose steps may be told."""
        self._budget, self._again, self._federation = budget, again, federation
        self.processes: list[Process] = []
        self.told = 0
        """Number of the signal that told this process to end."""
        self.step, self.line = 0, "starting"
        self._say: Callable[[str], None] = remark
        self._rows: dict[str, Row] = {}
        self._seen: set[str] = set()
        self._restarts: dict[str, int] = {}
        self._pace, self._steps_a_second = Pace(), 0.0

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
            while not self.told and any(process.handle.poll() is None for process in self.processes):
                if any((process.handle.poll() or 0) > 0 for process in self.processes):
                    return
                self._look()
                if live is not None:
                    live.update(self._picture(), refresh=True)
                elif time.monotonic() > next_line:
                    remark(f"{self.line}{self._left()}")
                    next_line = time.monotonic() + NEXT_LINE
                time.sleep(EVERY)

    def _look(self) -> None:
        found = asyncio.run(_ask_all([process.file for process in self.processes]))
        over = [(process.file.with_suffix("") / "journal" / RESULT).exists() for process in self.processes]
        left = {process.name for process, ended in zip(self.processes, over, strict=True) if ended}
        for number, process in enumerate(self.processes):
            status, code = found[number], process.handle.poll()
            if status:
                self._seen.add(process.name)
                # Nobody waits for who has done its part.
                status["missing"] = {peer: why for peer, why in status["missing"].items() if peer not in left}
            row = self._rows[process.name]
            row.state = state_of(status, code, seen=process.name in self._seen, over=over[number])
            if row.role in self._federation.shown and status:
                row.step = _step(status)
            if code is not None and code < 0 and not status:
                self._start_again(number, -code)
        self._tell(next((one for one in found if one.get("role") == self._federation.lead), {}))

    def _start_again(self, number: int, signal: int) -> None:
        process = self.processes[number]
        self._restarts[process.name] = self._restarts.get(process.name, 0) + 1
        if self._restarts[process.name] > MOST_RESTARTS:
            raise PosseError(
                f"'{process.name}' was killed {MOST_RESTARTS + 1} times (signal {signal}). See {process.log}, and "
                "whether the machine has memory enough; the same command goes on."
            )
        self._say(f"'{process.name}' was killed (signal {signal}) and is started again; it goes on where it was.")
        self._seen.discard(process.name)
        self.processes[number] = self._again(process.file)

    def _tell(self, lead: Mapping[str, Any]) -> None:
        step = _step(lead)
        if not step:
            self.line = "starting" if not self.step else self.line
            return
        self.step = step
        pace = self._pace.at(time.monotonic(), step)
        missing = lead.get("missing")
        # While somebody is missing nobody knows how long it takes.
        self._steps_a_second = 0.0 if missing else pace
        absent = f", without {', '.join(missing)}" if missing and not lead.get("finished") else ""
        self.line = f"step {step:,} of {self._budget:,}, {pace:,.0f} steps/s{absent}"

    def _picture(self) -> RenderableType:
        from rich import box
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        made = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
        for column in ("party", "role", "state"):
            made.add_column(column)
        made.add_column("step", justify="right")
        for row in self._rows.values():
            shown = "" if row.step is None else f"{row.step:,}"
            made.add_row(row.name, row.role, Text(row.state, style=_style(row.state)), shown)
        left = self._left()
        return Group(made, Text(f"{self.line}{left}"))

    def _left(self) -> str:
        if not self._steps_a_second:
            return ""
        seconds = (self._budget - self.step) / self._steps_a_second
        about = f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
        return f", about {about if seconds < 5400 else f'{seconds / 3600:.1f} h'} left"


async def _ask_all(files: list[Path]) -> list[dict[str, Any]]:
    return list(await asyncio.gather(*(status_of(file) for file in files)))


async def status_of(file: Path) -> dict[str, Any]:
    """Ask a party on this machine how it is; nothing where it does not answer soon."""
    from posse.runtime.network.deployment import PartyFile
    from posse.runtime.network.operate import ask

    try:
        journal = file.resolve().parent / PartyFile.make(file=file).journal
        found: dict[str, Any] = await asyncio.wait_for(ask(journal, "status"), 2)
    except (PosseError, TimeoutError):
        return {}
    return found


def _step(status: Mapping[str, Any]) -> int:
    """Read how far a party is, in steps or in rounds of a market."""
    return int(status.get("step", status.get("round", 0)))


def _style(state: str) -> str:
    if state in ("connected", "finished"):
        return "green"
    return "red" if state in ("failed", "killed") else "yellow"


def _live() -> Live | None:
    """Make a table that is drawn again and again, where there is a terminal for it."""
    if not sys.stderr.isatty() or os.environ.get("TERM") in ("dumb", "unknown"):
        return None
    from rich.live import Live

    return Live(console=err(), auto_refresh=False, transient=True)
