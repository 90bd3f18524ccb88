"""How large everything can become: bounds that follow from the terms, and that the twin asserts step by step."""

from __future__ import annotations

import math
from dataclasses import dataclass

from posse.core.errors import ConfigError
from posse.privacy.sharing.fixed import LIMIT
from posse.privacy.sharing.reciprocal import start_bits
from posse.protocols.mpc_contextual.terms import Terms, largest_score


@dataclass(frozen=True)
class Range:
    """An intermediate, the largest magnitude it can have, and its unit 2^-bits."""

    name: str
    largest: float
    bits: int
    why: str

    @property
    def log2(self) -> float:
        """Bits that it takes, of 62."""
        return math.log2(self.largest) + self.bits


def ranges(terms: Terms) -> tuple[Range, ...]:
    """Return the bounds of everything that is truncated or compared; a quarter or a half is left for rounding.

    >>> found = ranges(Terms("r", ("a", "b"), (10, 10), 10, 60_000, (1, 10)))
    >>> max(found, key=lambda one: one.log2).name, round(max(one.log2 for one in found), 1)
    ('scores', 58.9)
    """
    f, score = terms.bits, largest_score(terms.steps)
    ranked = f + terms.tie_bits + (terms.spare_bits if terms.bonus else 0)
    return (
        Range("scores", score, 2 * f, "|w.x| <= sqrt(steps) / 2 + 1"),
        Range("directions", 1.5, 2 * f, "|P x| <= 1, for P has eigenvalues in (0, 1]"),
        Range("compared scores", score + terms.largest_bonus, ranked, "scores and bonus above their tie order"),
        *(_one(f) if terms.batch == 1 else _batch(f)),
        Range("gain", 1.25, 2 * f, "|P x| / (1 + q) <= 1"),
        Range("inverse", 1.5, 2 * f, "entries of P, at most 1"),
        Range("weights", score, 2 * f, "|w| <= sqrt(steps) / 2 + 1"),
    )


def _one(f: int) -> tuple[Range, ...]:
    return (
        Range("variance", 1.25, 2 * f, "0 <= x.P x <= 1"),
        Range("first guess", 1.25, start_bits(f) + 31, "a quadratic in [1/2, 1]"),
        Range("(1 + q) y", 2.25, 2 * f, "near 1; 1 + q <= 2, y <= 1.01"),
        Range("reciprocal", 1.25, 2 * f, "1 / (1 + q) in [1/2, 1]"),
    )


def _batch(f: int) -> tuple[Range, ...]:
    return (
        Range("coupling", 1.25, 2 * f, "|x.P x'| <= 1"),
        Range("first inverse", 1.25, f + 20, "linear in S, between 0 and 1"),
        Range("(I + S) Y", 2.25, 2 * f, "near I; its eigenvalues are in [0, 2)"),
        Range("inverse of I + S", 1.25, 2 * f, "its eigenvalues are in (0, 1]"),
    )


def check_ranges(terms: Terms) -> tuple[Range, ...]:
    """Return the bounds, all of them below 2^62."""
    found = ranges(terms)
    for one in found:
        if one.log2 >= LIMIT:
            raise ConfigError(
                f"{one.name} can reach 2^{one.log2:.1f} ({one.why}), and 2^{LIMIT} is the limit. Take fewer bits or "
                "steps."
            )
    return found
