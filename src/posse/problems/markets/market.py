"""A market: producers with a quality, and agents with their own costs and capacities.

In each round agent j may buy up to `capacity[j, i]` units from producer i at `cost[j, i]` each. A
good unit is worth `rho`. The average quality of a purchase must be at least `alpha`. A capacity of 0
means that the agent and the producer do not deal.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from posse.core import check
from posse.core.errors import ConfigError
from posse.problems.markets.supply import FOREVER, Supply, drawn, good_units, recorded
from posse.problems.requirements import check_entries

MOST_UNITS = 10**9
"""Largest capacity."""


@dataclass(frozen=True, eq=False)
class Market:
    """Producers, agents, and what each round delivers."""

    cost: NDArray[np.float64]
    """(agents, producers): price of a unit."""
    capacity: NDArray[np.int64]
    """(agents, producers): most units per round."""
    alpha: float
    """Smallest average quality of a purchase."""
    rho: float
    """Value of a good unit."""
    producers: tuple[str, ...]
    agents: tuple[str, ...]
    source: str
    supply: Supply = field(repr=False)

    def __post_init__(self) -> None:
        for array in (self.cost, self.capacity, self.supply.quality):
            array.flags.writeable = False

    @property
    def quality(self) -> NDArray[np.float64]:
        """(epochs, producers): true quality; one row if qualities do not change."""
        return self.supply.quality

    def good(self, seed: int, agent: int, producer: int, t: int, before: int, units: int) -> float:
        """Return the good units among `units` that are bought in round t, which counts from 1.

        The agent has bought `before` units of this producer in earlier rounds.

        >>> market = make_market([0.9, 0.1], [[0.2, 0.2]], [[10, 10]], alpha=0.4)
        >>> [market.good(7, 0, i, 1, 0, 10) for i in (0, 1)]
        [7.0, 0.0]
        """
        return float(good_units(self.supply, np.uint64(seed), agent, producer, t, before, units))

    def describe(self) -> dict[str, object]:
        """Return what a record stores of the problem."""
        return {
            "names": list(self.producers),
            "means": self.quality[0].tolist(),
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
    """Make a market.

    Args:
        quality: Qualities of producers: one row, or one row per epoch of `every` rounds.
        cost: Price of a unit, one row per agent.
        capacity: Most units per round, one row per agent.
        alpha: Smallest average quality of a purchase.
        rho: Value of a good unit.
        every: Rounds of an epoch.
        records: Instead of `quality`: qualities in [0, 1] of past units of each producer, in the
            order of delivery. The market replays them.
        producers: Names of producers.
        agents: Names of agents.
        source: Where the market comes from.

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
    if (quality is None) == (records is None):
        raise ConfigError(
            "a market has qualities or quality records, one of the two. Give one.",
            rule="problems.quality.and-records",
        )
    units = capacities.astype(np.int64)
    if records is None:
        supply = drawn(_qualities_by_epoch(quality, units.shape[1]), int(every), units)
    else:
        supply = recorded(_records_by_producer(records, units.shape[1]))
    names = _names(producers, costs.shape[1], "producer")
    _check_reachable(supply.quality, units, alpha, names)
    buyers = _names(agents, costs.shape[0], "agent")
    return Market(costs, units, float(alpha), float(rho), names, buyers, source, supply)


def _qualities_by_epoch(quality: ArrayLike | None, producers: int) -> NDArray[np.float64]:
    """Return qualities, (epochs, producers)."""
    rows = np.atleast_2d(_qualities(quality, "quality"))
    if rows.ndim != 2 or not rows.size:
        raise ConfigError(
            f"qualities must be epochs x producers, got an array of shape {rows.shape}.",
            rule="problems.quality.not-a-table",
        )
    _check_producers(rows.shape[1], producers)
    return rows


