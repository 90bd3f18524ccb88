"""Settings of a problem with arms, and its arms."""

from __future__ import annotations

import glob
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from posse.core import check
from posse.core.errors import ConfigError, DataError
from posse.core.settings import External
from posse.problems.arms.ratings import Ratings
from posse.problems.arms.rewards import Arms, BernoulliArms, BetaArms
from posse.problems.arms.tables import (
    People,
    is_list,
    read_means,
    read_owners,
    read_people,
    read_ratings,
)
from posse.problems.data import TableSettings
from posse.problems.datasets import invented
from posse.problems.datasets.published import EMBEDDED, embedded_arms
from posse.problems.datasets.ratings import DATASETS, ML_100K, Dataset, check_renamed, load
from posse.problems.datasets.reviews import holds_records, read_reviews
from posse.problems.recognise import recognise
from posse.problems.requirements import Requirement, check_all
from posse.problems.tables.frames import COLUMNAR, Frame
from posse.problems.tables.mapping import as_flag
from posse.problems.tables.schema import ColumnError
from posse.problems.tables.table import Source, Table, name_of_source, open_table

INVENTED = "invented:stores"
EMBEDDED_PREFIX = "embedded:"
TABLES = (".csv", ".tsv", ".txt", *COLUMNAR)
"""Suffixes of the files that are read from a folder."""
USUAL = 10
"""Arms that are taken of the embedded means or of a data set if `owners` is not given."""
KNOWN = (*(f"embedded:{name}" for name in EMBEDDED), INVENTED, *DATASETS)
"""Names that `data` may have."""


NAMED = 5
"""Names in a note about items that are left out."""


