"""The roles of the contextual bandit at the seam of the engine, and the faults that they meet."""

from __future__ import annotations

import itertools

from posse.systems.mpc_contextual.deploy import VOCABULARY
from tests.kit.mpc import Outcome, TestWorld
from tests.network.seam import Network

FAULTS = {
    "kills": {"kill": 0.04},
    "power": {"power": 0.04},
    "connections": {"cut": 0.04, "duplicate": 0.04, "reorder": 0.04, "drop": 0.02},
    "everything": {
        "cut": 0.03,
        "duplicate": 0.02,
        "reorder": 0.02,
        "drop": 0.02,
        "kill": 0.02,
        "power": 0.02,
    },
}


class Seam(Network):
    """Counts how often each role died, and keeps the world's own count of what it was asked."""

    def __init__(self, make, terms, world, seed, **how):
        self.deaths = dict.fromkeys(make, 0)
        self.world = TestWorld(world, terms)
        how = {"snapshot_bytes": 6_000, **how}
        super().__init__(
            make, list(itertools.combinations(make, 2)), VOCABULARY, self.world, seed, **how
        )

    def kill(self, name, *, power=False):
        self.deaths[name] += 1
        super().kill(name, power=power)

    @property
    def outcome(self):
        return Outcome({name: engine.role for name, engine in self.engines.items()})
