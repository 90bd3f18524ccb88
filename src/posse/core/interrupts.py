"""Ctrl-C: deferred while something must not be cut off, and never without an effect for long.

Python raises `KeyboardInterrupt` only between two instructions of Python code. A compiler or a
reader of large files may run none for many seconds. So a command has a second thread that waits for
Ctrl-C (`enforce_interrupts`). If the main thread has not raised the interrupt after a second, the
other thread saves what was done and ends the process.

The work itself stays in the main thread. Another thread cannot be interrupted while it waits for a
lock, a socket, a child process or `sleep`; in the main thread a signal ends each of these at once.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from types import FrameType
from typing import ClassVar, NamedTuple, TypeVar

R = TypeVar("R")

PATIENCE = 1.0
"""Seconds that `enforce_interrupts` waits for the main thread to raise the interrupt."""
MAX_SAVING = 20.0
"""Seconds that saving may take: it may wait for a lock that the main thread holds."""
CHECK_INTERVAL = 0.5
"""Seconds of work between two checks for Ctrl-C and progress, if the work can be cut so small."""
_RETRY_INTERVAL = 0.05
"""Seconds between two tries to end a process whose work cannot be saved yet."""
_RAISED = b"\0"
"""What the main thread writes to the watching thread's pipe when it raises the interrupt.

Python writes the number of each signal to the same pipe; no signal has the number 0.
"""
_EXIT_CODE = 128 + signal.SIGINT
_SHOW_CURSOR = b"\r\x1b[?25h"
"""For a terminal: a progress bar hides the cursor."""


def half_second_steps(most: int) -> Iterator[int]:
    """Yield how many steps to make next, so that they take a quarter to half a second.

    The first number is a sixteenth of `most`. The numbers depend on the machine's speed, so the
    result of the work must not depend on them.

    >>> next(half_second_steps(1600))
    100
    """
    steps = max(1, most // 16)
    while True:
        started = time.monotonic()
        yield steps
        seconds = time.monotonic() - started
        if seconds < CHECK_INTERVAL / 2:
            steps = min(most, 2 * steps)
        elif seconds > CHECK_INTERVAL:
            steps = max(1, steps // 2)


# Ending a command ---------------------------------------------------------------------------------


class _Saver(NamedTuple):
    """What `save_on_interrupt` is called with."""

    save: Callable[[], str]
    ready: Callable[[], bool]


class _Shared:
    """What the main thread and the thread that watches it share.

    After Ctrl-C either the main thread raises the interrupt, or the watching thread ends the
    process.
    """

    lock = threading.RLock()  # a second signal may come while the first one is handled
    pipe: ClassVar[tuple[int, int] | None] = None
    """Id of the process, and the writing end of the pipe that the watching thread reads.

    None if no thread watches.
    """
    main_too_late = False
    """Whether the watching thread ends the process, so that the main thread must not raise."""
    savers: ClassVar[list[_Saver]] = []
    """One for every open block of `save_on_interrupt`."""


@contextmanager
def enforce_interrupts() -> Iterator[None]:
    """End the process if the block does not raise `KeyboardInterrupt` soon after Ctrl-C.

    A thread waits for the signal. If the main thread does not raise the interrupt within `PATIENCE`
    seconds, this thread saves what was done (`save_on_interrupt`) and ends the process with the
    exit code of Ctrl-C. Outside the main thread, or if Python's own handler of Ctrl-C was replaced,
    the block runs unwatched.
    """
    handler_was_replaced = signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    if handler_was_replaced or not _in_main_thread():
        yield
        return
    # Python writes the number of each signal to this pipe.
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    previous = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGINT, _raise_interrupt)
    _Shared.pipe = (os.getpid(), writer)
    _Shared.main_too_late = False
    threading.Thread(
        target=_watch_main, args=(reader,), daemon=True, name="posse-interrupts"
    ).start()
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.set_wakeup_fd(previous)
        _Shared.pipe = None
        os.close(writer)  # which ends the thread


def _watch_main(reader: int) -> None:
    """End the process if the main thread does not raise the interrupt after a Ctrl-C.

    This is what the watching thread does. `reader` is the reading end of its pipe.
    """
    while received := os.read(reader, 1):
        # If other code has set a handler, that handler deals with the signal.
        if received[0] == signal.SIGINT and _is_our_handler(signal.getsignal(signal.SIGINT)):
            _exit_unless_raised(reader)
    os.close(reader)


def _is_our_handler(handler: object) -> bool:
    return handler is _raise_interrupt or isinstance(handler, _DeferringHandler)


def _exit_unless_raised(reader: int) -> None:
    """End the process when `PATIENCE` is over and what was done can be saved.

    Returns if the main thread raises the interrupt or leaves the block before that.
    """
    deadline = time.monotonic() + PATIENCE
    while True:
        seconds = max(_RETRY_INTERVAL, deadline - time.monotonic())
        # A closed pipe returns b"": the main thread has left the block.
        if _is_readable(reader, seconds) and os.read(reader, 1) in (_RAISED, b""):
            return
        if time.monotonic() >= deadline and _can_save_now() and _forbid_raising(reader):
            _save_and_exit()


def _is_readable(reader: int, seconds: float) -> bool:
    return bool(select.select([reader], [], [], seconds)[0])


def _can_save_now() -> bool:
    """Return whether the work of every block of `save_on_interrupt` is consistent now."""
    return all(saver.ready() for saver in _Shared.savers)


@contextmanager
def save_on_interrupt(
    save: Callable[[], str], ready: Callable[[], bool] = lambda: True
) -> Iterator[None]:
    """Save what this block has done if `enforce_interrupts` ends the process.

    Args:
        save: Saves what was done, and returns what to print. It is called in another thread, while
            the main thread computes.
        ready: Returns whether what was done is consistent at this moment.
    """
    _Shared.savers.append(_Saver(save, ready))
    try:
        yield
    finally:
        _Shared.savers.pop()


def _forbid_raising(reader: int) -> bool:
    """Keep the main thread from raising the interrupt; return False if it may have raised it."""
    with _Shared.lock:
        # It may be `_RAISED`, the end of a closed pipe, or another Ctrl-C.
        if _is_readable(reader, 0):
            return False
        _Shared.main_too_late = True
    return True


def _save_and_exit() -> None:
    """Save what was done, end the child processes, and exit, even if saving fails or hangs."""
    limit = threading.Timer(MAX_SAVING, os._exit, (_EXIT_CODE,))
    limit.daemon = True
    limit.start()
    reports = []
    for saver in reversed(_Shared.savers):
        with suppress(Exception):
            reports.append(saver.save())
    report = "; ".join(filter(None, reports)) or "nothing was saved"
    with suppress(Exception):
        line = f"interrupted; {report}.\n".encode()
        os.write(2, _SHOW_CURSOR + line if os.isatty(2) else line)
        if "multiprocessing" in sys.modules:
            for process in sys.modules["multiprocessing"].active_children():
                process.terminate()
    os._exit(_EXIT_CODE)


def _raise_interrupt(number: int = signal.SIGINT, frame: FrameType | None = None) -> None:
    """Handle Ctrl-C: raise the interrupt, unless the watching thread is ending the process."""
    with _Shared.lock:
        if not _Shared.main_too_late:
            _tell_watcher_interrupt_raised()
    while _Shared.main_too_late:  # the watching thread ends the process
        time.sleep(CHECK_INTERVAL)
    raise KeyboardInterrupt


def _tell_watcher_interrupt_raised() -> None:
    """Tell the watching thread that the main thread raises the interrupt."""
    process, writer = _Shared.pipe or (None, 0)
    # A forked child inherits the pipe, but its own interrupt does not concern its parent's thread.
    if process == os.getpid():
        # If the pipe is full, the thread has more than enough to read, and this byte may be lost.
        with suppress(BlockingIOError):
            os.write(writer, _RAISED)


# Deferring and forwarding -------------------------------------------------------------------------


@contextmanager
def defer_interrupt() -> Iterator[None]:
    """Defer Ctrl-C until the block ends, and raise it then.

    Without `enforce_interrupts`, a second Ctrl-C ends the process at once. With it, the first
    Ctrl-C ends the process if the block has not ended after `PATIENCE` seconds. Nothing is deferred
    outside the main thread, or if other code has set a handler.

    >>> with defer_interrupt():
    ...     done = 1
    >>> done
    1
    """
    previous = signal.getsignal(signal.SIGINT)
    if previous not in _RAISING or not _in_main_thread():
        yield
        return
    deferred = _DeferringHandler()
    signal.signal(signal.SIGINT, deferred)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
    if deferred.received:
        _raise_interrupt()


class _DeferringHandler:
    """A handler of Ctrl-C that only remembers the signal."""

    received = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Remember a Ctrl-C.

        A second one ends the process at once, unless the watching thread will end it.
        """
        if self.received and _Shared.pipe is None:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
        self.received = True


