"""Pursuit: probabilities that run after the best arm so far."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from posse.core import check
from posse.core.compiled import elementary
from posse.core.exact import log
from posse.policies.arms.base import ARGMAX, Policy, Selection
from posse.policies.own import parameter

FLOOR = 2.0**-80
"""Probabilities below it are lifted to it: far below what a draw of 53 bits can reach."""


@elementary
def pursue(
    t: int, turn: int, total: float, pulls: int, memory: float, key: int, parameters: tuple[float, ...]
) -> float:
    """First pass: the mean. Second pass: ln p, p the arm's probability."""
    return total / pulls if turn == 0 else log(max(memory, FLOOR))


@elementary
def follow(turn: int, chosen: bool, memory: float, parameters: tuple[float, ...]) -> float:
    """After the first pass p moves by beta (1 - p) if the arm has the best mean, by beta (0 - p) otherwise."""
    if turn != 0:
        return memory
    return memory + parameters[0] * ((1.0 if chosen else 0.0) - memory)


@dataclass(frozen=True)
class Pursuit(Policy):
    """Pull arm i with probability p_i, after moving all p towards the arm of best mean at rate beta."""

    name: ClassVar[str] = "pursuit"
    summary: ClassVar[str] = "probabilities that move towards the best mean at rate beta (two passes)"
    reference: ClassVar[str] = "Sutton & Barto 1998, section 2.9; Kuleshov & Precup 2014"
    score = staticmethod(pursue)
    learn = staticmethod(follow)

    beta: float = parameter(0.1, "rate at which probabilities move towards the best mean")

    def __post_init__(self) -> None:
        check.between(0, 1, open_low=True, beta=self.beta)

    def passes(self) -> tuple[Selection, ...]:
        """The best mean, then a probability matching on p."""
        return (ARGMAX, Selection("match", scale=1.0, floor=math.log(FLOOR), ceiling=0.0))

    def start(self, owners: int) -> float:
        """Equal probabilities 1 / K."""
        return 1.0 / owners
