"""Student's t: how far a mean of few runs can be trusted, without scipy."""

from __future__ import annotations

import math


def p_value(t: float, df: int) -> float:
    r"""Return the two-sided $P(|T| \ge |t|)$ of Student's t with `df` degrees of freedom.

    With $\theta = \arctan(|t| / \sqrt\nu)$ the probability of the inside is a finite sum of powers of $\cos\theta$
    (Abramowitz and Stegun 26.7.3 and 26.7.4): O(df) operations, right to about 1e-14.

    >>> round(p_value(12.706, 1), 5), round(p_value(-2.776, 4), 5), p_value(0.0, 7)
    (0.05, 0.05002, 1.0)
    """
    theta = math.atan(abs(t) / math.sqrt(df))
    cos, odd = math.cos(theta), df % 2
    term = cos if odd else 1.0
    terms = term if df > 1 else 0.0
    for k in range(2 + odd, df, 2):
        term *= (k - 1) / k * cos * cos
        terms += term
    inside = math.sin(theta) * terms
    return max(0.0, 1 - (2 / math.pi * (theta + inside) if odd else inside))


def quantile(level: float, df: int) -> float:
    r"""Return the t with $P(|T| \le t)$ = `level` (below 1), by bisection.

    >>> [round(quantile(0.95, df), 3) for df in (1, 2, 4, 9)]
    [12.706, 4.303, 2.776, 2.262]
    """
    low, high = 0.0, 1.0
    while p_value(high, df) > 1 - level:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if p_value(middle, df) > 1 - level else (low, middle)
    return high
