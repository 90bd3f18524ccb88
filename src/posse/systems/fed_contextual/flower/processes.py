"""Processes that are started here and stopped here: by their ids, and those that they started in
turn.

Flower's programs start others, in sessions of their own. All inherit a mark in their environment,
by which they are found again; where there is no /proc, by following parents.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from posse.core.check import install_command
from posse.core.errors import MissingExtraError

MARK = "POSSE_DEVICES_MARK"
PATIENCE = 6.0
"""Seconds that processes have to end by themselves."""
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}
"""Nothing is reported, looked up or installed."""


@dataclass
class Process:
    """One program that was started, and its log."""

    name: str
    log: Path
    handle: subprocess.Popen[bytes]

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self.handle.poll() is None

    def last_words(self, lines: int = 1) -> str:
        """Return the end of its log."""
        with suppress(OSError):
            found = [
                line for line in self.log.read_text(errors="replace").splitlines() if line.strip()
            ]
            return "\n".join(found[-lines:])
        return ""


@dataclass
class Crew:
    """The programs of one trial; `stop` leaves none of them and nothing that they started."""

    mark: str = field(default_factory=lambda: secrets.token_hex(16))
    processes: list[Process] = field(default_factory=list)

    def environment(self, home: Path, **more: str) -> dict[str, str]:
        """Return what a Flower program is started with: own home, no telemetry, the programs beside
        this Python.
        """
        path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
        # Many processes on one machine: each with one thread, none with the GPU.
        return {
            "JAX_PLATFORMS": "cpu",
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1",
            "OMP_NUM_THREADS": "1",
            "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
            **os.environ,
            **QUIET,
            "FLWR_HOME": str(home),
            "PATH": path,
            MARK: self.mark,
            "PYTHONUNBUFFERED": "1",
            **more,
        }

    def start(
        self, name: str, command: Sequence[str], log: Path, environment: Mapping[str, str]
    ) -> Process:
        """Start a program of Flower's; what it says goes to its log."""
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as stream:
            handle = subprocess.Popen(
                [program(command[0]), *command[1:]],
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                env=dict(environment),
                cwd=log.parent,
                start_new_session=True,
            )
        made = Process(name, log, handle)
        self.processes.append(made)
        return made

    def stop(self, patience: float = PATIENCE) -> None:
        """Stop everything: gracefully, then by force."""
        left = {process.handle.pid for process in self.processes if process.alive} | self.others()
        for number in (signal.SIGTERM, signal.SIGKILL):
            _signal(left, number)
            end = time.monotonic() + patience
            while left and time.monotonic() < end:
                for process in self.processes:
                    process.handle.poll()
                left = {
                    process.handle.pid for process in self.processes if process.alive
                } | self.others()
                if number == signal.SIGKILL:
                    _signal(left, number)
                time.sleep(0.05)
        for process in self.processes:
            with suppress(subprocess.TimeoutExpired):
                process.handle.wait(1)

    def others(self) -> set[int]:
        """Return the ids of processes that carry the mark, other than this one."""
        if Path("/proc/self/environ").exists():
            return _marked(f"{MARK}={self.mark}".encode())
        return _descendants({process.handle.pid for process in self.processes})


def program(name: str) -> str:
    """Return the path of one of Flower's programs: beside this Python, where pip puts it."""
    path = Path(sys.executable).parent / name
    if not path.exists():
        raise MissingExtraError(
            f"{name} is needed here and not installed. Install it with: {install_command('flower')}"
        )
    return str(path)


def _signal(numbers: set[int], what: signal.Signals) -> None:
    for number in numbers:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(number, what)


def _marked(mark: bytes) -> set[int]:
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with suppress(OSError):  # gone meanwhile, or another user's
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.add(int(entry.name))
    return found


def _descendants(roots: set[int]) -> set[int]:
    listed = subprocess.run(
        ["ps", "-axo", "pid=,ppid="], capture_output=True, text=True, check=False
    ).stdout
    parents = [tuple(map(int, line.split())) for line in listed.splitlines() if line.strip()]
    found = set(roots)
    while more := {child for child, parent in parents if parent in found} - found:
        found |= more
    return found - roots
