"""Which arms: the settings that name a problem, and the arms they make."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from posse.core.errors import ConfigError, DataError
from posse.core.settings import Settings
from posse.problems.arms import Arms, BernoulliArms, BetaArms
from posse.problems.datasets import DATASETS, embedded_arms, load, read_means, read_ratings
from posse.problems.datasets.embedded import EMBEDDED


class ProblemSettings(Settings):
    """Where arms come from.

    `data` is `embedded:movielens` or `embedded:jester` (the 100 means the Samba authors used; no download), a data set
    (`movielens`, `jester`, `steam`; files under `data_dir` or POSSE_DATA), or a CSV file with columns item,rating or
    name,mean. `means` gives the means themselves.
    """

    data: str = "embedded:movielens"
    """embedded:movielens, embedded:jester, a data set (see 'posse problems') or a CSV file with columns name,mean or
    item,rating."""
    data_dir: Path | None = None
    """Folder of the data sets; else the one that POSSE_DATA names."""
    means: tuple[float, ...] | None = None
    """The means themselves, such as 0.2,0.5,0.8."""
    owners: int | None = None
    """Number of arms, one an owner; 10 of the embedded means, or all that `items` or a file name."""
    items: tuple[str, ...] | None = None
    """Items of the data set to take as arms, in this order."""
    threshold: float | None = None
    """A rating above it is a reward of 1."""
    minimum: int | None = None
    """Items with fewer ratings are left out."""
    reward: Literal["bernoulli", "rating", "beta"] = "bernoulli"
    """What a pull pays: 0 or 1; one of the item's own ratings scaled to [0, 1]; a Beta number of the same mean."""
    concentration: float = 10.0
    """How narrow Beta rewards are."""

    def arms(self) -> Arms:
        """Make the arms.

        >>> ProblemSettings(data="embedded:jester", owners=3).arms().means.round(2).tolist()
        [0.5, 0.47, 0.46]
        """
        if self.owners is not None and self.owners < 2:
            raise ConfigError(f"owners must be at least 2, got {self.owners}. Ask for 2 or more.")
        arms = self._plain_arms()
        if self.reward == "beta":
            return BetaArms(arms.means, self.concentration, arms.names, arms.source)
        return arms

    def _plain_arms(self) -> Arms:
        if self.means is not None:
            return BernoulliArms(self._first(self.means), source="means given")
        kind, _, name = self.data.partition(":")
        if kind == "embedded":
            if name not in EMBEDDED:
                raise ConfigError(f"embedded means are {' or '.join(EMBEDDED)}, got '{name}'.")
            self._no_ratings("embedded means")
            return embedded_arms(name, arms=self.owners or 10)
        if self.data in DATASETS:
            dataset = DATASETS[self.data]
            threshold = dataset.threshold if self.threshold is None else self.threshold
            minimum = dataset.minimum if self.minimum is None else self.minimum
            top = None if self.items else (self.owners or 10)
            ratings = load(self.data, self.data_dir)
            return ratings.arms(threshold, minimum, top=top, items=self.items, reward=self._pays)
        return self._file(Path(self.data))

    def _file(self, path: Path) -> Arms:
        """Arms of a user's own file: ratings if it has a rating column, else means."""
        if not path.is_file():
            known = ", ".join([*(f"embedded:{name}" for name in EMBEDDED), *DATASETS])
            raise DataError(f"there is no data file '{path}'. Give a CSV file, or one of: {known}.")
        with path.open(encoding="utf-8-sig", errors="replace") as file:
            header = file.readline().lower()
        if "rating" in header:
            if self.threshold is None:
                raise ConfigError("ratings need a threshold: a rating above it is a reward of 1. Give threshold.")
            ratings = read_ratings(path)
            top = None if self.items or self.owners is None else self.owners
            return ratings.arms(self.threshold, self.minimum or 1, top=top, items=self.items, reward=self._pays)
        self._no_ratings(f"the means in {path.name}")
        arms = read_means(path)
        if self.owners is not None and self.owners > len(arms):
            raise DataError(
                f"{path.name} has {len(arms)} arms, got owners={self.owners}. Ask for {len(arms)} or fewer."
            )
        count = self.owners or len(arms)
        return BernoulliArms(arms.means[:count], arms.names[:count], arms.source)

    @property
    def _pays(self) -> Literal["bernoulli", "rating"]:
        return "rating" if self.reward == "rating" else "bernoulli"

    def _first(self, means: tuple[float, ...]) -> tuple[float, ...]:
        if self.owners is not None and self.owners != len(means):
            raise ConfigError(f"owners must be the number of means, got {self.owners} for {len(means)} means.")
        return means

    def _no_ratings(self, what: str) -> None:
        """Ratings settings have no meaning where there are no ratings; a silent one would mislead."""
        for name in ("threshold", "minimum", "items"):
            if getattr(self, name) is not None:
                raise ConfigError(f"{name} applies to ratings, and {what} have none. Leave {name} out.")
        if self.reward == "rating":
            raise ConfigError(f"reward 'rating' needs ratings, and {what} have none. Use 'bernoulli' or 'beta'.")
