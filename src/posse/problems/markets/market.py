"""A market: producers with a quality, and agents with their own costs and capacities.

Agent j may buy up to `capacity[j, i]` units a round from producer i at `cost[j, i]` each; a good
unit is worth `rho`. The average quality of what it buys must be at least `alpha`. A capacity of 0
means that the two do not deal.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from posse.core import check
from posse.core.errors import ConfigError
from posse.problems.markets.supply import FOREVER, Supply, drawn, good_units, recorded

MOST_UNITS = 10**9
"""Largest capacity."""


@dataclass(frozen=True, eq=False)
class Market:
    """Producers, agents, and what each round delivers."""

    cost: NDArray[np.float64]
    """(agents, producers) price of a unit."""
    capacity: NDArray[np.int64]
    """(agents, producers) most units a round."""
    alpha: float
    """Smallest average quality of a purchase."""
    rho: float
    """What a good unit is worth."""
    producers: tuple[str, ...]
    agents: tuple[str, ...]
    source: str
    supply: Supply = field(repr=False)

    def __post_init__(self) -> None:
        for array in (self.cost, self.capacity, self.supply.quality):
            array.flags.writeable = False

    @property
    def quality(self) -> NDArray[np.float64]:
        """(epochs, producers) true quality; one row where it does not change."""
        return self.supply.quality

    def good(self, seed: int, agent: int, producer: int, t: int, before: int, units: int) -> float:
        """Good units among `units` bought in round t (from 1), after `before` earlier ones.

        >>> market = make_market([0.9, 0.1], [[0.2, 0.2]], [[10, 10]], alpha=0.4)
        >>> [market.good(7, 0, i, 1, 0, 10) for i in (0, 1)]
        [7.0, 0.0]
        """
        return float(good_units(self.supply, np.uint64(seed), agent, producer, t, before, units))

    def describe(self) -> dict[str, Any]:
        """What a record keeps of the problem."""
        return {
            "names": list(self.producers),
            "means": [float(q) for q in self.quality[0]],
            "agents": list(self.agents),
            "alpha": self.alpha,
            "rho": self.rho,
            "epochs": len(self.quality),
            "source": self.source,
        }


def make_market(
    quality: ArrayLike | None,
    cost: ArrayLike,
    capacity: ArrayLike,
    *,
    alpha: float,
    rho: float = 1.0,
    every: int = FOREVER,
    records: Sequence[ArrayLike] | None = None,
    producers: Sequence[str] | None = None,
    agents: Sequence[str] | None = None,
    source: str = "",
) -> Market:
    """Make a market from qualities (one row, or one per epoch of `every` rounds) or from quality
    records to replay.

    Costs and capacities have one row per agent. A record is one unit's quality in [0, 1], in the
    order of delivery.

    >>> market = make_market(
    ...     None, [[1.5, 2.0]], [[5, 5]], alpha=0.4, rho=4.0, records=[[1, 0, 1, 1], [0.25, 0.75]]
    ... )
    >>> market.quality.tolist()
    [[0.75, 0.5]]
    """
    costs = np.atleast_2d(_numbers(cost, "cost"))
    capacities = np.atleast_2d(_numbers(capacity, "capacity"))
    _check_offers(costs, capacities)
    check.between(0, 1, alpha=alpha)
    check.positive(rho=rho)
    check.at_least(1, every=every)
    units = capacities.astype(np.int64)
    supply = _supply(quality, records, every, units)
    names = _names(producers, costs.shape[1], "producer")
    _check_reachable(supply.quality, units, alpha, names)
    buyers = _names(agents, costs.shape[0], "agent")
    return Market(costs, units, float(alpha), float(rho), names, buyers, source, supply)


def _supply(
    quality: ArrayLike | None,
    records: Sequence[ArrayLike] | None,
    every: int,
    capacity: NDArray[np.int64],
) -> Supply:
    if (quality is None) == (records is None):
        raise ConfigError(
            "a market has qualities or quality records, one of the two. Give one.",
            rule="problems.quality.and-records",
        )
    if records is None:
        rows = np.atleast_2d(_qualities(quality, "quality"))
        if rows.ndim != 2 or not rows.size:
            raise ConfigError(
                f"qualities must be epochs x producers, got an array of shape {rows.shape}.",
                rule="problems.quality.not-a-table",
            )
        _check_producers(rows.shape[1], capacity.shape[1])
        return drawn(rows, int(every), capacity)
    tables = [
        _qualities(values, f"a record of producer {i + 1}").ravel()
        for i, values in enumerate(records)
    ]
    empty = next((i for i, values in enumerate(tables) if not values.size), None)
    if empty is not None or not tables:
        raise ConfigError(
            f"producer {(empty or 0) + 1} has no quality record. Add one, or leave the producer "
            "out.",
            rule="problems.records.empty",
        )
    _check_producers(len(tables), capacity.shape[1])
    return recorded(tables)


def _check_producers(qualities: int, offers: int) -> None:
    if qualities != offers:
        raise ConfigError(
            f"expected one quality a producer, got {qualities} for {offers} columns of costs. "
            "Give as many of one as of the other.",
            rule="problems.quality.number",
        )


def _check_offers(cost: NDArray[np.float64], capacity: NDArray[np.float64]) -> None:
    if cost.ndim != 2 or capacity.shape != cost.shape or not cost.size:
        raise ConfigError(
            f"costs and capacities must be agents x producers, got {cost.shape} and "
            f"{capacity.shape}. "
            "Give both one row per agent and one column per producer.",
            rule="problems.cost.not-a-table",
        )
    for name, values in (("cost", cost), ("capacity", capacity)):
        finite = np.isfinite(values) & (values >= 0)
        _refuse(
            ~finite, f"problems.{name}.negative", f"{name} must be a finite number >= 0", values
        )
    fraction = capacity != np.floor(capacity)
    _refuse(fraction, "problems.capacity.fraction", "capacity must be a whole number", capacity)
    large = capacity > MOST_UNITS
    text = "capacity must be at most 10^9 units a round"
    _refuse(large, "problems.capacity.too-large", text, capacity)


def _refuse(wrong: NDArray[np.bool_], rule: str, text: str, values: NDArray[np.float64]) -> None:
    if wrong.any():
        j, i = np.argwhere(wrong)[0]
        raise ConfigError(
            f"{text}, got {values[j, i]:.12g} for agent {j + 1} and producer {i + 1}. Correct it.",
            rule=rule,
        )


def _numbers(values: ArrayLike | None, name: str) -> NDArray[np.float64]:
    try:
        return np.array(values, np.float64)
    except (TypeError, ValueError):
        raise ConfigError(
            f"{name} must be numbers in rows of equal length, got {values!r:.60}. Correct it.",
            rule=f"problems.{name}.not-numbers",
        ) from None


def _qualities(values: ArrayLike | None, what: str) -> NDArray[np.float64]:
    array = _numbers(values, "quality")
    wrong = array[~((array >= 0) & (array <= 1))]
    if wrong.size:
        raise ConfigError(
            f"{what} must be in [0, 1], got {wrong[0]:g}. Scale it.",
            rule="problems.quality.out-of-range",
        )
    return array


def _check_reachable(
    quality: NDArray[np.float64], capacity: NDArray[np.int64], alpha: float, names: tuple[str, ...]
) -> None:
    """Refuse a threshold that no agent can meet in any epoch: all would buy nothing."""
    offered = (capacity > 0).any(axis=0)
    if not offered.any():
        raise ConfigError(
            "no agent can buy anything: every capacity is 0. Give at least one above 0.",
            rule="problems.capacity.all-zero",
        )
    best = np.where(offered, quality.max(axis=0), -1.0)
    i = int(best.argmax())
    if best[i] < alpha:
        ever = " in any epoch" if len(quality) > 1 else ""
        # Rounded down: the number that is suggested must itself be within reach.
        reach = math.floor(best[i] * 1e4) / 1e4
        raise ConfigError(
            f"alpha = {alpha:g} is out of reach: the best quality on offer{ever} is {best[i]:.6g} "
            f"({names[i]}). "
            f"Choose alpha at or below {reach:g}.",
            rule="problems.alpha.out-of-reach",
        )


def _names(chosen: Sequence[str] | None, count: int, what: str) -> tuple[str, ...]:
    names = tuple(chosen) if chosen is not None else tuple(f"{what}-{i + 1}" for i in range(count))
    if len(names) != count:
        raise ConfigError(
            f"expected {count} {what} names, got {len(names)}. Give one each.",
            rule=f"problems.{what}.names-number",
        )
    twice = check.first_repeated(names)
    if twice is not None:
        raise ConfigError(
            f"{what} names must differ, got '{twice}' twice. Rename one.",
            rule=f"problems.{what}.names-twice",
        )
    return names
