"""Which arms: the settings that name a problem, and the arms they make."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np

from posse.core.check import nearest
from posse.core.errors import ConfigError, DataError
from posse.core.settings import Settings
from posse.problems.arms.ratings import Ratings
from posse.problems.arms.rewards import Arms, BernoulliArms, BetaArms
from posse.problems.arms.tables import is_number, read_means, read_ratings
from posse.problems.datasets.files import read_document
from posse.problems.datasets.published import EMBEDDED, embedded_arms
from posse.problems.datasets.ratings import DATASETS, load


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
    """Number of arms, one an owner: the K of largest mean, largest first; without it 10 of the embedded means or of a
    data set, or all that `items` or a file name."""
    items: tuple[str, ...] | None = None
    """Items of the data set to take as arms, in this order."""
    threshold: float | None = None
    """A rating above it is a reward of 1; needed for a file of your own, else the data set's own number."""
    minimum: int | None = None
    """Items with fewer ratings are left out; 1 for a file of your own, the data set's own number otherwise."""
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
        self._check()
        arms = self._plain_arms()
        if self.reward == "beta":
            return BetaArms(arms.means, self.concentration, arms.names, arms.source)
        return arms

    def used(self, arms: Arms) -> dict[str, int | float | None]:
        """Give what was used where a setting was left out, for the record of a run with these arms.

        >>> settings = ProblemSettings(data="embedded:jester")
        >>> settings.used(settings.arms())
        {'owners': 10, 'threshold': None, 'minimum': None}
        """
        return {"owners": len(arms), "threshold": self._threshold, "minimum": self._minimum}

    @property
    def _threshold(self) -> float | None:
        given = self.threshold is not None or self.means is not None or self.data not in DATASETS
        return self.threshold if given else DATASETS[self.data].threshold

    @property
    def _minimum(self) -> int | None:
        # A file with a threshold is one of ratings; means, and embedded means, have no ratings to count.
        if self.minimum is not None or self._threshold is None:
            return self.minimum
        return DATASETS[self.data].minimum if self.data in DATASETS else 1

    def _check(self) -> None:
        """Refuse two settings that name the arms, of which one would be left unheard."""
        if self.means is not None and self.data != type(self).model_fields["data"].default:
            raise ConfigError(f"means and data both say what the arms are, got means and '{self.data}'. Give one.")
        if self.items and self.owners is not None and self.owners != len(self.items):
            raise ConfigError(
                f"owners must be the number of items, got {self.owners} for {len(self.items)} items. Leave owners out."
            )

    def _plain_arms(self) -> Arms:
        if self.means is not None:
            self._no_ratings("means given")
            return BernoulliArms(self._first(self.means), source="means given")
        kind, _, name = self.data.partition(":")
        if kind == "embedded":
            if name not in EMBEDDED:
                raise ConfigError(f"embedded means are {' or '.join(EMBEDDED)}, got '{name}'.")
            self._no_ratings("embedded means")
            return embedded_arms(name, arms=self.owners or 10)
        if self.data in DATASETS:
            return self._rated(load(self.data, self.data_dir), self.owners or 10)
        return self._file(Path(self.data))

    def _rated(self, ratings: Ratings, top: int | None) -> Arms:
        """Arms of ratings: the items named, or those of largest mean."""
        threshold, minimum = self._threshold, self._minimum
        if threshold is None or minimum is None:
            raise ConfigError("ratings need a threshold: a rating above it is a reward of 1. Give threshold.")
        known = {*ratings.items, *ratings.names}
        for word in self.items or ():
            parts = [part.strip() for part in word.split(",")]
            if word not in known and len(parts) > 1 and known.issuperset(parts):
                flags = " ".join(f"--items '{part}'" for part in parts)
                raise ConfigError(f"no item '{word}', for names may hold commas. Repeat --items, a name each: {flags}")
        return ratings.arms(threshold, minimum, top=None if self.items else top, items=self.items, reward=self._pays)

    def _file(self, path: Path) -> Arms:
        """Arms of a user's own file: ratings if it has a rating column, else means."""
        if not path.is_file():
            raise DataError(_no_file(path))
        header = _header(path)
        if "rating" in header.lower():
            if self.threshold is None:
                raise ConfigError("ratings need a threshold: a rating above it is a reward of 1. Give threshold.")
            return self._rated(read_ratings(path), self.owners)
        if "mean" not in header.lower() and not is_number(header):
            read_document(path)  # which says so where it is no text at all
            raise DataError(
                f"{path.name}: expected columns item,rating (ratings) or name,mean (means), or one mean a line, "
                f"got the header '{header[:60]}'. Rename the columns."
            )
        self._no_ratings(f"the means in {path.name}")
        arms = read_means(path)
        if self.owners is not None and self.owners > len(arms):
            raise DataError(
                f"{path.name} has {len(arms)} arms, got owners={self.owners}. Ask for {len(arms)} or fewer."
            )
        if self.owners is None or self.owners == len(arms):
            return arms
        order = np.argsort(-arms.means, kind="stable")[: self.owners]
        source = f"{arms.source}: the {self.owners} largest of {len(arms)} means"
        return BernoulliArms(arms.means[order], [arms.names[i] for i in order], source)

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


def _no_file(path: Path) -> str:
    known = (*(f"embedded:{name}" for name in EMBEDDED), *DATASETS)
    if path.is_dir():
        return (
            f"data must be a file, got the folder '{path}'. Give a CSV file, or give the folder as data_dir "
            f"(--data-dir) and data as one of: {', '.join(DATASETS)}."
        )
    # Who writes a suffix or a folder means a file, and is helped by no name of a data set.
    if path.suffix or path.name != str(path):
        return f"there is no data file '{path}'. Give a CSV file, or one of: {', '.join(known)}."
    return f"there is no data file '{path}'.{nearest(str(path), known)} Or give a CSV file."


def _header(path: Path) -> str:
    """Give the first line that is neither empty nor a comment."""
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        lines = (line.strip() for line in file)
        return next((line for line in lines if line and not line.startswith("#")), "")
