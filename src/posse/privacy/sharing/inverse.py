"""(I + S)^-1 for a symmetric S with eigenvalues in [0, b]: b rows of norm at most 1 under an inverse of at most 1."""

from __future__ import annotations

import numpy as np

from posse.privacy.sharing.fixed import Words
from posse.privacy.sharing.rounds import Rounds
from posse.privacy.sharing.session import Session
from posse.privacy.sharing.values import Masked, Shared

_START_BITS = 20


def first_guess(size: int) -> tuple[int, int, int]:
    """Return the linear guess (a, b) of a I + b S in units of 2^-20, and the Newton steps that it takes to 1e-8.

    The guess of 1 / x on [1, 1 + b] with the least relative error: 1 - x y(x) is the Chebyshev polynomial T_2, scaled.

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
    """Return (I + S)^-1 in units of 2^-bits, from S in the same: a guess and Newton steps Y (2 I - (I + S) Y).

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
