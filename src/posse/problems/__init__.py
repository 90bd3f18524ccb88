"""What is learnt: arms and their rewards, markets and their producers, populations of clients.

Names are imported when they are used: populations need numpy alone, and markets a compiler.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from posse.problems.arms.rewards import Arms, BernoulliArms, BetaArms, EmpiricalArms
    from posse.problems.markets.instances import binds, market_instance
    from posse.problems.markets.market import Market, make_market

_HOME = {
    "Arms": "arms.rewards", "BernoulliArms": "arms.rewards", "BetaArms": "arms.rewards",
    "EmpiricalArms": "arms.rewards",
    "Market": "markets.market", "make_market": "markets.market",
    "binds": "markets.instances", "market_instance": "markets.instances",
}  # fmt: skip

__all__ = ["Arms", "BernoulliArms", "BetaArms", "EmpiricalArms", "Market", "binds", "make_market", "market_instance"]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
