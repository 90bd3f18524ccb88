"""Data sets of ratings: MovieLens, Jester and hours on Steam, by name (`DATASETS`) or from files.

MovieLens: films, 0.5 to 5 stars. The editions ml-latest-small, ml-latest and ml-25m share one
layout: ratings.csv and movies.csv in one folder. The edition of 943 users that the Samba authors
took, ml-100k, has u.data and u.item instead. Terms: research, no commercial use. Harper & Konstan,
The MovieLens Datasets, ACM TiiS 5(4), 2015.

Jester: 24,983 people rate 100 jokes from -10 to 10. One row per person: how many jokes the person
rated, then a rating for each joke, 99 where there is none. Terms: research with citation. Goldberg
et al., Eigentaste, Information Retrieval 4(2), 2001.

Reviews of games (steam-reviews) and of places (google-local) are in `reviews`.

steam-hours: hours that people played games, and the games they bought. Two layouts hold the same
200,000 rows: game_play.dat, game_purchase.dat and item_info.dat (in a folder or in steam.zip, tab
separated), and the single file steam-200k.csv without a header. The value of a play is hours, so a
threshold on it is in hours. Purchases are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from posse.core import check
from posse.core.errors import DataError
from posse.problems.arms.ratings import Ratings
from posse.problems.datasets.files import find, read_known, read_known_text, unzip
from posse.problems.datasets.reviews import (
    GOOGLE_HOME,
    STEAM_REVIEWS_HOME,
    find_google_local,
    find_steam_reviews,
    read_reviews,
)
from posse.problems.requirements import Ints, check_entries
from posse.problems.tables.cells import Fault
from posse.problems.tables.options import ReadOptions
from posse.problems.tables.schema import (
    Column,
    Records,
    Rule,
    Schema,
    Words,
    numbers,
    within,
    words,
)
from posse.problems.tables.table import open_table
from posse.problems.tables.text import Document, FilePath

MOVIELENS_HOME = "https://grouplens.org/datasets/movielens/latest/"
STARS = (0.5, 5.0)
ML_100K = "u.data"
"""Ratings of the edition ml-100k."""


def find_movielens(data_dir: FilePath | None = None) -> Path:
    """Find the ratings of an edition."""
    candidates = ("ml-latest-small/ratings.csv", "ratings.csv", f"ml-100k/{ML_100K}", ML_100K)
    return find(candidates, MOVIELENS_HOME, data_dir)


def read_movielens(folder: FilePath, verify: bool = True) -> Ratings:
    """Read any edition from its folder. Items are in the order of their numbers, with titles as names."""
    folder = Path(folder)
    if (folder / ML_100K).is_file() and not (folder / "ratings.csv").is_file():
        return _read_oldest(folder, verify)
    rated = read_known_text(folder / "ratings.csv", MOVIELENS_HOME, verify)
    movies = read_known_text(folder / "movies.csv", MOVIELENS_HOME, verify)
    table = _read(rated, *_STARS)
    return _movielens(folder, table, _read(movies, *_TITLES))


def _read_oldest(folder: Path, verify: bool) -> Ratings:
    """Read ml-100k.

    u.data has tabs between columns, and u.item, in Latin-1, bars between 24 columns. Neither has a
    header.
    """
    rated = read_known_text(folder / ML_100K, MOVIELENS_HOME, verify)
    header: Sequence[str] = ("userId", "movieId", "rating", "timestamp")
    table = _read(rated, *_STARS, delimiter="\t", header=header)
    text = read_known(folder / "u.item", MOVIELENS_HOME, verify).decode("latin-1")
    document = Document(str(folder / "u.item"), text.encode())
    header = ("movieId", "title", *(f"column {number}" for number in range(3, 25)))
    return _movielens(folder, table, _read(document, *_TITLES, delimiter="|", header=header))


def _number_fault(word: str) -> Fault | None:
    if word.isascii() and word.isdecimal():
        return None
    return f"'{word}' is not a whole number", "Number the items 1, 2, ..."


_STARS = (
    words("userId"),
    Column("movieId", check=_number_fault),
    numbers("rating", within(*STARS)),
)
_TITLES = (words("movieId"), words("title"))


def _movielens(folder: Path, table: Records, films: Records) -> Ratings:
    return _rated(table, "rating", films, "title", "movie", STARS, f"MovieLens {folder.name}")


def _read(
    document: Document,
    *columns: Column,
    delimiter: str | None = None,
    header: Sequence[str] | None = None,
) -> Records:
    """Read columns of a file."""
    table = open_table(document, ReadOptions(delimiter=delimiter), header)
    return Schema(*columns).read(table)


def _by_number(ids: Words) -> tuple[tuple[str, ...], Ints]:
    """Put numbered items in the order of their numbers.

    Returns:
        Their ids, and the place of each row's item.
    """
    order = sorted(range(len(ids.distinct)), key=lambda code: int(ids.distinct[code]))
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return tuple(ids.distinct[code] for code in order), place[ids.code]


def _rated(
    table: Records,
    value: str,
    titles: Records,
    name: str,
    noun: str,
    scale: tuple[float, float],
    source: str,
) -> Ratings:
    """Return ratings of numbered items.

    Args:
        table: Columns of users, items and values.
        value: The column of values.
        titles: Columns of items and their names.
        name: The column of names.
        noun: The name of an item without a name, before its number.
        scale: Least and largest value.
        source: Where the ratings come from.
    """
    user, number = table.words
    items, item = _by_number(table.words[number])
    titles.check_distinct(number)
    names = {titles.words[number][row]: titles.words[name][row] for row in range(len(titles))}
    return Ratings(
        items,
        item,
        table.numbers[value],
        scale,
        source,
        user=table.words[user].code,
        names=tuple(names.get(each, f"{noun} {each}") for each in items),
    )


JESTER_HOME = "https://eigentaste.berkeley.edu/dataset/"
JESTER_SCALE = (-10.0, 10.0)
MISSING = 99.0
JOKES = tuple(f"joke {number}" for number in range(1, 101))

_JOKE = Rule(
    lambda values: (np.abs(values) <= JESTER_SCALE[1]) | (values == MISSING),
    "be in [-10, 10], or 99 for a missing rating",
)
_JESTER_FILES = ("jester-data-1.zip", "jester-data-1.csv")


def find_jester(data_dir: FilePath | None = None) -> Path:
    """Find the zip or the csv."""
    return find(_JESTER_FILES, JESTER_HOME, data_dir, ("jester", ""))


def read_jester(path: FilePath, verify: bool = True) -> Ratings:
    """Read the csv, or the zip that holds it; item ids are the numbers of the jokes, 1 to 100."""
    path = Path(path)
    header = ("count", *JOKES)
    opened = open_table(_jester_document(path, verify), ReadOptions(delimiter=","), header)
    ratings = [numbers(joke, _JOKE) for joke in JOKES]
    table = Schema(numbers("count"), *ratings).read(opened)
    matrix = np.stack([table.numbers[joke] for joke in JOKES], axis=1)
    rated = matrix != MISSING
    counts = rated.sum(axis=1)
    check_entries(
        counts == table.numbers["count"],
        lambda row: DataError(
            f"{table.place(row[0], 'count')}: must be the number of ratings in the row, "
            f"{counts[row]}, got {table.numbers['count'][row]:g}. Correct it; 99 marks a missing "
            "rating.",
            rule="problems.jester.count",
        ),
    )
    user, item = np.nonzero(rated)
    items = tuple(joke.removeprefix("joke ") for joke in JOKES)
    return Ratings(
        items, item, matrix[rated], JESTER_SCALE, f"Jester {path.stem}", user=user, names=JOKES
    )


def _jester_document(path: Path, verify: bool) -> Document:
    data = read_known(path, JESTER_HOME, verify)
    if path.suffix.lower() != ".zip":
        return Document(str(path), data)
    tables = unzip(str(path), data)
    if len(tables) != 1:
        raise DataError(
            f"{path} holds {len(tables)} csv files ({', '.join(sorted(tables)) or 'none'}), "
            "expected 1. Save the spreadsheet in it as jester-data-1.csv, and give that file.",
            rule="problems.jester.not-one-table",
        )
    return next(iter(tables.values()))


STEAM_HOME = "https://www.kaggle.com/datasets/tamber/steam-video-games"

_SINGLE = "steam-200k.csv"
_PLAYS, _GAMES = "game_play.dat", "item_info.dat"
_STEAM_CANDIDATES = ("steam.zip", _SINGLE, _PLAYS, f"steam/{_PLAYS}")
_HOURS = within(0.0, np.inf)


def find_steam(data_dir: FilePath | None = None) -> Path:
    """Find the zip, the single file, or the file of plays."""
    return find(_STEAM_CANDIDATES, STEAM_HOME, data_dir, ("steam", ""))


def read_steam(path: FilePath, verify: bool = True) -> Ratings:
    """Read plays from a zip, from a folder, or from steam-200k.csv."""
    documents = _steam_documents(Path(path), verify)
    if _PLAYS not in documents and _SINGLE in documents:
        return _single(documents[_SINGLE])
    for file in (_PLAYS, _GAMES):
        if file not in documents:
            raise DataError(
                f"{path} holds no {file} (it holds: {', '.join(sorted(documents)) or 'no table'}). "
                f"Get it from {STEAM_HOME}.",
                rule="problems.steam.member-missing",
            )
    game = Column("Game_ID", check=_number_fault)
    plays = _read(
        documents[_PLAYS], words("User_ID"), game, numbers("Hours", _HOURS), delimiter="\t"
    )
    games = _read(documents[_GAMES], game, words("Game Name"), delimiter="\t")
    longest = float(plays.numbers["Hours"].max())
    return _rated(plays, "Hours", games, "Game Name", "game", (0.0, longest), "Steam plays")


def _steam_documents(path: Path, verify: bool) -> dict[str, Document]:
    """Return the tables of a zip or a folder, by name; any other file is the single one."""
    if path.suffix.lower() == ".zip":
        return unzip(str(path), read_known(path, STEAM_HOME, verify))
    if not path.is_dir():
        return {_SINGLE: read_known_text(path, STEAM_HOME, verify)}
    files = [file for file in (_SINGLE, _PLAYS, _GAMES) if (path / file).exists()]
    return {file: read_known_text(path / file, STEAM_HOME, verify) for file in files}


def _behaviour_fault(word: str) -> Fault | None:
    if word in ("play", "purchase"):
        return None
    return f"must be 'play' or 'purchase', got '{word}'", "Correct it."


def _single(document: Document) -> Ratings:
    header = ("user", "game", "behaviour", "value", "unused")
    behaviour = Column("behaviour", check=_behaviour_fault)
    columns = (words("user"), words("game"), behaviour, numbers("value", _HOURS))
    rows = _read(document, *columns, delimiter=",", header=header)
    words_of_rows = np.array(rows.words["behaviour"].distinct)[rows.words["behaviour"].code]
    plays = rows.take(words_of_rows == "play")
    if not len(plays):
        raise DataError(
            f"{document.name} has no row of 'play'. Download it again.",
            rule="problems.steam.no-row",
        )
    codes, item = np.unique(plays.words["game"].code, return_inverse=True)
    value = plays.numbers["value"]
    items = tuple(plays.words["game"].distinct[code] for code in codes)
    scale = (0.0, float(value.max()))
    user = plays.words["user"].code
    return Ratings(items, item, value, scale, "Steam plays", user=user)


@dataclass(frozen=True)
class Dataset:
    """A data set, how to read it, and the threshold and minimum that make sensible arms of it."""

    name: str
    description: str
    reader: Callable[[Path, bool, str | None], Ratings]
    """Reads the file of `finder`, by (file, verify, where). With `verify`, a known file must have its
    known digest. Records must pass `where`.
    """
    threshold: float
    minimum: int
    source: str
    finder: Callable[[FilePath | None], Path]
    """Finds its file without reading it."""
    records: bool = False
    """Whether it is a file of reviews with many fields, which takes long to read."""

    def check(self, data_dir: FilePath | None) -> None:
        """Raise unless its files are there, and are sound where that is soon known."""
        file = self.finder(data_dir)
        if not self.records:
            self.reader(file, True, None)


RENAMED = {"steam": "steam-hours"}
"""New names of data sets, by the old ones."""

DATASETS: dict[str, Dataset] = {
    dataset.name: dataset
    for dataset in (
        Dataset(
            "movielens",
            "100,836 ratings of 9,724 films by 610 users, 0.5 to 5 stars; an arm pays for 4 stars "
            "or more",
            lambda file, verify, where: read_movielens(file.parent, verify),
            threshold=3.5,
            minimum=50,
            source=MOVIELENS_HOME,
            finder=find_movielens,
        ),
        Dataset(
            "jester",
            "1,810,455 ratings of 100 jokes by 24,983 users, -10 to 10; an arm pays for more than "
            "4.5",
            lambda file, verify, where: read_jester(file, verify),
            threshold=4.5,
            minimum=1,
            source=JESTER_HOME,  # gives the Samba authors' own counts
            finder=find_jester,
        ),
        Dataset(
            "steam-hours",
            "70,489 plays of 3,600 games by 11,350 users, in hours; an arm pays for more than 5 "
            "hours",
            # The median play lasts 4.5 hours, so rewards of both kinds are common.
            lambda file, verify, where: read_steam(
                file.parent if file.suffix == ".dat" else file, verify=verify
            ),
            threshold=5.0,
            minimum=50,
            source=STEAM_HOME,
            finder=find_steam,
        ),
        Dataset(
            "steam-reviews",
            "7.8 million reviews of games with hours played; an arm pays for more than 5 hours",
            # No digest of these files is known.
            lambda file, verify, where: read_reviews(file, where),
            threshold=5.0,
            minimum=50,
            source=STEAM_REVIEWS_HOME,
            finder=find_steam_reviews,
            records=True,
        ),
        Dataset(
            "google-local",
            "reviews of places, 1 to 5 stars, of 2018 or of a state in 2021; an arm pays for 4 or "
            "more",
            # No digest of these files is known.
            lambda file, verify, where: read_reviews(file, where),
            threshold=3.5,
            minimum=50,
            source=GOOGLE_HOME,
            finder=find_google_local,
            records=True,
        ),
    )
}


def load(
    name: str, data_dir: FilePath | None = None, verify: bool = True, where: str | None = None
) -> Ratings:
    """Load a data set by name from `data_dir`, else from the folder that POSSE_DATA names.

    `where` keeps some of the reviews of games and of places, by their fields.

    >>> load("movielense")
    Traceback (most recent call last):
    ...
    posse.core.errors.DataError: [P200] unknown data set 'movielense'. Did you mean 'movielens'?
    Known: google-local, jester, movielens, steam-hours, steam-reviews.
    """
    check_renamed(name)
    if name not in DATASETS:
        raise DataError(
            f"unknown data set '{name}'.{check.suggestion(name, tuple(DATASETS))}",
            rule="problems.data.unknown-data-set",
        )
    dataset = DATASETS[name]
    return dataset.reader(dataset.finder(data_dir), verify, where)


def check_renamed(name: object) -> None:
    """Raise if a name is an old one, with the new name."""
    if isinstance(name, str) and name in RENAMED:
        raise DataError(
            f"'{name}' is called '{RENAMED[name]}' now: it holds hours played. Write "
            f"'{RENAMED[name]}', or 'steam-reviews' for the reviews of the published demo.",
            rule="problems.data.renamed",
        )
