"""Ctrl-C: deferred while something must not be cut off, and never without an effect for long.

Compilers and readers of large files can run for many seconds without a look at signals. So a
command has a second thread that waits for Ctrl-C (`end_on_interrupt`). If the main thread has
not raised `KeyboardInterrupt` after a second, the other thread saves what was done and ends the
process.

The opposite, the work in a thread and the main thread waiting, does not keep these guarantees: a
thread cannot be interrupted while it waits for a lock, a socket, a child process or `sleep`, while
in the main thread a signal ends each of these at once.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from types import FrameType
from typing import ClassVar, TypeVar

R = TypeVar("R")

PATIENCE = 1.0
"""Seconds that `end_on_interrupt` waits for the main thread to raise the interrupt."""
LAST = 20.0
"""Seconds that saving may take: what it waits for may be held by the main thread."""
LOOK = 0.5
"""Seconds of work between two looks at Ctrl-C and at progress, if the work can be cut so small."""
_EXIT_CODE = 128 + signal.SIGINT
_SHOW_CURSOR = b"\r\x1b[?25h"
"""For a terminal: a progress bar hides the cursor."""


def half_second_steps(most: int, least: int = 1) -> Iterator[int]:
    """Yield how many steps to make next, so that they take about half a second.

    It starts with a sixteenth of `most`. How work is cut depends on the machine's clock, and its
    result must not.

    >>> next(half_second_steps(1600)), next(half_second_steps(1600, least=400))
    (100, 400)
    """
    steps = max(least, most // 16)
    while True:
        started = time.monotonic()
        yield steps
        seconds = time.monotonic() - started
        if seconds < LOOK / 2:
            steps = max(least, min(most, 2 * steps))
        elif seconds > LOOK:
            steps = max(least, steps // 2)


# Ending a command ---------------------------------------------------------------------------------


class _Ending:
    """Which thread ends the process after Ctrl-C: the main thread, or the one that watches it."""

    lock = threading.RLock()  # a second signal may come while the first one is handled
    watched = False
    raised = False
    """Whether the main thread has raised the interrupt."""
    main_too_late = False
    """Whether the watching thread ends the process."""
    savers: ClassVar[list[tuple[Callable[[], bool], Callable[[], str]]]] = []
    """For every block of `save_on_interrupt`: whether it can be saved now, and how."""


@contextmanager
def end_on_interrupt() -> Iterator[None]:
    """End the process soon after Ctrl-C, for commands.

    A thread waits for the signal. If the main thread does not raise the interrupt within `PATIENCE`
    seconds, this thread saves what was done (`save_on_interrupt`) and ends the process with the exit code of
    Ctrl-C.
    """
    default = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not default or not _in_main_thread():
        yield
        return
    finished = threading.Event()
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    previous = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGINT, _raise_interrupt)
    _Ending.watched = True
    _Ending.raised = False
    _Ending.main_too_late = False
    threading.Thread(
        target=_watch, args=(reader, finished), daemon=True, name="posse-interrupts"
    ).start()
    try:
        yield
    finally:
        finished.set()
        _Ending.watched = False
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.set_wakeup_fd(previous)
        os.close(writer)


def _watch(reader: int, finished: threading.Event) -> None:
    """End the process if the main thread does not, after each Ctrl-C that `reader` receives."""
    while received := os.read(reader, 1):
        if received[0] != signal.SIGINT or not _is_ours(signal.getsignal(signal.SIGINT)):
            continue  # another handler ends what it began
        seconds = PATIENCE
        while not finished.wait(seconds) and not _Ending.raised:
            if _can_save() and _take():
                _end()
            seconds = LOOK / 10
    os.close(reader)


def _is_ours(handler: object) -> bool:
    return handler is _raise_interrupt or isinstance(handler, _Deferred)


def _can_save() -> bool:
    return all(ready() for ready, _ in _Ending.savers)


@contextmanager
def save_on_interrupt(
    keep: Callable[[], str], may: Callable[[], bool] = lambda: True
) -> Iterator[None]:
    """Save what this block has done if `end_on_interrupt` ends the process.

    Args:
        keep: Saves it, in another thread while the main thread computes, and returns what to print.
        may: Whether what was done is consistent at this moment.
    """
    _Ending.savers.append((may, keep))
    try:
        yield
    finally:
        _Ending.savers.pop()


def _take() -> bool:
    """Let the watching thread end the process, unless the main thread has raised the interrupt."""
    with _Ending.lock:
        _Ending.main_too_late = not _Ending.raised
    return _Ending.main_too_late


def _end() -> None:
    """Save what was done, end the child processes, and exit, even if saving fails or hangs."""
    limit = threading.Timer(LAST, os._exit, (_EXIT_CODE,))
    limit.daemon = True
    limit.start()
    reports = []
    for _, save in reversed(_Ending.savers):
        with suppress(Exception):
            reports.append(save())
    report = "; ".join(filter(None, reports)) or "nothing was saved"
    with suppress(Exception):
        line = f"interrupted; {report}.\n".encode()
        os.write(2, _SHOW_CURSOR + line if os.isatty(2) else line)
        if "multiprocessing" in sys.modules:
            for process in sys.modules["multiprocessing"].active_children():
                process.terminate()
    os._exit(_EXIT_CODE)


def _raise_interrupt(number: int = signal.SIGINT, frame: FrameType | None = None) -> None:
    """Raise the interrupt, unless the watching thread is ending the process."""
    with _Ending.lock:
        _Ending.raised = not _Ending.main_too_late
    while _Ending.main_too_late:
        time.sleep(LOOK)
    raise KeyboardInterrupt


# Deferring and forwarding -------------------------------------------------------------------------


@contextmanager
def defer_interrupt() -> Iterator[None]:
    """Defer Ctrl-C until the block ends, and raise it then.

    A second one ends the process at once, or within `PATIENCE` if `end_on_interrupt` watches. Other threads,
    and processes with their own handler of the signal, are not affected.

    >>> with defer_interrupt():
    ...     done = 1
    >>> done
    1
    """
    previous = signal.getsignal(signal.SIGINT)
    if previous not in _RAISING or not _in_main_thread():
        yield
        return
    deferred = _Deferred()
    signal.signal(signal.SIGINT, deferred)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
    if deferred.received:
        _raise_interrupt()


class _Deferred:
    """A handler that defers one Ctrl-C."""

    received = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Remember the first one; the second ends a process that no thread watches."""
        if self.received and not _Ending.watched:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
        self.received = True


