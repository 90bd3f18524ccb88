"""Reward against eta = log(|A| / epsilon), with eta = infinity (no exploration) at its end: figures 3 and 6."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from posse.experiments.base import Table
from posse.experiments.mpc_contextual.problem import Floats, Place, world_of
from posse.experiments.mpc_contextual.statistics import Mean, mean_of, verdict
from posse.experiments.output import Row
from posse.protocols.mpc_contextual import floats

HELPS, HARMS = "exploring earns more", "exploring earns less"


def rate(eta: float, arms: int) -> float:
    """Return the exploration rate of a published eta: |A| exp(-eta).

    >>> rate(math.inf, 10), round(rate(math.log(100), 10), 12)
    (0.0, 0.1)
    """
    return arms * math.exp(-eta)


def grid(arms: int, low: float, high: float, step: float) -> tuple[float, ...]:
    """Etas from low to high whose rate is at most 1/2, and infinity.

    >>> grid(10, 2.0, 4.0, 0.5)
    (3.0, 3.5, 4.0, inf)
    """
    count = round((high - low) / step) + 1
    finite = (low + step * i for i in range(count))
    return (*(eta for eta in finite if rate(eta, arms) <= 0.5), math.inf)


def rewards_of(place: Place, etas: Sequence[float], lengths: Sequence[int], seed: int) -> Floats:
    """Average rewards (etas, lengths) of one seed: a run of T steps begins with the runs of all smaller T."""
    world = world_of(place, seed)
    arms = world.rewards.shape[1]
    found = np.empty((len(etas), len(lengths)))
    for i, eta in enumerate(etas):
        sums = floats.run(world.features, world.rewards, world.coins(rate(eta, arms))).rewards.cumsum()
        found[i] = [sums[length - 1] / length for length in lengths]
    return found


@dataclass(frozen=True, eq=False)
class Line:
    """One line of the figure: what it is of, and the average reward of every run at every eta."""

    label: str
    arms: int
    steps: int
    etas: tuple[float, ...]
    rewards: Floats
    """(runs, etas)"""

    @cached_property
    def means(self) -> Floats:
        """Mean over runs at every eta."""
        found: Floats = self.rewards.mean(axis=0)
        return found

    @property
    def best(self) -> int:
        """Number of the eta that earns most over all runs, infinity included."""
        return int(self.means.argmax())

    @property
    def near(self) -> tuple[float, ...]:
        """Etas that are not clearly below the best: the interval of the paired difference reaches 0."""
        gaps = [mean_of(self.rewards[:, self.best] - self.rewards[:, i]) for i in range(len(self.etas))]
        return tuple(eta for eta, gap in zip(self.etas, gaps, strict=True) if not gap.low > 0)

    @cached_property
    def benefit(self) -> tuple[float, Mean]:
        """The finite eta that earns most in the first half of the runs, and what it earns above infinity in the others.

        Chosen and tested on different runs: the largest of a dozen means is above the rest by chance alone.
        """
        half = len(self.rewards) // 2
        chosen = int(self.rewards[:half, :-1].mean(axis=0).argmax())
        return self.etas[chosen], mean_of(self.rewards[half:, chosen] - self.rewards[half:, -1])

    @property
    def verdict(self) -> str:
        """Whether exploring helps here."""
        return verdict(self.benefit[1], HELPS, HARMS)

    def rows(self) -> list[Row]:
        """Every run at every eta."""
        return [
            {
                "arms": self.arms, "steps": self.steps, "seed": seed + 1, "eta": eta,
                "epsilon": rate(eta, self.arms), "average_reward": float(self.rewards[seed, i]),
            }
            for seed in range(len(self.rewards))
            for i, eta in enumerate(self.etas)
        ]  # fmt: skip


def benefit_table(lines: Sequence[Line], first: str) -> Table:
    """Say for every line where it earns most, and whether exploring beats not exploring."""
    rows = []
    for line in lines:
        chosen, gain = line.benefit
        rows.append((
            line.label, mean_of(line.rewards[:, -1]).text(), name(line.etas[line.best]),
            mean_of(line.rewards[:, line.best]).text(), _span(line.near), name(chosen), gain.text(2, 100, sign=True),
            line.verdict,
        ))  # fmt: skip
    columns = (
        first, "reward at eta = infinity", "eta of the best mean", "reward there", "etas not clearly below it",
        "eta chosen in half the runs", "its gain over infinity in the others, percent points", "so",
    )  # fmt: skip
    return Table("Does exploring earn more? Means over runs ± 95 % t interval", columns, tuple(rows))


def eta_table(lines: Sequence[Line], first: str) -> Table:
    """Mean reward at every eta."""
    etas = sorted({eta for line in lines for eta in line.etas})
    rows = []
    for line in lines:
        at = dict(zip(line.etas, line.means, strict=True))
        rows.append((line.label, *(f"{at[eta]:.4f}" if eta in at else "–" for eta in etas)))
    return Table("Mean reward at every eta", (first, *(name(eta) for eta in etas)), tuple(rows))


def name(eta: float) -> str:
    """Write an eta.

    >>> name(5.5), name(math.inf)
    ('5.5', 'infinity')
    """
    return "infinity" if math.isinf(eta) else f"{eta:g}"


def _span(etas: Sequence[float]) -> str:
    return name(etas[0]) if len(etas) == 1 else f"{name(etas[0])} to {name(etas[-1])}"
