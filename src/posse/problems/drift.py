"""Worlds that change: what a label pays, as a function of the round and a seed.

A drift gives for a round the (labels, arms) table by which rewards are multiplied from the right: rewards of a sample
with label l are row l of `table @ drift.table(round)`. Tables are small (62 x 62), and made of draws at an address, so
that any round can be asked for at any time and by anyone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from posse.core import check
from posse.problems.counters import DRIFT, order, uniforms


class Drift(Protocol):
    """A world that changes with the round; the same round gives the same table."""

    def table(self, round_number: int) -> NDArray[np.float64]:
        """Give the (arms, arms) table of a round."""
        ...


@dataclass(frozen=True)
class LabelDrift:
    """Labels change their meaning: every `every` rounds a share of the arms swaps meaning among themselves.

    In period p = round // every the arm that pays for label l is the image of l under p successive permutations; each
    moves `share` of the arms (at least 2) in a cycle and leaves the others. Period 0 is the world as it is.

    >>> LabelDrift(arms=5, every=10, share=0.4, seed=3).mapping(25).tolist()
    [0, 4, 1, 3, 2]
    """

    arms: int
    every: int
    share: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        check.at_least(2, arms=self.arms)
        check.at_least(1, every=self.every)
        check.between(0, 1, open_low=True, share=self.share)

    def mapping(self, round_number: int) -> NDArray[np.int64]:
        """Give the arm that each label stands for in a round; O(periods arms log arms)."""
        meaning = np.arange(self.arms)
        moved = max(2, round(self.share * self.arms))
        for period in range(1, round_number // self.every + 1):
            cycle = order(self.seed, DRIFT, self.arms, period)[:moved]
            step = np.arange(self.arms)
            step[cycle] = np.roll(cycle, 1)
            meaning = step[meaning]
        return meaning

    def table(self, round_number: int) -> NDArray[np.float64]:
        """Give the permutation as a table of 0 and 1."""
        return np.eye(self.arms)[self.mapping(round_number)]


@dataclass(frozen=True)
class ValueDrift:
    """Arms change their value: arm k pays 1 - depth (1 + sin(2 pi (round / period + u_k))) / 2 of what it paid.

    u_k is a draw for each arm, so that arms have their seasons at different times; a value lies in [1 - depth, 1].

    >>> ValueDrift(arms=3, period=100, depth=0.5, seed=1).values(0).round(3).tolist()
    [0.841, 0.663, 0.504]
    """

    arms: int
    period: float
    depth: float = 0.5
    seed: int = 0

    def __post_init__(self) -> None:
        check.at_least(2, arms=self.arms)
        check.positive(period=self.period)
        check.between(0, 1, depth=self.depth)

    def values(self, round_number: int) -> NDArray[np.float64]:
        """Give the value of each arm in a round."""
        season = uniforms(self.seed, DRIFT, np.arange(self.arms)) + round_number / self.period
        return 1 - self.depth * (1 + np.sin(2 * math.pi * season)) / 2

    def table(self, round_number: int) -> NDArray[np.float64]:
        """Give the values on a diagonal."""
        return np.diag(self.values(round_number))
