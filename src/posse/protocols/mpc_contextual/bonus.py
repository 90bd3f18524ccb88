"""What LinUCB and Thompson sampling add to a score: width sqrt(q), or that times a standard normal number, q = x.P x.

The root comes from a table over q in steps of 2^-10, in which q is rounded at random to one of its two neighbours: the
table's error is below .016 for q >= 2^-10, and below .032 at all.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from posse.protocols.mpc_contextual.terms import WIDTH_BITS, Terms

GRID = 10
"""Bits of q that the table sees."""


@lru_cache(maxsize=16)
def root_table(terms: Terms) -> NDArray[np.float64]:
    """Return width sqrt(q) in units of 2^-bonus_bits at every place; places above 3/4 stand for q a little below 0."""
    places = np.arange(2 << GRID)
    q = np.where(places >= 3 << (GRID - 1), 0, np.minimum(places, 1 << GRID)) / float(1 << GRID)
    return np.asarray(np.sqrt(q) * (terms.width / 2.0**WIDTH_BITS) * 2.0**terms.bonus_bits)
