"""Policies on the mean of an arm: epsilon-greedy, with epsilon fixed or falling, and softmax.

Epsilon-greedy pulls the best mean so far, and with probability epsilon any arm. Softmax (Boltzmann exploration) pulls
better arms exponentially more often.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from posse.core import check
from posse.core.compiled import elementary
from posse.core.exact import log
from posse.policies.arms.base import Policy, Selection
from posse.policies.own import parameter

_LN2 = math.log(2.0)


@elementary
def mean(t: int, turn: int, total: float, pulls: int, memory: float, key: int, parameters: tuple[float, ...]) -> float:
    """Empirical mean of one arm."""
    return total / pulls


@elementary
def fixed(t: int, owners: int, parameters: tuple[float, ...]) -> float:
    """Exploration probability: epsilon at every step."""
    return parameters[0]


@elementary
def decreasing(t: int, owners: int, parameters: tuple[float, ...]) -> float:
    """Exploration probability of the schedule with this number in `SCHEDULES`, at most 1."""
    if parameters[1] == 0.0:
        return min(1.0, parameters[0] / t)
    if parameters[1] == 1.0:
        return min(1.0, parameters[0] / math.sqrt(t))
    if parameters[1] == 2.0:
        return min(1.0, parameters[0] * owners / t)
    return min(1.0, parameters[0] * _LN2 / log(float(t)))


@dataclass(frozen=True)
class EpsilonGreedy(Policy):
    """Pull the arm of largest empirical mean; with probability epsilon a uniform arm."""

    name: ClassVar[str] = "epsilon-greedy"
    summary: ClassVar[str] = "best mean, or any arm with probability epsilon"
    reference: ClassVar[str] = "Sutton & Barto 2018, section 2.2"
    score = staticmethod(mean)
    explore = staticmethod(fixed)

    epsilon: float = parameter(0.1, "exploration rate: how often any arm is taken; no privacy epsilon")

    def __post_init__(self) -> None:
        check.between(0, 1, epsilon=self.epsilon)


SCHEDULES = ("inverse", "inverse-sqrt", "inverse-arms", "inverse-log")
"""scale / t, scale / sqrt t, scale K / t, scale / log2 t (the schedule of the Samba authors' code, with scale 1)."""


@dataclass(frozen=True)
class EpsilonDecreasing(Policy):
    """Epsilon-greedy whose epsilon falls with time by a named schedule."""

    name: ClassVar[str] = "epsilon-decreasing"
    summary: ClassVar[str] = "epsilon-greedy with epsilon falling by a named schedule"
    reference: ClassVar[str] = "Auer, Cesa-Bianchi & Fischer 2002, figure 3"
    score = staticmethod(mean)
    explore = staticmethod(decreasing)

    schedule: str = parameter("inverse-arms", f"how the exploration rate falls: {', '.join(SCHEDULES)}")
    scale: float = parameter(1.0, "factor of the exploration rate")

    def __post_init__(self) -> None:
        check.one_of(SCHEDULES, schedule=self.schedule)
        check.positive(scale=self.scale)

    def parameters(self) -> tuple[float, ...]:
        """Scale and schedule number."""
        return (float(self.scale), float(SCHEDULES.index(self.schedule)))


@dataclass(frozen=True)
class Softmax(Policy):
    """Pull arm i with probability proportional to exp(mean_i / tau)."""

    name: ClassVar[str] = "softmax"
    summary: ClassVar[str] = "probability proportional to exp(mean / tau)"
    reference: ClassVar[str] = "Sutton & Barto 2018, section 2.8; Kuleshov & Precup 2014"
    score = staticmethod(mean)

    tau: float = parameter(0.1, "temperature: small for the best mean, large for any arm")

    def __post_init__(self) -> None:
        check.between(0, 20, open_low=True, tau=self.tau)

    def passes(self) -> tuple[Selection, ...]:
        """One probability matching of temperature tau; a mean is in [0, 1]."""
        return (Selection("match", scale=float(self.tau), floor=0.0, ceiling=1.0),)
