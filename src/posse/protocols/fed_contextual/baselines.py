"""What is earned without a model: by an arm at random, and by the best arm for all contexts."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from posse.problems.populations.population import Population
from posse.problems.populations.ragged import Ragged
from posse.problems.populations.worlds import Drift, Rewards, tag_counts

_ROUNDS = 200


class Baselines(NamedTuple):
    """Rewards a decision, over all samples of a population."""

    chance: float
    """An arm at random, each alike."""
    best: float
    """The best arm, for all contexts."""
    arm: str
    """Its name."""


def baselines(population: Population, rewards: Rewards, drift: Drift | None = None, rounds: int = 1) -> Baselines:
    """Return what needs no model; in a world that drifts, the mean over up to 200 of its rounds, evenly spread.

    >>> rows = np.zeros((4, 1), np.float32)
    >>> four = Population("four", ("a", "b"), [0, 4], rows, np.array([0, 1, 1, 1], np.int32))
    >>> baselines(four, Rewards(np.eye(2)))
    Baselines(chance=0.5, best=0.75, arm='b')
    """
    if isinstance(population.labels, Ragged):
        counts = tag_counts(population)
    else:
        counts = np.bincount(population.labels, minlength=len(population.arms))
    some = np.unique(np.linspace(0, max(1, rounds) - 1, _ROUNDS).astype(np.int64)) if drift is not None else [0]
    table = np.mean([rewards.at(drift, int(at)).table for at in some], axis=0)
    means = counts @ table / max(1, population.samples)
    best = int(means.argmax())
    return Baselines(float(means.mean()), float(means[best]), population.arms[best])