class ProblemSettings(TableSettings):
    """Where arms come from.

    `data` is `embedded:movielens` or `embedded:jester` (the 100 means the Samba authors used; no
    download), `invented:stores` (ratings by invented people with an age and a neighbourhood), a
    data set (`movielens`, `jester`, `steam-hours`, `steam-reviews`, `google-local`; files under
    `data_dir` or POSSE_DATA), a file of Steam or Google Local reviews, or a CSV file or frame with
    columns item,rating or name,mean. Several files, a folder of files or a pattern such as
    `shops/*.csv` have one file per owner, with a column rating. `means` gives the means themselves.
    """

    panel: ClassVar[str] = "What is learnt"
    own_minimum: ClassVar[int | None] = None
    """Fewest ratings of an item of a file, if `minimum` is not given; None depends on the file."""
    several_files: ClassVar[bool] = True

    data: Annotated[Any, External.except_for(KNOWN)] = Field(
        default="embedded:movielens", json_schema_extra={"instead": ["means", "names"]}
    )
    """embedded:movielens, embedded:jester, a data set (see 'posse problems') or a CSV file with
    columns name,mean or item,rating; or one file per owner: several files, a folder or a pattern.
    """
    data_dir: Path | None = None
    """Folder of the data sets; else the one that POSSE_DATA names."""
    means: tuple[float, ...] | None = None
    """The means themselves, such as 0.2,0.5,0.8."""
    names: tuple[str, ...] | None = None
    """Names of the arms whose means are given, one each."""
    owners: int | None = None
    """Number of arms, one per owner: those of largest mean, largest first. By default 10 of the
    embedded means or of a data set, and all items of a file or of `items`.
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
        check_all(self, _ARMS)
        if self.reward == "beta":
            check.positive(concentration=self.concentration)
        if self.means is not None:
            self._no_ratings("means given")
            self.arms()
        elif self._embedded is not None:
            self._no_ratings("embedded means")
        elif self._frame is None and self._dataset is None:
            check_renamed(self.data)
            files = self.owner_files()
            missing = [file for file in files if not file.is_file()]
            if missing or not files:
                raise _no_file(missing[0] if missing else Path(self.data))
        return self

    @property
    def _embedded(self) -> str | None:
        """Name of the embedded means, if `data` is those."""
        if isinstance(self.data, str) and self.data.startswith(EMBEDDED_PREFIX):
            return self.data.removeprefix(EMBEDDED_PREFIX)
        return None

    @property
    def _dataset(self) -> Dataset | None:
        """The data set that `data` names."""
        return DATASETS.get(self.data) if isinstance(self.data, str) else None

    @property
    def _frame(self) -> Frame | None:
        """The user's own frame, or the invented one; None if ratings or means are in files."""
        if self.data == INVENTED:
            return invented.stores()
        return self.data if isinstance(self.data, Frame) else None

    def owner_files(self) -> tuple[Path, ...]:
        """Return the files of `data`; empty for a frame and for a name."""
        if isinstance(self.data, tuple):
            return tuple(map(Path, self.data))
        is_path = isinstance(self.data, str) and self.data not in KNOWN
        return files_of(self.data) if is_path else ()

    def _find_files(self) -> Iterable[Path]:
        if self._dataset is not None:
            return (self._dataset.finder(self.data_dir),)
        return self.owner_files()

    @property
    def count(self) -> int | None:
        """Number of arms, if it was set."""
        return self.owners or len(self.means or ()) or None

    def arms(self) -> Arms:
        """Make the arms, once.

        >>> ProblemSettings(data="embedded:jester", owners=3).arms().means.round(2).tolist()
        [0.5, 0.47, 0.46]
        """
        return self.cached("arms", self._arms)

    def _arms(self) -> Arms:
        arms = self._plain_arms()
        if self.reward == "beta":
            return BetaArms(arms.means, self.concentration, arms.names, arms.source)
        return arms

    def _plain_arms(self) -> Arms:
        if self.means is not None:
            return BernoulliArms(self.means, self.names, source="means given")
        if self._embedded is not None:
            return embedded_arms(self._embedded, arms=self.owners or USUAL)
        ratings = self.ratings()
        if ratings is None:
            return self._read_means(open_table(self._source, self.read_options()))
        return self._rated(ratings)

    def used(self, arms: Arms) -> dict[str, int | float | None]:
        """Return the values that were used where settings were left out, for the record of a run.

        >>> settings = ProblemSettings(data="embedded:jester")
        >>> settings.used(settings.arms())
        {'owners': 10, 'threshold': None, 'minimum': None}
        """
        return {"owners": len(arms), "threshold": self._threshold, "minimum": self._minimum}

    @property
    def _threshold(self) -> float | None:
        if self.threshold is not None or self.means is not None or self._embedded is not None:
            return self.threshold
        if self.data == INVENTED:
            return invented.THRESHOLD
        if self._dataset is not None:
            return self._dataset.threshold
        ratings = self.ratings()
        # Ratings of 0 and 1 are rewards already.
        return 0.5 if ratings is not None and ratings.are_rewards else None

    @property
    def _minimum(self) -> int | None:
        # Data with a threshold have ratings; means have none to count.
        if self.minimum is not None or self._threshold is None:
            return self.minimum
        if self._dataset is not None:
            return self._dataset.minimum
        ratings = self.ratings()
        if ratings is None or self.items or self.own_minimum is not None:
            return self.own_minimum or 1
        return ratings.usual_minimum(self.owners)

    @property
    def dropped(self) -> tuple[str, ...]:
        """Sentences about rows and items that were left out."""
        return (*super().dropped, *self._cache.get("few ratings", ()))

    def ratings(self) -> Ratings | None:
        """Read the ratings that arms are made of, once; None if the data are means."""
        return self.cached("ratings", self._ratings)

    def _ratings(self) -> Ratings | None:
        if self.means is not None or self._embedded is not None:
            return None
        if self._dataset is not None:
            return load(str(self.data), self.data_dir, where=self.where)
        files = self.owner_files()
        if len(files) > 1:
            return read_owners(files, self.where, self.read_options())
        if files and holds_records(files[0]):
            return read_reviews(files[0], self.where)
        table = open_table(self._source, self.read_options())
        return read_ratings(table, where=self.where) if has_ratings(table) else None

    @property
    def _source(self) -> Source:
        """The table of ratings or means: a frame, or the first file."""
        return self._frame or self.owner_files()[0]

    def people(self) -> People | None:
        """Return what the ratings show about people, to a party that has all ratings.

        None if the ratings do not name people.
        """
        if self.ratings() is None or self._dataset is not None:
            return None
        files = self.owner_files()
        if len(files) > 1 or any(map(holds_records, files)):
            return None
        return read_people(self._source, self.where, options=self.read_options())

    def _rated(self, ratings: Ratings) -> Arms:
        """Return arms of ratings: the named items, or those of largest mean."""
        threshold = self._threshold
        minimum = self._minimum
        if threshold is None or minimum is None:
            low, high = ratings.scale
            raise ConfigError(
                "ratings need a threshold: a rating above it is a reward of 1. Give threshold, "
                f"such as --threshold {usual_threshold(ratings):g} (ratings are {low:g} to "
                f"{high:g}).",
                rule="problems.threshold.needed",
            )
        self._check_items({*ratings.items, *ratings.names})
        few = np.flatnonzero((ratings.counts > 0) & (ratings.counts < minimum))
        if few.size and self.minimum is None and self._dataset is None:
            items = "1 item has" if few.size == 1 else f"{few.size} items have"
            names = ", ".join(ratings.names[i] for i in few[:NAMED])
            if few.size > NAMED:
                names += ", ..."
            self._cache["few ratings"] = (
                f"{items} fewer than {minimum} ratings, and cannot be chosen: {names}. To keep "
                "such items, give minimum (--minimum 1 keeps all).",
            )
        usual = None if self._dataset is None else USUAL
        return ratings.arms(
            threshold,
            minimum,
            top=None if self.items else self.owners or usual,
            items=self.items,
            reward="rating" if self.reward == "rating" else "bernoulli",
        )

    def _check_items(self, names: set[str]) -> None:
        """Raise if several items are given as one word."""
        for word in self.items or ():
            parts = [part.strip() for part in word.split(",")]
            if word not in names and len(parts) > 1 and names.issuperset(parts):
                flags = " ".join(f"--items '{part}'" for part in parts)
                raise ConfigError(
                    f"no item '{word}', for names may hold commas. Repeat --items, a name each: "
                    f"{flags}",
                    rule="problems.items.joined",
                )

    def _read_means(self, table: Table) -> Arms:
        """Return arms of a user's own table of means."""
        name = name_of_source(self._source)
        if not has_means(table):
            raise _unknown_table(table, name, self._source)
        self._no_ratings(f"the means in {name}")
        arms = read_means(table)
        if self.owners in (None, len(arms)):
            return arms
        if self.owners > len(arms):
            raise DataError(
                f"{name} has {len(arms)} arms, got owners={self.owners}. Ask for {len(arms)} or "
                "fewer.",
                rule="problems.owners.too-many",
            )
        order = np.argsort(-arms.means, kind="stable")[: self.owners]
        source = f"{arms.source}: the {self.owners} largest of {len(arms)} means"
        return BernoulliArms(arms.means[order], [arms.names[i] for i in order], source)

    def _no_ratings(self, what: str) -> None:
        """Raise if a setting that needs ratings is given, and there are none."""
        for name in ("threshold", "minimum", "items", "where"):
            if getattr(self, name) is not None:
                raise ConfigError(
                    f"{name} applies to ratings, and {what} have none. Leave {name} out.",
                    rule="problems.ratings.none",
                    field=name,
                )
        if self.reward == "rating":
            raise ConfigError(
                f"reward 'rating' needs ratings, and {what} have none. Use 'bernoulli' or 'beta'.",
                rule="problems.reward.no-ratings",
            )


