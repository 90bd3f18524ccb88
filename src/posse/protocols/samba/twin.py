"""The plain twin: the same bandit without federation or protection, vectorised over seeds.

It draws from the same counter-based streams as the secure run and selects by the same integers, so for one seed both
give the same arm at every step and the same sum, bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posse.core.errors import ConfigError
from posse.core.fixed import MAX_OWNERS, REWARD_ONE, tie_bits
from posse.core.random import derive
from posse.policies.arms.base import Policy
from posse.problems.arms.rewards import Arms
from posse.protocols.samba.kernels import ARGMAX, CUSTOM, MATCH, kernels
from posse.protocols.samba.levels import Switches, check_level
from posse.results.record import points_of

KINDS = {"argmax": ARGMAX, "match": MATCH, "custom": CUSTOM}


@dataclass(frozen=True)
class Outcome:
    """What plain runs gave: one row a seed."""

    seeds: tuple[int, ...]
    steps: NDArray[np.int64]
    reward: NDArray[np.float64]
    """Cumulative reward at `steps`."""
    regret: NDArray[np.float64]
    """Cumulative pseudo-regret at `steps`: the best mean less the mean of the arm pulled, added up."""
    units: NDArray[np.int64]
    """Sum of rewards of every arm, in units of 2^-24."""
    pulls: NDArray[np.int64]
    arms: NDArray[np.int32] | None
    """The arm pulled at every step, when asked for."""

    @property
    def total(self) -> tuple[float, ...]:
        """Cumulative reward of every run."""
        return tuple(float(units) / REWARD_ONE for units in self.units.sum(axis=1))


def own_keys(seeds: Sequence[int], owners: int) -> NDArray[np.uint64]:
    """Every owner's own stream in a simulated world: (seeds, owners)."""
    return np.array([[derive(seed, owner) for owner in range(owners)] for seed in seeds], np.uint64)


def selections(policy: Policy) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """Kind, scale and ceiling of every pass, as the kernels read them."""
    passes = policy.passes()
    return (
        np.array([KINDS[selection.kind] for selection in passes], np.int64),
        np.array([selection.scale for selection in passes]),
        np.array([selection.ceiling for selection in passes]),
    )


def check_budget(arms: int, budget: int) -> None:
    """Refuse a budget that does not even pull every arm once."""
    if arms < 2:
        raise ConfigError(f"owners must be at least 2, got {arms}. Ask for 2 or more.")
    if arms > MAX_OWNERS:
        raise ConfigError(f"owners must be at most {MAX_OWNERS}, got {arms}.")
    if budget < arms:
        raise ConfigError(
            f"budget must be at least the number of owners, got {budget} for {arms} owners. Raise it to {arms} or more."
        )
    if budget >= 1 << 29:
        raise ConfigError(f"budget must be below 2^29, got {budget}.")


class Twin:
    """The plain bandit for every seed side by side, from step to step.

    `level` names the secure level whose twin this is: the twin of `paper` selects as its comp does, in permuted order.
    Cost: about N K evaluations of the score a seed; memory does not grow with N unless `keep_arms`.
    """

    def __init__(
        self,
        arms: Arms,
        policy: Policy,
        budget: int,
        seeds: Sequence[int],
        *,
        level: str = "standard",
        permute: bool = True,
        mask: bool = True,
        points: int = 200,
        keep_arms: bool = False,
    ) -> None:
        owners, runs = len(arms), len(seeds)
        check_budget(owners, budget)
        check_level(level, Switches(), policy)
        self.seeds, self.budget, self.step = tuple(seeds), budget, 0
        self.steps = points_of(budget, points)
        self.units, self.pulls = np.zeros((2, runs, owners), np.int64)
        self._curve, self._lost = np.zeros((runs, len(self.steps)), np.int64), np.zeros((runs, len(self.steps)))
        self._arms = np.zeros((runs, budget) if keep_arms else (0, 0), np.int32)
        self._memory = np.full((runs, owners), policy.start(owners))
        self._earned, self._missed, self._point = np.zeros(runs, np.int64), np.zeros(runs), np.zeros(runs, np.int64)
        self._kernel = kernels(policy).twin
        self._fixed = (
            arms.world, np.array(list(seeds), np.uint64), own_keys(seeds, owners), tie_bits(owners), level == "paper",
            permute, mask, policy.parameters(), *selections(policy), arms.best - arms.means,
        )  # fmt: skip

    def advance(self, n: int) -> None:
        """Make n steps in every seed, or as many as are left."""
        first, self.step = self.step + 1, min(self.budget, self.step + n)
        world, seeds, keys, bits, published, permute, mask, parameters, kinds, scales, ceilings, gaps = self._fixed
        self._kernel(
            world, seeds, keys, first, self.step, bits, published, permute, mask, parameters, kinds, scales, ceilings,
            self.steps, gaps, self.units, self.pulls, self._curve, self._lost, self._arms, self._memory, self._earned,
            self._missed, self._point,
        )  # fmt: skip

    @property
    def outcome(self) -> Outcome:
        """What the runs gave so far; curves end where they are."""
        reached = int(np.searchsorted(self.steps, self.step, side="right"))
        arms = self._arms[:, : self.step] if self._arms.size else None
        return Outcome(
            self.seeds, self.steps[:reached], self._curve[:, :reached] / REWARD_ONE, self._lost[:, :reached].copy(),
            self.units.copy(), self.pulls.copy(), arms,
        )  # fmt: skip


def simulate(arms: Arms, policy: Policy, budget: int, seeds: Sequence[int], **options: Any) -> Outcome:
    """Run the plain bandit for every seed to the end; `options` are those of `Twin`.

    >>> from posse.policies import UCB
    >>> from posse.problems import BernoulliArms
    >>> outcome = simulate(BernoulliArms([0.2, 0.8]), UCB(), budget=1000, seeds=[1, 2, 3])
    >>> [int(pulls[1]) for pulls in outcome.pulls]
    [958, 976, 977]
    """
    twin = Twin(arms, policy, budget, seeds, **options)
    twin.advance(budget)
    return twin.outcome
