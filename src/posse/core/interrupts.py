"""Ctrl-C kept back while something must not be cut in the middle, such as a compiler's work."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


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
