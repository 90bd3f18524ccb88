"""Arms whose rewards are a pure function of (seed, arm, pull number).

A reward is a whole number of units of 2^-24, so that sums do not depend on their order. The same
arrays describe all kinds of arms. One compiled function reads them: an owner calls it for its own
pull and the simulator calls it millions of times, so both see the same world.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from posse.core.check import first_repeated
from posse.core.compiled import compiled_scalar
from posse.core.errors import ConfigError
from posse.core.exact import beta
from posse.core.fixed import to_units
from posse.core.random import REWARD, uniform
from posse.problems.requirements import Floats, Ints, Requirement, check_all, check_entries

BERNOULLI, BETA, TABLE = 0, 1, 2


class World(NamedTuple):
    """Arms as the compiled code reads them."""

    kind: int
    first: Floats
    second: Floats
    offsets: Ints
    table: Floats


@compiled_scalar
def reward(world: World, seed: int, arm: int, pull: int) -> int:
    """Return the reward units of a pull of an arm; both count from 0."""
    if world.kind == BETA:
        return to_units(beta(world.first[arm], world.second[arm], seed, REWARD, arm, pull))
    return simple_reward(world, seed, arm, pull)


@compiled_scalar
def simple_reward(world: World, seed: int, arm: int, pull: int) -> int:
    """Return the reward of arms that are not `BETA`. It compiles in a third of the time."""
    u = uniform(seed, REWARD, arm, pull, 0)
    if world.kind == BERNOULLI:
        return to_units(1.0 if u < world.first[arm] else 0.0)
    low = world.offsets[arm]
    return to_units(world.table[low + int(u * (world.offsets[arm + 1] - low))])


_NOTHING = np.zeros(0)
_NO_OFFSETS = np.zeros(1, np.int64)


def _in_unit_range(values: ArrayLike, field: str, what: str) -> Floats:
    """Return a list of numbers in [0, 1]; raise if it is anything else."""
    array = np.asarray(values, np.float64)
    if array.ndim != 1:
        raise ConfigError(
            f"{what} must be one list of numbers, got an array of {array.ndim} dimensions.",
            rule=f"problems.{field}.not-a-list",
        )
    check_entries(
        (array >= 0.0) & (array <= 1.0),
        lambda place: ConfigError(
            f"{what} must be in [0, 1], got {array[place]} at position {place[0] + 1}.",
            rule=f"problems.{field}.out-of-range",
        ),
    )
    return array


@dataclass(frozen=True, eq=False)
class Arms:
    """A bandit problem: K arms with means, names and a source."""

    means: Floats
    names: tuple[str, ...]
    source: str
    world: World = field(repr=False)

    def __post_init__(self) -> None:
        check_all(self, _ARMS)

    def __len__(self) -> int:
        return len(self.means)

    @property
    def kind(self) -> str:
        """Kind of rewards: bernoulli, beta or resampled."""
        return ("bernoulli", "beta", "resampled")[self.world.kind]

    @property
    def best(self) -> float:
        """Largest mean."""
        return float(self.means.max())

    def reward(self, seed: int, arm: int, pull: int) -> int:
        """Return the reward units of one pull.

        >>> arms = BernoulliArms([0.2, 0.8])
        >>> [arms.reward(7, 1, pull) >> 24 for pull in range(8)]
        [1, 0, 1, 0, 1, 1, 0, 1]
        """
        draw = reward if self.world.kind == BETA else simple_reward
        return int(draw(self.world, np.uint64(seed), arm, pull))

    def describe(self) -> dict[str, Any]:
        """Return what a record stores of the problem."""
        return {
            "kind": self.kind,
            "names": list(self.names),
            "means": self.means.tolist(),
            "source": self.source,
        }


_ARMS: tuple[Requirement[Arms], ...] = (
    Requirement(
        "problems.arms.too-few",
        lambda arms: len(arms.means) >= 2,
        lambda arms: f"a bandit needs at least 2 arms, got {len(arms.means)}.",
    ),
    Requirement(
        "problems.names.number",
        lambda arms: len(arms.names) == len(arms.means),
        lambda arms: (
            f"expected one name per arm, got {len(arms.names)} names for {len(arms.means)} arms."
        ),
    ),
    Requirement(
        "problems.names.arms-twice",
        lambda arms: len(set(arms.names)) == len(arms.names),
        lambda arms: f"arm names must differ, got '{first_repeated(arms.names)}' twice.",
    ),
)


def _make_arms(means: Floats, names: Sequence[str] | None, source: str, world: World) -> Arms:
    if names is None:
        names = [f"arm-{number}" for number in range(1, len(means) + 1)]
    return Arms(means, tuple(names), source, world)


def BernoulliArms(means: ArrayLike, names: Sequence[str] | None = None, source: str = "") -> Arms:
    """Make arms that pay 1 with probability `mean`, else 0."""
    array = _in_unit_range(means, "means", "means")
    world = World(BERNOULLI, array, _NOTHING, _NO_OFFSETS, _NOTHING)
    return _make_arms(array, names, source, world)


def BetaArms(
    means: ArrayLike,
    concentration: float = 10.0,
    names: Sequence[str] | None = None,
    source: str = "",
) -> Arms:
    """Make arms that pay a Beta(mean c, (1 - mean) c) number; c is the concentration.

    All means must be above 0 and below 1.
    """
    array = _in_unit_range(means, "means", "means")
    if not 0.05 <= concentration < math.inf:
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
    return _make_arms(array, names, source, world)


def EmpiricalArms(
    samples: Sequence[ArrayLike], names: Sequence[str] | None = None, source: str = ""
) -> Arms:
    """Make arms that pay one of their observed rewards, drawn with replacement."""
    tables = [
        _in_unit_range(sample, "samples", f"rewards of arm {number}")
        for number, sample in enumerate(samples, 1)
    ]
    sizes = np.array([len(table) for table in tables], np.int64)
    check_entries(
        sizes > 0,
        lambda place: ConfigError(
            f"arm {place[0] + 1} has no observed reward.", rule="problems.samples.empty"
        ),
    )
    if not tables:
        raise ConfigError("a bandit needs at least 2 arms, got 0.", rule="problems.samples.too-few")
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    means = np.array([table.mean() for table in tables])
    world = World(TABLE, _NOTHING, _NOTHING, offsets, np.concatenate(tables))
    return _make_arms(means, names, source, world)
