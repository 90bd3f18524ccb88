"""A federation on this machine while it runs: how far it is, and what goes wrong.

Only the step of the role that leads the run is shown: a party whose reward is awaited is one step
behind the others, so its step would reveal who was pulled.
"""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from posse.cli.progress import Doing
from posse.cli.screen import remark
from posse.core.errors import LinkError, PosseError
from posse.runtime.local import Layout, Process
from posse.runtime.network import operate
from posse.runtime.network.health import Status, progress
from posse.runtime.place import PartyFile

EVERY = 0.4
"""Seconds between two looks."""
MOST_RESTARTS = 10
_CANNOT_LISTEN = (errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.EACCES, errno.EPERM)


def failing_source(name: str, source: Status, file: Path) -> str:
    """Return a sentence about a party's source that fails at every call, with the remedy."""
    return (
        f"the source of '{name}' has failed {source['failures']} times in a row: {source['why']}. "
        f"Fix what [source] in {file} names: it is asked again and again, and the run continues "
        "when it answers. A changed module is read when the party is started again."
    )


def cannot_listen(error: OSError, file: Path) -> NoReturn:
    """Raise an error about a port that is taken; raise other errors unchanged."""
    if error.errno not in _CANNOT_LISTEN:
        raise error
    raise LinkError(
        f"cannot listen as {file} says: {error.strerror}. Stop what holds the port, or change "
        f"listen or metrics; 'posse party doctor {file}' looks at both.",
        rule="cli.listen.cannot-listen",
    ) from error


def outcome_line(result: Status) -> str:
    """Return the outcome of a party in one line."""
    if "parties" in result:
        return f"run {result['run']}: the parts of all {len(result['parties'])} parties are over"
    return f"run {result['run']}: {result['outcome']}"


class Watch:
    """Follows the processes of a federation to their end."""

    def __init__(self, again: Callable[[Path], Process], federation: Layout) -> None:
        """Follow nothing yet.

        Args:
            again: Restarts a party that was killed.
            federation: Says which role leads the run, and how many steps it has.
        """
        self._again = again
        self._federation = federation
        self.processes: list[Process] = []
        self.signal = 0
        """Number of the signal that ends this process."""
        self.reached = ""
        """How far the run is, with its unit."""
        self._restarts: dict[str, int] = {}
        self._failing: set[str] = set()
        """Parties whose source fails, as it was printed."""

    def follow(self) -> None:
        """Show how far the run is until all parties have ended, or one has failed."""
        while self._goes_on():
            with Doing(self.reached or "starting") as doing:
                messages: list[str] = []
                while not messages and self._goes_on():
                    messages = self._look(doing)
                    time.sleep(EVERY)
            remark(*messages)

    def _goes_on(self) -> bool:
        """Whether parties run, none has failed, and nobody stops this process."""
        codes = [process.handle.poll() for process in self.processes]
        failed = any(code and code > 0 for code in codes)
        return not self.signal and None in codes and not failed

    def _look(self, doing: Doing) -> list[str]:
        """Ask every party for its status, and restart those that were killed."""
        statuses = asyncio.run(_ask_all([process.file for process in self.processes]))
        messages: list[str] = []
        for number, (process, status) in enumerate(zip(self.processes, statuses, strict=True)):
            code = process.handle.poll()
            if status:
                messages += self._failure(process, status.get("source"))
            elif code is not None and code < 0:
                messages.append(self._start_again(number, -code))
            if status.get("role") == self._federation.lead:
                doing.at(*self._progress(status))
        return messages

    def _failure(self, process: Process, source: Status | None) -> Sequence[str]:
        """Return once that every call of a source fails: the run waits until it is fixed."""
        if not source:
            self._failing.discard(process.name)
            return ()
        if process.name in self._failing:
            return ()
        self._failing.add(process.name)
        return (failing_source(process.name, source, process.file),)

    def _start_again(self, number: int, signal: int) -> str:
        process = self.processes[number]
        self._restarts[process.name] = self._restarts.get(process.name, 0) + 1
        if self._restarts[process.name] > MOST_RESTARTS:
            raise PosseError(
                f"'{process.name}' was killed {MOST_RESTARTS + 1} times (signal {signal}). See "
                f"{process.log}, and whether the machine has enough memory; the same command "
                "continues.",
                rule="cli.party.killed-too-often",
            )
        self.processes[number] = self._again(process.file)
        return (
            f"'{process.name}' was killed (signal {signal}) and is started again; it continues "
            "where it was."
        )

    def _progress(self, lead: Status) -> tuple[float, str]:
        """Return how much of the run is done, and a line about it."""
        step = lead.get("step") or 0
        # A run may end before the last step that the federation's file names.
        fraction = step / max(1, lead.get("horizon") or self._federation.steps)
        line = "starting"
        if step:
            line = self.reached = progress(lead)
        waiting = {} if lead.get("finished") else lead.get("waiting", {})
        absent = ", ".join(f"{peer} ({why})" for peer, why in waiting.items())
        return fraction, f"{line}, without {absent}" if absent else line


def wait_for(condition: Callable[[], bool], seconds: float) -> bool:
    """Wait until a condition holds; return False if it does not hold in time."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True


async def _ask_all(files: list[Path]) -> list[Status]:
    return list(await asyncio.gather(*(status_of(file) for file in files)))


async def status_of(file: Path) -> Status:
    """Ask a party on this machine for its status; empty if it does not answer soon."""
    try:
        journal = file.resolve().parent / PartyFile.make(file=file).journal
        status: Status = await asyncio.wait_for(operate.ask(journal, "status"), 2)
    except (PosseError, TimeoutError):
        return {}
    return status
