"""Ctrl-C: deferred while work must not be cut off, but never without an effect for long.

Python raises `KeyboardInterrupt` only between two instructions of Python code. A compiler or a
reader of large files may execute no such instruction for many seconds. So a command has a second
thread that waits for Ctrl-C (`enforce_interrupts`). If the main thread has not raised the interrupt
after a second, the second thread saves what was done and ends the process.

The work itself stays in the main thread, where a signal at once ends waiting for a lock, a socket,
a child process or `sleep`. Waiting in any other thread cannot be interrupted.
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
"""Seconds that saving may take. It may have to wait for a lock that the main thread holds."""
CHECK_INTERVAL = 0.5
"""Seconds of work between two checks for Ctrl-C and progress, if the work has such short parts."""
_RETRY_INTERVAL = 0.05
"""Seconds between two tries to end a process whose work cannot be saved yet."""
_RAISED = b"\0"
"""What the main thread writes to the watching thread's pipe when it raises the interrupt.

Python writes the number of each signal to the same pipe; no signal has the number 0.
"""
_EXIT_CODE = 128 + signal.SIGINT
_SHOW_CURSOR = b"\r\x1b[?25h"
"""Written to a terminal, because a progress bar hides the cursor."""


def half_second_steps(max_steps: int) -> Iterator[int]:
    """Yield again and again how many steps to make next, to take a quarter to half a second.

    The first number is a sixteenth of `max_steps`; no number is larger than `max_steps`. The
    numbers depend on the machine's speed, so the result of the work must not depend on them.

    >>> next(half_second_steps(1600))
    100
    """
    steps = max(1, max_steps // 16)
    while True:
        started = time.monotonic()
        yield steps
        seconds = time.monotonic() - started
        if seconds < CHECK_INTERVAL / 2:
            steps = min(max_steps, 2 * steps)
        elif seconds > CHECK_INTERVAL:
            steps = max(1, steps // 2)


# Ending a command ---------------------------------------------------------------------------------


class _Saver(NamedTuple):
    """The arguments of one block of `save_on_interrupt`."""

    save: Callable[[], str]
    ready: Callable[[], bool]


class _Shared:
    """State that the main thread and the watching thread share.

    After Ctrl-C either the main thread raises the interrupt, or the watching thread ends the
    process, but never both.
    """

    # Reentrant: a second signal may come while the main thread handles the first one.
    lock = threading.RLock()
    pipe: ClassVar[tuple[int, int] | None] = None
    """Id of the watched process, and the writing end of the pipe that the watching thread reads.

    None if no thread watches. A forked child sees from the id that the pipe is not its own.
    """
    main_too_late = False
    """Whether the watching thread ends the process, so that the main thread must not raise."""
    savers: ClassVar[list[_Saver]] = []
    """One for every block of `save_on_interrupt` that has not ended."""


@contextmanager
def enforce_interrupts() -> Iterator[None]:
    """End the process if the block does not raise `KeyboardInterrupt` soon after Ctrl-C.

    A thread waits for the signal. If the main thread does not raise the interrupt within `PATIENCE`
    seconds, this thread saves what was done (`save_on_interrupt`) and ends the process with the
    exit code of Ctrl-C. No thread watches the block if the block is not in the main thread, or if
    other code has replaced Python's handler of Ctrl-C.
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
        os.close(writer)  # ends the thread


def _watch_main(reader: int) -> None:
    """Run the watching thread: end the process if the main thread does not raise the interrupt.

    `reader` is the reading end of the thread's pipe. The thread ends when the pipe is closed.
    """
    while received := os.read(reader, 1):
        # If other code has set a handler, the signal is for that handler.
        if received[0] == signal.SIGINT and _is_our_handler(signal.getsignal(signal.SIGINT)):
            _exit_unless_raised(reader)
    os.close(reader)


def _is_our_handler(handler: object) -> bool:
    return handler is _raise_interrupt or isinstance(handler, _DeferringHandler)


