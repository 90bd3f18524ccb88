"""Problems that bandits learn: arms, contexts, markets, and populations of clients.

Names are imported when they are used: populations need only numpy, and markets a compiler.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from posse.problems.arms.ratings import Ratings
    from posse.problems.arms.rewards import Arms, BernoulliArms, BetaArms, EmpiricalArms
    from posse.problems.arms.tables import read_means, read_ratings
    from posse.problems.contexts.contexts import Contexts, read_features
    from posse.problems.datasets.published import embedded_arms
    from posse.problems.markets.instances import binds, market_instance
    from posse.problems.markets.market import Market, make_market
    from posse.problems.markets.settings import read_market
    from posse.problems.populations.population import Population
    from posse.problems.populations.splits import read_population
    from posse.problems.tables.options import ReadOptions

_HOME = {
    "Ratings": "arms.ratings",
    "Arms": "arms.rewards",
    "BernoulliArms": "arms.rewards",
    "BetaArms": "arms.rewards",
    "EmpiricalArms": "arms.rewards",
    "read_means": "arms.tables",
    "read_ratings": "arms.tables",
    "Contexts": "contexts.contexts",
    "read_features": "contexts.contexts",
    "embedded_arms": "datasets.published",
    "binds": "markets.instances",
    "market_instance": "markets.instances",
    "Market": "markets.market",
    "make_market": "markets.market",
    "read_market": "markets.settings",
    "Population": "populations.population",
    "ReadOptions": "tables.options",
    "read_population": "populations.splits",
}

__all__ = [
    "Arms",
    "BernoulliArms",
    "BetaArms",
    "Contexts",
    "EmpiricalArms",
    "Market",
    "Population",
    "Ratings",
    "ReadOptions",
    "binds",
    "embedded_arms",
    "make_market",
    "market_instance",
    "read_features",
    "read_market",
    "read_means",
    "read_population",
    "read_ratings",
]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
