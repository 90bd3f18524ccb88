"""The markets of section 6: their sizes, and which instances are taken.

Instances are the seeds 1, 2, ... of `market_instance`, in order, none left out; the paper does not say that it left any
out either. A larger market of the same seed holds the smaller one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from posse.problems.markets.instances import Distribution, market_instance
from posse.problems.markets.market import Market

REFERENCE = (
    "Solanki, Kanaparthy, Damle, Gujar: Differentially private federated combinatorial bandits with constraints, "
    "ECML PKDD 2022"
)
DISTRIBUTIONS: tuple[Distribution, ...] = get_args(Distribution)
DELTA = 0.01
UNIT = "entry"
"""What every figure of privacy here is about: one agent's purchase from one producer in one round."""


@dataclass(frozen=True)
class Place:
    """One market: a distribution, the seed of the instance, and what varies beside them."""

    distribution: Distribution
    seed: int
    agents: int
    producers: int
    homogeneous: bool = False
    overlap: float = 1.0

    def market(self) -> Market:
        """Draw it.

        >>> Place("uniform", 7, 2, 4).market().quality.round(2).tolist()
        [[0.62, 0.48, 0.4, 0.9]]
        """
        return market_instance(
            self.seed, agents=self.agents, producers=self.producers, distribution=self.distribution,
            homogeneous=self.homogeneous, overlap=self.overlap,
        )  # fmt: skip


@dataclass(frozen=True)
class Size:
    """How large an experiment is: the market, the rounds, when agents report, and how often all is repeated."""

    agents: int = 10
    producers: int = 30
    rounds: int = 100_000
    start: int = 200
    stop: int = 40_000
    instances: int = 5
    runs: int = 20

    @property
    def seeds(self) -> tuple[int, ...]:
        """World seeds of the runs of an instance, the same for every method."""
        return tuple(range(1, self.runs + 1))

    def places(
        self, distribution: Distribution, *, agents: int | None = None, homogeneous: bool = False, overlap: float = 1.0
    ) -> tuple[Place, ...]:
        """Instances 1, 2, ... of a distribution.

        >>> [place.seed for place in SMALL.places("normal")]
        [1, 2]
        """
        return tuple(
            Place(distribution, seed, agents or self.agents, self.producers, homogeneous, overlap)
            for seed in range(1, self.instances + 1)
        )


FULL = Size()
SMALL = Size(agents=4, producers=8, rounds=3000, start=50, stop=1200, instances=2, runs=2)
"""The same work in seconds, to see that everything runs; its numbers mean nothing."""
