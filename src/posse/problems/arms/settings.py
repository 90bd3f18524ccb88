"""Which arms: the settings that name a problem, and the arms they make."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from posse.core import check
from posse.core.check import suggestion
from posse.core.errors import ConfigError, DataError
from posse.core.settings import External
from posse.problems.arms.ratings import Ratings
from posse.problems.arms.rewards import Arms, BernoulliArms, BetaArms
from posse.problems.arms.tables import People, read_means, read_people, read_ratings
from posse.problems.data import DataSettings
from posse.problems.datasets import invented
from posse.problems.datasets.columns import SEPARATOR
from posse.problems.datasets.frames import (
    COLUMNAR,
    Frame,
    name_of_source,
    read_columnar,
    read_table,
)
from posse.problems.datasets.published import EMBEDDED, embedded_arms
from posse.problems.datasets.ratings import DATASETS, ML_100K, check_renamed, load
from posse.problems.datasets.reading import encoding_of, is_number
from posse.problems.datasets.reviews import holds_records, read_reviews

INVENTED = "invented:stores"
USUAL = 10
"""Arms that are taken of the embedded means or of a data set where nobody says how many."""
KNOWN = (*(f"embedded:{name}" for name in EMBEDDED), INVENTED, *DATASETS)
"""Names that `data` may have."""


class ProblemSettings(DataSettings):
    """Where arms come from.

    `data` is `embedded:movielens` or `embedded:jester` (the 100 means the Samba authors used; no
    download), `invented:stores` (ratings by invented people with an age and a neighbourhood), a
    data set (`movielens`, `jester`, `steam-hours`, `steam-reviews`, `google-local`; files under
    `data_dir` or POSSE_DATA), a file of Steam or Google Local reviews, or a CSV file or frame with
    columns item,rating or name,mean. `means` gives the means themselves.
    """

    panel: ClassVar[str] = "What is learnt"
    own_minimum: ClassVar[int | None] = None
    """Fewest ratings of an item of a file, if `minimum` is not given; None depends on the file."""

    data: Annotated[Any, External.except_for(KNOWN)] = Field(
        default="embedded:movielens", json_schema_extra={"instead": ["means", "names"]}
    )
    """embedded:movielens, embedded:jester, a data set (see 'posse problems') or a CSV file with
    columns name,mean or item,rating.
    """
    data_dir: Path | None = None
    """Folder of the data sets; else the one that POSSE_DATA names."""
    means: tuple[float, ...] | None = None
    """The means themselves, such as 0.2,0.5,0.8."""
    names: tuple[str, ...] | None = None
    """Names of the arms whose means are given, one each."""
    owners: int | None = None
    """Number of arms, one an owner: the K of largest mean, largest first; without it 10 of the
    embedded means or of a data set, or all that `items` or a file name.
    """
    items: tuple[str, ...] | None = None
    """Items of the data set to take as arms, in this order."""
    threshold: float | None = None
    """A rating above it is a reward of 1; needed for a file of your own, else the data set's own
    number.
    """
    minimum: int | None = None
    """Items with fewer ratings are left out. If not given: the data set's own number; for a file of
    your own half the median number of ratings of an item, at most 10, and 1 for `items`.
    """
    where: str | None = None
    """Only ratings of rows for which this holds, by columns of your CSV:
    age>=30,neighbourhood=Harbour.
    """
    reward: Literal["bernoulli", "rating", "beta"] = "bernoulli"
    """What a pull pays: 0 or 1; one of the item's own ratings scaled to [0, 1]; a Beta number of
    the same mean.
    """
    concentration: float = 10.0
    """How narrow Beta rewards are."""

    @model_validator(mode="after")
    def _check_arms(self) -> Self:
        if self.owners is not None and self.owners < 2:
            raise ConfigError(f"owners must be at least 2, got {self.owners}. Ask for 2 or more.")
        if self.names is not None and self.means is None:
            raise ConfigError(
                "names go with means given; other data have names of their own. Leave names out."
            )
        if self.means is not None and self.data != type(self).model_fields["data"].default:
            raise ConfigError(
                f"means and data both say what the arms are, got means and '{self.data_name}'. "
                "Give one."
            )
        if self.items and self.owners is not None and self.owners != len(self.items):
            raise ConfigError(
                f"owners must be the number of items, got {self.owners} for {len(self.items)} "
                "items. Leave owners out."
            )
        if self.means is not None:
            self._no_ratings("means given")
            if self.owners is not None and self.owners != len(self.means):
                raise ConfigError(
                    f"owners must be the number of means, got {self.owners} for {len(self.means)} "
                    "means."
                )
            if self.names is not None and len(self.names) != len(self.means):
                raise ConfigError(
                    f"names must be one a mean, got {len(self.names)} for {len(self.means)} means."
                )
        elif self._embedded is not None:
            if self._embedded not in EMBEDDED:
                raise ConfigError(
                    f"embedded means are {' or '.join(EMBEDDED)}, got '{self._embedded}'."
                )
            self._no_ratings("embedded means")
        if self.reward == "beta":
            check.positive(concentration=self.concentration)
        if self.means is not None:
            self.arms()
        check_renamed(self.data)
        if self._dataset is None and self.means is None and self._embedded is None:
            self._check_file()
        elif self.where is not None:
            raise ConfigError(
                f"where filters the rows of a CSV of ratings or of '{INVENTED}'. Leave where out."
            )
        return self

    def _check_file(self) -> None:
        if isinstance(self.data, str) and self.data != INVENTED and not Path(self.data).is_file():
            raise DataError(_no_file(Path(self.data)))

    @property
    def _embedded(self) -> str | None:
        """Name of the embedded means, if it is those."""
        kind, colon, name = self.data.partition(":") if isinstance(self.data, str) else ("", "", "")
        return name if kind == "embedded" and colon else None

    @property
    def count(self) -> int | None:
        """Number of arms, where it was given."""
        return self.owners or len(self.means or ()) or None

    def arms(self) -> Arms:
        """Make the arms, once.

        >>> ProblemSettings(data="embedded:jester", owners=3).arms().means.round(2).tolist()
        [0.5, 0.47, 0.46]
        """
        return self.once("arms", self._arms)

    def _arms(self) -> Arms:
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
        if self.threshold is None and self.data == INVENTED:
            return invented.THRESHOLD
        given = self.threshold is not None or self.means is not None or self._dataset is None
        return self.threshold if given else DATASETS[self.data].threshold

    @property
    def _dataset(self) -> str | None:
        return self.data if isinstance(self.data, str) and self.data in DATASETS else None

    @property
    def _minimum(self) -> int | None:
        # A file with a threshold is one of ratings; means, and embedded means, have no ratings to
        # count.
        if self.minimum is not None or self._threshold is None:
            return self.minimum
        if self._dataset is not None:
            return DATASETS[self._dataset].minimum
        ratings = self.ratings()
        if ratings is None or self.items or self.own_minimum is not None:
            return self.own_minimum or 1
        return ratings.usual_minimum(self.owners)

    @property
    def dropped(self) -> tuple[str, ...]:
        """Sentences about rows and items that were left out."""
        few = self._cache.get("few ratings", "")
        return (*super().dropped, few) if few else super().dropped

    def _found(self) -> Iterable[Path]:
        if self._dataset is not None:
            return (DATASETS[self._dataset].finder(self.data_dir),)
        return () if self.data == INVENTED or self._embedded is not None else (Path(self.data),)

    def _plain_arms(self) -> Arms:
        if self.means is not None:
            return BernoulliArms(self.means, self.names, source="means given")
        if self._embedded is not None:
            return embedded_arms(self._embedded, arms=self.owners or USUAL)
        ratings = self.ratings()
        if ratings is not None:
            return self._rated(
                ratings, self.owners or USUAL if self._dataset is not None else self.owners
            )
        return self._means(self._source)

    def ratings(self) -> Ratings | None:
        """Read the ratings that arms are made of, once; None where the data are means."""
        return self.once("ratings", self._ratings)

    def _ratings(self) -> Ratings | None:
        if self.means is not None or self._embedded is not None:
            return None
        if self._dataset is not None:
            return load(self._dataset, self.data_dir)
        source = self._source
        if isinstance(source, Path) and holds_records(source):
            if self.where is not None:
                raise ConfigError(
                    "where filters the rows of a CSV of ratings, and this is a file of reviews."
                )
            return read_reviews(source)
        if "rating" not in _header(source).lower():
            return None
        return read_ratings(source, where=self.where)

    @property
    def _source(self) -> Path | Frame:
        """The user's own table, or the invented one."""
        if self.data == INVENTED:
            return invented.stores()
        return self.data if isinstance(self.data, Frame) else Path(self.data)

    def people(self) -> People | None:
        """What whoever computes the means in one place would see of the people who rated; None
        where nobody knows.
        """
        if self.ratings() is None or self._dataset is not None:
            return None
        source = self._source
        return (
            None
            if isinstance(source, Path) and holds_records(source)
            else read_people(source, self.where)
        )

    def _rated(self, ratings: Ratings, top: int | None) -> Arms:
        """Arms of ratings: the items named, or those of largest mean."""
        threshold, minimum = self._threshold, self._minimum
        if threshold is None or minimum is None:
            raise ConfigError(
                "ratings need a threshold: a rating above it is a reward of 1. Give threshold."
            )
        known = {*ratings.items, *ratings.names}
        for word in self.items or ():
            parts = [part.strip() for part in word.split(",")]
            if word not in known and len(parts) > 1 and known.issuperset(parts):
                flags = " ".join(f"--items '{part}'" for part in parts)
                raise ConfigError(
                    f"no item '{word}', for names may hold commas. Repeat --items, a name each: "
                    f"{flags}"
                )
        left_out = int(((ratings.counts > 0) & (ratings.counts < minimum)).sum())
        if left_out and self.minimum is None and self._dataset is None:
            items = "1 item has" if left_out == 1 else f"{left_out} items have"
            self._cache["few ratings"] = (
                f"{items} fewer than {minimum} ratings, too few for a mean, and no arm. "
                "Give minimum to change this (--minimum 1 takes all)."
            )
        return ratings.arms(
            threshold,
            minimum,
            top=None if self.items else top,
            items=self.items,
            reward="rating" if self.reward == "rating" else "bernoulli",
        )

    def _means(self, source: Path | Frame) -> Arms:
        """Arms of a user's own table of means."""
        header, name = _header(source), name_of_source(source)
        if "mean" not in header.lower() and not is_number(header):
            read_table(source)  # which says so where it is no text at all
            remedy = "Rename the columns."
            if isinstance(source, Path) and source.name == ML_100K:
                remedy = f"MovieLens is read with --data movielens --data-dir '{source.parent}'."
            raise DataError(
                f"{name}: expected columns item,rating (ratings) or name,mean (means), or one mean "
                "a line, "
                f"got the header '{header[:60]}'. {remedy}"
            )
        self._no_ratings(f"the means in {name}")
        arms = read_means(source)
        if self.owners is not None and self.owners > len(arms):
            raise DataError(
                f"{name} has {len(arms)} arms, got owners={self.owners}. Ask for {len(arms)} or "
                "fewer."
            )
        if self.owners is None or self.owners == len(arms):
            return arms
        order = np.argsort(-arms.means, kind="stable")[: self.owners]
        source_words = f"{arms.source}: the {self.owners} largest of {len(arms)} means"
        return BernoulliArms(arms.means[order], [arms.names[i] for i in order], source_words)

    def _no_ratings(self, what: str) -> None:
        """Raise if a setting of ratings is given where there are none."""
        for name in ("threshold", "minimum", "items", "where"):
            if getattr(self, name) is not None:
                raise ConfigError(
                    f"{name} applies to ratings, and {what} have none. Leave {name} out."
                )
        if self.reward == "rating":
            raise ConfigError(
                f"reward 'rating' needs ratings, and {what} have none. Use 'bernoulli' or 'beta'."
            )


def _no_file(path: Path) -> str:
    if path.is_dir():
        return (
            f"data must be a file, got the folder '{path}'. Give a CSV file, or give the folder as "
            "data_dir "
            f"(--data-dir) and data as one of: {', '.join(DATASETS)}."
        )
    # Who writes a suffix or a folder means a file, and is helped by no name of a data set.
    if path.suffix or path.name != str(path):
        return f"there is no data file '{path}'. Give a CSV file, or one of: {', '.join(KNOWN)}."
    return f"there is no data file '{path}'.{suggestion(str(path), KNOWN)} Or give a CSV file."


def _header(source: Path | Frame) -> str:
    """Return the first line that is neither empty nor a comment."""
    if isinstance(source, Path) and source.suffix.lower() in COLUMNAR:
        source = read_columnar(source)
    if isinstance(source, Frame):
        return ",".join(source.names)
    with source.open("rb") as file:
        encoding = encoding_of(file.read(2))
    with source.open(encoding=encoding, errors="replace") as file:
        lines = (
            line for line in file if not SEPARATOR.fullmatch(line.rstrip("\r\n"))
        )  # the mark may be a tab
        return next(
            (line for line in map(str.strip, lines) if line and not line.startswith("#")), ""
        )
