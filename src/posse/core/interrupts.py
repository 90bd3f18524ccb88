"""Signals kept back while something must not be cut in the middle: a compiler's work, or the
stopping of others.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import ClassVar, TypeVar

R = TypeVar("R")

PATIENCE = 1.0
"""Seconds that `soon` waits for the interrupt to be raised."""
LAST = 20.0
"""Seconds that keeping what was done may take: what it waits for may be held by the thread that
does not look up.
"""
LOOK = 0.5
"""Seconds of work, at most, between two looks at Ctrl-C and at progress, where work can be cut so
small.
"""


def pieces(most: int, least: int = 1) -> Iterator[int]:
    """Say how many steps to take next: from a sixteenth of `most` on, as many as take about half a
    second.

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


class _Ending:
    """Who ends the process after Ctrl-C: the main thread, or the one that watches it."""

    lock = threading.RLock()  # a second signal may come while the first one is handled
    watched = raised = taken = False
    kept: ClassVar[list[tuple[Callable[[], bool], Callable[[], str]]]] = []


@contextmanager
def soon() -> Iterator[None]:
    """End the process soon after Ctrl-C, for commands: compilers and readers of large files do not
    look up.

    A thread waits for the signal, whatever the main one is doing. Where the interrupt is not raised
    within `PATIENCE` seconds, this thread keeps what was done (`keeping`) and ends the process with
    the exit code of Ctrl-C.
    """
    default = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not default or threading.current_thread() is not threading.main_thread():
        yield
        return
    over = threading.Event()
    read, write = os.pipe()
    os.set_blocking(write, False)
    before = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    signal.signal(signal.SIGINT, _raised)
    _Ending.watched, _Ending.raised, _Ending.taken = True, False, False

    def watch() -> None:
        while came := os.read(read, 1):
            handler = signal.getsignal(signal.SIGINT)
            if came[0] != signal.SIGINT or not (handler is _raised or isinstance(handler, _Note)):
                continue  # a handler of another closes what it began
            wait = PATIENCE
            while not over.wait(wait) and not _Ending.raised:
                if all(may() for may, _ in _Ending.kept) and _take():
                    _end(
                        b"\r\x1b[?25h" if os.isatty(2) else b""
                    )  # a bar of progress hides the cursor
                wait = LOOK / 10
        os.close(read)

    threading.Thread(target=watch, daemon=True, name="posse-interrupts").start()
    try:
        yield
    finally:
        over.set()
        _Ending.watched = False
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.set_wakeup_fd(before)
        os.close(write)


@contextmanager
def keeping(keep: Callable[[], str], may: Callable[[], bool] = lambda: True) -> Iterator[None]:
    """Say how to keep what this block has done, where `soon` ends the process; `keep` returns what
    to tell the user.

    It is called in another thread while the main one does not look up, once `may` says that what
    was done is whole.
    """
    _Ending.kept.append((may, keep))
    try:
        yield
    finally:
        _Ending.kept.pop()


def _take() -> bool:
    with _Ending.lock:
        _Ending.taken = not _Ending.raised
    return _Ending.taken


def _end(before: bytes) -> None:
    """Keep what was done, end the processes that this one began, and leave; whatever fails or
    hangs, leave.
    """
    late = threading.Timer(LAST, os._exit, (128 + signal.SIGINT,))
    late.daemon = True
    late.start()
    said = []
    for _, keep in reversed(_Ending.kept):
        with suppress(Exception):
            said.append(keep())
    told = "; ".join(one for one in said if one) or "nothing was saved"
    with suppress(Exception):
        os.write(2, before + f"interrupted; {told}.\n".encode())
        for process in (
            sys.modules["multiprocessing"].active_children()
            if "multiprocessing" in sys.modules
            else ()
        ):
            process.terminate()
    os._exit(128 + signal.SIGINT)


def _raised(number: int = signal.SIGINT, frame: FrameType | None = None) -> None:
    """Raise the interrupt, unless another thread is ending the process already."""
    with _Ending.lock:
        _Ending.raised = not _Ending.taken
    while _Ending.taken:
        time.sleep(LOOK)
    raise KeyboardInterrupt


@contextmanager
def held() -> Iterator[None]:
    """Keep Ctrl-C back until the block is left, and raise it then.

    A second one ends the process at once, or within `PATIENCE` where `soon` watches. Other threads,
    and processes that handle the signal by themselves, are left as they are.

    >>> with held():
    ...     done = 1
    >>> done
    1
    """
    before = signal.getsignal(signal.SIGINT)
    if before not in _PLAIN or threading.current_thread() is not threading.main_thread():
        yield
        return
    came = _Note()
    signal.signal(signal.SIGINT, came)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came.noted:
        _raised()


class _Note:
    """A handler that keeps one Ctrl-C back."""

    noted = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Note it; a second one ends a process that nobody watches."""
        if self.noted and not _Ending.watched:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
        self.noted = True


_PLAIN = (signal.default_int_handler, _raised)


def aside(work: Callable[[], R]) -> R:
    """Do work in a thread and wait for it, so that Ctrl-C is raised at once; the work goes on, its
    result is dropped.

    For compilers, which must not be cut in the middle and change nothing but their own memory.

    >>> aside(lambda: 1 + 1)
    2
    """
    if (
        signal.getsignal(signal.SIGINT) not in _PLAIN
        or threading.current_thread() is not threading.main_thread()
    ):
        return work()
    from concurrent.futures import Future

    done: Future[R] = Future()

    def begin() -> None:
        try:
            done.set_result(work())
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=begin, daemon=True, name="posse-aside").start()
    return done.result()


def never_lost() -> None:
    """Send a Ctrl-C again that came where Python drops exceptions: in a callback of the garbage
    collector, say.
    """
    before = sys.unraisablehook

    def dropped(one: sys.UnraisableHookArgs) -> None:
        if not issubclass(one.exc_type, KeyboardInterrupt):
            before(one)
            return
        _Ending.raised = False
        again = threading.Timer(
            0.02, os.kill, (os.getpid(), signal.SIGINT)
        )  # when the callback is over
        again.daemon = True
        again.start()

    sys.unraisablehook = dropped


@contextmanager
def noted(note: Callable[[int], object], stop: Callable[[], object]) -> Iterator[None]:
    """Call `note` with the number of a signal that would end the process, and `stop` at the end,
    which none interrupts.

    Threads other than the main one have no handlers of signals.
    """
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    main = threading.current_thread() is threading.main_thread()
    before = (
        {number: signal.signal(number, lambda came, _: note(came)) for number in numbers}
        if main
        else {}
    )
    try:
        yield
    finally:
        for number in before:
            signal.signal(number, signal.SIG_IGN)
        stop()
        for number, handler in before.items():
            signal.signal(number, handler)
