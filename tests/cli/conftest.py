"""What the tests of the command line share: a store of their own, and two ways to call it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit.commands import SECONDS, Call, call


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store in a fresh folder; the user's own is never touched."""
    for name in ("POSSE_DATA", "COLUMNS", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    home = tmp_path / "home"
    monkeypatch.setenv("POSSE_HOME", str(home))
    monkeypatch.chdir(tmp_path)
    return home


@pytest.fixture
def posse() -> Call:
    """The command line, called in this process."""
    return call


@pytest.fixture
def process(home: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start the command line as a process of its own, for some minutes; what a test leaves running
    is stopped.
    """
    begun: list[subprocess.Popen[str]] = []
    ends: list[threading.Timer] = []

    def start(*args: str, **options: Any) -> subprocess.Popen[str]:
        environment = {**os.environ, "POSSE_HOME": str(home)}
        pipes: dict[str, Any] = {
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "stdin": subprocess.DEVNULL,
            **options,
        }
        begun.append(
            subprocess.Popen(
                [sys.executable, "-m", "posse", *args], text=True, env=environment, **pipes
            )
        )
        ends.append(
            threading.Timer(SECONDS, begun[-1].kill)
        )  # whoever reads its lines then reads their end
        ends[-1].start()
        return begun[-1]

    yield start
    for end in ends:
        end.cancel()
    for one in begun:
        if one.poll() is None:
            one.kill()
            one.communicate()
