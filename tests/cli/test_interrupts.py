"""Ctrl-C at any moment, in real processes: it ends soon, says what was kept, and shows no traceback."""

from __future__ import annotations

import os
import pty
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from posse.cli import systems
from posse.cli.flags import INTERRUPTED
from posse.core import interrupts
from posse.policies import UCB
from posse.problems import BernoulliArms
from posse.protocols import registry
from posse.protocols.samba.twin import simulate
from posse.results import Store
from tests.cli.conftest import SECONDS, SMALL, Call

Start = Callable[..., "subprocess.Popen[str]"]

LONG = {
    "plain samba": (
        "simulate",
        "samba",
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
    "a market": ("simulate", "dp-combinatorial", "--horizon", "5000000"),
    "shared contexts": ("run", "mpc-contextual", "--data", "digits", "--horizon", "1000000", "--no-beside"),
}


@pytest.mark.parametrize("name", [*LONG][:2] + [pytest.param(name, marks=pytest.mark.long) for name in [*LONG][2:]])
def test_ctrl_c_at_a_random_moment_keeps_what_was_done(name: str, process: Start) -> None:
    started = process(*LONG[name], preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
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
    made: Iterator[int] = interrupts.pieces(6400)
    sizes = []
    for _ in range(12):
        sizes.append(next(made))
        clock[0] += sizes[-1] * 0.001  # a millisecond a step
    assert sizes[0] == 400
    assert set(sizes[1:]) <= {400, 200}
    made = interrupts.pieces(6400)
    fast = [next(made) for _ in range(8)]
    assert fast == [400, 800, 1600, 3200, 6400, 6400, 6400, 6400]


def test_how_work_is_cut_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    arms = BernoulliArms([0.4, 0.5, 0.6])
    whole = simulate(arms, UCB(), 700, [1, 2], keep_arms=True)
    monkeypatch.setattr("posse.protocols.samba.twin.pieces", lambda most: iter([1, 5, 300, 20, 1000]))
    cut = simulate(arms, UCB(), 700, [1, 2], keep_arms=True)
    for name in ("steps", "reward", "regret", "units", "pulls", "arms"):
        assert (getattr(whole, name) == getattr(cut, name)).all()


STUCK = """
import sys, time
from posse.core.interrupts import held, soon
with soon() as something_done:
    if sys.argv[1] == "kept":
        something_done()
    with held():  # as a compiler's work is
        print("ready", flush=True)
        deadline = time.monotonic() + float(sys.argv[2])
        while time.monotonic() < deadline:
            time.sleep(0.05)
print("ended by itself", flush=True)
"""


def test_what_was_finished_is_kept_when_ctrl_c_comes_while_the_next_is_prepared(
    posse: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, may_exit = registry.start, [False]

    @contextmanager
    def soon() -> Iterator[Callable[[], None]]:
        may_exit[0] = True
        yield lambda: may_exit.__setitem__(0, False)
        may_exit[0] = False

    def start(settings: Any, **options: Any) -> Any:
        if not may_exit[0]:
            raise KeyboardInterrupt
        return whole(settings, **options)

    monkeypatch.setattr(systems, "soon", soon)
    monkeypatch.setattr(registry, "start", start)
    two = ("--runs", "2", "--policy", "ucb", "--policy", "thompson")
    for words in (("run", "samba", *SMALL, "--beside"), ("compare", *SMALL, *two)):
        outcome = posse(*words)
        assert outcome.code == INTERRUPTED
        (row,) = Store().list()
        assert row.status == "finished"
        assert outcome.err.endswith(f"interrupted.\nwhat was finished before is saved as {row.id}.\n")
        Store().delete(row.id)


@pytest.mark.parametrize(("kind", "seconds"), [("nothing", "3600"), ("terminal", "3600"), ("kept", "4")])
def test_work_that_does_not_look_up_ends_soon_and_never_loses_what_was_done(kind: str, seconds: str) -> None:
    screen, end = pty.openpty()
    started = subprocess.Popen(
        [sys.executable, "-c", STUCK, kind, seconds], stdout=subprocess.PIPE, text=True,
        stderr=end if kind == "terminal" else subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    assert started.stdout is not None
    assert started.stdout.readline() == "ready\n"
    started.send_signal(signal.SIGINT)
    _, said = started.communicate(timeout=SECONDS)
    os.close(end)
    if kind == "terminal":  # what hid the cursor cannot show it again
        assert os.read(screen, 1000) == b"\r\x1b[?25hinterrupted; nothing was saved.\r\n"
    os.close(screen)
    if kind == "terminal":
        assert started.returncode == INTERRUPTED
    elif kind == "nothing":
        assert (started.returncode, said) == (INTERRUPTED, "interrupted; nothing was saved.\n")
    else:  # kept back to the end of the block, and raised then
        assert "KeyboardInterrupt" in said


def test_ctrl_c_while_it_prepares_ends_it(process: Start) -> None:
    default = signal.SIG_DFL
    started = process("run", "fed-contextual", "--horizon", "100000", preexec_fn=lambda: signal.signal(2, default))
    assert started.stderr is not None
    line = started.stderr.readline()  # compiling takes seconds, and says so from the third one on
    started.send_signal(signal.SIGINT)
    said = line + started.communicate(timeout=SECONDS)[1]
    assert started.returncode == INTERRUPTED
    assert "interrupted" in said
    assert "Traceback" not in said
