"""A progress bar for Python: `watch=posse.Bar()` of a run, an audit or a sweep."""

from __future__ import annotations

import sys
import time
from html import escape
from importlib import import_module
from typing import Protocol

from posse.results.record import Progress

PAUSE = 0.2
"""Seconds between two pictures of the bar at least."""


class Place(Protocol):
    """Where a notebook shows the bar."""

    def update(self, picture: object) -> None:
        """Show another picture."""


class Bar:
    """Shows how far work is. It is called with a `Progress`, a share and a text, or two counts.

    In a notebook it is a bar below the cell, on a terminal a line on stderr, elsewhere nothing.

    >>> bar = Bar()
    >>> bar(Progress(run=1, runs=4, fraction=0.3))
    >>> bar.text
    'run 2 of 4: 30 %'
    >>> bar(0.5, "attack tracker")
    >>> bar.text
    'attack tracker: 50 %'
    >>> bar(3, 4)
    >>> bar.text
    '3 of 4: 75 %'
    """

    def __init__(self) -> None:
        self.fraction = 0.0
        self.text = ""
        self._started = time.monotonic()
        self._shown = -PAUSE
        self._place: Place | None = None

    def __call__(self, at: Progress | float, of: str | int = "") -> None:
        """Show how far the work is."""
        if isinstance(at, Progress):
            done = at.fraction
            what = f"run {at.run + 1} of {at.runs}" if at.runs > 1 else "run"
        elif isinstance(of, int):
            done = at / max(of, 1)
            what = f"{at} of {of}"
        else:
            done = at
            what = of
        self.fraction = done
        self.text = f"{what}: {100 * done:.0f} %"
        passed = time.monotonic() - self._started
        if passed - self._shown >= PAUSE or done >= 1:
            self._shown = passed
            self._show(f"{self.text}, {passed:.0f} s")

    def _show(self, line: str) -> None:
        if _in_notebook():
            if self._place is None:
                self._place = import_module("IPython.display").display(self, display_id=True)
            else:
                self._place.update(self)
        elif sys.stderr.isatty():
            end = "\n" if self.fraction >= 1 else ""
            print(f"\r{line:70}", end=end, file=sys.stderr, flush=True)

    def _repr_html_(self) -> str:
        """Return the bar as a notebook shows it."""
        bar = f'<progress max="1" value="{self.fraction:.3f}" style="width: 20rem"></progress>'
        return f"<p>{bar} {escape(self.text)}</p>"


def _in_notebook() -> bool:
    """Return whether a page shows this kernel; IPython in a terminal has none."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return shell is not None and hasattr(shell, "kernel")
