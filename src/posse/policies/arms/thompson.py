"""Thompson sampling: pull an arm as often as it is believed to be best."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from posse.core.compiled import elementary
from posse.core.exact import beta
from posse.core.random import OWN
from posse.policies.arms.base import Policy


@elementary
def sample(
    t: int, turn: int, total: float, pulls: int, memory: float, key: int, parameters: tuple[float, ...]
) -> float:
    """Sample of Beta(s + 1, n - s + 1), drawn from the owner's own stream."""
    return beta(total + 1.0, pulls - total + 1.0, key, OWN, turn, t)


@dataclass(frozen=True)
class Thompson(Policy):
    """Sample every arm's posterior Beta(s + 1, n - s + 1) and pull the largest.

    The owners' draws are independent. (The published code lets all owners draw from one stream, which correlates
    them.) For rewards inside [0, 1] the sum s need not be whole; the posterior is then a working model.
    """

    name: ClassVar[str] = "thompson"
    summary: ClassVar[str] = "largest sample of the posterior Beta(s + 1, n - s + 1)"
    reference: ClassVar[str] = "Thompson 1933; Russo et al. 2018"
    score = staticmethod(sample)
