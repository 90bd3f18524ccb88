"""An estimate with its interval, and words for what the interval is."""

from __future__ import annotations

import math
from dataclasses import dataclass

from posse.results import words

SHORT = 0.03
"""How far an interval may fall short of the level asked for before the number itself says so."""


@dataclass(frozen=True)
class Interval:
    """An estimate and its interval; `low` and `high` are NaN where there are too few numbers for one.

    >>> print(Interval(0.6934, 0.6128, 0.7811, level=0.95, resamples=4000, over="instances"))
    0.69 [0.61, 0.78]
    """

    estimate: float
    low: float
    high: float
    level: float
    """Coverage that was asked for."""
    resamples: int
    """0 where nothing was resampled."""
    over: str
    """What it is over: "instances", or "runs" of the only instance."""
    how: str = ""
    """How it was made; empty for a bootstrap."""
    covers: float | None = None
    """Coverage that it has, where that is not `level`."""

    @property
    def known(self) -> bool:
        """Whether there is an interval at all."""
        return math.isfinite(self.low) and math.isfinite(self.high)

    @property
    def what(self) -> str:
        """Say what the interval is; a dash where there is none.

        >>> Interval(0.69, 0.61, 0.78, level=0.95, resamples=4000, over="instances").what
        '95 % bootstrap interval over instances, 4,000 resamples'
        """
        if not self.known:
            return words.UNKNOWN
        how = self.how or f"bootstrap interval over {self.over}, {self.resamples:,} resamples"
        return f"{self._percent} {how}"

    @property
    def _percent(self) -> str:
        return f"{100 * (self.level if self.covers is None else self.covers):.4g} %"

    def __str__(self) -> str:
        """Write both; an interval that covers clearly less often than was asked says so.

        >>> print(Interval(0.65, 0.5, 0.7, level=0.95, resamples=0, over="instances", covers=0.75))
        0.65 [0.50, 0.70] (75 %)
        """
        text = words.interval(self.estimate, self.low, self.high)
        short = self.known and self.covers is not None and self.covers < self.level - SHORT
        return f"{text} ({self._percent})" if short else text
