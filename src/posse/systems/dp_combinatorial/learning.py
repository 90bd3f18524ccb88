"""What an agent does with what it knows: choose a purchase, make a message, learn from one.

Functions of one agent's own arrays (one number a producer), compiled: the agents of a federation
and the simulator call the same ones.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from posse.core.compiled import compiled_short_loops
from posse.policies.purchase.oracle import greedy, quality_bounds, rate
from posse.privacy.dp.noise import whole_noise

Floats = NDArray[np.float64]

POOL, ACCEPT, FUSE, SUM = 0, 1, 2, 3
"""How to learn from a message: take everything, accept by width and weight, fuse by inverse
variance, or add it up whatever its sign.
"""


class Knowledge(NamedTuple):
    """What an agent knows of each producer: arrays of its own, or a row an agent in the
    simulator.
    """

    units: Floats
    """Units it has bought."""
    good: Floats
    """Good ones among them."""
    told_units: Floats
    """Units it learnt of from messages, as they count."""
    told_good: Floats
    sent_units: Floats
    """Its own units up to its last message."""
    sent_good: Floats


def nothing_known(*shape: int) -> Knowledge:
    """Make the knowledge of an agent before its first round."""
    return Knowledge(*(np.zeros(shape) for _ in Knowledge._fields))


def qualities(known: Knowledge) -> Floats:
    """Share of good units of each producer, an agent's own and those reported to it; NaN where it
    saw none.
    """
    units = known.units + known.told_units
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(
            np.clip((known.good + known.told_good) / np.where(units > 0, units, np.nan), 0, 1)
        )


@compiled_short_loops
def choose(
    reach: float,
    good: Floats,
    units: Floats,
    told_good: Floats,
    told_units: Floats,
    cost: Floats,
    capacity: Floats,
    alpha: float,
    rho: float,
    out: Floats,
    bounds: Floats,
    work: Floats,
) -> None:
    """Write the purchase of a round into `out`, and the optimistic qualities it was made with into
    `bounds`.

    `reach` is `rate(t, coefficient)`.
    """
    quality_bounds(reach, good, units, told_good, told_units, bounds)
    greedy(bounds, cost, capacity, alpha, rho, out, work)


@compiled_short_loops
def explore(capacity: Floats, out: Floats) -> None:
    """Write the purchase of a round of pure exploration: one unit of every producer that the agent
    deals with.
    """
    for i in range(out.shape[0]):
        out[i] = min(1.0, capacity[i])


@compiled_short_loops
def remember(purchase: Floats, delivered: Floats, units: Floats, good: Floats) -> None:
    """Add a round of the agent's own to what it knows."""
    for i in range(purchase.shape[0]):
        units[i] += purchase[i]
        good[i] += delivered[i]


@compiled_short_loops
def draw_noise(key: int, number: int, sigma: Floats, out: Floats) -> None:
    """Write the noise of message `number` into `out` (2, producers), from the agent's own key in a
    simulation.
    """
    for i in range(sigma.shape[0]):
        out[0, i], out[1, i] = whole_noise(key, number, i, sigma[i])


@compiled_short_loops
def release(
    units: Floats,
    good: Floats,
    sent_units: Floats,
    sent_good: Floats,
    noise: Floats,
    sigma: Floats,
    out: Floats,
) -> None:
    """Write a message into `out` (2, producers): units and good units since the last one, with
    noise; note them sent.

    Noise is a whole number, and so is what it is added to: a fraction would show through. Without
    noise (sigma 0) the numbers are as they are. Producers that the agent does not deal with stay 0.
    """
    for i in range(sigma.shape[0]):
        fresh = good[i] - sent_good[i]
        out[0, i] = units[i] - sent_units[i] + noise[0, i]
        out[1, i] = math.floor(fresh + 0.5) + noise[1, i] if sigma[i] > 0.0 else fresh
        sent_units[i] = units[i]
        sent_good[i] = good[i]


@compiled_short_loops
def learn(
    rule: int,
    t: int,
    width: float,
    weight: float,
    message: Floats,
    sigma: Floats,
    good: Floats,
    units: Floats,
    told_good: Floats,
    told_units: Floats,
) -> int:
    """Learn from one message in round t; return from how many of its entries, one a producer,
    something was learnt.

    Entries with no positive number of units say nothing and are left out, but by `SUM`: of many
    noisy entries only the sum of all says something. `POOL` and `SUM` add an entry as it is.
    `ACCEPT` (width w, weight v; procedure CheckandUpdate of the paper) takes an entry whose quality
    lies within w sqrt(3 ln t / (2 W)) of the agent's estimate so far, and counts it v times. `FUSE`
    turns an entry into as many effective units as its variance is worth: with noise of deviation s
    in both numbers a ratio of w units has variance about 1 / (4 w) + s^2 (1 + q^2) / w^2, that of w
    / (1 + 4 s^2 (1 + q^2) / w) units; entries with w < 2 s say too little.
    """
    reach = rate(t, width)
    entries = 0
    for i in range(units.shape[0]):
        w, y = message[0, i], message[1, i]
        if w <= 0.0 and rule != SUM:
            continue
        counted, counted_good = w, y
        if rule == ACCEPT:
            seen = units[i] + told_units[i]
            if seen > 0.0:
                away = y / w - (good[i] + told_good[i]) / seen
                if away * away > reach / seen:
                    continue
            counted, counted_good = weight * w, weight * y
        elif rule == FUSE:
            if w < 2.0 * sigma[i]:
                continue
            q = min(1.0, max(0.0, y / w))
            counted = w / (1.0 + 4.0 * sigma[i] * sigma[i] * (1.0 + q * q) / w)
            counted_good = counted * q
        told_units[i] += counted
        told_good[i] += counted_good
        entries += 1
    return entries
