"""What the tests of the command line share: a store of their own, and two ways to call it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from posse.cli.app import app

Call = Callable[..., "Outcome"]
SECONDS = 240
"""No wait is longer; on a quiet machine none takes five."""
SMALL = ("--owners", "3", "--budget", "60", "--paillier-bits", "2048")


@cache
def help_text(*command: str) -> str:
    """The help of a command on a wide terminal; many tests look for a line of it."""
    return str(CliRunner(env={"COLUMNS": "200"}).invoke(app, [*command, "--help"]).stdout)


class Outcome:
    """What a call gave."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err


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
    """Call the command line in this process."""

    def call(*args: str, **env: str) -> Outcome:
        result = CliRunner(env=env).invoke(app, list(args))
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Outcome(result.exit_code, result.stdout, result.stderr)

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


def one_line(outcome: Outcome) -> str:
    """The one line of a refusal: exit code 2, nothing on stdout, no traceback; progress may be told
    before it.
    """
    assert outcome.code == 2, outcome.err
    assert outcome.out == ""
    *before, line = outcome.err.splitlines()
    assert all(re.search(r" \.\.\. \(\d+ s\)$| left$", one) for one in before), outcome.err
    assert line.startswith("error: ")
    return line
