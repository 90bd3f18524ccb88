"""A user's own files: ratings, or the means of arms."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from posse.core.errors import ConfigError, DataError
from posse.problems.arms.ratings import Ratings
from posse.problems.arms.rewards import Arms, BernoulliArms
from posse.problems.arms.where import Where
from posse.problems.tables.cells import Numbers, is_number, number_fault, number_of
from posse.problems.tables.encoded import other_columns
from posse.problems.tables.faults import BadRows
from posse.problems.tables.frames import Frame
from posse.problems.tables.mapping import BAR, EVERY, measures
from posse.problems.tables.options import ReadOptions
from posse.problems.tables.schema import (
    Records,
    Rule,
    Schema,
    Words,
    numbers,
    ratings,
    within,
    words,
)
from posse.problems.tables.table import Table, TextTable, open_table
from posse.problems.tables.text import Document, FilePath, first_line


def read_ratings(
    source: FilePath | Frame | Table,
    item: str = "item",
    rating: str = "rating",
    user: str | None = None,
    delimiter: str | None = None,
    scale: tuple[float, float] | None = None,
    where: str | None = None,
    options: ReadOptions | None = None,
) -> Ratings:
    """Read a table of ratings, one per row; items keep the order in which they appear.

    Args:
        source: A CSV, Parquet or Arrow file, or a frame.
        item: What the table calls the column of items. `*`, or several columns with | between, if
            each item has its own column.
        rating: What it calls the ratings.
        user: What it calls the people who rate; a column `user` is read if there is one.
        delimiter: What separates columns of a text file.
        scale: Least and largest rating; by default those of the table.
        where: Tests that keep some rows (`Where`).
        options: How the table is read.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "ratings.csv")
    ...     _ = file.write_text("item,rating\\nheat,5\\nalien,4\\nheat,2\\n")
    ...     read_ratings(file, scale=(1, 5)).arms(3).means.tolist()
    [0.5, 1.0]
    """
    table = source
    if not isinstance(table, Table):
        names = {"item": item, "rating": rating, "user": user or "user"}
        table = open_table(table, _with_names(options, names, delimiter))
    if scale is not None and not scale[0] < scale[1]:
        raise ConfigError(
            f"scale must be two numbers, the lower first, got ({scale[0]}, {scale[1]}).",
            rule="problems.scale.not-ordered",
        )
    tests = Where.read(where)
    rules = () if scale is None else (within(*scale),)
    wide = wide_columns(table)
    if wide:
        rated = _read_wide(table, wide, tests, rules)
    else:
        rated = _read_long(table, tests, rules, needs_user=user is not None)
    return _as_ratings([rated], scale, table.name + tests.suffix)


def read_owners(
    files: Sequence[Path], where: str | None = None, options: ReadOptions | None = None
) -> Ratings:
    """Read the ratings of several owners, one file each.

    An item is called by the name of its file, unless the file has a column of items.
    """
    tests = Where.read(where)
    parts = []
    for file in files:
        table = open_table(file, options)
        parts.append(_read_long(table, tests, needs_user=False, item=file.stem))
    source = f"{len(files)} files, {files[0].name} to {files[-1].name}"
    return _as_ratings(parts, None, source + tests.suffix)


class _Rated(NamedTuple):
    """Ratings of one table."""

    item: Words
    value: Numbers
    user: Words | None


def _read_long(
    table: Table,
    tests: Where,
    rules: Sequence[Rule] = (),
    *,
    needs_user: bool,
    item: str | None = None,
) -> _Rated:
    """Read a table with one rating per row; without a column of items it is called `item`."""
    columns = [
        words("item", optional=item is not None),
        ratings("rating", *rules),
        words("user", optional=not needs_user),
    ]
    headers = Schema(*columns).find(table)
    records = Schema(*columns, *tests.needed(table, headers)).read(table)
    passed = tests.kept(records)
    one_item = Words((item or "",), np.zeros(len(records), np.int64))
    items = records.words.get("item", one_item)
    users = records.words.get("user")
    return _Rated(
        items.take(passed),
        records.numbers["rating"][passed],
        None if users is None else users.take(passed),
    )


def wide_columns(table: Table) -> list[str]:
    """Return the columns of a table with one column per item; empty for any other table."""
    setting = table.options.column("item")
    if table.place(setting) is not None:
        return []
    if setting == EVERY:
        taken_columns = set(table.options.columns.values())
        return [column for column in measures(table.looks()) if column not in taken_columns]
    if BAR not in setting:
        return []
    return [column.strip() for column in setting.split(BAR)]


def _read_wide(table: Table, columns: Sequence[str], tests: Where, rules: Sequence[Rule]) -> _Rated:
    """Read a table with one column per item; an empty cell is no rating."""
    rated = [replace(ratings(column, *rules), gaps=True) for column in columns]
    schema = Schema(*rated, words("user", optional=True))
    headers = schema.find(table)
    records = Schema(*schema.columns, *tests.needed(table, headers)).read(table)
    passed = tests.kept(records)
    matrix = np.stack([records.numbers[column][passed] for column in columns], axis=1)
    row, item = np.nonzero(~np.isnan(matrix))
    items = Words(tuple(headers[column] for column in columns), item)
    if "user" in records.words:
        users = records.words["user"].take(passed)
    else:  # Each row is another person.
        users = Words(tuple(map(str, range(len(matrix)))), np.arange(len(matrix)))
    return _Rated(items, matrix[row, item], users.take(row))


def _as_ratings(parts: Sequence[_Rated], scale: tuple[float, float] | None, source: str) -> Ratings:
    """Put the ratings of some tables together."""
    value = np.concatenate([part.value for part in parts])
    if not len(value):
        raise DataError(f"{source} holds no ratings. Add some.", rule="problems.rating.none")
    low, high = (float(value.min()), float(value.max())) if scale is None else map(float, scale)
    if not low < high:
        raise DataError(
            f"{source}: every rating is {low:g}, which shows no scale. Give ratings that differ.",
            rule="problems.rating.all-equal",
        )
    items: dict[str, int] = {}
    users: dict[str, int] = {}
    codes = [_numbered(part.item, items) for part in parts]
    people = [_numbered(part.user, users) for part in parts if part.user is not None]
    every_user = len(people) == len(parts)
    return Ratings(
        items=tuple(items),
        item=np.concatenate(codes),
        value=value,
        scale=(low, high),
        source=source,
        user=np.concatenate(people) if every_user else None,
    )


def _numbered(words: Words, index: dict[str, int]) -> NDArray[np.int64]:
    """Return the number of each row's word in an index, which gets the new words."""
    place = [index.setdefault(word, len(index)) for word in words.distinct]
    return np.array(place, np.int64)[words.code]


