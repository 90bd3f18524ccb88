"""How much privacy may be spent: a pair (epsilon, delta), never epsilon alone."""

from __future__ import annotations

from dataclasses import dataclass

from posse.core import check
from posse.core.errors import ConfigError


@dataclass(frozen=True)
class Budget:
    """An (epsilon, delta) that must not be exceeded: Pr[M(H) in S] <= e^epsilon Pr[M(H') in S] + delta.

    >>> str(Budget(1, 0.01))
    '(1, 0.01)'
    >>> Budget(1, 1)
    Traceback (most recent call last):
    ...
    posse.core.errors.ConfigError: [P100] delta must be above 0 and below 1, got 1. 1 / (number of rounds) is usual.
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        check.positive(epsilon=self.epsilon)
        check_delta(self.delta)

    def __str__(self) -> str:
        return f"({self.epsilon:g}, {self.delta:g})"


def check_delta(delta: float) -> None:
    """Refuse a delta that promises nothing (1 or more) or that Gaussian noise cannot keep (0)."""
    if not 0 < delta < 1:
        raise ConfigError(f"delta must be above 0 and below 1, got {delta}. 1 / (number of rounds) is usual.")
