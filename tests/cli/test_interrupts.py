"""Ctrl-C at any moment, in real processes: it ends soon, says what was kept, and shows no
traceback.
"""

from __future__ import annotations

import os
import pty
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from posse.cli.flags import INTERRUPTED
from posse.cli.keep import Keeper
from posse.core import interrupts
from posse.policies import UCB
from posse.problems import BernoulliArms
from posse.results import Store
from posse.systems import registry
from posse.systems.samba.twin import simulate
from tests.kit.commands import SECONDS, SMALL, Call

Start = Callable[..., "subprocess.Popen[str]"]

LONG = {
    "plain samba": (
        "run",
        "samba",
        "--plain",
        "--policy",
        "thompson",
        "--owners",
        "40",
        "--budget",
        "500000",
        "--runs",
        "400",
    ),
    "strict samba": ("run", "samba", "--owners", "4", "--budget", "5000000", "--no-beside"),
    "a market": ("run", "dp-combinatorial", "--plain", "--horizon", "5000000"),
    "shared contexts": (
        "run",
        "mpc-contextual",
        "--data",
        "digits",
        "--horizon",
        "1000000",
        "--no-beside",
    ),
}


@pytest.mark.parametrize(
    "name", [*LONG][:2] + [pytest.param(name, marks=pytest.mark.long) for name in [*LONG][2:]]
)
def test_ctrl_c_at_a_random_moment_keeps_what_was_done(name: str, process: Start) -> None:
    started = process(*LONG[name])
    assert started.stderr is not None
    said = ""
    for _ in range(random.choice((1, 2))):  # lines with a percentage, some seconds apart
        while " %" not in (line := started.stderr.readline()):
            assert line, f"ended before it was interrupted: {said}"
            said += line
        said += line
    started.send_signal(signal.SIGINT)
    said += started.communicate(timeout=SECONDS)[1]
    assert started.returncode == INTERRUPTED
    assert "Traceback" not in said
    assert "left" in said  # an estimate of the time stood beside the percentage
    record = Store().get("last")
    assert f"saved as {record.id}" in said
    assert record.status == "interrupted"
    assert 0 < record.steps_done < record.steps_planned


def test_work_is_cut_into_pieces_of_half_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(interrupts.time, "monotonic", lambda: clock[0])
    made: Iterator[int] = interrupts.half_second_steps(6400)
    sizes = []
    for _ in range(12):
        sizes.append(next(made))
        clock[0] += sizes[-1] * 0.001  # a millisecond a step
    assert sizes[0] == 400
    assert set(sizes[1:]) <= {400, 200}
    made = interrupts.half_second_steps(6400)
    fast = [next(made) for _ in range(8)]
    assert fast == [400, 800, 1600, 3200, 6400, 6400, 6400, 6400]


def test_how_work_is_cut_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    arms = BernoulliArms([0.4, 0.5, 0.6])
    whole = simulate(arms, UCB(), 700, [1, 2], keep_arms=True)
    monkeypatch.setattr(
        "posse.systems.samba.twin.half_second_steps", lambda most: iter([1, 5, 300, 20, 1000])
    )
    cut = simulate(arms, UCB(), 700, [1, 2], keep_arms=True)
    for name in ("steps", "reward", "regret", "units", "pulls", "arms"):
        assert (getattr(whole, name) == getattr(cut, name)).all()


STUCK = """
import sys, time
from posse.core.interrupts import defer_interrupt, save_on_interrupt, enforce_interrupts

def stuck(seconds):  # as a compiler's work is
    deadline = time.monotonic() + seconds
    with defer_interrupt():
        print("ready", flush=True)
        while time.monotonic() < deadline:
            time.sleep(0.05)

with enforce_interrupts():
    if sys.argv[1] == "kept":
        with save_on_interrupt(lambda: "what was done is saved"), save_on_interrupt(lambda: 1 / 0):
            stuck(3600)
    elif sys.argv[1] == "torn":  # what a step leaves half done is not kept, so it is waited for
        with save_on_interrupt(lambda: "torn", lambda: False):
            stuck(4)
    stuck(3600)
"""


