"""The plain twin: the same bandit without federation or protection, vectorised over seeds.

It draws from the same counter-based streams as the secure run and selects by the same integers, so for one seed both
give the same arm at every step and the same sum, bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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


def simulate(
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
) -> Outcome:
    """Run the plain bandit for every seed.

    `level` names the secure level whose twin this is: the twin of `paper` selects as its comp does, in permuted order.
    Cost: about N K evaluations of the score a seed; memory does not grow with N unless `keep_arms`.

    >>> from posse.policies import UCB
    >>> from posse.problems import BernoulliArms
    >>> outcome = simulate(BernoulliArms([0.2, 0.8]), UCB(), budget=1000, seeds=[1, 2, 3])
    >>> [int(pulls[1]) for pulls in outcome.pulls]
    [958, 976, 977]
    """
    owners = len(arms)
    check_budget(owners, budget)
    check_level(level, Switches(), policy)
    kinds, scales, ceilings = selections(policy)
    steps = points_of(budget, points)
    runs = len(seeds)
    units = np.zeros((runs, owners), np.int64)
    pulls = np.zeros((runs, owners), np.int64)
    curve = np.zeros((runs, len(steps)), np.int64)
    lost = np.zeros((runs, len(steps)))
    gaps = arms.best - arms.means
    pulled = np.zeros((runs, budget) if keep_arms else (0, 0), np.int32)
    world, keys = np.array(list(seeds), np.uint64), own_keys(seeds, owners)
    start = policy.start(owners)
    kernels(policy).twin(
        arms.world, world, keys, budget, tie_bits(owners), level == "paper", permute, mask, policy.parameters(), start,
        kinds, scales, ceilings, steps, gaps, units, pulls, curve, lost, pulled,
    )  # fmt: skip
    return Outcome(tuple(seeds), steps, curve / REWARD_ONE, lost, units, pulls, pulled if keep_arms else None)
