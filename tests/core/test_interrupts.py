"""Ctrl-C is kept back, not lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from posse.core.interrupts import defer_interrupt


def test_raised_after_the_block() -> None:
    before, done = signal.getsignal(signal.SIGINT), False

    def work() -> None:
        nonlocal done
        with defer_interrupt():
            os.kill(os.getpid(), signal.SIGINT)
            done = True

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done
    assert signal.getsignal(signal.SIGINT) is before


def test_an_error_of_the_block_goes_first() -> None:
    def work() -> None:
        with defer_interrupt():
            os.kill(os.getpid(), signal.SIGINT)
            raise ValueError("own")

    with pytest.raises(ValueError, match="own"):
        work()


def test_a_second_one_ends_the_process() -> None:
    text = (
        "import os, signal\nfrom posse.core.interrupts import defer_interrupt\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "with defer_interrupt():\n    os.kill(os.getpid(), 2)\n    os.kill(os.getpid(), 2)\n    print('went "
        "on', flush=True)\n"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGINT
    assert not done.stdout


def test_a_handler_of_another_is_left() -> None:
    seen = []
    before = signal.signal(signal.SIGINT, lambda *_: seen.append(1))
    try:
        with defer_interrupt():
            os.kill(os.getpid(), signal.SIGINT)
            assert seen == [1]
    finally:
        signal.signal(signal.SIGINT, before)


DROPPED = """
import gc, signal, time
from posse.core.interrupts import resend_lost_interrupts

resend_lost_interrupts()
came = []

def callback(phase, info):
    if not came:
        came.append(1)
        signal.raise_signal(signal.SIGINT)
        for _ in range(1000):  # here the handler raises, and Python drops it
            pass

gc.callbacks.append(callback)
try:
    gc.collect()
    time.sleep(60)
except KeyboardInterrupt:
    print("interrupted", len(came))
"""


def test_one_that_came_in_a_callback_is_sent_again() -> None:
    done = subprocess.run(
        [sys.executable, "-c", DROPPED], capture_output=True, text=True, timeout=240
    )
    assert (done.stdout, done.stderr, done.returncode) == ("interrupted 1\n", "", 0)


HANGS = """
import hashlib, os, signal, threading
from posse.core import interrupts

interrupts.PATIENCE = interrupts.MAX_SAVING = 0.2
signal.signal(signal.SIGINT, signal.default_int_handler)
lock = threading.Lock()

def keep():
    with lock:
        return "kept"

with interrupts.enforce_interrupts(), interrupts.save_on_interrupt(keep), lock:
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
    hashlib.pbkdf2_hmac("sha256", b"", b"", 4_000_000)  # does not look up, and holds what `keep` waits for
    print("went on")
"""


def test_a_keeper_that_waits_for_the_main_thread_does_not_hang_the_process() -> None:
    done = subprocess.run(
        [sys.executable, "-c", HANGS], capture_output=True, text=True, timeout=240
    )
    assert (done.returncode, done.stdout) == (128 + signal.SIGINT, "")


CAUGHT = """
import hashlib, os, signal, sys, threading, time
from posse.core import interrupts

interrupts.PATIENCE = 0.2
signal.signal(signal.SIGINT, signal.default_int_handler)

with interrupts.enforce_interrupts(), interrupts.save_on_interrupt(lambda: "kept"):
    try:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(60)
    except KeyboardInterrupt:
        print("caught", flush=True)
    time.sleep(float(sys.argv[1]))
    if sys.argv[2] == "again":
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
        hashlib.pbkdf2_hmac("sha256", b"", b"", 4_000_000)  # checks for no signal
    print("not ended", flush=True)
"""


@pytest.mark.parametrize("seconds", [0.0, 0.5])
def test_a_second_one_after_a_caught_one_ends_a_busy_process(seconds: float) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CAUGHT, str(seconds), "again"],
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert (done.returncode, done.stdout) == (128 + signal.SIGINT, "caught\n")
    assert done.stderr == "interrupted; kept.\n"


def test_a_caught_one_does_not_end_the_process_later() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CAUGHT, "1", "once"], capture_output=True, text=True, timeout=240
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "caught\nnot ended\n", "")
