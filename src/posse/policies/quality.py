"""Quality UCB: an optimistic estimate of each producer's quality from the units seen so far.

$q^+ = \\min(1, Y / W + c \\sqrt{3 \\ln t / (2 W)})$ with Y good units among W; 1 where W = 0.

Deva, Abhishek, Gujar: A multi-arm bandit approach to subset selection under constraints, AAMAS 2021; the paper on
federated buyers prints the width three ways, of which this is the one that fits its experiments.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from posse.core.compiled import loops
from posse.core.exact import log


@loops
def rate(t: int, coefficient: float) -> float:
    """Square of the width at W = 1: $c^2 \\, 3 \\ln t / 2$."""
    return coefficient * coefficient * (1.5 * log(float(t)))


@loops
def quality_bounds(
    rate: float,
    good: NDArray[np.float64],
    units: NDArray[np.float64],
    told_good: NDArray[np.float64],
    told_units: NDArray[np.float64],
    out: NDArray[np.float64],
) -> None:
    """Write the optimistic quality of every producer, from an agent's own units and those it was told of.

    >>> out, none = np.empty(2), np.zeros(2)
    >>> quality_bounds(rate(100, 1.0), np.array([300.0, 0.0]), np.array([600.0, 0.0]), none, none, out)
    >>> out.round(3).tolist()
    [0.607, 1.0]
    """
    for i in range(out.shape[0]):
        seen = units[i] + told_units[i]
        inverse = 1.0 / (seen if seen > 0.0 else 1.0)
        bound = (good[i] + told_good[i]) * inverse + math.sqrt(rate * inverse)
        bound = 0.0 if bound < 0.0 else bound
        bound = 1.0 if bound > 1.0 else bound
        out[i] = bound if seen > 0.0 else 1.0
