"""What one unit of protection is: what may change in an agent's history without others noticing.

An agent buys l_it units, 0 <= l_it <= k_i, from producer i in round t. A message tells, for each producer, the units
bought and the good ones among them since the last message, each with noise in proportion to the capacity k_i. One entry
l_it moves each of the two by at most k_i, hence both together by sqrt(2) k_i in the L2 norm; m producers by sqrt(2 m),
and L rounds by sqrt(2 m) L, in units of k.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from posse.core import check

EVENT_LEVEL = (
    "the agent's own later choices: they depend on what it bought before, and the guarantee holds the rest of its "
    "history fixed (event level)"
)
"""What no unit smaller than a history covers."""

NEVER_COVERED = (
    "capacities, to which the noise is scaled, and which producers an agent deals with at all",
    "what producers see: the orders themselves",
    "a simulation: its noise comes from the recorded world seed, and whoever has the record can take it off",
)
"""What no unit covers."""


@dataclass(frozen=True)
class Unit:
    """A unit of protection; `disjoint` if it lies in one window between two messages, whatever it is."""

    name: str
    what: str
    adjacency: str
    disjoint: bool
    all_producers: bool
    also_not_covered: tuple[str, ...] = ()

    @property
    def not_covered(self) -> tuple[str, ...]:
        """What a guarantee for this unit says nothing about."""
        return (*self.also_not_covered, *NEVER_COVERED)

    def sensitivity(self, producers: int, rounds: int) -> float:
        """L2 norm, in units of k, by which one unit moves the message about a window of `rounds` rounds.

        >>> [round(unit.sensitivity(30, 200), 2) for unit in UNITS.values()]
        [1.41, 7.75, 1549.19]
        """
        check.at_least(1, producers=producers)
        check.at_least(1, rounds=rounds)
        return math.sqrt(2 * (producers if self.all_producers else 1)) * (1 if self.disjoint else rounds)


def unit_named(name: str) -> Unit:
    """Return a unit by its name, or say which there are."""
    check.one_of(tuple(UNITS), unit=name)
    return UNITS[name]


UNITS: dict[str, Unit] = {
    unit.name: unit
    for unit in (
        Unit(
            "entry",
            "one agent's purchase from one producer in one round",
            "replace: another quantity up to capacity, and other good units among it",
            disjoint=True,
            all_producers=False,
            also_not_covered=(
                "several entries at once: other producers or other rounds of the same agent",
                EVENT_LEVEL,
            ),
        ),
        Unit(
            "round",
            "everything one agent buys in one round, from all producers",
            "replace: another purchase of that round up to capacities, and other good units among it",
            disjoint=True,
            all_producers=True,
            also_not_covered=("several rounds at once", EVENT_LEVEL),
        ),
        Unit(
            "history",
            "everything one agent buys, from all producers, in all rounds",
            "replace: another history up to capacities, and other good units in it",
            disjoint=False,
            all_producers=True,
        ),
    )
}
"""The units, smallest first."""