class People(NamedTuple):
    """What a table of ratings shows about people, to a party that has all of it."""

    rows: int
    """Ratings that pass the filter."""
    users: int
    columns: tuple[str, ...]
    """Columns other than item, rating and user."""
    alone: int
    """People whose values in these columns nobody shares: the values identify them."""
    sample: tuple[tuple[str, ...], ...]
    """The first rows: user, columns, item, rating."""


def read_people(
    source: FilePath | Frame,
    where: str | None = None,
    most: int = 5,
    options: ReadOptions | None = None,
) -> People | None:
    """Read what a table shows about people; None without such columns."""
    table = open_table(source, options)
    needed = [words("item"), words("user", optional=True), ratings("rating")]
    headers = Schema(*needed).find(table)
    if "user" not in headers or len(headers) == len(table.header):
        return None
    about = other_columns(table, needed)
    records = Schema(*needed, *map(words, about)).read(table)
    rows: list[int] = np.flatnonzero(Where.read(where).kept(records)).tolist()
    values = {
        int(records.words["user"].code[row]): tuple(records.words[name][row] for name in about)
        for row in rows
    }
    shared = Counter(values.values())
    return People(
        rows=len(rows),
        users=len(values),
        columns=tuple(about),
        alone=sum(shared[each] == 1 for each in values.values()),
        sample=tuple(_shown(records, row, about) for row in rows[:most]),
    )