_ARMS: tuple[Requirement[ProblemSettings], ...] = (
    Requirement(
        "problems.owners.below-two",
        lambda arms: arms.owners is None or arms.owners >= 2,
        lambda arms: f"owners must be at least 2, got {arms.owners}. Ask for 2 or more.",
    ),
    Requirement(
        "problems.owners.not-items",
        lambda arms: not arms.items or arms.owners in (None, len(arms.items)),
        lambda arms: (
            f"owners must be the number of items, got {arms.owners} for {len(arms.items or ())} "
            "items. Leave owners out."
        ),
    ),
    Requirement(
        "problems.means.and-data",
        lambda arms: arms.means is None or arms.data == type(arms).model_fields["data"].default,
        lambda arms: (
            f"means and data both name the arms, got means and '{arms.data_name}'. Give one."
        ),
    ),
    Requirement(
        "problems.owners.not-means",
        lambda arms: arms.means is None or arms.owners in (None, len(arms.means)),
        lambda arms: (
            f"owners must be the number of means, got {arms.owners} for {len(arms.means or ())} "
            "means."
        ),
    ),
    Requirement(
        "problems.names.not-means",
        lambda arms: arms.means is None or arms.names is None or len(arms.names) == len(arms.means),
        lambda arms: (
            f"names must be one per mean, got {len(arms.names or ())} for {len(arms.means or ())} "
            "means."
        ),
    ),
    Requirement(
        "problems.names.without-means",
        lambda arms: arms.means is not None or arms.names is None,
        lambda arms: "names apply to means; other data have their own names. Leave names out.",
    ),
    Requirement(
        "problems.data.not-embedded",
        lambda arms: not str(arms.data).startswith(EMBEDDED_PREFIX) or arms.data in KNOWN,
        lambda arms: f"embedded means are {' or '.join(EMBEDDED)}, got '{arms.data}'.",
    ),
    Requirement(
        "problems.where.no-columns",
        lambda arms: (
            arms.where is None
            or not isinstance(arms.data, str)
            or arms.data not in DATASETS
            or DATASETS[arms.data].records
        ),
        lambda arms: (
            f"where filters the rows of your own ratings, of reviews or of '{INVENTED}'. Leave "
            "where out."
        ),
    ),
)


