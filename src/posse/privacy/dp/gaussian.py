"""The Gaussian mechanism, exactly: how far apart noise of standard deviation sigma leaves two
adjacent inputs.

mu = sensitivity / sigma says it all: the two outputs are N(0, 1) and N(mu, 1). Several releases
about the same data have mu = sqrt(mu_1^2 + mu_2^2 + ...). Balle and Wang: Improving the Gaussian
mechanism for differential privacy: analytical calibration and optimal denoising, ICML 2018, theorem
8; Dong, Roth, Su: Gaussian differential privacy, JRSS B 2022.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from posse.core import check
from posse.privacy.dp.guarantee import Budget, check_delta

_SQRT2 = math.sqrt(2)
_SQRT2PI = math.sqrt(2 * math.pi)
_TINY = 0.02
"""Below this mu the two terms of delta are nearly equal, and their difference is integrated
instead.
"""
_FAR = 5.0
"""From here on the tail comes from its continued fraction."""
_GAUSS = ((-math.sqrt(0.6), 5 / 18), (0.0, 8 / 18), (math.sqrt(0.6), 5 / 18))
"""Nodes and weights of Gauss and Legendre, three points; error below 1e-14 over a length of
0.02.
"""


def delta_of(mu: float, epsilon: float) -> float:
    """Return the smallest delta: Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu).

    With a = mu/2 - epsilon/mu and Mills' ratio R(x) = Phi(-x) / phi(x), the second term is phi(a)
    R(mu - a): nothing overflows at a large epsilon, and nothing cancels at a tiny mu.

    >>> round(delta_of(1.0, 1.0), 6)
    0.126937
    """
    check.positive(mu=mu)
    check.at_least(0, epsilon=epsilon)
    a = mu / 2 - epsilon / mu
    density = math.exp(-a * a / 2) / _SQRT2PI
    if density == 0.0 and a < 0:
        return 0.0
    if mu < _TINY:
        middle = mu / 2 - a
        return (
            density * mu * sum(weight * _slope(middle + node * mu / 2) for node, weight in _GAUSS)
        )
    if a > 0:
        return math.erfc(-a / _SQRT2) / 2 - density * _mills(mu - a)
    return density * (_mills(-a) - _mills(mu - a))


def epsilon_of(mu: float, delta: float) -> float:
    """Return the smallest epsilon at a delta; never rounded down, and 0 where delta alone covers
    mu.

    >>> round(epsilon_of(1.0, 1e-5), 4)
    4.3772
    """
    check.positive(mu=mu)
    check_delta(delta)
    if delta_of(mu, 0.0) <= delta:
        return 0.0
    # delta <= Phi(mu/2 - epsilon/mu), and Phi(-39) is 0 in double precision.
    return _edge(lambda epsilon: delta_of(mu, epsilon) <= delta, 0.0, mu * mu / 2 + 39 * mu)


def largest_mu(epsilon: float, delta: float) -> float:
    """Return the largest mu that is (epsilon, delta)-private: the least noise is sensitivity / mu.
    Never rounded up.

    >>> round(math.sqrt(2) / largest_mu(1.0, 0.01), 3)
    2.656
    """
    budget = Budget(epsilon, delta)

    def too_much(mu: float) -> bool:
        return delta_of(mu, budget.epsilon) > budget.delta

    high = 1.0
    while not too_much(high):
        high *= 2
    low = high / 2
    while too_much(low):
        low /= 2
    return math.nextafter(_edge(too_much, low, 2 * low), 0.0)


def classical_multiplier(epsilon: float, delta: float) -> float:
    """Return sigma / sensitivity of the textbook: sqrt(2 ln(1.25 / delta)) / epsilon; proved for
    epsilon < 1 only.

    Dwork and Roth: The algorithmic foundations of differential privacy, 2014, theorem A.1.

    >>> round(classical_multiplier(1.0, 0.01), 3)
    3.108
    """
    budget = Budget(epsilon, delta)
    return math.sqrt(2 * math.log(1.25 / budget.delta)) / budget.epsilon


def _edge(holds: Callable[[float], bool], low: float, high: float) -> float:
    """Return the least number at which a monotone condition, false at `low` and true at `high`,
    holds (bisection).
    """
    while low < (middle := (low + high) / 2) < high:
        if holds(middle):
            high = middle
        else:
            low = middle
    return high


def _mills(x: float) -> float:
    """Mills' ratio R(x) = Phi(-x) / phi(x), x > -38."""
    if x < _FAR:
        return math.exp(x * x / 2) * math.erfc(x / _SQRT2) * _SQRT2PI / 2
    return 1 / (x + _rest(x))


def _slope(x: float) -> float:
    """-R'(x) = 1 - x R(x), without the cancellation of a large x."""
    if x < _FAR:
        return 1 - x * _mills(x)
    rest = _rest(x)
    return rest / (x + rest)


def _rest(x: float) -> float:
    """1/(x + 2/(x + 3/(x + ...))): R(x) = 1 / (x + this); 60 terms give all digits from x = 5
    on.
    """
    rest = 0.0
    for i in range(60, 0, -1):
        rest = i / (x + rest)
    return rest
