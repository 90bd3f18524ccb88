"""A decision: what a bandit in use, a learnt policy and a device's log have in common."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Decision:
    """One choice of an arm.

    >>> Decision(7, 1, "blue", 0.9).name
    'blue'
    """

    id: int
    """Counts from 0; a reward names the decision that it is for."""
    arm: int
    """Number of the arm, from 0."""
    name: str
    """Name of the arm."""
    probability: float | None = None
    """Chance with which this arm was chosen, as logs for evaluation need it; None where nobody knows it."""