def _exit_unless_raised(reader: int) -> None:
    """End the process when `PATIENCE` seconds are over and what was done can be saved.

    Returns if the main thread raises the interrupt or leaves the block before the process ends.
    """
    deadline = time.monotonic() + PATIENCE
    while True:
        seconds = max(_RETRY_INTERVAL, deadline - time.monotonic())
        # A closed pipe returns b"": the main thread has left the block. Other bytes are signals.
        if _is_readable(reader, seconds) and os.read(reader, 1) in (_RAISED, b""):
            return
        patience_is_over = time.monotonic() >= deadline
        if patience_is_over and _can_save_now() and _forbid_raising(reader):
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
        ready: Returns whether what was done is consistent at this moment, so that `save` can be
            called.
    """
    _Shared.savers.append(_Saver(save, ready))
    try:
        yield
    finally:
        _Shared.savers.pop()


def _forbid_raising(reader: int) -> bool:
    """Forbid the main thread to raise the interrupt, unless it may have done so already.

    Returns whether the main thread is forbidden to raise the interrupt.
    """
    with _Shared.lock:
        # The byte that can be read may be `_RAISED`. The caller reads it before its next try.
        if _is_readable(reader, 0):
            return False
        _Shared.main_too_late = True
    return True


def _save_and_exit() -> None:
    """Save what was done, end the child processes, and exit, even if saving fails or hangs."""
    exit_if_saving_hangs = threading.Timer(MAX_SAVING, os._exit, (_EXIT_CODE,))
    exit_if_saving_hangs.daemon = True
    exit_if_saving_hangs.start()
    reports = []
    # The innermost block first, as if the blocks ended one after the other.
    for saver in reversed(_Shared.savers):
        with suppress(Exception):
            reports.append(saver.save())
    report = "; ".join(filter(None, reports)) or "nothing was saved"
    with suppress(Exception):
        line = f"interrupted; {report}.\n".encode()
        # `print` could wait for a lock that the main thread holds.
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
    # Wait until the watching thread has ended the process.
    while _Shared.main_too_late:
        time.sleep(CHECK_INTERVAL)
    raise KeyboardInterrupt


def _tell_watcher_interrupt_raised() -> None:
    """Tell the watching thread that the main thread raises the interrupt."""
    process, writer = _Shared.pipe or (None, 0)
    # A forked child inherits the pipe. But its interrupts do not concern the parent's thread.
    if process == os.getpid():
        # The pipe is full only if thousands of signals wait in it. Then this byte may be lost.
        with suppress(BlockingIOError):
            os.write(writer, _RAISED)


# Deferring and forwarding -------------------------------------------------------------------------


@contextmanager
def defer_interrupt() -> Iterator[None]:
    """Defer Ctrl-C until the block ends, and raise the interrupt then.

    In a command (`enforce_interrupts`), the process ends if the block has not ended `PATIENCE`
    seconds after the first Ctrl-C. Elsewhere, a second Ctrl-C ends the process at once. Nothing is
    deferred outside the main thread, or if other code has set a handler of Ctrl-C.

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

        A second Ctrl-C ends the process at once, unless the watching thread will end the process.
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
    """Do work in another thread, so that Ctrl-C ends the wait for its result at once.

    After Ctrl-C the work continues, and its result is dropped. This is for a compiler: it must not
    be stopped in the middle, and it changes nothing outside its own memory.

    >>> run_interruptibly(lambda: 1 + 1)
    2
    """
    # If Ctrl-C raises no interrupt here, another thread would gain nothing.
    if signal.getsignal(signal.SIGINT) not in _RAISING or not _in_main_thread():
        return work()
    result: Future[R] = Future()

    def compute_result() -> None:
        try:
            result.set_result(work())
        except BaseException as error:
            # `result.result()` raises the error in the main thread.
            result.set_exception(error)

    threading.Thread(target=compute_result, daemon=True, name="posse-aside").start()
    return result.result()


def resend_lost_interrupts() -> None:
    """From now on, send Ctrl-C again whenever Python drops the `KeyboardInterrupt`.

    For example, Python drops every exception in a callback of the garbage collector.
    """
    previous_hook = sys.unraisablehook

    def send_again(dropped: sys.UnraisableHookArgs) -> None:
        if not issubclass(dropped.exc_type, KeyboardInterrupt):
            previous_hook(dropped)
            return
        # Wait 0.02 s, so that the callback that dropped the interrupt returns first. It would drop
        # the new interrupt too.
        again = threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGINT))
        again.daemon = True
        again.start()

    sys.unraisablehook = send_again


@contextmanager
def handle_signals(note: Callable[[int], object], at_end: Callable[[], object]) -> Iterator[None]:
    """Call `note` with each signal that would end the process, and `at_end` after the block.

    `at_end` is called whether a signal came or not. Signals are ignored while `at_end` runs. Only
    the main thread can have handlers of signals; in any other thread, `note` is never called.
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