def has_ratings(table: Table) -> bool:
    """Return whether a table has ratings: by its header, or by the names of its columns."""
    if {"item", "rating"} & set(table.options.columns):
        return True
    return "rating" in ",".join(table.header).lower()


def has_means(table: Table) -> bool:
    """Return whether a table has means, or is a list of them."""
    if {"name", "mean"} & set(table.options.columns) or is_list(table):
        return True
    return "mean" in ",".join(table.header).lower()


def usual_threshold(ratings: Ratings) -> float:
    """Return a threshold that about half of the ratings are above: between two of them.

    >>> usual_threshold(Ratings(("a",), [0] * 4, [1.0, 2.0, 4.0, 5.0], (1.0, 5.0), "four"))
    3.0
    """
    value, count = np.unique(ratings.value, return_counts=True)
    above = 1 - np.cumsum(count) / len(ratings)
    place = int(np.argmin(np.abs(above[:-1] - 0.5)))
    return float(f"{(value[place] + value[place + 1]) / 2:.6g}")


def files_of(data: str) -> tuple[Path, ...]:
    """Return the files that `data` names: a file, the tables of a folder, or those of a pattern."""
    path = Path(data)
    if path.is_dir():
        return tuple(sorted(each for each in path.iterdir() if each.suffix.lower() in TABLES))
    if path.is_file() or not glob.has_magic(data):
        return (path,)
    return tuple(Path(name) for name in sorted(glob.glob(data)))


def _unknown_table(table: Table, name: str, source: Source) -> ColumnError:
    """Return the error that a table has neither ratings nor means."""
    columns: Mapping[str, str] = {}
    with suppress(DataError):
        columns = recognise(source, table.options).columns
    if columns:
        remedy = f"If its columns have other names, give {as_flag(columns)}."
    elif isinstance(source, Path) and source.name == ML_100K:
        remedy = f"MovieLens is read with --data movielens --data-dir '{source.parent}'."
    else:
        remedy = "Rename the columns."
    header = ",".join(table.header)[:60]
    return ColumnError(
        f"{name}: expected columns item,rating (ratings) or name,mean (means), or one mean per "
        f"line, got the header '{header}'. {remedy}",
        dict(columns),
        rule="problems.columns.unknown",
    )


def _no_file(path: Path) -> DataError:
    if path.is_dir():
        return DataError(
            "data must be a file or a folder with one table per owner, got the folder "
            f"'{path}' without tables. Give a CSV file, or give the folder as data_dir "
            f"(--data-dir) and data as one of: {', '.join(DATASETS)}.",
            rule="problems.data.folder",
        )
    # A user who writes a suffix or a folder means a file: the name of a data set does not help.
    if path.suffix or path.name != str(path):
        return DataError(
            f"there is no data file '{path}'. Give a CSV file, or one of: {', '.join(KNOWN)}.",
            rule="problems.data.no-file",
        )
    return DataError(
        f"there is no data file '{path}'.{check.suggestion(str(path), KNOWN)} Or give a CSV file.",
        rule="problems.data.unknown",
    )
