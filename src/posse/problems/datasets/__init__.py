"""Loaders of rating files and markets, and the means that ship with the package."""

from posse.problems.datasets.embedded import embedded_arms, embedded_means
from posse.problems.datasets.jester import read_jester
from posse.problems.datasets.movielens import read_movielens
from posse.problems.datasets.offers import read_market
from posse.problems.datasets.published import PublishedResult, Spread, published_results
from posse.problems.datasets.registry import DATASETS, Dataset, load
from posse.problems.datasets.steam import read_steam
from posse.problems.datasets.tables import read_means, read_ratings

__all__ = [
    "DATASETS",
    "Dataset",
    "PublishedResult",
    "Spread",
    "embedded_arms",
    "embedded_means",
    "load",
    "published_results",
    "read_jester",
    "read_market",
    "read_means",
    "read_movielens",
    "read_ratings",
    "read_steam",
]
