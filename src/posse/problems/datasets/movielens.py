"""MovieLens: ratings of films from 0.5 to 5 stars.

The editions ml-latest-small, ml-latest and ml-25m share one layout: ratings.csv and movies.csv in one folder.
Terms: research, no commercial use. Harper & Konstan, The MovieLens Datasets, ACM TiiS 5(4), 2015.
"""

from __future__ import annotations

from pathlib import Path

from posse.problems.datasets.columns import read_columns
from posse.problems.datasets.document import FilePath
from posse.problems.datasets.items import by_number, name_of
from posse.problems.datasets.locate import find, read_known_text
from posse.problems.ratings import Ratings

HOME = "https://grouplens.org/datasets/movielens/latest/"
SCALE = (0.5, 5.0)


def load_movielens(data_dir: FilePath | None = None, verify: bool = True) -> Ratings:
    """Find the edition ml-latest-small and read it: 100,836 ratings of 9,724 films by 610 users."""
    return read_movielens(find(("ml-latest-small/ratings.csv", "ratings.csv"), HOME, data_dir).parent, verify)


def read_movielens(folder: FilePath, verify: bool = True) -> Ratings:
    """Read any edition from its folder; arms are called by title, films come in the order of their number.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = pathlib.Path(folder, "ratings.csv").write_text("userId,movieId,rating\\n1,7,4.5\\n2,3,2.0\\n")
    ...     _ = pathlib.Path(folder, "movies.csv").write_text('movieId,title\\n7,"Sabrina, again"\\n3,Heat\\n')
    ...     read_movielens(folder).names
    ('Heat', 'Sabrina, again')
    """
    folder = Path(folder)
    table = read_columns(
        read_known_text(folder / "ratings.csv", HOME, verify), words=["userId", "movieId"], numbers=["rating"]
    )
    table.check_between(*SCALE, column="rating")
    items, item = by_number(table, "movieId")
    films = read_columns(read_known_text(folder / "movies.csv", HOME, verify), words=["movieId", "title"])
    titles = name_of(films, "movieId", "title")
    return Ratings(
        items=items,
        item=item,
        value=table.numbers["rating"],
        scale=SCALE,
        source=f"MovieLens {folder.name}",
        user=table.words["userId"].code,
        names=tuple(titles.get(film, f"movie {film}") for film in items),
    )
