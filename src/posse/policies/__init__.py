"""How to choose: policies that score arms, exploration of contextual bandits, purchases, and their
evaluation.

Names are imported when they are used: exploration as probabilities needs numpy alone, and policies
a compiler.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from posse.policies.arms.base import ARGMAX as ARGMAX
    from posse.policies.arms.base import Policy as Policy
    from posse.policies.arms.base import Selection as Selection
    from posse.policies.arms.checks import check as check
    from posse.policies.arms.registry import POLICIES as POLICIES
    from posse.policies.arms.registry import described as described
    from posse.policies.arms.registry import parameters_of as parameters_of
    from posse.policies.arms.registry import policy as policy
    from posse.policies.arms.shipped import UCB as UCB
    from posse.policies.arms.shipped import EpsilonDecreasing as EpsilonDecreasing
    from posse.policies.arms.shipped import EpsilonGreedy as EpsilonGreedy
    from posse.policies.arms.shipped import Pursuit as Pursuit
    from posse.policies.arms.shipped import Softmax as Softmax
    from posse.policies.arms.shipped import Thompson as Thompson
    from posse.policies.contextual.explorations import EXPLORATIONS as EXPLORATIONS
    from posse.policies.contextual.explorations import Exploration as Exploration
    from posse.policies.contextual.registry import exploration as exploration
    from posse.policies.own import parameter as parameter

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
    "Exploration": "contextual.explorations",
    "EXPLORATIONS": "contextual.explorations",
    "exploration": "contextual.registry",
    "Softmax": "arms.shipped",
    "Thompson": "arms.shipped",
    "UCB": "arms.shipped",
}

__all__ = [*_HOME]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
