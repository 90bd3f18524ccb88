"""The problem of the paper: images as contexts, ten classes or K clusters as arms, and what a run draws by chance.

Full size is the paper's: MNIST on 20 principal components, rows of norm 1, one sweep of 60,000. It needs the data (set
POSSE_DATA to the folder that holds `mnist`); the small forms use scikit-learn's digits. Runs are the seeds 1, 2, ...
in order, none left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from posse.core.fixed import REWARD_ONE
from posse.problems.contexts.contexts import Contexts
from posse.problems.contexts.images import digits, mnist
from posse.protocols.mpc_contextual.coins import Coins
from posse.protocols.mpc_contextual.settings import ContextualSettings

REFERENCE = "Hannun, Knott, Sengupta, van der Maaten: Privacy-preserving multi-party contextual bandits, 2019"
EPSILONS = (0.01, 0.02, 0.05, 0.1)
"""Exploration rates of figures 2 and 7: four, as in the paper, whose legend its text does not tell."""

Base = Literal["digits", "mnist"]
Floats = NDArray[np.float64]
_COINS = 7
"""Purpose of the draws beside the seed."""


@dataclass(frozen=True)
class Place:
    """Where a bandit runs: on which images, with how many clusters as arms (none: the ten classes), for how long."""

    base: Base
    steps: int
    clusters: int | None = None
    rows: int | None = None
    """Use the first rows only, so that others are held out."""

    def settings(self, **more: Any) -> ContextualSettings:
        """Return the settings of a run here.

        >>> Place("digits", 500, clusters=5).settings(epsilon="0.1").check().terms.arms
        5
        """
        common = {"steps": self.steps, "rows": self.rows, **more}
        if self.clusters is None:
            return ContextualSettings(problem=self.base, **common)
        return ContextualSettings(problem="clusters", base=self.base, arms=self.clusters, **common)

    def contexts(self) -> Contexts:
        """Return the contexts, made once."""
        return _contexts(self.base, self.clusters, self.rows)

    def held_out(self) -> tuple[Floats, Floats]:
        """Return features and rewards of images that no run meets: MNIST's test set, or what `rows` leaves over."""
        images = mnist(part="test") if self.base == "mnist" else digits()
        first = 0 if self.base == "mnist" else self.rows or 0
        return images.rows[first:], np.eye(len(images.classes))[images.labels[first:]]


@cache
def _contexts(base: Base, clusters: int | None, rows: int | None) -> Contexts:
    return Place(base, 1, clusters, rows).settings().contexts()


FULL = Place("mnist", 60_000)
SMALL = Place("digits", 1_500)
"""The same work in seconds, to see that everything runs; its numbers mean nothing."""


@dataclass(frozen=True, eq=False)
class World:
    """What one run meets, a row a step; the same for every exploration rate, so that rates are compared in pairs."""

    features: Floats
    rewards: Floats
    """(steps, arms)"""
    chance: Floats
    """(steps,) it explores where this lies below the rate: a larger rate explores wherever a smaller one does."""
    drawn: NDArray[np.int64]
    ties: NDArray[np.int64]

    def coins(self, epsilon: float) -> Coins:
        """Return the coins of an exploration rate.

        >>> world = world_of(SMALL, seed=1)
        >>> rates = [world.coins(epsilon).explore for epsilon in (0.0, 0.1, 1.0)]
        >>> [bool(rate.any()) for rate in rates], bool(rates[2].all())
        ([False, True, True], True)
        """
        return Coins(self.chance < epsilon, self.drawn, self.ties)

    def first(self, steps: int) -> World:
        """Keep the first steps only."""
        return World(
            self.features[:steps], self.rewards[:steps], self.chance[:steps], self.drawn[:steps], self.ties[:steps]
        )


def world_of(place: Place, seed: int) -> World:
    """Draw a run's order of rows, rewards and coins: a function of the seed."""
    contexts = place.contexts()
    steps, arms = place.steps, len(contexts.arms)
    rows = contexts.order(seed, steps)
    units = contexts.rewards(seed, rows[:, None], np.arange(arms)).reshape(steps, arms)
    rng = np.random.default_rng((seed, _COINS))
    ties = rng.permuted(np.tile(np.arange(arms), (steps, 1)), axis=1)
    return World(contexts.features[rows], units / REWARD_ONE, rng.random(steps), rng.integers(0, arms, steps), ties)


def seeds_of(runs: int) -> tuple[int, ...]:
    """World seeds of so many runs: 1, 2, ..."""
    return tuple(range(1, runs + 1))
