"""The data sets that Posse knows by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from posse.core import check
from posse.core.errors import DataError
from posse.problems.datasets import jester, movielens, steam
from posse.problems.datasets.document import FilePath
from posse.problems.ratings import Ratings


class Loader(Protocol):
    """Finds the files of a data set and reads them."""

    def __call__(self, data_dir: FilePath | None = None, verify: bool = True) -> Ratings:
        """Load from `data_dir`, else from the folder that POSSE_DATA names."""
        ...


@dataclass(frozen=True)
class Dataset:
    """A data set, how to load it, and the threshold and minimum that make sensible arms of it."""

    name: str
    description: str
    loader: Loader
    threshold: float
    minimum: int
    source: str


DATASETS: dict[str, Dataset] = {
    dataset.name: dataset
    for dataset in (
        Dataset(
            name="movielens",
            description="100,836 ratings of 9,724 films by 610 users, 0.5 to 5 stars; an arm pays for 4 stars or more",
            loader=movielens.load_movielens,
            threshold=3.5,
            minimum=50,
            source=movielens.HOME,
        ),
        Dataset(
            name="jester",
            description="1,810,455 ratings of 100 jokes by 24,983 users, -10 to 10; an arm pays for more than 4.5",
            loader=jester.load_jester,
            # The threshold that gives the Samba authors' own counts.
            threshold=4.5,
            minimum=1,
            source=jester.HOME,
        ),
        Dataset(
            name="steam",
            description="70,489 plays of 3,600 games by 11,350 users, in hours; an arm pays for more than 5 hours",
            loader=steam.load_steam,
            # The median play lasts 4.5 hours, so rewards of both kinds are common.
            threshold=5.0,
            minimum=50,
            source=steam.HOME,
        ),
    )
}


def load(name: str, data_dir: FilePath | None = None, verify: bool = True) -> Ratings:
    """Load a data set by name from `data_dir`, else from the folder that POSSE_DATA names.

    >>> load("movielense")
    Traceback (most recent call last):
    ...
    posse.core.errors.DataError: [P200] unknown data set 'movielense'. Did you mean 'movielens'?
    Known: jester, movielens, steam.
    """
    if name not in DATASETS:
        raise DataError(f"unknown data set '{name}'.{check.nearest(name, tuple(DATASETS))}")
    return DATASETS[name].loader(data_dir, verify)
