"""The best whole purchase, by branch and bound: HiGHS through scipy.

Thousands of times slower than `greedy`: for the best possible purchase that regret is measured against, for
tests, and for who wants it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from posse.core.extras import require
from posse.policies.purchase import TOLERANCE


def exact(
    quality: NDArray[np.float64], cost: NDArray[np.float64], capacity: NDArray[np.float64], alpha: float, rho: float
) -> NDArray[np.float64]:
    """Return the units to buy from each producer that maximise revenue at the wanted average quality.

    >>> exact(np.array([0.9, 0.3]), np.array([0.5, 0.1]), np.array([10.0, 100.0]), 0.4, 1.0).tolist()
    [10.0, 50.0]
    """
    optimize = require("scipy.optimize", extra="dp")
    revenue = rho * quality - cost
    everything = np.where(revenue > 0, capacity, 0.0)
    if float(everything @ (quality - alpha)) >= -TOLERANCE * float(everything.sum()):
        return everything
    constraint = optimize.LinearConstraint((quality - alpha + TOLERANCE)[None, :], 0, np.inf)
    found = optimize.milp(
        -revenue,
        constraints=constraint,
        integrality=np.ones(len(revenue)),
        bounds=optimize.Bounds(0, capacity),
        options={"mip_rel_gap": 0.0},
    )
    if found.x is None:
        raise RuntimeError(f"HiGHS found no purchase, though the empty one is feasible: {found.message}")
    whole: NDArray[np.float64] = np.round(found.x)
    return whole
