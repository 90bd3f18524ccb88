"""How to choose: policies that score arms, exploration of contextual bandits, purchases, and their
evaluation.

Names are imported when they are used: exploration as probabilities needs numpy alone, and policies
a compiler.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from posse.policies.arms.base import ARGMAX, Policy, Selection
    from posse.policies.arms.checks import check
    from posse.policies.arms.registry import POLICIES, described, parameters_of, policy
    from posse.policies.arms.shipped import (
        UCB,
        EpsilonDecreasing,
        EpsilonGreedy,
        Pursuit,
        Softmax,
        Thompson,
    )
    from posse.policies.contextual.explorations import EXPLORATIONS, Exploration
    from posse.policies.contextual.registry import exploration
    from posse.policies.own import parameter, run_horizon

_HOME = {
    "ARGMAX": "arms.base",
    "Policy": "arms.base",
    "Selection": "arms.base",
    "EpsilonDecreasing": "arms.shipped",
    "EpsilonGreedy": "arms.shipped",
    "Pursuit": "arms.shipped",
    "POLICIES": "arms.registry",
    "policy": "arms.registry",
    "described": "arms.registry",
    "parameters_of": "arms.registry",
    "check": "arms.checks",
    "parameter": "own",
    "run_horizon": "own",
    "Exploration": "contextual.explorations",
    "EXPLORATIONS": "contextual.explorations",
    "exploration": "contextual.registry",
    "Softmax": "arms.shipped",
    "Thompson": "arms.shipped",
    "UCB": "arms.shipped",
}

__all__ = [
    "ARGMAX",
    "EXPLORATIONS",
    "POLICIES",
    "UCB",
    "EpsilonDecreasing",
    "EpsilonGreedy",
    "Exploration",
    "Policy",
    "Pursuit",
    "Selection",
    "Softmax",
    "Thompson",
    "check",
    "described",
    "exploration",
    "parameter",
    "parameters_of",
    "policy",
    "run_horizon",
]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
