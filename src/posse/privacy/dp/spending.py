"""What was spent: events, each about a block of data, composed within a block and not across blocks.

Blocks hold disjoint data, so that one unit of protection lies in one block: the figure is the largest of the blocks'
(parallel composition; McSherry: Privacy integrated queries, SIGMOD 2009). A protocol whose releases all tell about
the same data has one block (sequential composition).
"""

from __future__ import annotations

from collections.abc import Hashable

from posse.privacy.dp.accountant import Event, composed_epsilon
from posse.privacy.dp.budget import check_delta


class Spending:
    """Releases so far and their figure at one delta; a release costs one composition of its own block.

    >>> from posse.privacy.dp.accountant import gaussian_event
    >>> spent = Spending(delta=0.01)
    >>> for block in ("first window", "second window", "second window"):
    ...     print(round(spent.record(block, gaussian_event(2.0)), 3))
    0.919
    0.919
    1.459
    """

    __slots__ = ("_blocks", "_epsilon", "delta")

    def __init__(self, delta: float) -> None:
        check_delta(delta)
        self.delta = delta
        self._blocks: dict[Hashable, tuple[Event, ...]] = {}
        self._epsilon = 0.0

    @property
    def epsilon(self) -> float:
        """The figure of everything released."""
        return self._epsilon

    @property
    def releases(self) -> int:
        """Number of releases."""
        return sum(len(events) for events in self._blocks.values())

    def quote(self, block: Hashable, event: Event) -> float:
        """Return what the figure would be after one more release; nothing changes."""
        return max(self._epsilon, composed_epsilon((*self._blocks.get(block, ()), event), self.delta))

    def record(self, block: Hashable, event: Event) -> float:
        """Count a release and return the figure after it."""
        epsilon = self.quote(block, event)
        self._blocks[block] = (*self._blocks.get(block, ()), event)
        self._epsilon = epsilon
        return epsilon
