"""Jester: 24,983 people rate 100 jokes from -10 to 10.

One row per person: how many jokes the person rated, then a rating for each joke, 99 where there is none.
Terms: research with citation. Goldberg et al., Eigentaste, Information Retrieval 4(2), 2001.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from posse.core.errors import DataError
from posse.problems.datasets.columns import Columns, read_columns
from posse.problems.datasets.document import Document, FilePath, unzip
from posse.problems.datasets.locate import find, read_known
from posse.problems.ratings import Ratings

HOME = "https://eigentaste.berkeley.edu/dataset/"
SCALE = (-10.0, 10.0)
MISSING = 99.0
JOKES = tuple(f"joke {number}" for number in range(1, 101))

_FILES = ("jester-data-1.zip", "jester-data-1.csv")


def load_jester(data_dir: FilePath | None = None, verify: bool = True) -> Ratings:
    """Find jester-data-1 (zip or csv) and read it: 1,810,455 ratings."""
    return read_jester(find((*(f"jester/{file}" for file in _FILES), *_FILES), HOME, data_dir), verify)


def read_jester(path: FilePath, verify: bool = True) -> Ratings:
    """Read the csv, or the zip that holds it; item ids are the numbers of the jokes, 1 to 100.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "two-people.csv")
    ...     _ = file.write_text("2,7.5,-3.25" + ",99" * 98 + "\\n" + "1,99,9.5" + ",99" * 98 + "\\n")
    ...     jokes = read_jester(file)
    >>> len(jokes), jokes.means(4.5)[:2].tolist()
    (3, [1.0, 0.5])
    """
    path = Path(path)
    table = read_columns(_document(path, verify), numbers=["count", *JOKES], delimiter=",", header=("count", *JOKES))
    for joke in JOKES:
        _check_ratings(table, joke)
    matrix = np.stack([table.numbers[joke] for joke in JOKES], axis=1)
    given = matrix != MISSING
    wrong = np.flatnonzero(given.sum(axis=1) != table.numbers["count"])
    if len(wrong):
        row = int(wrong[0])
        raise DataError(
            f"{table.place(row, 'count')}: says {table.numbers['count'][row]:g} ratings, "
            f"the row has {given[row].sum()}. Correct the count; 99 marks a missing rating."
        )
    user, item = np.nonzero(given)
    return Ratings(
        items=tuple(joke.removeprefix("joke ") for joke in JOKES),
        item=item,
        value=matrix[given],
        scale=SCALE,
        source=f"Jester {path.stem}",
        user=user,
        names=JOKES,
    )


def _check_ratings(table: Columns, joke: str) -> None:
    values = table.numbers[joke]
    wrong = np.flatnonzero((np.abs(values) > SCALE[1]) & (values != MISSING))
    if len(wrong):
        row = int(wrong[0])
        raise DataError(
            f"{table.place(row, joke)}: must be in [-10, 10], or 99 for a missing rating, "
            f"got {values[row]:g}. Correct it."
        )


def _document(path: Path, verify: bool) -> Document:
    data = read_known(path, HOME, verify)
    if path.suffix.lower() != ".zip":
        return Document(str(path), data)
    tables = unzip(str(path), data)
    if len(tables) != 1:
        raise DataError(
            f"{path} holds {len(tables)} csv files ({', '.join(sorted(tables)) or 'none'}), expected 1. "
            "Save the spreadsheet in it as jester-data-1.csv, and give that file."
        )
    return next(iter(tables.values()))
