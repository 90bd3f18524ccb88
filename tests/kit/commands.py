"""Calls of the command line in this process, and what every call must keep to."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

from typer.testing import CliRunner

from posse.cli.app import app

Call = Callable[..., "Outcome"]

SECONDS = 240
"""No wait is longer; on a quiet machine none takes five."""

SMALL = ("--owners", "3", "--budget", "60", "--paillier-bits", "2048")


@cache
def help_text(*command: str) -> str:
    """The whole help of a command on a wide terminal; many tests look for a line of it."""
    return str(CliRunner(env={"COLUMNS": "200"}).invoke(app, [*command, "--help", "--all"]).stdout)


class Outcome:
    """What a call gave."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err


def call(*args: str, **env: str) -> Outcome:
    """Call the command line in this process."""
    result = CliRunner(env=env).invoke(app, list(args))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Outcome(result.exit_code, result.stdout, result.stderr)


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


Start = Callable[..., subprocess.Popen[str]]


@contextmanager
def stopped(running: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    """Stop it, and with it what it started, whatever a test did."""
    try:
        yield running
    finally:
        if running.poll() is None:
            running.terminate()
        try:
            running.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            running.kill()
            running.communicate()


def last_line(text: str) -> str:
    return text.splitlines()[-1]
