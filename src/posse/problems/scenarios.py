"""Scenarios: what arms pay before deployment and after it.

| scenario | pre-training | bandit phase |
|---|---|---|
| `scratch` | none | 1 for the label (for a tag of the sample), else 0 |
| `init` | 100 clients, all rewards of a sample seen | the same rewards |
| `init-shift`, images | also 0.5 for a lower-case guess of an upper-case label | 1 for the label, else 0 |
| `init-shift`, tags | the 10 most frequent tags only, 1 each | all tags, in inverse proportion to their frequency |

Agarwal, McMahan, Xu: An empirical evaluation of federated contextual bandit algorithms, 2023, section 4.2. Where the
paper leaves the scale open the authors' code settles it: a tag pays (count of the most frequent tag) / (its count), so
that the most frequent pays 1 and others more (1 to 4.9 on StackOverflow). That code pre-trains on 60 % of the tags and
swaps the cases of letters; here both are as the paper says. Formulas are over an array namespace (`xp`: numpy or
jax.numpy), and importing this needs numpy alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from posse.core import check
from posse.core.errors import ConfigError, DataError
from posse.problems.counters import INITIAL, order
from posse.problems.drift import Drift
from posse.problems.populations import Population
from posse.problems.ragged import Ragged, release

SCENARIOS = ("scratch", "init", "init-shift")
INITIAL_CLIENTS = 100
PRETRAINED_TAGS = 10
NEAR = 0.5
"""Reward in pre-training for the lower-case form of an upper-case label."""

_CHUNK = 1 << 20

Array: TypeAlias = Any
"""An array of numpy or of jax; neither names the other's type."""


@dataclass(frozen=True, eq=False)
class Rewards:
    """What every arm pays for every label: `table[label, arm]`; a sample with several tags is paid the sum.

    >>> pays = Rewards(np.array([[1.0, 0.5], [0.0, 1.0]]))
    >>> pays.of(np.array([0, 0, 1]), np.array([0, 1, 0])).tolist()
    [1.0, 0.5, 0.0]
    >>> pays.of(np.array([[1, 1], [0, 0]], np.uint8), np.array([1, 1])).tolist()
    [1.5, 0.0]
    """

    table: NDArray[np.float64]

    def __post_init__(self) -> None:
        if self.table.ndim != 2 or not np.isfinite(self.table).all():
            raise DataError(f"rewards must be a table of finite numbers, labels x arms, got {self.table.shape}.")
        self.table.flags.writeable = False

    @property
    def arms(self) -> int:
        """Number of arms."""
        return int(self.table.shape[1])

    def all(self, y: Array, xp: Any = np) -> Array:
        """Give the reward of every arm, (..., arms) float32: y is (...) labels, or (..., labels) of 0 and 1 (uint8)."""
        table = xp.asarray(self.table, dtype=xp.float32)
        return xp.matmul(xp.asarray(y, dtype=xp.float32), table) if y.dtype == np.uint8 else table[y]

    def of(self, y: Array, arm: Array, xp: Any = np) -> Array:
        """Give the reward of one arm a sample, (...) float32."""
        return xp.take_along_axis(self.all(y, xp), arm[..., None], axis=-1)[..., 0]

    def at(self, drift: Drift | None, round_number: int) -> Rewards:
        """Give the rewards of a round in a world that drifts."""
        return self if drift is None else Rewards(self.table @ drift.table(round_number))


@dataclass(frozen=True, eq=False)
class Scenario:
    """Rewards of the two phases; `pretrained` clients see rewards of `pretrained_arms`, none in `scratch`."""

    name: str
    rewards: Rewards
    pretrained: int = 0
    before: Rewards | None = None
    pretrained_arms: NDArray[np.bool_] | None = None
    """(arms,) which arms' rewards are seen in pre-training; the loss is over those alone."""

    def initial(self, clients: int, seed: int) -> NDArray[np.int64]:
        """Give the clients that pre-training is on, sorted; drawn without replacement by (seed, client).

        The bandit phase may draw any client, these among them.
        """
        if self.pretrained > clients:
            raise ConfigError(
                f"scenario {self.name} pre-trains on {self.pretrained} clients, and there are {clients}. Take fewer."
            )
        return np.sort(order(seed, INITIAL, clients)[: self.pretrained])


def scenario(
    name: str, population: Population, pretrained: int = INITIAL_CLIENTS, frequency: ArrayLike | None = None
) -> Scenario:
    """Make a scenario for a population: by its labels, or by its tags.

    `frequency` is how often each tag stands in the corpus; counted in the population if left out.
    """
    check.one_of(SCENARIOS, scenario=name)
    count = len(population.arms)
    plain = Rewards(np.eye(count))
    if name == "scratch":
        return Scenario(name, plain)
    check.at_least(1, pretrained=pretrained)
    seen = np.ones(count, bool)
    if name == "init":
        return Scenario(name, plain, pretrained, plain, seen)
    if not isinstance(population.labels, Ragged):
        return Scenario(name, plain, pretrained, Rewards(near_case(population.arms)), seen)
    counts = tag_counts(population) if frequency is None else np.asarray(frequency)
    if counts.shape != (count,):
        raise DataError(f"frequency must be one count a tag, got {counts.shape} for {count} tags. Match them.")
    seen = np.zeros(count, bool)
    seen[np.argsort(-counts, kind="stable")[:PRETRAINED_TAGS]] = True
    rare = Rewards(np.diag(inverse_frequency(counts)))
    return Scenario(name, rare, pretrained, Rewards(np.diag(seen * 1.0)), seen)


def near_case(arms: tuple[str, ...]) -> NDArray[np.float64]:
    """1 for the label, 0.5 for the lower-case form of an upper-case label, else 0.

    >>> near_case(("1", "A", "a")).tolist()
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.5], [0.0, 0.0, 1.0]]
    """
    table = np.eye(len(arms))
    near = [(arms.index(arm), arms.index(arm.lower())) for arm in arms if arm.isupper() and arm.lower() in arms]
    if not near:
        raise ConfigError(
            f"init-shift needs arms that are letters of both cases, or tags, got {', '.join(arms[:4])}, .... "
            "Use scenario 'init', or EMNIST."
        )
    for upper, lower in near:
        table[upper, lower] = NEAR
    return table


def tag_counts(population: Population) -> NDArray[np.int64]:
    """How many samples have each tag; one pass, a chunk at a time."""
    if not isinstance(population.labels, Ragged):
        raise DataError(f"{population.name} has one label a sample, not tags. Give a population with tags.")
    counts, tags = np.zeros(len(population.arms), np.int64), population.labels.values
    for low in range(0, len(tags), _CHUNK):
        counts += np.bincount(tags[low : low + _CHUNK], minlength=len(counts))
    release(tags)
    return counts


def inverse_frequency(counts: ArrayLike) -> NDArray[np.float64]:
    """Reward of each tag: the largest count over its own.

    >>> inverse_frequency([200, 100, 50]).tolist()
    [1.0, 2.0, 4.0]
    """
    kept = np.asarray(counts, np.float64)
    if not len(kept) or kept.min() <= 0:
        raise DataError("every tag must stand in some sample, got a count of 0. Leave the tag out.")
    return np.asarray(kept.max() / kept)
