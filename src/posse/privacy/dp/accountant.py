"""What releases prove together, computed by dp-accounting from privacy loss distributions (PLD).

Releases are dp-accounting's events; Gaussian ones are made by `gaussian_event`. A PLD is the distribution of the
privacy loss on a grid, rounded so that the figure is never below the true one: Doroshenko, Ghazi, Kamath, Kumar,
Manurangsi: Connect the dots: tighter discrete approximations of privacy loss distributions, PETS 2022. For Gaussian
releases the grid is laid to the scale of mu: the figure stays within a few millionths of the exact one down to
delta = 1e-10, and within some per cent at 1e-15.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable
from functools import lru_cache
from typing import Any, TypeAlias

from posse.core.extras import require
from posse.privacy.dp.budget import check_delta

Event: TypeAlias = Hashable
"""An event of dp-accounting (`DpEvent`)."""

_GRID = 1e-4
"""Grid of dp-accounting for events of any kind."""
_RELATIVE_GRID = 1e-3
_COARSER = 10.0
"""From this mu on the loss is about mu^2 / 2, and the grid grows with it."""
_HOPELESS = 1000.0
"""Beyond this mu epsilon is above 500,000 and the grid overflows."""


def accountant_name() -> str:
    """Name the accountant, as every figure does.

    >>> accountant_name().startswith("dp-accounting ")
    True
    """
    from importlib.metadata import version

    require("dp_accounting", extra="dp")
    return f"dp-accounting {version('dp-accounting')}, PLD"


def gaussian_event(noise_multiplier: float) -> Event:
    """Return the event of one Gaussian release; `noise_multiplier` is sigma over the sensitivity of the unit."""
    event: Event = require("dp_accounting", extra="dp").GaussianDpEvent(noise_multiplier)
    return event


def composed_epsilon(events: Iterable[Event], delta: float) -> float:
    """Return the epsilon at `delta` that all the events about the same data prove together; infinity if none.

    Infinity means that no finite epsilon is proved: a release without noise, so little noise that epsilon would be
    above 500,000, or a delta below 1e-15, under which the accountant's own rounding lies. Events in the accountant's
    own terms: one release about neighbours that differ by one sensitivity ("add or remove"); what replacing costs is in
    the sensitivity. 30 ms for Gaussian releases, once for each set of events.

    >>> round(composed_epsilon([gaussian_event(2.66 / math.sqrt(2))], 0.01), 4)
    0.9979
    """
    check_delta(delta)
    counted = Counter(events)
    return _composed(tuple(sorted(counted.items(), key=lambda item: repr(item[0]))), delta)


def basic(figures: Iterable[tuple[float, float]]) -> tuple[float, float]:
    """Basic composition: epsilons add, and so do deltas.

    >>> basic([(0.5, 0.01), (0.25, 0.01)])
    (0.75, 0.02)
    """
    kept = list(figures)
    return sum(epsilon for epsilon, _ in kept), sum(delta for _, delta in kept)


@lru_cache(maxsize=4096)
def _composed(counted: tuple[tuple[Any, int], ...], delta: float) -> float:
    if not counted:
        return 0.0
    grid = _grid(counted)
    if math.isinf(grid):
        return math.inf
    require("dp_accounting", extra="dp")
    accountant = require("dp_accounting.pld", extra="dp").PLDAccountant(value_discretization_interval=grid)
    for event, count in counted:
        accountant.compose(event, count)
    return float(accountant.get_epsilon(delta))


def _grid(counted: tuple[tuple[Any, int], ...]) -> float:
    """Return the grid for a set of events: to the scale of mu where all are Gaussian; infinity where none helps."""
    kind = require("dp_accounting", extra="dp").GaussianDpEvent
    if not all(isinstance(event, kind) for event, _ in counted):
        return _GRID
    if any(event.noise_multiplier == 0 for event, _ in counted):
        return math.inf
    mu = math.hypot(*(math.sqrt(count) / event.noise_multiplier for event, count in counted))
    return _RELATIVE_GRID * mu * max(1.0, mu / _COARSER) if mu <= _HOPELESS else math.inf