_RAISING = (signal.default_int_handler, _raise_interrupt)
"""Handlers that raise the interrupt at once."""


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def run_interruptibly(work: Callable[[], R]) -> R:
    """Do work in another thread and wait for it, so that Ctrl-C is raised at once.

    After Ctrl-C the work continues, and its result is dropped. This is for compilers, which must
    not be stopped in the middle and change only their own memory.

    >>> run_interruptibly(lambda: 1 + 1)
    2
    """
    if signal.getsignal(signal.SIGINT) not in _RAISING or not _in_main_thread():
        return work()
    result: Future[R] = Future()

    def compute_result() -> None:
        try:
            result.set_result(work())
        except BaseException as error:
            result.set_exception(error)

    threading.Thread(target=compute_result, daemon=True, name="posse-aside").start()
    return result.result()


def resend_lost_interrupts() -> None:
    """From now on, send Ctrl-C again if it came where Python drops exceptions.

    Python drops exceptions in a callback of the garbage collector, for example.
    """
    previous = sys.unraisablehook

    def send_again(dropped: sys.UnraisableHookArgs) -> None:
        if not issubclass(dropped.exc_type, KeyboardInterrupt):
            previous(dropped)
            return
        # The callback that dropped the interrupt must have returned before.
        again = threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGINT))
        again.daemon = True
        again.start()

    sys.unraisablehook = send_again


@contextmanager
def handle_signals(note: Callable[[int], object], at_end: Callable[[], object]) -> Iterator[None]:
    """Call `note` with each signal that would end the process, and `at_end` after the block.

    `at_end` is called whether a signal came or not. Signals are ignored while it runs. Only the
    main thread can have handlers of signals; in another thread only `at_end` is called.
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
        at_end()
        for number, handler in handlers.items():
            signal.signal(number, handler)
