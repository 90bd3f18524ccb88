"""What to buy, and how good producers may be: the purchase oracles and the optimistic quality they
use.

Maximise $\\sum_i l_i r_i$ with $r_i = \\rho q_i - c_i$ subject to $\\sum_i l_i (q_i - \\alpha) \\ge
0$ and $0 \\le l_i \\le k_i$. `greedy` is the closed form. Take everything that pays. If that meets
the threshold it is optimal. Otherwise quality is bought where it costs least revenue: by giving up
units that pay but lower the average, or taking units that raise it but do not pay, in the order of
revenue lost per quality gained, until the deficit is gone. That is the fractional optimum; the last
producer is rounded towards quality, so the purchase is always feasible, and falls short of the best
whole one by at most $\\max_i |r_i|$. `exact` is the best whole purchase.

`quality_bounds` is the optimistic estimate from the units seen so far, Y good ones among W: $q^+ =
\\min(1, Y / W + c \\sqrt{3 \\ln t / (2 W)})$, and 1 where W = 0. Deva, Abhishek, Gujar: A multi-arm
bandit approach to subset selection under constraints, AAMAS 2021; the paper on federated buyers
prints the width three ways, of which this is the one that fits its experiments.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from posse.core.check import require
from posse.core.compiled import compiled_short_loops
from posse.core.exact import log

TOLERANCE = 1e-9
"""How far below the threshold an average counts as meeting it: the rounding of floats, no more."""


@compiled_short_loops
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


@compiled_short_loops
def meets(surplus: float, units: float) -> bool:
    """Whether a purchase of `units` with $\\sum l_i (q_i - \\alpha)$ = `surplus` has the wanted
    average quality.
    """
    return surplus >= -TOLERANCE * units


@compiled_short_loops
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
    >>> greedy(
    ...     np.array([0.9, 0.3]), np.array([0.5, 0.1]), np.array([10.0, 100.0]), 0.4, 1.0, out, work
    ... )
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


@compiled_short_loops
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
    for i in np.argsort(
        price, kind="mergesort"
    ):  # stable: of equal prices the first producer goes first
        if price[i] == np.inf:
            return
        step = abs(quality[i] - alpha)
        units = min(capacity[i], np.ceil(deficit / step - TOLERANCE))
        out[i] += -units if quality[i] < alpha else units
        deficit -= units * step
        if deficit <= TOLERANCE * step:
            return


def exact(
    quality: NDArray[np.float64],
    cost: NDArray[np.float64],
    capacity: NDArray[np.float64],
    alpha: float,
    rho: float,
) -> NDArray[np.float64]:
    """Return the units to buy from each producer that maximise revenue at the wanted average
    quality.

    HiGHS through scipy, thousands of times slower than `greedy`: for the purchase that regret is
    measured against.

    >>> exact(
    ...     np.array([0.9, 0.3]), np.array([0.5, 0.1]), np.array([10.0, 100.0]), 0.4, 1.0
    ... ).tolist()
    [10.0, 50.0]
    """
    optimize = require("scipy.optimize", extra="dp")
    revenue = rho * quality - cost
    everything = np.where(revenue > 0, capacity, 0.0)
    if float(everything @ (quality - alpha)) >= -TOLERANCE * float(everything.sum()):
        return everything
    constraint = optimize.LinearConstraint((quality - alpha + TOLERANCE)[None, :], 0, np.inf)
    solution = optimize.milp(
        -revenue,
        constraints=constraint,
        integrality=np.ones(len(revenue)),
        bounds=optimize.Bounds(0, capacity),
        options={"mip_rel_gap": 0.0},
    )
    if solution.x is None:
        raise RuntimeError(
            f"HiGHS found no purchase, though the empty one is feasible: {solution.message}"
        )
    return np.asarray(np.round(solution.x))


@compiled_short_loops
def rate(t: int, coefficient: float) -> float:
    """Square of the width at W = 1: $c^2 \\, 3 \\ln t / 2$."""
    return coefficient * coefficient * (1.5 * log(float(t)))


@compiled_short_loops
def quality_bounds(
    rate: float,
    good: NDArray[np.float64],
    units: NDArray[np.float64],
    shared_good: NDArray[np.float64],
    shared_units: NDArray[np.float64],
    out: NDArray[np.float64],
) -> None:
    """Write the optimistic quality of every producer, from an agent's own units and those that
    others shared.

    >>> out, none = np.empty(2), np.zeros(2)
    >>> quality_bounds(
    ...     rate(100, 1.0), np.array([300.0, 0.0]), np.array([600.0, 0.0]), none, none, out
    ... )
    >>> out.round(3).tolist()
    [0.607, 1.0]
    """
    for i in range(out.shape[0]):
        seen = units[i] + shared_units[i]
        inverse = 1.0 / (seen if seen > 0.0 else 1.0)
        bound = (good[i] + shared_good[i]) * inverse + math.sqrt(rate * inverse)
        bound = 0.0 if bound < 0.0 else bound
        bound = 1.0 if bound > 1.0 else bound
        out[i] = bound if seen > 0.0 else 1.0
