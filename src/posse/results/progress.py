"""How far a record is, for whoever shows it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """The number of the run (from 0), of how many, the fraction of the whole record's work that is done, and how many
    runs from that one on go side by side."""

    run: int
    runs: int
    fraction: float
    together: int = 1


Watch = Callable[[Progress], None]
