"""1 / (1 + q) for q in [0, 1]."""

from __future__ import annotations

from posse.privacy.sharing.rounds import Rounds
from posse.privacy.sharing.session import Session
from posse.privacy.sharing.values import Masked, Shared

START = (0.98989899, -0.80808081, 0.32323232)
"""Quadratic in q with the least relative error, 1/99: 2.12121212 - 1.45454545 d + 0.32323232 d^2 with d = 1 + q."""


def start_bits(bits: int) -> int:
    """Bits of the first guess: with the coefficients' bits they make a truncation of 31."""
    return max(2 * bits - 31, min(bits, 20))


def reciprocal(s: Session, q: Shared, bits: int, steps: int = 2) -> Rounds[Masked]:
    """Return 1 / (1 + q) in units of 2^-bits, from q in units of 2^(-2 bits); 0 <= q <= 1.

    A quadratic guess and Newton steps y (2 - (1 + q) y), each squaring the error: it is below .012^(2^steps) + 4 units,
    which is 1e-2, 1e-4, 1e-8. 2 + 2 steps rounds, 8 (3 + 2 steps) bytes a number. Everything stays below 2^54 for 12 to
    26 bits; with more, too few bits are left for the guess.
    """
    low = start_bits(bits)
    shift = 31 - low
    exact, rough = s.truncate(q, bits, "q"), s.truncate(q, 2 * bits - low, "rough q")
    yield
    constant, linear, quadratic = (round(one * 2**shift) for one in START)
    guess = s.product(rough, rough) * quadratic + ((rough.shared * linear) << low) + (constant << (2 * low))
    y, unit = s.truncate(guess, 31, "guess"), low
    yield
    for step in range(1, steps + 1):
        error = s.truncate(s.product(exact + (1 << bits), y), unit, f"error {step}")
        yield
        y = s.truncate(s.product(-error + (2 << bits), y), unit, f"inverse {step}")
        unit = bits
        yield
    return y << (bits - unit)
