"""As a process: exit codes, Ctrl-C, closed pipes, a full disk, a fast start."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from posse.cli.app import CLOSED
from posse.cli.flags import INTERRUPTED
from posse.results import Store
from posse.version import __version__
from tests import forks
from tests.kit.commands import SECONDS, SMALL, Call

Start = Callable[..., "subprocess.Popen[str]"]


def test_version_and_help(process: Start) -> None:
    out, err = process("--version").communicate(timeout=SECONDS)
    assert (out, err) == (f"posse {__version__}\n", "")
    started = process()
    assert "Between organisations:" in started.communicate(timeout=SECONDS)[0]
    assert started.returncode == 0


def test_a_mistake_exits_with_2_and_one_line(process: Start) -> None:
    started = process("run", "samba", "--owners", "1")
    out, err = started.communicate(timeout=SECONDS)
    assert (started.returncode, out) == (2, "")
    assert err.startswith("error: [P100] owners must be at least 2, got 1. Ask for 2 or more.")
    assert err.endswith(" (rule: problems.owners.below-two; see docs/errors/P100.md)\n")


def test_what_forks_for_tests_outlives_any_one_that_asks(process: Start) -> None:
    def version() -> None:
        assert process("--version").communicate(timeout=SECONDS)[0] == f"posse {__version__}\n"

    version()
    place = os.environ.get(forks.PLACE)
    if not place:
        pytest.skip("processes begin in the usual way here")
    asked = json.dumps(
        {"words": ["--version"], "folder": ".", "environment": {}, "session": False}
    ).encode()
    for sent in (b"", b"\0", forks.NUMBER.pack(100) + b"{", forks.NUMBER.pack(2) + b"{{"):
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(place)
            line.sendall(sent)
    with socket.socket(socket.AF_UNIX) as line, open(os.devnull, "r+b") as null:
        line.connect(place)
        socket.send_fds(line, [forks.NUMBER.pack(len(asked))], [null.fileno()] * 3)
        line.sendall(asked)  # and gone before the answer
    version()


def test_a_fork_computes_on_as_many_threads_as_it_is_told(
    process: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("own.py").write_text(
        "import numba, threadpoolctl\n"
        "blas = [one['num_threads'] for one in threadpoolctl.threadpool_info()]\n"
        "raise ValueError(f'{numba.config.NUMBA_NUM_THREADS} thread of {max(blas)}')\n"
    )
    process("--version").communicate(
        timeout=SECONDS
    )  # what forks has begun, without these variables
    for name in forks.THREADS:
        monkeypatch.setenv(name, "1")
    assert (
        "1 thread of 1"
        in process("policies", "--check", "own.py:Mine").communicate(timeout=SECONDS)[1]
    )


def test_json_alone_on_stdout(process: Start) -> None:
    started = process("run", "--plain", *SMALL, "--runs", "2", "--json")
    assert json.loads(started.communicate(timeout=SECONDS)[0])["records"][0]["runs"] == 2
    assert started.returncode == 0


def test_a_closed_pipe_is_quiet(process: Start) -> None:
    started = process("problems", "show", "embedded:jester", "--owners", "100")
    assert started.stdout is not None
    assert started.stderr is not None
    started.stdout.close()
    assert started.stderr.read() == ""
    assert started.wait(SECONDS) == CLOSED
    started.stderr.close()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_behind_stdout(process: Start) -> None:
    with open("/dev/full", "w") as full:
        started = process("problems", "show", "embedded:jester", stdout=full)
        _, err = started.communicate(timeout=SECONDS)
    assert started.returncode == 2
    assert (
        err
        == "error: cannot write the output: No space left on device. Free some space, or write elsewhere.\n"
    )


def test_ctrl_c_keeps_what_was_done(process: Start) -> None:
    started = process(
        "run",
        "samba",
        "--owners",
        "3",
        "--budget",
        "5000000",
        "--paillier-bits",
        "2048",
    )
    assert started.stderr is not None
    while " %" not in (line := started.stderr.readline()):
        assert line, "ended before it was interrupted"
    started.send_signal(signal.SIGINT)
    out, err = started.communicate(timeout=SECONDS)
    assert (started.returncode, out) == (INTERRUPTED, "")
    record = Store().get("last")
    assert f"saved as {record.id}" in err
    assert "Traceback" not in err
    assert record.status == "interrupted"
    assert 0 < record.pulls.sum() < 5_000_000


def test_a_bug_keeps_its_traceback(posse: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(Store, "list", broken)
    with pytest.raises(ZeroDivisionError):
        posse("runs", "list")


def test_starting_needs_no_compiler() -> None:
    code = (
        "import sys; from posse.cli.app import command\n"
        "for args in (['--help'], ['--version'], ['--wrong'], ['runs', '--help'], ['wrong']):\n"
        "    try: command().main(args)\n"
        "    except SystemExit: print(args, 'numba' in sys.modules, 'jax' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=SECONDS
    )
    loaded = re.findall(r"^\[.*\] (True|False) (True|False)$", done.stdout, re.MULTILINE)
    assert loaded == [("False", "False")] * 5


def test_a_closed_pipe_loses_no_run(process: Start) -> None:
    started = process("run", "--plain", *SMALL, "--runs", "2")
    assert started.stdout is not None
    assert started.stderr is not None
    started.stdout.close()
    assert "Traceback" not in started.stderr.read()
    assert started.wait(SECONDS) == CLOSED
    started.stderr.close()
    assert Store().get("last").runs == 2


def test_ctrl_c_in_a_simulation_keeps_what_all_runs_did(process: Start) -> None:
    started = process(
        "run",
        "--plain",
        "--budget",
        "1000000",
        "--runs",
        "5000",
    )
    assert started.stderr is not None
    while " %" not in (line := started.stderr.readline()):
        assert line, "ended before it was interrupted"
    started.send_signal(signal.SIGINT)
    _, err = started.communicate(timeout=SECONDS)
    assert started.returncode == INTERRUPTED
    record = Store().get("last")
    assert f"saved as {record.id}" in err
    assert record.status == "interrupted"
    (steps,) = set(record.pulls.sum(axis=1).tolist())  # they go side by side
    assert 0 < steps < 1_000_000


def test_a_terminal_without_unicode(process: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    started = process("run", "--plain", *SMALL, "--runs", "3", "--no-save")
    out, err = started.communicate(timeout=SECONDS)
    assert started.returncode == 0, err
    assert "reward per step" in out
