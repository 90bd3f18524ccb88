"""Signals kept back while something must not be cut in the middle: a compiler's work, or the stopping of others."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

PATIENCE = 1.5
"""Seconds that `soon` waits for work to end by itself."""
LOOK = 0.5
"""Seconds of work, at most, between two looks at Ctrl-C and at progress, where work can be cut so small."""


def pieces(most: int, least: int = 1) -> Iterator[int]:
    """Say how many steps to take next: from a sixteenth of `most` on, as many as take about half a second.

    How work is cut depends on the machine's clock, and what it gives must not.

    >>> next(pieces(1600)), next(pieces(1600, least=400))
    (100, 400)
    """
    steps = max(least, most // 16)
    while True:
        began = time.monotonic()
        yield steps
        took = time.monotonic() - began
        if took < LOOK / 2:
            steps = max(least, min(most, 2 * steps))
        elif took > LOOK:
            steps = max(least, steps // 2)


@contextmanager
def soon() -> Iterator[Callable[[], None]]:
    """End the process soon after Ctrl-C where the block is not left by then: compilers and readers may not look up.

    For commands, and for work of which nothing is worth keeping yet; calling what it gives says that now something is.
    A thread waits for the signal, whatever the main one is doing.
    """
    quiet = signal.getsignal(signal.SIGINT) in (signal.SIG_IGN, signal.SIG_DFL, None)
    if quiet or threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    over = threading.Event()
    read, write = os.pipe()
    os.set_blocking(write, False)
    before = signal.set_wakeup_fd(write, warn_on_full_buffer=False)

    def watch() -> None:
        while came := os.read(read, 1):
            if came[0] == signal.SIGINT and not over.wait(PATIENCE):
                shown = b"\r\x1b[?25h" if os.isatty(2) else b""  # a bar of progress hides the cursor
                os.write(2, shown + b"interrupted; nothing was saved.\n")
                os._exit(128 + signal.SIGINT)
        os.close(read)

    threading.Thread(target=watch, daemon=True, name="posse-interrupts").start()
    try:
        yield over.set
    finally:
        over.set()
        signal.set_wakeup_fd(before)
        os.close(write)


@contextmanager
def held() -> Iterator[None]:
    """Keep Ctrl-C back until the block is left, and raise it then; a second one ends the process at once.

    Other threads, and processes that handle the signal by themselves, are left as they are.

    >>> with held():
    ...     done = 1
    >>> done
    1
    """
    ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not ours or threading.current_thread() is not threading.main_thread():
        yield
        return
    came = threading.Event()

    def note(number: int, frame: FrameType | None) -> None:
        if came.is_set():
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
        came.set()

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if came.is_set():
        raise KeyboardInterrupt


def never_lost() -> None:
    """Send a Ctrl-C again that came where Python drops exceptions: in a callback of the garbage collector, say."""
    before = sys.unraisablehook

    def dropped(one: sys.UnraisableHookArgs) -> None:
        if not issubclass(one.exc_type, KeyboardInterrupt):
            before(one)
            return
        again = threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGINT))  # when the callback is over
        again.daemon = True
        again.start()

    sys.unraisablehook = dropped


@contextmanager
def noted(note: Callable[[int], object], stop: Callable[[], object]) -> Iterator[None]:
    """Call `note` with the number of a signal that would end the process, and `stop` at the end, which none interrupts.

    Threads other than the main one have no handlers of signals.
    """
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    main = threading.current_thread() is threading.main_thread()
    before = {number: signal.signal(number, lambda came, _: note(came)) for number in numbers} if main else {}
    try:
        yield
    finally:
        for number in before:
            signal.signal(number, signal.SIG_IGN)
        stop()
        for number, handler in before.items():
            signal.signal(number, handler)
