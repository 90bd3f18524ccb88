"""A user's own files: ratings, or the means of arms."""

from __future__ import annotations

import operator
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from posse.core.errors import ConfigError, DataError
from posse.problems.arms.ratings import Ratings
from posse.problems.arms.rewards import Arms, BernoulliArms
from posse.problems.datasets.columns import Columns, finite, first_line, other_columns, read_columns
from posse.problems.datasets.files import Document, FilePath
from posse.problems.datasets.frames import Frame, read_table
from posse.problems.datasets.reading import BadRows, between, is_number, unfit


def read_ratings(
    path: FilePath | Frame,
    item: str = "item",
    rating: str = "rating",
    user: str | None = None,
    delimiter: str | None = None,
    scale: tuple[float, float] | None = None,
    where: str | None = None,
) -> Ratings:
    """Read a CSV with a header, or a frame, of one rating a row; items keep the order in which they
    appear.

    The arguments name the columns; a column `user` is read where there is one. Without `scale` it
    is the smallest and the largest rating in the file; with it, a rating outside is refused.
    `where` keeps the rows for which it holds (`Where`).

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "ratings.csv")
    ...     _ = file.write_text("item,rating\\nheat,5\\nalien,4\\nheat,2\\n")
    ...     read_ratings(file, scale=(1, 5)).arms(3).means.tolist()
    [0.5, 1.0]
    """
    document = read_table(path)
    words = [item] if user is None else [item, user]
    asked = Where.read(where)
    extra = [name for name in asked.columns if name not in (*words, rating)]
    if scale is not None and not scale[0] < scale[1]:
        raise ConfigError(
            f"scale must be two numbers, the lower first, got ({scale[0]}, {scale[1]})."
        )
    rules = [] if scale is None else [between(rating, *scale)]
    maybe = ["user"] if user is None else []
    table = read_columns(document, [*words, *extra], [rating], maybe, delimiter, rules=rules)
    value = table.numbers[rating]
    if scale is None and value.min() == value.max():
        raise DataError(
            f"{document.name}: every rating is {value[0]:g}, which shows no scale. Give ratings "
            "that differ."
        )
    people = table.words.get("user" if user is None else user)
    kept = asked.kept(table)
    return Ratings(
        items=table.words[item].distinct,
        item=table.words[item].code[kept],
        value=value[kept],
        scale=(float(value.min()), float(value.max()))
        if scale is None
        else (float(scale[0]), float(scale[1])),
        source=document.name + (f" where {where}" if asked.tests else ""),
        user=None if people is None else people.code[kept],
    )


