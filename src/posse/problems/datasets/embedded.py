"""Arm means that ship with the package: those the authors of Samba benchmarked with.

Only numbers, from the authors' public repository. Their means divide the ratings above a threshold by all users, not
by the ratings received as their paper says, so they are smaller than `Ratings.means`; the Jester list is exactly
that quotient for the threshold 4.5. The authors take the first K means of a list for K arms.
"""

from __future__ import annotations

from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

from posse.core import check
from posse.core.errors import DataError
from posse.problems.arms import Arms, BernoulliArms
from posse.problems.datasets.document import Document
from posse.problems.datasets.tables import mean_list

EMBEDDED: tuple[str, ...] = ("jester", "movielens")
SIZE = 100

_WORD = {"jester": "joke", "movielens": "movie"}


def embedded_means(name: str, arms: int = SIZE) -> NDArray[np.float64]:
    """Give the first `arms` means of the authors' list, in its order.

    >>> embedded_means("jester", arms=2).round(3).tolist()
    [0.183, 0.195]
    """
    check.one_of(EMBEDDED, name=name)
    check.at_least(1, arms=arms)
    if arms > SIZE:
        raise DataError(f"the embedded list '{name}' has {SIZE} means, got arms={arms}. Ask for {SIZE} or fewer.")
    return mean_list(packaged(f"{name}-100.txt"))[:arms]


def embedded_arms(name: str, arms: int = SIZE) -> Arms:
    """Make Bernoulli arms of them.

    >>> embedded_arms("movielens", arms=2).names
    ('movie 1', 'movie 2')
    """
    means = embedded_means(name, arms)
    names = [f"{_WORD[name]} {number}" for number in range(1, arms + 1)]
    return BernoulliArms(means, names=names, source=f"embedded {name}: the Samba authors' first {arms} means")


def packaged(file: str) -> Document:
    """Read a file that ships with the package."""
    return Document(file, files(__package__).joinpath("data", file).read_bytes())
