"""Whether two mean rewards agree: differences in standard errors.

Three differences are taken. `z` counts the published runs as independent. They are not (see `replay`): they share one
world, so their mean is uncertain by that world's luck as well. `z_world` adds it: N numbers that all runs are paid by,
of which a share p pays, vary by sqrt(N p (1 - p)). `z_replay` instead replays our policies in their world, where that
luck cancels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from posse.experiments.output import Row

LIMIT = 3.0
"""Differences below so many standard errors count as agreement."""
BEYOND = math.erfc(LIMIT / math.sqrt(2.0))
"""Chance of a difference beyond the limit between numbers that do agree."""


@dataclass(frozen=True)
class Estimate:
    """A mean over runs."""

    mean: float
    sd: float
    runs: int

    @property
    def error(self) -> float:
        """Standard error of the mean of independent runs."""
        return self.sd / math.sqrt(self.runs)

    def __str__(self) -> str:
        return f"{self.mean:.0f} ± {self.error:.0f}"


def estimate(rewards: ArrayLike) -> Estimate:
    """Mean and sample standard deviation of the rewards of runs.

    >>> estimate([1.0, 3.0])
    Estimate(mean=2.0, sd=1.4142135623730951, runs=2)
    """
    values = np.asarray(rewards, np.float64)
    return Estimate(float(values.mean()), float(values.std(ddof=1)), len(values))


def z_score(ours: Estimate, theirs: Estimate, *, world: float = 0.0) -> float:
    """(ours - theirs) / sqrt(error_ours^2 + error_theirs^2 + world^2), world the sd of a luck that their runs share.

    >>> z_score(Estimate(10.0, 3.0, 9), Estimate(8.0, 4.0, 4))
    0.8944271909999159
    """
    return (ours.mean - theirs.mean) / math.sqrt(ours.error**2 + theirs.error**2 + world**2)


def world_sd(theirs: Estimate, budget: int) -> float:
    """Luck of a world that all runs share: sqrt(N p (1 - p)), p their reward a pull.

    >>> world_sd(Estimate(20.0, 1.0, 50), 100)
    4.0
    """
    share = theirs.mean / budget
    return math.sqrt(budget * share * (1.0 - share))


def verdict(z: float) -> str:
    """The word for a difference."""
    return "agrees" if abs(z) < LIMIT else "differs"


@dataclass(frozen=True)
class Comparison:
    """One cell of the published rewards beside ours, in our world and replayed in theirs."""

    kind: str
    dataset: str
    policy: str
    arms: int
    budget: int
    ours: Estimate
    replayed: Estimate
    theirs: Estimate

    @property
    def z(self) -> float:
        """Our world against theirs, their runs counted as independent."""
        return z_score(self.ours, self.theirs)

    @property
    def z_world(self) -> float:
        """Our world against theirs, with the luck of their one world in the error."""
        return z_score(self.ours, self.theirs, world=world_sd(self.theirs, self.budget))

    @property
    def z_replay(self) -> float:
        """Our policies in their world against their rewards."""
        return z_score(self.replayed, self.theirs)

    def row(self) -> Row:
        """The comparison as a row of the raw file."""
        row: dict[str, str | int | float] = {
            "kind": self.kind, "dataset": self.dataset, "policy": self.policy, "K": self.arms, "N": self.budget,
        }  # fmt: skip
        for name, one in (("ours", self.ours), ("replayed", self.replayed), ("published", self.theirs)):
            row |= {f"{name}_mean": one.mean, f"{name}_sd": one.sd, f"{name}_runs": one.runs}
        for name, z in (("z", self.z), ("z_world", self.z_world), ("z_replay", self.z_replay)):
            row |= {name: z, f"{name}_verdict": verdict(z)}
        return row
