"""Elementary functions and random draws with the same bits everywhere.

numpy's and Python's log and exp differ in the last bit, so a protected run and its plain twin would
pull different arms. The functions here use only + - * / and sqrt, which IEEE 754 rounds correctly
on every machine. They are compiled without fast-math; `.py_func` of each function is its source, in
plain Python. Tests compare a digest of the functions' values with a stored digest.

The address of a draw is (key, purpose, party, index, attempt), as in `posse.core.random`.

>>> log(10.0)
2.302585092994046
>>> exp(-1.0)
0.36787944117144233
"""

from __future__ import annotations

import math

import numpy as np

from posse.core.compiled import compiled_scalar
from posse.core.random import uniforms

_LN2_HIGH = 0.693147180369123816490
"""ln 2 rounded to 32 bits, so that its product with an exponent is exact."""
_LN2_LOW = 1.90821492927058770002e-10
"""ln 2 - `_LN2_HIGH`."""
_INV_LN2 = 1.4426950408889634
_SQRT_HALF = 0.7071067811865476
_EXP_LIMIT = 700.0
"""e^700 and e^-700 are finite and normal numbers."""
_ATANH_SERIES = (1 / 23, 1 / 21, 1 / 19, 1 / 17, 1 / 15, 1 / 13, 1 / 11, 1 / 9, 1 / 7, 1 / 5, 1 / 3)
"""Coefficients of atanh f / f - 1 as a polynomial in f^2, the highest power first."""


@compiled_scalar
def log(x: float) -> float:
    """Natural logarithm of a normal positive number.

    Write x = m 2^e with m in [sqrt(1/2), sqrt 2). Then ln x = e ln 2 + ln m. With
    f = (m - 1) / (m + 1), ln m = 2 atanh f. The series of atanh is computed up to the 23rd power.
    """
    # The lower 52 bits of a float are its fraction; the bits above are its exponent plus 1023. With
    # 0x3FE = 1022 as the bits above, the fraction gives a number in [1/2, 1).
    bits = np.float64(x).view(np.int64)
    exponent = (bits >> 52) - 1022
    m = np.int64((bits & 0x000FFFFFFFFFFFFF) | 0x3FE0000000000000).view(np.float64)
    if m < _SQRT_HALF:
        m = m * 2.0
        exponent = exponent - 1
    f = (m - 1.0) / (m + 1.0)
    z = f * f
    series = 0.0
    for coefficient in _ATANH_SERIES:
        series = z * (coefficient + series)
    e = float(exponent)
    # The smallest terms are added first, because this loses the fewest bits.
    return e * _LN2_HIGH + (2.0 * f + (2.0 * f * series + e * _LN2_LOW))


@compiled_scalar
def exp(x: float) -> float:
    """Exponential of x; x is clipped to [-700, 700].

    Write x = k ln 2 + r with a whole number k and |r| <= ln(2) / 2. Then e^x = 2^k e^r. The Taylor
    series of e^r is computed up to the 13th power.
    """
    x = min(max(x, -_EXP_LIMIT), _EXP_LIMIT)
    k = math.floor(x * _INV_LN2 + 0.5)
    r = (x - k * _LN2_HIGH) - k * _LN2_LOW
    series = 1.0
    for i in range(13, 0, -1):
        series = 1.0 + series * r / i
    # The bits of 2^k: the exponent bits are k + 1023, and the bits of the fraction are 0.
    power_of_two = np.int64((int(k) + 1023) << 52).view(np.float64)
    return float(series * power_of_two)


@compiled_scalar
def gumbel(u: float) -> float:
    """Standard Gumbel quantile -ln(-ln u), within [-3.63, 36.8].

    `u` in [0, 1) is a multiple of 2^-53. The function computes with u + 2^-54, because ln 0 is not
    finite.
    """
    # The largest sum is rounded to 1, and ln 1 = 0. So take the largest number below 1 instead.
    probability = min(u + 2.0**-54, 1.0 - 2.0**-53)
    return -log(-log(probability))


@compiled_scalar
def normals(
    key: int, purpose: int, party: int, index: int, attempt: int
) -> tuple[float, float, int]:
    """Draw two independent standard normal numbers by the polar method.

    Returns the two numbers and the first attempt number that this call has not used.
    """
    while True:
        u, v = uniforms(key, purpose, party, index, attempt)
        attempt = attempt + 1
        a = 2.0 * u - 1.0
        b = 2.0 * v - 1.0
        square = a * a + b * b
        # (a, b) is a random point of a square. The method needs a random point of a disk.
        if 0.0 < square < 1.0:
            factor = math.sqrt(-2.0 * log(square) / square)
            return a * factor, b * factor, attempt