@pytest.mark.parametrize("kind", ["nothing", "terminal", "kept", "torn"])
def test_work_that_does_not_look_up_ends_soon_and_never_loses_what_was_done(kind: str) -> None:
    screen, end = pty.openpty()
    started = subprocess.Popen(
        [sys.executable, "-c", STUCK, kind],
        stdout=subprocess.PIPE,
        text=True,
        stderr=end if kind == "terminal" else subprocess.PIPE,
    )
    assert started.stdout is not None
    assert started.stdout.readline() == "ready\n"
    said = ended(started)
    os.close(end)
    if kind == "terminal":  # what hid the cursor cannot show it again
        assert os.read(screen, 1000) == b"\r\x1b[?25hinterrupted; nothing was saved.\r\n"
    os.close(screen)
    if kind == "torn":  # kept back to the end of the block, and raised then
        assert "KeyboardInterrupt" in said
        return
    assert started.returncode == INTERRUPTED
    if kind != "terminal":
        assert (
            said
            == f"interrupted; {'what was done is' if kind == 'kept' else 'nothing was'} saved.\n"
        )


def ended(started: subprocess.Popen[str], said: str = "") -> str:
    """Press Ctrl-C, wait until the process has ended by itself, print how long that took, and give
    what it said.
    """
    began = time.monotonic()
    started.send_signal(signal.SIGINT)
    said += started.communicate(timeout=SECONDS)[1] or ""
    print(f"ended {time.monotonic() - began:.2f} s after Ctrl-C: {said}")
    assert "Traceback" not in said or "posse" not in str(started.args[1])  # type: ignore[index]
    return said


def shown(started: subprocess.Popen[str], state: str) -> str:
    """Wait until a process has said that it is in a state."""
    assert started.stderr is not None
    said = ""
    while state not in said:
        line = started.stderr.readline()
        assert line, f"ended before it was interrupted: {said}"
        said += line
    return said


def test_ctrl_c_while_a_report_is_drawn_says_what_is_saved(
    posse: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def draw(self: Keeper, records: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Keeper, "draw", draw)
    outcome = posse("run", "samba", *SMALL)
    rows = Store().list()
    assert (outcome.code, {row.status for row in rows}) == (INTERRUPTED, {"finished"})
    said = outcome.err.splitlines()[-1]
    assert said.startswith("interrupted; what was done is saved as ")
    assert all(row.id in said for row in rows)


def test_what_was_finished_is_kept_when_ctrl_c_comes_while_the_next_is_prepared(
    posse: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, calls = registry.start, [0]

    def start(settings: Any, **options: Any) -> Any:
        calls[0] += 1
        if calls[0] % 2 == 0:
            raise KeyboardInterrupt
        return whole(settings, **options)

    monkeypatch.setattr(registry, "start", start)
    two = ("--runs", "2", "--policy", "ucb", "--policy", "thompson")
    for words in (
        ("run", "samba", *SMALL, "--beside"),
        ("compare", *SMALL, *two),
        ("demo", "--horizon", "60"),
    ):
        outcome = posse(*words)
        assert outcome.code == INTERRUPTED
        (row,) = Store().list()
        assert row.status == "finished"
        assert outcome.err.endswith(
            f"interrupted.\nwhat was finished before is saved as {row.id}.\n"
        )
        Store().delete(row.id)


LONGER = ("--owners", "40", "--runs", "400", "--path", "plain")
PHASES = {
    "compiling": (
        ("run", "fed-contextual", "--horizon", "100000"),
        "jit(_rounds)",
        "there is nothing of it to save",
    ),
    "a sweep": (
        ("sweep", *LONGER, "--over", "horizon=40,500000", "--workers", "2"),
        "1 of 2",
        "1 of 2 settings are",
    ),
    "a demo": (("demo", "--horizon", "400000"), "2. ", "what was finished before is saved as"),
}


@pytest.mark.parametrize("name", PHASES)
def test_ctrl_c_ends_it_in_every_phase(
    name: str, process: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    words, state, kept = PHASES[name]
    monkeypatch.setenv("JAX_LOG_COMPILES", "1")  # says when compiling begins
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "")  # and nothing is taken from another run
    started = process(*words, start_new_session=True)
    said = ended(started, shown(started, state))
    assert started.returncode == INTERRUPTED
    assert kept in said
    rows = Store().list()
    if name in ("a sweep", "a demo"):
        assert "finished" in [row.status for row in rows]
    assert not [row for row in rows if row.status in ("running", "lost")]
    deadline = time.monotonic() + SECONDS
    while (left := _session(started.pid)) and time.monotonic() < deadline:
        time.sleep(0.05)  # processes that it began are on their way out
    assert not left


def _session(number: int) -> list[str]:
    """Processes of a session that go on."""
    found = []
    for place in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            fields = (place / "stat").read_text().rpartition(")")[2].split()
            if place.name.isdigit() and int(fields[3]) == number and fields[0] not in "ZX":
                found.append(place.name)
    return found
