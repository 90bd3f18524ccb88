"""How to choose: one file per policy.

Names are imported when they are asked for: exploration as probabilities needs numpy alone, and policies a compiler.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from posse.policies.base import ARGMAX, Policy, Selection
    from posse.policies.epsilon_greedy import EpsilonDecreasing, EpsilonGreedy
    from posse.policies.pursuit import Pursuit
    from posse.policies.registry import POLICIES, make
    from posse.policies.softmax import Softmax
    from posse.policies.thompson import Thompson
    from posse.policies.ucb import UCB

_HOME = {
    "ARGMAX": "base", "Policy": "base", "Selection": "base", "EpsilonDecreasing": "epsilon_greedy",
    "EpsilonGreedy": "epsilon_greedy", "Pursuit": "pursuit", "POLICIES": "registry", "make": "registry",
    "Softmax": "softmax", "Thompson": "thompson", "UCB": "ucb",
}  # fmt: skip

__all__ = [
    "ARGMAX",
    "POLICIES",
    "UCB",
    "EpsilonDecreasing",
    "EpsilonGreedy",
    "Policy",
    "Pursuit",
    "Selection",
    "Softmax",
    "Thompson",
    "make",
]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
