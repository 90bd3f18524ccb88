"""The results that the authors of Samba published, as typed rows (numbers only, from their public repository)."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from typing import Literal, cast

from posse.problems.datasets.embedded import packaged

Kind = Literal["benchmarks", "rewards"]


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation over the runs."""

    mean: float
    sd: float


@dataclass(frozen=True)
class PublishedResult:
    """One setting of the authors' own runs: times in seconds on their machine, rewards summed over the budget.

    `plain` is the bandit in one place, `distributed` the protocol without cryptography, `secure` the protocol; where
    only the plain bandit was run the other two are None and the times of the secure run's roles are too.
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
    """Read all 264 settings; `dataset` is spelled as in `embedded_means`, `algorithm` as the authors do.

    >>> first = published_results()[0]
    >>> first.dataset, first.algorithm, first.budget, first.arms, first.plain_reward.mean
    ('movielens', 'boltzmann', 50000, 10, 24764.34)
    """
    with packaged("published-results.csv").open() as stream:
        return tuple(_result(row) for row in csv.DictReader(stream))


def _result(row: dict[str, str]) -> PublishedResult:
    return PublishedResult(
        kind=cast(Kind, row["kind"]),
        dataset=row["dataset"].replace("-", ""),
        algorithm=row["algorithm"],
        budget=int(row["N"]),
        arms=int(row["K"]),
        runs=int(row["runs"]),
        plain_time=_known(row, "std_time"),
        plain_reward=_known(row, "std_reward"),
        distributed_time=_spread(row, "gen-distributed_time"),
        distributed_reward=_spread(row, "gen-distributed_reward"),
        secure_time=_spread(row, "gen-secure_time"),
        secure_reward=_spread(row, "gen-secure_reward"),
        controller_time=_spread(row, "share_as"),
        comp_time=_spread(row, "share_comp"),
        customer_time=_spread(row, "share_dc"),
        owners_time=_spread(row, "share_do_total"),
    )


def _known(row: dict[str, str], column: str) -> Spread:
    return Spread(float(row[f"{column}_mean"]), float(row[f"{column}_sd"]))


def _spread(row: dict[str, str], column: str) -> Spread | None:
    return _known(row, column) if row[f"{column}_mean"] else None
