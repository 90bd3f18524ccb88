"""Progress: a bar with an estimate on a terminal, a line every few seconds elsewhere, nothing for
quick work.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

from posse.cli.screen import console, remark

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

QUIET_SECONDS = 1.0
"""Work that ends sooner prints nothing."""
FIRST_LINE, NEXT_LINE = 3.0, 5.0
"""Without a terminal: seconds until the first line, and between two lines."""


class Doing:
    """Prints the progress of work on stderr, from another thread: a report costs the work nothing.

    >>> with Doing("counting") as doing:
    ...     for i in range(3):
    ...         doing.at(i / 3)
    """

    def __init__(self, what: str) -> None:
        self._what, self._fraction = what, 0.0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._report, daemon=True, name="posse-progress")

    def at(self, fraction: float, what: str | None = None) -> None:
        """Note which part of the work (0 to 1) is done, and what is done now."""
        self._fraction = min(max(fraction, 0.0), 1.0)
        if what is not None:
            self._what = what

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._done.set()
        self._thread.join()

    def _report(self) -> None:
        # Nothing is imported or drawn in the first second: quick work is measured, and this thread
        # would count.
        if sys.stderr.isatty() and os.environ.get("TERM") not in ("dumb", "unknown"):
            self._draw()
        else:
            self._write()

    def _draw(self) -> None:
        if self._done.wait(QUIET_SECONDS):
            return
        with _bar() as bar:
            task = bar.add_task(self._what, total=None)
            while not self._done.wait(0.25):
                # No total until something is known to be done: the bar moves without counting.
                total = 1.0 if self._fraction > 0 else None
                bar.update(task, description=self._what, completed=self._fraction, total=total)

    def _write(self) -> None:
        started = time.monotonic()
        wait = FIRST_LINE
        while not self._done.wait(wait):
            remark(_sentence(self._what, self._fraction, time.monotonic() - started))
            wait = NEXT_LINE


def _bar() -> Bar:
    from rich.progress import (
        BarColumn,
        Progress,
        SpinnerColumn,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    terminal = console(stderr=True)
    # On a narrow terminal the words matter more than the bar.
    bar = [BarColumn(bar_width=20)] if terminal.width >= 70 else []
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        *bar,
        TaskProgressColumn(),
        TimeRemainingColumn(compact=True, elapsed_when_finished=True),
        console=terminal,
        transient=True,
        refresh_per_second=4,
    )


def _sentence(what: str, fraction: float, elapsed: float) -> str:
    """Write one line of progress.

    >>> _sentence("secure run", 0.25, 10.0), _sentence("compiling", 0.0, 3.2)
    ('secure run: 25 %, about 30 s left', 'compiling ... (3 s)')
    """
    if fraction <= 0:
        return f"{what} ... ({elapsed:.0f} s)"
    return f"{what}: {100 * fraction:.0f} %, {about(elapsed * (1 - fraction) / fraction)}"


def about(seconds: float) -> str:
    """Return roughly how long something will take.

    >>> about(80), about(600), about(9000)
    ('about 80 s left', 'about 10 min left', 'about 2.5 h left')
    """
    left = f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
    return f"about {left if seconds < 5400 else f'{seconds / 3600:.1f} h'} left"
