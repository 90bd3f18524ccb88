"""Fresh instances, never chosen by what came out: seeds 1001, 1002, ... in order, less those whose constraint binds."""

from __future__ import annotations

from dataclasses import dataclass

from posse.experiments.dp_combinatorial.problem import Place, Size
from posse.problems.markets.instances import Distribution, binds

FIRST = 1001
"""First seed; the other experiments use 1 to 5."""


@dataclass(frozen=True)
class Fresh:
    """Instances of one distribution, and the seeds that were passed over because the constraint binds."""

    distribution: Distribution
    kept: tuple[Place, ...]
    skipped: tuple[int, ...]


def fresh_instances(distribution: Distribution, size: Size, first: int = FIRST) -> Fresh:
    """Take consecutive seeds until there are `size.instances` whose constraint does not bind.

    >>> taken = fresh_instances("normal", Size(instances=9))
    >>> taken.skipped, taken.kept[-1].seed
    ((1008,), 1010)
    """
    kept: list[Place] = []
    skipped: list[int] = []
    seed = first
    while len(kept) < size.instances:
        place = Place(distribution, seed, size.agents, size.producers)
        if binds(place.market()):
            skipped.append(seed)
        else:
            kept.append(place)
        seed += 1
    return Fresh(distribution, tuple(kept), tuple(skipped))