@compiled_scalar
def _try_gamma(shape: float, x: float, u: float) -> float:
    """Try once to draw from the gamma distribution of shape >= 1 (Marsaglia and Tsang).

    Args:
        shape: Shape of the distribution.
        x: A standard normal number.
        u: A uniform number.

    Returns:
        The draw, or -1 if the trial is rejected.
    """
    d = shape - 1.0 / 3.0
    v = 1.0 + x / math.sqrt(9.0 * d)
    if v <= 0.0:
        return -1.0
    v = v * v * v
    # A condition of the paper that is sufficient, and is tested first: it needs no logarithm.
    if u < 1.0 - 0.0331 * (x * x) * (x * x):
        return d * v
    # `log` needs a number above 0. With u = 0 every draw is accepted.
    if u <= 0.0 or log(u) < 0.5 * x * x + d * (1.0 - v + log(v)):
        return d * v
    return -1.0


@compiled_scalar
def beta(
    a: float, b: float, key: int, purpose: int, party: int, index: int, attempt: int = 0
) -> float:
    """Draw from Beta(a, b) with a, b > 0.

    The draw is x / (x + y), where x has a gamma distribution of shape a, and y one of shape b. Each
    round draws a pair of normal numbers, and tries x with the first number and y with the second
    (Marsaglia and Tsang 2000). A gamma draw that was accepted is not tried again.

    The call uses an unknown number of attempts, from `attempt` on. For several draws at one
    address, pass attempts that are far apart (`_ATTEMPTS_PER_DRAW`).
    """
    # The method needs a shape of at least 1. So a smaller shape is raised by 1, and the draw is
    # multiplied by u^(1 / a) or u^(1 / b) at the end.
    boost_a = a < 1.0
    boost_b = b < 1.0
    shape_a = a + 1.0 if boost_a else a
    shape_b = b + 1.0 if boost_b else b
    # A negative value means: not accepted yet.
    x = -1.0
    y = -1.0
    while x < 0.0 or y < 0.0:
        first, second, attempt = normals(key, purpose, party, index, attempt)
        u, v = uniforms(key, purpose, party, index, attempt)
        attempt = attempt + 1
        if x < 0.0:
            x = _try_gamma(shape_a, first, u)
        if y < 0.0:
            y = _try_gamma(shape_b, second, v)
    if boost_a or boost_b:
        u, v = uniforms(key, purpose, party, index, attempt)
        # u and v may be 0, and ln 0 is not finite: so 2^-54 is added.
        if boost_a:
            x = x * exp(log(u + 2.0**-54) / a)
        if boost_b:
            y = y * exp(log(v + 2.0**-54) / b)
    return x / (x + y)


_ATTEMPTS_PER_DRAW = 1 << 20
"""Attempt numbers reserved for each of several draws at one address."""
_MAX_SINGLE_DRAWS = 40
"""Numbers of a binomial that are drawn one by one: splitting them further would take longer."""


@compiled_scalar
def binomial(count: int, q: float, key: int, purpose: int, party: int, index: int) -> int:
    """Draw from Binomial(count, q): how many of `count` uniform numbers are below q.

    Imagine the numbers sorted. The number x at place `middle`, in the middle, has the distribution
    Beta(middle, count + 1 - middle). If x is below q, then x and all numbers before x are counted,
    and the numbers after x remain. Otherwise only the numbers before x can be below q, and these
    remain. So each draw halves the count, and the function takes O(log count) draws. The last 40
    numbers are drawn one by one.

    Reference: Devroye: Non-uniform random variate generation, 1986, chapter X.4.
    """
    count_below = 0
    split = 1
    # `count` numbers remain. They are uniform in [0, 1), and are compared with `q`.
    while count > _MAX_SINGLE_DRAWS:
        middle = (count + 1) // 2
        # Attempts below `_ATTEMPTS_PER_DRAW` are for the numbers that are drawn one by one.
        attempt = split * _ATTEMPTS_PER_DRAW
        x = beta(float(middle), float(count + 1 - middle), key, purpose, party, index, attempt)
        split = split + 1
        # The remaining numbers are uniform in (x, 1) or in (0, x). Scale them, and q, to (0, 1).
        if x < q:
            count_below = count_below + middle
            count = count - middle
            q = (q - x) / (1.0 - x)
        else:
            count = middle - 1
            q = q / x
    for i in range(0, count, 2):
        u, v = uniforms(key, purpose, party, index, i // 2)
        if u < q:
            count_below = count_below + 1
        # If the count is odd, the last v is not one of the numbers.
        if v < q and i + 1 < count:
            count_below = count_below + 1
    return count_below
