"""Searches over figures that take seconds each: as few evaluations as the shape of the figure allows."""

from __future__ import annotations

import math
from collections.abc import Callable

CLOSE = 1e-3
"""Relative width to which noise is searched; the answer is on the safe side."""


def largest(spent: Callable[[int], float], low: int, high: int, limit: float) -> int:
    """Return the largest number with spent(number) <= limit, given spent(low) <= limit < spent(high)."""
    below, above = spent(low), spent(high)
    turn = 0
    while high - low > 1:
        line = low + int((limit - below) / (above - below) * (high - low)) if above > below else low
        # A line that creeps from one end is helped by halving.
        middle = (low + high) // 2 if turn % 3 == 2 else min(max(line + turn % 2, low + 1), high - 1)
        value = spent(middle)
        if value <= limit:
            low, below = middle, value
        else:
            high, above = middle, value
        turn += 1
    return low


def least(spent: Callable[[float], float], low: float, high: float, limit: float) -> float:
    """Return noise with spent(noise) <= limit, within `CLOSE` of the least, given spent(low) > limit >= spent(high).

    The logarithm of the figure is nearly straight in that of the noise: lines propose points just on either side.
    """
    above, below = spent(low), spent(high)
    turn = 0
    while high / low > 1 + CLOSE:
        share = math.log(above / limit) / math.log(above / below) if above > below > 0 else 0.5
        aside = 0.4 * CLOSE * (1 if turn % 2 else -1)
        middle = math.exp(math.log(low) + share * math.log(high / low) + aside)
        middle = math.sqrt(low * high) if turn % 4 == 3 or not low < middle < high else middle
        value = spent(middle)
        if value <= limit:
            high, below = middle, value
        else:
            low, above = middle, value
        turn += 1
    return high