_RAISING = (signal.default_int_handler, _raise_interrupt)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def run_interruptibly(work: Callable[[], R]) -> R:
    """Do work in a thread and wait for it, so that Ctrl-C is raised at once.

    After Ctrl-C the work continues and its result is dropped. It is for compilers, which must not
    be cut off and change only their own memory.

    >>> run_interruptibly(lambda: 1 + 1)
    2
    """
    if signal.getsignal(signal.SIGINT) not in _RAISING or not _in_main_thread():
        return work()
    result: Future[R] = Future()

    def run() -> None:
        try:
            result.set_result(work())
        except BaseException as error:
            result.set_exception(error)

    threading.Thread(target=run, daemon=True, name="posse-aside").start()
    return result.result()


def resend_lost_interrupts() -> None:
    """Send a Ctrl-C again that came where Python drops exceptions.

    That is the case in a callback of the garbage collector, for example.
    """
    previous = sys.unraisablehook

    def send_again(dropped: sys.UnraisableHookArgs) -> None:
        if not issubclass(dropped.exc_type, KeyboardInterrupt):
            previous(dropped)
            return
        _Ending.raised = False
        # After the callback has returned.
        again = threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGINT))
        again.daemon = True
        again.start()

    sys.unraisablehook = send_again


@contextmanager
def handle_signals(note: Callable[[int], object], stop: Callable[[], object]) -> Iterator[None]:
    """Call `note` with each signal that would end the process, and `stop` at the end of the block.

    No signal interrupts `stop`. In another thread than the main one, which has no handlers, only
    `stop` is called.
    """
    handlers = {}
    if _in_main_thread():
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            handlers[number] = signal.signal(number, lambda received, _: note(received))
    try:
        yield
    finally:
        for number in handlers:
            signal.signal(number, signal.SIG_IGN)
        stop()
        for number, handler in handlers.items():
            signal.signal(number, handler)
