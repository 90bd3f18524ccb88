"""What producers deliver: the good units of a purchase, a pure function of (seed, agent, producer,
round).

Units are good with the producer's quality, independently, or follow a producer's own quality
records one after the other. One compiled function answers an agent that buys and the simulator that
buys millions of times.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from posse.core.compiled import compiled_scalar
from posse.core.exact import binomial
from posse.core.fixed import REWARD_ONE
from posse.core.random import DELIVERY, PARTIAL, uniform, words32

FOREVER = 1 << 62
"""An epoch that does not end."""
LARGEST_TABLE = 1024
"""Capacities above it have no table."""
MOST_CELLS = 8_000_000
"""Cells of all tables together (64 MB), and places in their index; where more are needed, there are
no tables.
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

    quality: NDArray[np.float64]
    every: int
    slots: NDArray[np.int64]
    keep: NDArray[np.uint32]
    other: NDArray[np.int32]
    offsets: NDArray[np.int64]
    reached: NDArray[np.float64]


@compiled_scalar
def epoch_at(supply: Supply, t: int) -> int:
    """Epoch of round t (from 1); the last one lasts for ever."""
    return int(min((t - 1) // supply.every, supply.quality.shape[0] - 1))


@compiled_scalar
def from_word(supply: Supply, epoch: int, producer: int, units: int, word: int) -> int:
    """Good units from a 32-bit word by the table (Walker's alias method), or -1 where there is no
    table.

    One multiplication makes both the cell (high half) and the number held against its threshold
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
    """Sum of the next `units` records after the `before` used already; they start again after the
    last one.

    Every agent begins at its own place, drawn once a run.
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
    """Good units of a purchase for which there is no table: replayed, or drawn from its own
    address.
    """
    if supply.offsets.shape[0] > 1:
        return replayed(supply, seed, agent, producer, before, units)
    producers = supply.quality.shape[1]
    q = supply.quality[epoch_at(supply, t), producer]
    return float(binomial(units, q, seed, PARTIAL, agent * producers + producer, t))


@compiled_scalar
def good_units(
    supply: Supply, seed: int, agent: int, producer: int, t: int, before: int, units: int
) -> float:
    """Good units among `units` that an agent buys from a producer in round t, after `before`
    earlier ones.

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
def _weights(count: int, q: float, out: NDArray[np.float64]) -> None:
    """Binomial weights up to a factor, from the mode outwards by + - * / alone."""
    out[:] = 0.0
    mode = min(int((count + 1) * q), count)
    out[mode] = 1.0
    for x in range(mode + 1, count + 1):
        out[x] = out[x - 1] * q * (count - x + 1) / (x * (1.0 - q)) if q < 1.0 else 0.0
    for x in range(mode - 1, -1, -1):
        out[x] = out[x + 1] * (1.0 - q) * (x + 1) / ((count - x) * q) if q > 0.0 else 0.0


@compiled_scalar
def _fill(weights: NDArray[np.float64], keep: NDArray[np.uint32], other: NDArray[np.int32]) -> None:
    """Vose's alias table: each cell keeps its own value below a threshold (in 2^-32), and gives
    another above it.
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
    quality: NDArray[np.float64],
    slots: NDArray[np.int64],
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


def drawn(quality: NDArray[np.float64], every: int, capacity: NDArray[np.int64]) -> Supply:
    """Make a supply whose units are drawn; full capacities, which are bought most, get tables.

    Costs one step a cell: some 0.2 ms an epoch for ten agents and thirty producers.
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


def recorded(records: list[NDArray[np.float64]]) -> Supply:
    """Make a supply that replays each producer's records; a record is rounded to 2^-24, so that
    sums are exact.
    """
    quantised = [np.floor(values * REWARD_ONE + 0.5) / REWARD_ONE for values in records]
    offsets = np.cumsum([0, *(len(values) for values in quantised)]).astype(np.int64)
    reached = np.concatenate([np.concatenate([[0.0], np.cumsum(values)]) for values in quantised])
    quality = np.array([[values.mean() for values in quantised]])
    none = np.full((1, len(records), 1), -1, np.int64)
    return Supply(
        quality, FOREVER, none, np.zeros(0, np.uint32), np.zeros(0, np.int32), offsets, reached
    )
