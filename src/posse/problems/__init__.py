"""What is learnt: arms and their rewards, markets and their producers, populations of clients.

Names are imported when they are asked for: populations need numpy alone, and markets a compiler.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from posse.problems.arms import Arms, BernoulliArms, BetaArms, EmpiricalArms
    from posse.problems.instances import binds, market_instance
    from posse.problems.market import Market, make_market

_HOME = {
    "Arms": "arms", "BernoulliArms": "arms", "BetaArms": "arms", "EmpiricalArms": "arms",
    "Market": "market", "make_market": "market", "binds": "instances", "market_instance": "instances",
}  # fmt: skip

__all__ = ["Arms", "BernoulliArms", "BetaArms", "EmpiricalArms", "Market", "binds", "make_market", "market_instance"]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
