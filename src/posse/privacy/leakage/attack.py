"""What an attack is: an estimate from a view, kept apart from how it is scored.

`estimate` is given what an adversary who holds some roles saw, and nothing else; `score` compares the estimate with
the truth that only a simulation knows. An attack names the sentence it tests, what an adversary without a view scores
(`baseline`), and the kinds of role that its adversary holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from posse.core.roles import View


@dataclass(frozen=True)
class Attack:
    """An estimate by an adversary who holds one or several roles, and how good it is."""

    name: str
    title: str
    adversary: tuple[str, ...]
    """Kinds of role that the adversary holds."""
    claim: str
    """The sentence it tests: a promise that it would break, or what is not protected and it shows."""
    estimate: Callable[[View], Any]
    score: Callable[[Any, Mapping[str, Any]], float]
    """Compares an estimate with the truth; larger is better for the adversary."""
    baseline: Callable[[Mapping[str, Any]], float]
    """What an adversary without a view scores against the same truth."""