def _records_by_producer(records: Sequence[ArrayLike], producers: int) -> list[NDArray[np.float64]]:
    """Return the quality records of each producer."""
    tables = [
        _qualities(values, f"a record of producer {number}").ravel()
        for number, values in enumerate(records, 1)
    ]
    sizes = np.array([len(values) for values in tables] or [0])
    check_entries(
        sizes > 0,
        lambda place: ConfigError(
            f"producer {place[0] + 1} has no quality record. Add one, or leave the producer out.",
            rule="problems.records.empty",
        ),
    )
    _check_producers(len(tables), producers)
    return tables


def _check_producers(qualities: int, offers: int) -> None:
    if qualities != offers:
        raise ConfigError(
            f"expected one quality per producer, got {qualities} for {offers} columns of costs. "
            "Give as many qualities as columns.",
            rule="problems.quality.number",
        )


def _check_offers(cost: NDArray[np.float64], capacity: NDArray[np.float64]) -> None:
    if cost.ndim != 2 or capacity.shape != cost.shape or not cost.size:
        raise ConfigError(
            f"costs and capacities must be agents x producers, got {cost.shape} and "
            f"{capacity.shape}. Give both one row per agent and one column per producer.",
            rule="problems.cost.not-a-table",
        )
    _check_pairs("cost", "negative", "a finite number >= 0", cost, np.isfinite(cost) & (cost >= 0))
    _check_pairs(
        "capacity",
        "negative",
        "a finite number >= 0",
        capacity,
        np.isfinite(capacity) & (capacity >= 0),
    )
    _check_pairs("capacity", "fraction", "a whole number", capacity, capacity == np.floor(capacity))
    _check_pairs(
        "capacity", "too-large", "at most 10^9 units a round", capacity, capacity <= MOST_UNITS
    )


def _check_pairs(
    name: str, problem: str, text: str, values: NDArray[np.float64], good: NDArray[np.bool_]
) -> None:
    """Raise if a number about a pair of an agent and a producer is not good."""
    check_entries(
        good,
        lambda pair: ConfigError(
            f"{name} must be {text}, got {values[pair]:.12g} for agent {pair[0] + 1} and producer "
            f"{pair[1] + 1}. Correct it.",
            rule=f"problems.{name}.{problem}",
        ),
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
    check_entries(
        (array >= 0) & (array <= 1),
        lambda place: ConfigError(
            f"{what} must be in [0, 1], got {array[place]:g}. Scale it.",
            rule="problems.quality.out-of-range",
        ),
    )
    return array


def _check_reachable(
    quality: NDArray[np.float64], capacity: NDArray[np.int64], alpha: float, names: tuple[str, ...]
) -> None:
    """Raise if no agent can meet alpha in any epoch: all agents would buy nothing."""
    offered = (capacity > 0).any(axis=0)
    if not offered.any():
        raise ConfigError(
            "no agent can buy anything: every capacity is 0. Give at least one above 0.",
            rule="problems.capacity.all-zero",
        )
    best = np.where(offered, quality.max(axis=0), -1.0)
    producer = int(best.argmax())
    if best[producer] < alpha:
        # Rounded down: the suggested number must be within reach.
        reach = math.floor(best[producer] * 1e4) / 1e4
        raise ConfigError(
            f"alpha = {alpha:g} is out of reach: the best quality on offer is "
            f"{best[producer]:.6g} ({names[producer]}). Choose alpha at or below {reach:g}.",
            rule="problems.alpha.out-of-reach",
        )


def _names(chosen: Sequence[str] | None, count: int, what: str) -> tuple[str, ...]:
    if chosen is None:
        return tuple(f"{what}-{number}" for number in range(1, count + 1))
    names = tuple(chosen)
    if len(names) != count:
        raise ConfigError(
            f"expected {count} {what} names, got {len(names)}. Give one per {what}.",
            rule=f"problems.{what}.names-number",
        )
    if len(set(names)) != count:
        raise ConfigError(
            f"{what} names must differ, got '{check.first_repeated(names)}' twice. Rename one.",
            rule=f"problems.{what}.names-twice",
        )
    return names