def _shown(records: Records, row: int, about: Sequence[str]) -> tuple[str, ...]:
    cells = [records.words[name][row] for name in ("user", *about, "item")]
    return (*cells, f"{records.numbers['rating'][row]:g}")


def read_means(
    source: FilePath | Frame | Table,
    name: str = "name",
    mean: str = "mean",
    delimiter: str | None = None,
    options: ReadOptions | None = None,
) -> Arms:
    """Read Bernoulli arms from a table, or from a text file with one mean per line.

    A list may begin with its length; lines above it that begin with # are comments.

    Args:
        source: A CSV, Parquet or Arrow file, or a frame.
        name: What the table calls the names of arms.
        mean: What it calls their means.
        delimiter: What separates columns of a text file.
        options: How the table is read.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "means.csv")
    ...     _ = file.write_text('name,mean\\n"clinic a, north",0.25\\nclinic b,0.75\\n')
    ...     read_means(file).names
    ('clinic a, north', 'clinic b')
    """
    table = source
    if not isinstance(table, Table):
        names = {"name": name, "mean": mean}
        table = open_table(table, _with_names(options, names, delimiter))
    if isinstance(table, TextTable) and is_list(table):
        return BernoulliArms(mean_list(table.document, table.options), source=table.name)
    records = Schema(words("name"), numbers("mean", within(0, 1))).read(table)
    records.check_distinct("name")
    _check_two(table.name, len(records))
    return BernoulliArms(
        records.numbers["mean"], names=records.words["name"].distinct, source=table.name
    )


def is_list(table: Table) -> bool:
    """Return whether a table is a list of numbers without a header."""
    return is_number(",".join(table.header))


def mean_list(document: Document, options: ReadOptions | None = None) -> Numbers:
    """Read one mean per line, after an optional first line with their count.

    A first line of 0 or 1 is a mean: no problem has fewer than two arms.

    >>> mean_list(Document("three.txt", b"3\\n0.1\\n0.2\\n1\\n")).tolist()
    [0.1, 0.2, 1.0]
    """
    with document.open() as stream:
        line, number = first_line(stream, document.name)
        cells = [(number, line.strip())]
        for row, text in enumerate(stream, start=number + 1):
            if text.strip():
                cells.append((row, text.strip()))
    count = number_of(cells[0][1])
    if count > 1 and count.is_integer():
        cells = cells[1:]
        if len(cells) != count:
            raise DataError(
                f"{document.name}, row {number}, column 1: says {count:g} means, the file has "
                f"{len(cells)}. Correct the count, or delete that line.",
                rule="problems.means.count",
            )
    bad = BadRows(document.name, options or ReadOptions())
    means = []
    for row, cell in cells:
        mean = number_of(cell)
        if not np.isfinite(mean):
            problem, remedy = number_fault(cell, ".")
            bad.add(row, f", column 1: {problem}", remedy)
        elif not 0 <= mean <= 1:
            bad.add(row, f", column 1: a mean must be in [0, 1], got {mean:g}", "Correct it.")
        else:
            means.append(mean)
    bad.settle(len(means))
    _check_two(document.name, len(means))
    return np.array(means)


def _check_two(file: str, count: int) -> None:
    if count < 2:
        raise DataError(
            f"{file} has {count} mean; a bandit needs at least 2 arms. Add another.",
            rule="problems.means.too-few",
        )


def _with_names(
    options: ReadOptions | None, names: dict[str, str], delimiter: str | None
) -> ReadOptions:
    """Return options with the names that arguments give; the options' own names are kept."""
    options = options or ReadOptions()
    renamed = {name: column for name, column in names.items() if name != column}
    return replace(
        options, columns=renamed | dict(options.columns), delimiter=delimiter or options.delimiter
    )
