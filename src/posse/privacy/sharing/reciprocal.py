"""Reciprocals by Newton's steps: 1 / (1 + q) for q in [0, 1], and (I + S)^-1 for a small symmetric
matrix S.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from posse.privacy.sharing.fixed import Words
from posse.privacy.sharing.session import Rounds, Session
from posse.privacy.sharing.values import Interpolated, Masked, Shared

START = (0.98989899, -0.80808081, 0.32323232)
"""Quadratic in q with the least relative error, 1/99: 2.12121212 - 1.45454545 d + 0.32323232 d^2
with d = 1 + q.
"""


_START_BITS = 20


def start_bits(bits: int) -> int:
    """Bits of the first guess: with the coefficients' bits they make a truncation of 31."""
    return max(2 * bits - 31, min(bits, 20))


def reciprocal(s: Session, q: Shared, bits: int, steps: int = 2) -> Rounds[Masked]:
    """Return 1 / (1 + q) in units of 2^-bits, from q in units of 2^(-2 bits); 0 <= q <= 1.

    A quadratic guess and Newton steps y (2 - (1 + q) y), each squaring the error: it is below
    .012^(2^steps) + 4 units, which is 1e-2, 1e-4, 1e-8. 2 + 2 steps rounds, 8 (3 + 2 steps) bytes a
    number. Everything stays below 2^54 for 12 to 26 bits; with more, too few bits are left for the
    guess.
    """
    low = start_bits(bits)
    shift = 31 - low
    exact, rough = s.truncate(q, bits, "q"), s.truncate(q, 2 * bits - low, "rough q")
    yield
    constant, linear, quadratic = (round(one * 2**shift) for one in START)
    guess = (
        s.product(rough, rough) * quadratic
        + ((rough.shared * linear) << low)
        + (constant << (2 * low))
    )
    y, unit = s.truncate(guess, 31, "guess"), low
    yield
    for step in range(1, steps + 1):
        error = s.truncate(s.product(exact + (1 << bits), y), unit, f"error {step}")
        yield
        y = s.truncate(s.product(-error + (2 << bits), y), unit, f"inverse {step}")
        unit = bits
        yield
    return y << (bits - unit)


LINE_GRID = 10
"""Bits of q that choose the line of a reciprocal."""


def line_bits(bits: int) -> tuple[int, int]:
    """Return the bits of q, and of slopes, in a reciprocal by lines: their sum is cut to `bits` by
    at most 31.
    """
    rest = min(30, 2 * bits)
    return rest, min(26, 31 + bits - rest)


@lru_cache(maxsize=16)
def lines(bits: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return values and slopes of the lines at every place; places above 3/4 stand for q a little
    below 0.

    At q + d with |d| < h = 2^-10 the line is 1 / (1 + q) - d / (1 + q)^2, and half of its largest
    error above it.
    """
    rest, slope = line_bits(bits)
    places = np.arange(2 << LINE_GRID)
    q = np.where(places >= 3 << (LINE_GRID - 1), places - (2 << LINE_GRID), places) / float(
        1 << LINE_GRID
    )
    y = 1 / (1 + np.minimum(q, 1.0))
    above = y**3 * 2.0 ** (-2 * LINE_GRID - 1)
    return np.rint((y + above) * 2.0 ** (rest + slope)).astype(np.int64), np.rint(
        -(y**2) * 2.0**slope
    ).astype(np.int64)


def reciprocal_lines(s: Session, q: Shared, bits: int) -> Interpolated:
    """Return 1 / (1 + q) from q in units of 2^(-2 bits), 0 <= q <= 1, in units of 2^-(sum of
    line_bits(bits)): 1 round.

    The error is below 5e-7. Opened: 8 bytes a number; dealt: 33 kB a number, so it serves for few.
    """
    low = 2 * bits - line_bits(bits)[0]
    return s.interpolate(q, 2 * bits - LINE_GRID, LINE_GRID + 1, low, lines(bits), "q")


def first_guess(size: int) -> tuple[int, int, int]:
    """Return the linear guess (a, b) of a I + b S in units of 2^-20, and the Newton steps that it
    takes to 1e-8.

    The guess of 1 / x on [1, 1 + b] with the least relative error: 1 - x y(x) is the Chebyshev
    polynomial T_2, scaled.

    >>> first_guess(4)[2]
    4
    """
    largest = 1.0 + size
    centre, spread = (largest + 1) / (largest - 1), largest - 1
    error = 1 / (2 * centre**2 - 1)
    constant, slope = 8 * centre / spread * error, -8 / spread**2 * error
    steps = 0
    while error > 1e-8:
        error, steps = error * error, steps + 1
    scale = 2.0**_START_BITS
    return round((constant + slope) * scale), round(slope * scale), steps


def identity(size: int, bits: int) -> Words:
    """Return the identity in units of 2^-bits."""
    return np.eye(size, dtype=np.uint64) << np.uint64(bits)


def inverse(s: Session, matrix: Masked, bits: int) -> Rounds[Masked]:
    """Return (I + S)^-1 in units of 2^-bits, from S in the same: a guess and Newton steps Y (2 I -
    (I + S) Y).

    S has eigenvalues in [0, b]: b rows of norm at most 1 under an inverse of at most 1.

    1 + 2 steps rounds; 8 b^2 (1 + 2 steps) bytes; entries stay below 2^(2 bits + 6) for b <= 32.
    """
    size = matrix.mask.shape[-1]
    constant, slope, steps = first_guess(size)
    one = identity(size, bits)
    guess = matrix.shared * slope + one * np.uint64(constant)
    y = s.truncate(guess, _START_BITS, "first inverse")
    yield
    whole = matrix + one
    for step in range(1, steps + 1):
        error = s.truncate(_product(s, whole, y), bits, f"residual {step}")
        yield
        y = s.truncate(_product(s, y, -error + (one << np.uint64(1))), bits, f"better {step}")
        yield
    return y


def _product(s: Session, x: Masked, y: Masked) -> Shared:
    """Multiply matrices; no round."""
    return s.product(x[..., :, None, :], y.swap(-1, -2)[..., None, :, :], contract=True)
