"""The arm means that the authors of Samba published and benchmarked with. Only numbers.

From the authors' public repository. Their means divide the ratings above a threshold by all users,
not by the ratings received as their paper says, so they are smaller than `Ratings.means`; the
Jester list is exactly that quotient for the threshold 4.5. For K arms the authors take the K
largest means, as their paper says.
"""

from __future__ import annotations

from importlib.resources import files

import numpy as np

from posse.core import check
from posse.core.errors import DataError
from posse.problems.arms.rewards import Arms, BernoulliArms
from posse.problems.requirements import Floats

EMBEDDED: tuple[str, ...] = ("jester", "movielens")
SIZE = 100

_WORD = {"jester": "joke", "movielens": "movie"}


def embedded_means(name: str) -> Floats:
    """Return the authors' 100 means, in the order of their list.

    >>> embedded_means("jester")[:2].round(3).tolist()
    [0.183, 0.195]
    """
    check.one_of(EMBEDDED, name=name)
    text = files(__package__).joinpath("data", f"{name}-100.txt").read_text(encoding="utf-8")
    numbers = [line for line in text.splitlines() if not line.startswith("#")]
    # The first line is the number of means.
    return np.array(numbers[1:], np.float64)


def embedded_arms(name: str, arms: int = SIZE) -> Arms:
    """Make Bernoulli arms of the largest means, largest first.

    The name of an arm has its place in the list.

    >>> embedded_arms("movielens", arms=2).names
    ('movie 50', 'movie 100')
    """
    means = embedded_means(name)
    check.at_least(1, arms=arms)
    if arms > SIZE:
        raise DataError(
            f"the embedded list '{name}' has {SIZE} means, got arms={arms}. Ask for {SIZE} or "
            "fewer.",
            rule="problems.arms.more-than-embedded",
        )
    order = np.argsort(-means, kind="stable")[:arms]
    names = [f"{_WORD[name]} {number + 1}" for number in order]
    source = f"embedded {name}: the {arms} largest of the Samba authors' {SIZE} means"
    return BernoulliArms(means[order], names=names, source=source)
