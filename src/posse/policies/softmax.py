"""Softmax (Boltzmann exploration): better arms are pulled exponentially more often."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from posse.core import check
from posse.policies.base import Policy, Selection
from posse.policies.epsilon_greedy import mean


@dataclass(frozen=True)
class Softmax(Policy):
    """Pull arm i with probability proportional to exp(mean_i / tau)."""

    name: ClassVar[str] = "softmax"
    summary: ClassVar[str] = "probability proportional to exp(mean / tau)"
    reference: ClassVar[str] = "Sutton & Barto 2018, section 2.8; Kuleshov & Precup 2014"
    score = staticmethod(mean)

    tau: float = 0.1

    def __post_init__(self) -> None:
        check.between(0, 20, open_low=True, tau=self.tau)

    def passes(self) -> tuple[Selection, ...]:
        """One probability matching of temperature tau; a mean is in [0, 1]."""
        return (Selection("match", scale=float(self.tau), floor=0.0, ceiling=1.0),)
