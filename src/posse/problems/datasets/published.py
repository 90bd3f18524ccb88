"""What the authors of Samba published: the arm means they benchmarked with, and their results. Only
numbers.

From the authors' public repository. Their means divide the ratings above a threshold by all users,
not by the ratings received as their paper says, so they are smaller than `Ratings.means`; the
Jester list is exactly that quotient for the threshold 4.5. For K arms the authors take the K
largest means, as their paper says.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from importlib.resources import files
from typing import Literal, cast

import numpy as np
from numpy.typing import NDArray

from posse.core import check
from posse.core.errors import DataError
from posse.problems.arms.rewards import Arms, BernoulliArms
from posse.problems.arms.tables import mean_list
from posse.problems.datasets.files import Document

Kind = Literal["benchmarks", "rewards"]


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation over the runs."""

    mean: float
    sd: float


@dataclass(frozen=True)
class PublishedResult:
    """One setting of the authors' own runs: times in seconds on their machine, rewards summed over
    the budget.

    `plain` is the bandit in one place, `distributed` the protocol without cryptography, `secure`
    the protocol; where only the plain bandit was run the other two are None and the times of the
    secure run's roles are too.
    """

    kind: Kind
    dataset: str
    algorithm: str
    budget: int
    arms: int
    runs: int
    plain_time: Spread
    plain_reward: Spread
    distributed_time: Spread | None
    distributed_reward: Spread | None
    secure_time: Spread | None
    secure_reward: Spread | None
    controller_time: Spread | None
    comp_time: Spread | None
    customer_time: Spread | None
    owners_time: Spread | None


def published_results() -> tuple[PublishedResult, ...]:
    """Read all 264 settings; `dataset` is spelled as in `embedded_means`, `algorithm` as the
    authors do.

    >>> first = published_results()[0]
    >>> first.dataset, first.algorithm, first.budget, first.arms, first.plain_reward.mean
    ('movielens', 'boltzmann', 50000, 10, 24764.34)
    """
    with packaged("published-results.csv").open() as stream:
        return tuple(_result(row) for row in csv.DictReader(stream))


_COLUMNS = (
    "gen-distributed_time",
    "gen-distributed_reward",
    "gen-secure_time",
    "gen-secure_reward",
    "share_as",
    "share_comp",
    "share_dc",
    "share_do_total",
)
"""What the file calls the results from `distributed_time` on."""


def _result(row: dict[str, str]) -> PublishedResult:
    kind, dataset = cast("Kind", row["kind"]), row["dataset"].replace("-", "")
    budget, arms, runs = (int(row[name]) for name in ("N", "K", "runs"))
    time, reward = (_known(row, f"std_{what}") for what in ("time", "reward"))
    others = (_spread(row, column) for column in _COLUMNS)
    return PublishedResult(
        kind, dataset, row["algorithm"], budget, arms, runs, time, reward, *others
    )


def _known(row: dict[str, str], column: str) -> Spread:
    return Spread(float(row[f"{column}_mean"]), float(row[f"{column}_sd"]))


def _spread(row: dict[str, str], column: str) -> Spread | None:
    return _known(row, column) if row[f"{column}_mean"] else None


EMBEDDED: tuple[str, ...] = ("jester", "movielens")
SIZE = 100

_WORD = {"jester": "joke", "movielens": "movie"}


def embedded_means(name: str) -> NDArray[np.float64]:
    """Give the authors' 100 means, in the order of their list.

    >>> embedded_means("jester")[:2].round(3).tolist()
    [0.183, 0.195]
    """
    check.one_of(EMBEDDED, name=name)
    return mean_list(packaged(f"{name}-100.txt"))


def embedded_arms(name: str, arms: int = SIZE) -> Arms:
    """Make Bernoulli arms of the largest means, largest first; an arm is named by its place in the
    list.

    >>> embedded_arms("movielens", arms=2).names
    ('movie 50', 'movie 100')
    """
    means = embedded_means(name)
    check.at_least(1, arms=arms)
    if arms > SIZE:
        raise DataError(
            f"the embedded list '{name}' has {SIZE} means, got arms={arms}. Ask for {SIZE} or "
            "fewer."
        )
    order = np.argsort(-means, kind="stable")[:arms]
    names = [f"{_WORD[name]} {number + 1}" for number in order]
    source = f"embedded {name}: the {arms} largest of the Samba authors' {SIZE} means"
    return BernoulliArms(means[order], names=names, source=source)


def packaged(file: str) -> Document:
    """Read a file that ships with the package."""
    return Document(file, files(__package__).joinpath("data", file).read_bytes())
