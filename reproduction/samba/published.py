"""Results that the authors of Samba published. Only numbers, from their public repository."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from importlib.resources import files
from typing import Literal, cast

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
    with files(__package__).joinpath("published-results.csv").open(encoding="utf-8") as stream:
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