@dataclass(frozen=True)
class Where:
    """Tests on columns that must all hold: age>=30, neighbourhood=Harbour.

    >>> Where.read("age >= 30, neighbourhood = Harbour").tests
    (('age', '>=', '30'), ('neighbourhood', '=', 'Harbour'))
    """

    tests: tuple[tuple[str, str, str], ...]

    @classmethod
    def read(cls, text: str | None) -> Where:
        """Read tests with commas between."""
        found = []
        for part in (text or "").split(",") if text else ():
            match = _TEST.fullmatch(part.strip())
            if match is None:
                raise ConfigError(
                    f"where must be tests like age>=30,neighbourhood=Harbour, got '{part.strip()}'."
                )
            found.append((match[1].strip(), match[2], match[3].strip()))
        return cls(tuple(found))

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that are tested, each once."""
        return tuple(dict.fromkeys(column for column, _, _ in self.tests))

    def kept(self, table: Columns) -> NDArray[np.bool_]:
        """Return which rows of a table pass; raise if none does."""
        kept = np.ones(len(table.line), np.bool_)
        for column, sign, value in self.tests:
            kept &= _passes(table, column, sign, value)
        if not kept.any():
            tests = ", ".join("".join(test) for test in self.tests)
            raise DataError(f"{table.file} has no row where {tests}. Widen where, or leave it out.")
        return kept


_TEST = re.compile(r"([^<>=!]+)(<=|>=|!=|=|<|>)([^<>=!]+)")
_SIGNS: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
    "!=": operator.ne,
}


def _passes(table: Columns, column: str, sign: str, value: str) -> NDArray[np.bool_]:
    """Which rows pass one test: as numbers where the value is one, else as words."""
    if column in table.numbers:
        words, codes = (
            [f"{number:g}" for number in table.numbers[column]],
            np.arange(len(table.line)),
        )
    else:
        words, codes = list(table.words[column].distinct), table.words[column].code
    if not is_number(value):
        if sign not in ("=", "!="):
            raise ConfigError(
                f"{column}{sign}{value}: only numbers are compared by {sign}. Use = or !=."
            )
        found = [_SIGNS[sign](word.casefold(), value.casefold()) for word in words]
    else:
        for word in words:
            if not is_number(word):
                raise DataError(
                    f"{table.file}, column '{column}' holds '{word}', which is not a number."
                )
        found = [_SIGNS[sign](float(word), float(value)) for word in words]
    return np.asarray(np.array(found, np.bool_)[codes])


class People(NamedTuple):
    """What a table of ratings says about the people who gave them, to whoever holds it whole."""

    rows: int
    """Ratings that pass the filter, with everything that stands beside them."""
    users: int
    columns: tuple[str, ...]
    """Columns beside item, rating and user."""
    alone: int
    """People whose values in these columns nobody shares: each is named by them."""
    sample: tuple[tuple[str, ...], ...]
    """The first rows, as the one place would see them: user, columns, item, rating."""


def read_people(path: FilePath | Frame, where: str | None = None, most: int = 5) -> People | None:
    """Read what is said about people; None where a table says nothing about them."""
    document = read_table(path)
    _, beside = other_columns(document, ["item"])
    names = [name for name in beside if name.lower() not in ("rating", "user")]
    known = any(name.lower() == "user" for name in beside)
    if not names or not known:
        return None
    table = read_columns(document, ["item", "user", *names], ["rating"])
    kept: list[int] = np.flatnonzero(Where.read(where).kept(table)).tolist()
    about = {
        int(table.words["user"].code[row]): tuple(table.words[name][row] for name in names)
        for row in kept
    }
    often = Counter(about.values())
    shown = tuple(
        (
            table.words["user"][row],
            *(table.words[name][row] for name in names),
            table.words["item"][row],
            f"{table.numbers['rating'][row]:g}",
        )
        for row in kept[:most]
    )
    alone = sum(1 for values in about.values() if often[values] == 1)
    return People(len(kept), len(about), tuple(names), alone, shown)


def read_means(
    path: FilePath | Frame, name: str = "name", mean: str = "mean", delimiter: str | None = None
) -> Arms:
    """Read Bernoulli arms from a CSV or a frame (columns `name` and `mean`), or from a file of one
    mean a line.

    A list may begin with its length; lines above it that begin with # are comments.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "means.csv")
    ...     _ = file.write_text('name,mean\\n"clinic a, north",0.25\\nclinic b,0.75\\n')
    ...     read_means(file).names
    ('clinic a, north', 'clinic b')
    """
    document = read_table(path)
    with document.open() as stream:
        line = "" if document.frame else first_line(stream, document.name)[0]
    if is_number(line):
        return BernoulliArms(mean_list(document), source=document.name)
    table = read_columns(document, [name], [mean], delimiter=delimiter, rules=[between(mean, 0, 1)])
    table.check_distinct(name)
    names = table.words[name]
    _check_two(document.name, len(names.code))
    return BernoulliArms(table.numbers[mean], names=names.distinct, source=document.name)


def mean_list(document: Document) -> NDArray[np.float64]:
    """Read one mean a line, after an optional first line with their count.

    A first line of 0 or 1 is a mean: no problem has fewer than two arms.

    >>> mean_list(Document("three.txt", b"3\\n0.1\\n0.2\\n1\\n")).tolist()
    [0.1, 0.2, 1.0]
    >>> mean_list(Document("two.txt", b"0.1\\n1.2\\n"))
    Traceback (most recent call last):
    ...
    posse.core.errors.DataError: [P200] two.txt, row 2, column 1: a mean must be in [0, 1], got 1.2.
    Correct it.
    """
    with document.open() as stream:
        line, number = first_line(stream, document.name)
        cells = [(number, line.strip())]
        cells += [
            (row, text.strip()) for row, text in enumerate(stream, start=number + 1) if text.strip()
        ]
    count = float(cells[0][1]) if finite(cells[0][1]) else 0.0
    if count > 1 and count.is_integer():
        cells = cells[1:]
        if len(cells) != count:
            raise DataError(
                f"{document.name}, row {number}, column 1: says {count:g} means, the file has "
                f"{len(cells)}. "
                "Correct the count, or delete that line."
            )
    bad, values = BadRows(document.name), []
    for row, cell in cells:
        if not finite(cell):
            fault, remedy = unfit(cell)
            bad.add(row, f", column 1: {fault}", remedy)
        elif not 0 <= float(cell) <= 1:
            bad.add(
                row, f", column 1: a mean must be in [0, 1], got {float(cell):g}", "Correct it."
            )
        else:
            values.append(float(cell))
    bad.settle(len(values))
    _check_two(document.name, len(values))
    return np.array(values)


def _check_two(file: str, count: int) -> None:
    if count < 2:
        raise DataError(f"{file} has {count} mean; a bandit needs at least 2 arms. Add another.")
