"""Arms whose rewards are a pure function of (seed, arm, pull number).

A reward is a whole number of units of 2^-24, so that sums do not depend on their order. All kinds
of arms are described by the same arrays, read by one compiled function: an owner calls it for its
own pull, the simulator millions of times, and both see the same world.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from posse.core.check import first_repeated
from posse.core.compiled import compiled_scalar
from posse.core.errors import ConfigError
from posse.core.exact import beta
from posse.core.fixed import to_units
from posse.core.random import REWARD, uniform

BERNOULLI, BETA, TABLE = 0, 1, 2


class World(NamedTuple):
    """Arms as the compiled code reads them."""

    kind: int
    first: NDArray[np.float64]
    second: NDArray[np.float64]
    offsets: NDArray[np.int64]
    table: NDArray[np.float64]


@compiled_scalar
def reward(world: World, seed: int, arm: int, pull: int) -> int:
    """Reward units of the `pull`-th pull of `arm` (both count from 0)."""
    if world.kind == BETA:
        return to_units(beta(world.first[arm], world.second[arm], seed, REWARD, arm, pull))
    return simple_reward(world, seed, arm, pull)


@compiled_scalar
def simple_reward(world: World, seed: int, arm: int, pull: int) -> int:
    """`reward` of arms that are not `BETA`: it compiles in a third of the time."""
    u = uniform(seed, REWARD, arm, pull, 0)
    if world.kind == BERNOULLI:
        return to_units(1.0 if u < world.first[arm] else 0.0)
    low = world.offsets[arm]
    return to_units(world.table[low + int(u * (world.offsets[arm + 1] - low))])


_NOTHING = np.zeros(0)
_NO_OFFSETS = np.zeros(1, np.int64)


def _valid(values: ArrayLike, field: str, what: str) -> NDArray[np.float64]:
    array = np.asarray(values, np.float64)
    if array.ndim != 1:
        raise ConfigError(
            f"{what} must be one list of numbers, got an array of {array.ndim} dimensions.",
            rule=f"problems.{field}.not-a-list",
        )
    for i, value in enumerate(array):
        if not (0.0 <= value <= 1.0):
            raise ConfigError(
                f"{what} must be in [0, 1], got {value} at position {i + 1}.",
                rule=f"problems.{field}.out-of-range",
            )
    return array


@dataclass(frozen=True, eq=False)
class Arms:
    """A bandit problem: K arms with means, names and where they come from."""

    means: NDArray[np.float64]
    names: tuple[str, ...]
    source: str
    world: World = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.means) < 2:
            raise ConfigError(
                f"a bandit needs at least 2 arms, got {len(self.means)}.",
                rule="problems.arms.too-few",
            )
        if len(self.names) != len(self.means):
            raise ConfigError(
                f"expected one name an arm, got {len(self.names)} names for {len(self.means)} "
                "arms.",
                rule="problems.names.number",
            )
        twice = first_repeated(self.names)
        if twice is not None:
            raise ConfigError(
                f"arm names must differ, got '{twice}' twice.", rule="problems.names.arms-twice"
            )

    def __len__(self) -> int:
        return len(self.means)

    @property
    def kind(self) -> str:
        """What a pull gives: bernoulli, beta or resampled."""
        return ("bernoulli", "beta", "resampled")[self.world.kind]

    @property
    def best(self) -> float:
        """Largest mean."""
        return float(self.means.max())

    def reward(self, seed: int, arm: int, pull: int) -> int:
        """Reward units of one pull.

        >>> arms = BernoulliArms([0.2, 0.8])
        >>> [arms.reward(7, 1, pull) >> 24 for pull in range(8)]
        [1, 0, 1, 0, 1, 1, 0, 1]
        """
        draw = reward if self.world.kind == BETA else simple_reward
        return int(draw(self.world, np.uint64(seed), arm, pull))

    def describe(self) -> dict[str, Any]:
        """What a record keeps of the problem."""
        return {
            "kind": self.kind,
            "names": list(self.names),
            "means": [float(mean) for mean in self.means],
            "source": self.source,
        }


def _names(names: Sequence[str] | None, count: int) -> tuple[str, ...]:
    return tuple(names) if names is not None else tuple(f"arm-{i + 1}" for i in range(count))


def BernoulliArms(means: ArrayLike, names: Sequence[str] | None = None, source: str = "") -> Arms:
    """Arms that pay 1 with probability `mean`, else 0."""
    array = _valid(means, "means", "means")
    world = World(BERNOULLI, array, _NOTHING, _NO_OFFSETS, _NOTHING)
    return Arms(array, _names(names, len(array)), source, world)


def BetaArms(
    means: ArrayLike,
    concentration: float = 10.0,
    names: Sequence[str] | None = None,
    source: str = "",
) -> Arms:
    """Arms that pay a Beta(mean c, (1 - mean) c) number, c the concentration; means strictly inside
    (0, 1).
    """
    array = _valid(means, "means", "means")
    if not (concentration >= 0.05 and math.isfinite(concentration)):
        raise ConfigError(
            f"concentration must be at least 0.05, got {concentration}. Use BernoulliArms for 0 "
            "and 1.",
            rule="problems.concentration.too-small",
        )
    if np.any((array <= 0) | (array >= 1)):
        raise ConfigError(
            "means of beta arms must be strictly between 0 and 1. Use BernoulliArms for arms that "
            "never vary.",
            rule="problems.means.not-inside",
        )
    world = World(BETA, array * concentration, (1.0 - array) * concentration, _NO_OFFSETS, _NOTHING)
    return Arms(array, _names(names, len(array)), source, world)


def EmpiricalArms(
    samples: Sequence[ArrayLike], names: Sequence[str] | None = None, source: str = ""
) -> Arms:
    """Arms that pay one of their observed rewards, drawn with replacement."""
    tables = [
        _valid(sample, "samples", f"rewards of arm {i + 1}") for i, sample in enumerate(samples)
    ]
    for i, table in enumerate(tables):
        if not len(table):
            raise ConfigError(f"arm {i + 1} has no observed reward.", rule="problems.samples.empty")
    if not tables:
        raise ConfigError("a bandit needs at least 2 arms, got 0.", rule="problems.samples.too-few")
    offsets = np.cumsum([0] + [len(table) for table in tables]).astype(np.int64)
    means = np.array([table.mean() for table in tables])
    world = World(TABLE, _NOTHING, _NOTHING, offsets, np.concatenate(tables))
    return Arms(means, _names(names, len(tables)), source, world)
