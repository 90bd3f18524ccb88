"""What to buy at given qualities: the greedy oracle in closed form.

Maximise $\\sum_i l_i r_i$ with $r_i = \\rho q_i - c_i$ subject to $\\sum_i l_i (q_i - \\alpha) \\ge 0$ and
$0 \\le l_i \\le k_i$. Take everything that pays. If that meets the threshold it is optimal. Otherwise quality is bought
where it costs least revenue: by giving up units that pay but lower the average, or taking units that raise it but do
not pay, in the order of revenue lost per quality gained, until the deficit is gone. That is the fractional optimum;
the last producer is rounded towards quality, so the purchase is always feasible, and falls short of the best whole
one by at most $\\max_i |r_i|$ (subset selection of Deva, Abhishek, Gujar 2021).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from posse.core.compiled import loops

TOLERANCE = 1e-9
"""How far below the threshold an average counts as meeting it: the rounding of floats, no more."""


@loops
def _sum(values: NDArray[np.float64]) -> float:
    """Sum in four strands, in an order that is always the same."""
    a = b = c = d = 0.0
    count = values.shape[0]
    for i in range(0, count - 3, 4):
        a += values[i]
        b += values[i + 1]
        c += values[i + 2]
        d += values[i + 3]
    for i in range(count - count % 4, count):
        a += values[i]
    return (a + b) + (c + d)


@loops
def meets(surplus: float, units: float) -> bool:
    """Whether a purchase of `units` with $\\sum l_i (q_i - \\alpha)$ = `surplus` has the wanted average quality."""
    return surplus >= -TOLERANCE * units


@loops
def greedy(
    quality: NDArray[np.float64],
    cost: NDArray[np.float64],
    capacity: NDArray[np.float64],
    alpha: float,
    rho: float,
    out: NDArray[np.float64],
    work: NDArray[np.float64],
) -> None:
    """Write how many units to buy from each producer; `work` is scratch of the same length.

    O(m), and O(m log m) where the threshold binds. Ties go to the producer that stands first.

    >>> out, work = np.empty(2), np.empty(2)
    >>> greedy(np.array([0.9, 0.3]), np.array([0.5, 0.1]), np.array([10.0, 100.0]), 0.4, 1.0, out, work)
    >>> out.tolist()
    [10.0, 50.0]
    """
    for i in range(out.shape[0]):
        units = capacity[i] if rho * quality[i] - cost[i] > 0.0 else 0.0
        out[i] = units
        work[i] = units * (quality[i] - alpha)
    surplus = _sum(work)
    if surplus < 0.0 and not meets(surplus, _sum(out)):
        _repair(quality, cost, capacity, alpha, rho, out, -surplus)


@loops
def _repair(
    quality: NDArray[np.float64],
    cost: NDArray[np.float64],
    capacity: NDArray[np.float64],
    alpha: float,
    rho: float,
    out: NDArray[np.float64],
    deficit: float,
) -> None:
    """Close a deficit of quality at the smallest loss of revenue."""
    price = np.empty(out.shape[0])
    for i in range(out.shape[0]):
        revenue, gain = rho * quality[i] - cost[i], quality[i] - alpha
        helps = (revenue > 0.0) == (gain < 0.0) and gain != 0.0 and capacity[i] > 0.0
        price[i] = -revenue / gain if helps else np.inf
    for i in np.argsort(price, kind="mergesort"):  # stable: of equal prices the first producer goes first
        if price[i] == np.inf:
            return
        step = abs(quality[i] - alpha)
        units = min(capacity[i], np.ceil(deficit / step - TOLERANCE))
        out[i] += -units if quality[i] < alpha else units
        deficit -= units * step
        if deficit <= TOLERANCE * step:
            return
