"""UCB: optimism in the face of uncertainty."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from posse.core import check
from posse.core.compiled import elementary
from posse.core.exact import log
from posse.policies.arms.base import Policy
from posse.policies.own import parameter


@elementary
def bound(t: int, turn: int, total: float, pulls: int, memory: float, key: int, parameters: tuple[float, ...]) -> float:
    """Upper confidence bound mean + sqrt(c ln t / n)."""
    return total / pulls + math.sqrt(parameters[0] * log(float(t)) / pulls)


@dataclass(frozen=True)
class UCB(Policy):
    """Pull the arm of largest mean + sqrt(c ln t / n); c = 2 is UCB1."""

    name: ClassVar[str] = "ucb"
    summary: ClassVar[str] = "largest upper confidence bound"
    reference: ClassVar[str] = "Auer, Cesa-Bianchi & Fischer 2002"
    score = staticmethod(bound)

    coefficient: float = parameter(2.0, "factor c in the width sqrt(c ln t / n)")

    def __post_init__(self) -> None:
        check.positive(coefficient=self.coefficient)
