"""Loops of a market without federation as one would write them in an afternoon: plain Python, and
numpy a round.
"""

from __future__ import annotations

import math
import random

import numpy as np

from posse.problems.markets.market import Market


def python_loop(market: Market, rounds: int) -> float:
    """Return the revenue of one run, one producer at a time."""
    earned = 0.0
    for j in range(len(market.agents)):
        cost, capacity = market.cost[j].tolist(), market.capacity[j].tolist()
        quality, m = market.quality[0].tolist(), len(market.producers)
        units, good = [0] * m, [0] * m
        for t in range(1, rounds + 1):
            reach = 1.5 * math.log(t)
            bounds = [
                min(1.0, good[i] / units[i] + math.sqrt(reach / units[i])) if units[i] else 1.0
                for i in range(m)
            ]
            chosen = [i for i in range(m) if bounds[i] > cost[i]]
            if sum(capacity[i] * (bounds[i] - market.alpha) for i in chosen) < 0:
                continue  # the threshold binds: a rare round, left out
            for i in chosen:
                found = sum(random.random() < quality[i] for _ in range(capacity[i]))
                units[i] += capacity[i]
                good[i] += found
                earned += found - cost[i] * capacity[i]
    return earned


def numpy_loop(market: Market, rounds: int) -> float:
    """Return the revenue of one run, all agents and producers of a round at once."""
    rng = np.random.default_rng(1)
    units, good = np.zeros(market.cost.shape), np.zeros(market.cost.shape)
    earned = 0.0
    quality = np.broadcast_to(market.quality[0], market.cost.shape)
    for t in range(1, rounds + 1):
        seen = np.maximum(units, 1.0)
        bounds = np.where(
            units > 0, np.minimum(1.0, good / seen + np.sqrt(1.5 * np.log(t) / seen)), 1.0
        )
        bought = np.where(bounds > market.cost, market.capacity, 0)
        bought[(bought * (bounds - market.alpha)).sum(axis=1) < 0] = 0
        found = rng.binomial(bought, quality)
        units += bought
        good += found
        earned += float((found - market.cost * bought).sum())
    return earned
