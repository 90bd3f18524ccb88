"""What regret is measured against: the best purchase at the true qualities, and what missing the threshold costs."""

from __future__ import annotations

import numpy as np

from posse.policies.purchase.oracle import exact
from posse.problems.markets.market import Market
from posse.protocols.dp_combinatorial.kernels import Offers, Truth


def truth_of(market: Market) -> Truth:
    r"""Solve for the best purchase of every agent in every epoch (HiGHS).

    A round costs $r(s^*) - r(s)$ in expected revenue at the true qualities if s meets the threshold there, else
    $L_j = r(s^*) + \sum_i k_{ij} \max(0, c_{ij} - \rho q_i)$: the best revenue and the worst loss.
    """
    quality, capacity = market.quality, market.capacity.astype(np.float64)
    revenue = market.rho * quality[:, None, :] - market.cost[None, :, :]
    best = np.array(
        [
            [
                float(exact(q, market.cost[j], capacity[j], market.alpha, market.rho) @ revenue[epoch, j])
                for j in range(len(market.agents))
            ]
            for epoch, q in enumerate(quality)
        ]
    )
    worst = best + (capacity * np.maximum(0.0, -revenue)).sum(axis=2)
    return Truth(revenue, quality - market.alpha, best, worst)


def offers_of(market: Market, margin: float = 0.0) -> Offers:
    """Give a market as the compiled code reads it; purchases are made for alpha and a safety margin."""
    capacity = market.capacity.astype(np.float64)
    return Offers(np.ascontiguousarray(market.cost), capacity, market.alpha + margin, market.rho)
