"""A market: producers with a quality, and agents with their own costs and capacities.

In each round agent j may buy up to `capacity[j, i]` units from producer i at `cost[j, i]` each. A
good unit is worth `rho`. The average quality of a purchase must be at least `alpha`. A capacity of 0
means that the agent and the producer do not deal.

The good units of a purchase are a pure function of (seed, agent, producer, round). Units are good
with the quality of the producer, independently, or follow the producer's own records one after the
other. One compiled function serves an agent that buys and the simulator that buys millions of times.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from posse.core import check
from posse.core.compiled import compiled_scalar
from posse.core.errors import ConfigError
from posse.core.exact import binomial
from posse.core.fixed import REWARD_ONE
from posse.core.random import DELIVERY, PARTIAL, uniform, words32
from posse.problems.requirements import Floats, Ints, Mask, check_entries

FOREVER = 1 << 62
"""An epoch that does not end."""
LARGEST_TABLE = 1024
"""Capacities above it have no table."""
MOST_CELLS = 8_000_000
"""Most cells of all tables together (64 MB). If more are needed, there are no tables.
"""

_S32 = np.uint64(32)
_MASK32 = np.uint64(0xFFFFFFFF)


class Supply(NamedTuple):
    """Producers as the compiled code reads them.

    `quality` has one row per epoch of `every` rounds. `slots[epoch, producer, units]` is where the
    table for that number of units begins, or -1. Records of producer i are `offsets[i]` to
    `offsets[i + 1]`; `reached` sums them up, with a leading zero for each producer; no records, and
    units are drawn.
    """

    quality: Floats
    every: int
    slots: Ints
    keep: NDArray[np.uint32]
    other: NDArray[np.int32]
    offsets: Ints
    reached: Floats


@compiled_scalar
def epoch_at(supply: Supply, t: int) -> int:
    """Return the epoch of round t, which counts from 1. The last epoch does not end."""
    return int(min((t - 1) // supply.every, supply.quality.shape[0] - 1))


@compiled_scalar
def from_word(supply: Supply, epoch: int, producer: int, units: int, word: int) -> int:
    """Return good units from a 32-bit word by the table (Walker's alias method), or -1 without one.

    One multiplication gives the cell (high half) and the number that is compared with its threshold
    (low half). Each cell is short or long by at most one word, so a probability is off by at most
    (units + 2) 2^-32.
    """
    if units >= supply.slots.shape[2]:
        return -1
    slot = supply.slots[epoch, producer, units]
    if slot < 0:
        return -1
    scaled = np.uint64(word) * np.uint64(units + 1)
    cell = np.int64(scaled >> _S32)
    other = np.int64(
        supply.other[slot + cell]
    )  # read in any case: no branch that the processor would guess wrong
    return int(cell if (scaled & _MASK32) < np.uint64(supply.keep[slot + cell]) else other)


@compiled_scalar
def replayed(
    supply: Supply, seed: int, agent: int, producer: int, before: int, units: int
) -> float:
    """Return the sum of the next `units` records, after the `before` records that were used.

    After the last record the first one follows.

    Every agent begins at its own place, drawn once per run.
    """
    low, high = supply.offsets[producer], supply.offsets[producer + 1]
    length = high - low
    place = (int(uniform(seed, PARTIAL, agent, 0, producer) * length) + before) % length
    first = low + producer
    cycles = units // length
    end = place + units % length
    total = cycles * supply.reached[first + length] - supply.reached[first + place]
    if end > length:
        return float(total + supply.reached[first + length] + supply.reached[first + end - length])
    return float(total + supply.reached[first + end])


@compiled_scalar
def untabled(
    supply: Supply, seed: int, agent: int, producer: int, t: int, before: int, units: int
) -> float:
    """Return the good units of a purchase without a table: replayed, or drawn from its own address."""
    if supply.offsets.shape[0] > 1:
        return replayed(supply, seed, agent, producer, before, units)
    producers = supply.quality.shape[1]
    q = supply.quality[epoch_at(supply, t), producer]
    return float(binomial(units, q, seed, PARTIAL, agent * producers + producer, t))


@compiled_scalar
def good_units(
    supply: Supply, seed: int, agent: int, producer: int, t: int, before: int, units: int
) -> float:
    """Return the good units among `units` that an agent buys from a producer in round t.

    The agent has bought `before` units in earlier rounds.

    Four producers share a counter: of b = ceil(m / 4) counters, producer i reads word i // b of
    counter i mod b.
    """
    if units == 0:
        return 0.0
    blocks = (supply.quality.shape[1] + 3) // 4
    four = words32(seed, DELIVERY, agent, t, producer % blocks)
    place = producer // blocks
    word = four[0] if place == 0 else four[1] if place == 1 else four[2] if place == 2 else four[3]
    tabled = from_word(supply, epoch_at(supply, t), producer, units, word)
    if tabled >= 0:
        return float(tabled)
    return untabled(supply, seed, agent, producer, t, before, units)


@compiled_scalar
def _weights(count: int, q: float, out: Floats) -> None:
    """Compute binomial weights up to a factor, from the mode outwards, only by + - * /."""
    out[:] = 0.0
    mode = min(int((count + 1) * q), count)
    out[mode] = 1.0
    for x in range(mode + 1, count + 1):
        out[x] = out[x - 1] * q * (count - x + 1) / (x * (1.0 - q)) if q < 1.0 else 0.0
    for x in range(mode - 1, -1, -1):
        out[x] = out[x + 1] * (1.0 - q) * (x + 1) / ((count - x) * q) if q > 0.0 else 0.0


@compiled_scalar
def _fill(weights: Floats, keep: NDArray[np.uint32], other: NDArray[np.int32]) -> None:
    """Make Vose's alias table.

    Each cell has a threshold in units of 2^-32. A draw below it gives the value of the cell itself,
    any other draw gives the value of another cell.
    """
    n = weights.shape[0]
    total = 0.0
    for i in range(n):  # numpy would add in another order than compiled code does
        total += weights[i]
    shares = weights * (n / total)
    small, large = np.empty(n, np.int64), np.empty(n, np.int64)
    smalls = larges = 0
    for i in range(n):
        if shares[i] < 1.0:
            small[smalls] = i
            smalls += 1
        else:
            large[larges] = i
            larges += 1
    while smalls > 0 and larges > 0:
        smalls -= 1
        low, high = small[smalls], large[larges - 1]
        keep[low] = np.uint32(min(shares[low] * 4294967296.0, 4294967295.0))
        other[low] = high
        shares[high] -= 1.0 - shares[low]
        if shares[high] < 1.0:
            larges -= 1
            small[smalls] = high
            smalls += 1
    for i in range(larges):
        keep[large[i]], other[large[i]] = np.uint32(4294967295), large[i]
    for i in range(smalls):
        keep[small[i]], other[small[i]] = np.uint32(4294967295), small[i]


@compiled_scalar
def _tables(
    quality: Floats,
    slots: Ints,
    keep: NDArray[np.uint32],
    other: NDArray[np.int32],
) -> None:
    for epoch in range(slots.shape[0]):
        for producer in range(slots.shape[1]):
            for units in range(slots.shape[2]):
                slot = slots[epoch, producer, units]
                if slot >= 0:
                    weights = np.empty(units + 1)
                    _weights(units, quality[epoch, producer], weights)
                    _fill(weights, keep[slot : slot + units + 1], other[slot : slot + units + 1])


def drawn(quality: Floats, every: int, capacity: Ints) -> Supply:
    """Make a supply whose units are drawn. Full capacities, which are bought most, have tables.

    It costs one step per cell: about 0.2 ms per epoch for ten agents and thirty producers.
    """
    tabled = np.zeros((capacity.shape[1], min(int(capacity.max()), LARGEST_TABLE) + 1), bool)
    agent, producer = np.nonzero((capacity > 0) & (capacity <= LARGEST_TABLE))
    tabled[producer, capacity[agent, producer]] = True
    sizes = np.where(tabled, np.arange(tabled.shape[1]) + 1, 0)
    sizes = np.broadcast_to(sizes, (len(quality), *sizes.shape))
    cells = int(sizes.sum())
    if max(cells, sizes.size) > MOST_CELLS:
        sizes, cells = np.zeros((len(quality), capacity.shape[1], 1), np.int64), 0
    ends = np.cumsum(sizes).reshape(sizes.shape)
    slots = np.where(sizes > 0, ends - sizes, -1).astype(np.int64)
    keep, other = np.zeros(cells, np.uint32), np.zeros(cells, np.int32)
    _tables(quality, slots, keep, other)
    return Supply(quality, every, slots, keep, other, np.zeros(1, np.int64), np.zeros(0))


def recorded(records: list[Floats]) -> Supply:
    """Make a supply that replays each producer's records, rounded to 2^-24 so that sums are exact."""
    quantised = [np.floor(values * REWARD_ONE + 0.5) / REWARD_ONE for values in records]
    offsets = np.cumsum([0, *(len(values) for values in quantised)]).astype(np.int64)
    reached = np.concatenate([np.concatenate([[0.0], np.cumsum(values)]) for values in quantised])
    quality = np.array([[values.mean() for values in quantised]])
    none = np.full((1, len(records), 1), -1, np.int64)
    return Supply(
        quality, FOREVER, none, np.zeros(0, np.uint32), np.zeros(0, np.int32), offsets, reached
    )


MOST_UNITS = 10**9
"""Largest capacity."""


@dataclass(frozen=True, eq=False)
class Market:
    """Producers, agents, and what each round delivers."""

    cost: Floats
    """(agents, producers): price of a unit."""
    capacity: Ints
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
    def quality(self) -> Floats:
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

    def describe(self) -> dict[str, Any]:
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


def _qualities_by_epoch(quality: ArrayLike | None, producers: int) -> Floats:
    """Return qualities, (epochs, producers)."""
    rows = np.atleast_2d(_qualities(quality, "quality"))
    if rows.ndim != 2 or not rows.size:
        raise ConfigError(
            f"qualities must be epochs x producers, got an array of shape {rows.shape}.",
            rule="problems.quality.not-a-table",
        )
    _check_producers(rows.shape[1], producers)
    return rows


def _records_by_producer(records: Sequence[ArrayLike], producers: int) -> list[Floats]:
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


def _check_offers(cost: Floats, capacity: Floats) -> None:
    if cost.ndim != 2 or capacity.shape != cost.shape or not cost.size:
        raise ConfigError(
            f"costs and capacities must be agents x producers, got {cost.shape} and "
            f"{capacity.shape}. Give both one row per agent and one column per producer.",
            rule="problems.cost.not-a-table",
        )
    for name, values in (("cost", cost), ("capacity", capacity)):
        good = np.isfinite(values) & (values >= 0)
        _check_pairs(name, "negative", "a finite number >= 0", values, good)
    integral = capacity == np.floor(capacity)
    _check_pairs("capacity", "fraction", "a whole number", capacity, integral)
    small = capacity <= MOST_UNITS
    _check_pairs("capacity", "too-large", "at most 10^9 units a round", capacity, small)


def _check_pairs(name: str, problem: str, text: str, values: Floats, good: Mask) -> None:
    """Raise if a number about a pair of an agent and a producer is not good."""
    check_entries(
        good,
        lambda pair: ConfigError(
            f"{name} must be {text}, got {values[pair]:.12g} for agent {pair[0] + 1} and producer "
            f"{pair[1] + 1}. Correct it.",
            rule=f"problems.{name}.{problem}",
        ),
    )


def _numbers(values: ArrayLike | None, name: str) -> Floats:
    try:
        return np.array(values, np.float64)
    except (TypeError, ValueError):
        raise ConfigError(
            f"{name} must be numbers in rows of equal length, got {values!r:.60}. Correct it.",
            rule=f"problems.{name}.not-numbers",
        ) from None


def _qualities(values: ArrayLike | None, what: str) -> Floats:
    array = _numbers(values, "quality")
    check_entries(
        (array >= 0) & (array <= 1),
        lambda place: ConfigError(
            f"{what} must be in [0, 1], got {array[place]:g}. Scale it.",
            rule="problems.quality.out-of-range",
        ),
    )
    return array


def _check_reachable(quality: Floats, capacity: Ints, alpha: float, names: tuple[str, ...]) -> None:
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
