"""A user's own files: ratings or the means of arms, and tests on columns that keep some rows."""

from __future__ import annotations

import operator
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from posse.core.errors import ConfigError, DataError
from posse.problems.arms.ratings import Ratings
from posse.problems.arms.rewards import Arms, BernoulliArms
from posse.problems.requirements import Ints
from posse.problems.tables.cells import Numbers, is_number, number_of, text_of
from posse.problems.tables.frames import Frame
from posse.problems.tables.mapping import BAR, EVERY, measures
from posse.problems.tables.options import ReadOptions
from posse.problems.tables.schema import (
    Column,
    Records,
    Rule,
    Schema,
    Words,
    numbers,
    other_columns,
    ratings,
    within,
    words,
)
from posse.problems.tables.table import Table, TextTable, open_table
from posse.problems.tables.text import FilePath

_TEST = re.compile(r"([^<>=!]+)(<=|>=|!=|=|<|>)([^<>=!]+)")
_SIGNS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
    "!=": operator.ne,
}


@dataclass(frozen=True)
class Where:
    """Tests that must all hold.

    >>> Where.read("age >= 30, neighbourhood = Harbour").tests
    (('age', '>=', '30'), ('neighbourhood', '=', 'Harbour'))
    """

    tests: tuple[tuple[str, str, str], ...]
    suffix: str = ""
    """The tests as a source of ratings names them, after a space."""

    @classmethod
    def read(cls, text: str | None) -> Where:
        """Read tests with commas between them."""
        if not text:
            return cls(())
        tests = []
        for part in text.split(","):
            match = _TEST.fullmatch(part.strip())
            if match is None:
                raise ConfigError(
                    "where must be tests like age>=30,neighbourhood=Harbour, got "
                    f"'{part.strip()}'.",
                    rule="problems.where.not-a-test",
                )
            column, sign, value = (word.strip() for word in match.groups())
            if sign not in ("=", "!=") and not is_number(value):
                raise ConfigError(
                    f"{column}{sign}{value}: only numbers are compared by {sign}. Use = or !=.",
                    rule="problems.where.not-a-number",
                )
            tests.append((column, sign, value))
        return cls(tuple(tests), f" where {text}")

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that are tested, each once."""
        return tuple(dict.fromkeys(column for column, _, _ in self.tests))

    def keeps(self, record: Mapping[str, object], place: str) -> bool:
        """Return whether a record passes; a record without a tested field does not."""
        return all(
            text_of(record.get(column))
            and _holds(text_of(record[column]), sign, value, f"{place}, field '{column}'")
            for column, sign, value in self.tests
        )

    def no_rows(self, file: str) -> DataError:
        """Return the error that no row passes."""
        tests = ", ".join("".join(test) for test in self.tests)
        return DataError(
            f"{file} has no row where {tests}. Widen where, or leave it out.",
            rule="problems.where.no-rows",
        )


def read_where(table: Table, where: Where, *columns: Column) -> Records:
    """Read the rows of a table that pass all tests.

    Args:
        table: The table.
        where: Tests on any columns of the table.
        columns: Columns that a problem needs.
    """
    headers = Schema(*columns).find(table)
    # A test may use what the table calls a column, or what the problem calls it.
    names = {table.place(header): name for name, header in headers.items()}
    tested = {column: names.get(table.place(column), column) for column in where.columns}
    tested |= {column: column for column in where.columns if column in headers}
    more = [words(name) for name in tested.values() if name not in headers]
    records = Schema(*columns, *more).read(table)
    passed = np.ones(len(records), np.bool_)
    for column, sign, value in where.tests:
        texts, code = _texts(records, tested[column])
        place = f"{records.file}, column '{column}'"
        holds = [_holds(text, sign, value, place) for text in texts]
        passed &= np.array(holds, np.bool_)[code]
    if not passed.any():
        raise where.no_rows(records.file)
    return records if passed.all() else records.take(passed)


def _texts(records: Records, name: str) -> tuple[Sequence[str], NDArray[np.integer]]:
    """Return the different texts of a column, and which of them each row has."""
    if name in records.words:
        return records.words[name].distinct, records.words[name].code
    distinct, code = np.unique(records.numbers[name], return_inverse=True)
    return [f"{number:.17g}" for number in distinct], code


def _holds(text: str, sign: str, value: str, place: str) -> bool:
    """Return whether a cell passes a test: as a number if the value is one, else as a word."""
    if not is_number(value):
        return _SIGNS[sign](text.casefold(), value.casefold())
    if not is_number(text):
        raise DataError(
            f"{place} holds '{text}', which is not a number. Correct it, or test another column.",
            rule="problems.where.not-numbers",
        )
    return _SIGNS[sign](float(text), float(value))


def read_ratings(
    source: FilePath | Frame | Table,
    *,
    scale: tuple[float, float] | None = None,
    where: str | None = None,
    options: ReadOptions | None = None,
) -> Ratings:
    """Read a table of ratings, one per row; items keep the order in which they appear.

    The columns are item, rating and, if the table has one, user. `options.columns` maps columns of
    other names. `item` may mean several columns, with | between them, or `*` for all columns of
    numbers: a table with one column per item.

    Args:
        source: A CSV, Parquet or Arrow file, or a frame.
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
    table = source if isinstance(source, Table) else open_table(source, options)
    rules: tuple[Rule, ...] = ()
    if scale is not None:
        if not scale[0] < scale[1]:
            raise ConfigError(
                f"scale must be two numbers, the lower first, got ({scale[0]}, {scale[1]}).",
                rule="problems.scale.not-ordered",
            )
        rules = (within(*scale),)
    tests = Where.read(where)
    wide = wide_columns(table)
    if wide:
        rated = _read_wide(table, wide, tests, rules)
    else:
        rated = _read_long(table, tests, rules)
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
        parts.append(_read_long(table, tests, item=file.stem))
    source = f"{len(files)} files, {files[0].name} to {files[-1].name}"
    return _as_ratings(parts, None, source + tests.suffix)


class _Rated(NamedTuple):
    """Ratings of one table."""

    item: Words
    value: Numbers
    user: Words | None


def _read_long(
    table: Table, tests: Where, rules: Sequence[Rule] = (), item: str | None = None
) -> _Rated:
    """Read a table with one rating per row; without a column of items it is called `item`."""
    records = read_where(
        table,
        tests,
        words("item", optional=item is not None),
        ratings("rating", *rules),
        words("user", optional="user" not in table.options.columns),
    )
    one_item = Words((item or "",), np.zeros(len(records), np.int64))
    return _Rated(
        records.words.get("item", one_item), records.numbers["rating"], records.words.get("user")
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
    records = read_where(table, tests, *rated, words("user", optional=True))
    matrix = np.stack([records.numbers[column] for column in columns], axis=1)
    row, item = np.nonzero(~np.isnan(matrix))
    # Without a column of users, each row is another person.
    people = Words(tuple(map(str, range(len(matrix)))), np.arange(len(matrix)))
    return _Rated(
        Words(tuple(records.headers[column] for column in columns), item),
        matrix[row, item],
        records.words.get("user", people).take(row),
    )


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
    item_codes = [_number_words(part.item, items) for part in parts]
    user_codes = [_number_words(part.user, users) for part in parts if part.user is not None]
    return Ratings(
        items=tuple(items),
        item=np.concatenate(item_codes),
        value=value,
        scale=(low, high),
        source=source,
        user=np.concatenate(user_codes) if len(user_codes) == len(parts) else None,
    )


def _number_words(words: Words, index: dict[str, int]) -> Ints:
    """Return the number of each row's word in an index; add new words to the index."""
    place = [index.setdefault(word, len(index)) for word in words.distinct]
    return np.array(place, np.int64)[words.code]


class People(NamedTuple):
    """What a table of ratings shows about people, to a party that has the table."""

    rows: int
    """Number of ratings that pass the filter."""
    users: int
    columns: tuple[str, ...]
    """Columns other than item, rating and user."""
    alone: int
    """Number of people whose values in these columns nobody shares: the values identify them."""
    sample: tuple[tuple[str, ...], ...]
    """The first rows: user, columns, item, rating."""


def read_people(
    source: FilePath | Frame,
    where: str | None = None,
    most: int = 5,
    options: ReadOptions | None = None,
) -> People | None:
    """Read what a table shows about people; None if it has no columns about people.

    Args:
        source: A table of ratings.
        where: Tests that keep some rows (`Where`).
        most: Rows of the sample.
        options: How the table is read.
    """
    table = open_table(source, options)
    needed = [words("item"), words("user", optional=True), ratings("rating")]
    headers = Schema(*needed).find(table)
    if "user" not in headers or len(headers) == len(table.header):
        return None
    about = other_columns(table, needed)
    records = read_where(table, Where.read(where), *needed, *map(words, about))
    rows = range(len(records))
    values = {
        int(records.words["user"].code[row]): tuple(records.words[name][row] for name in about)
        for row in rows
    }
    people_by_values = Counter(values.values())
    return People(
        rows=len(records),
        users=len(values),
        columns=tuple(about),
        alone=sum(count == 1 for count in people_by_values.values()),
        sample=tuple(_sample_row(records, row, about) for row in rows[:most]),
    )


def _sample_row(records: Records, row: int, about: Sequence[str]) -> tuple[str, ...]:
    cells = [records.words[name][row] for name in ("user", *about, "item")]
    return (*cells, f"{records.numbers['rating'][row]:g}")


def read_means(source: FilePath | Frame | Table, *, options: ReadOptions | None = None) -> Arms:
    """Read Bernoulli arms from a table with the columns name,mean.

    A text file may also have one mean per line and no header, perhaps after a line with their
    number. `options.columns` maps columns of other names.

    Args:
        source: A CSV, Parquet or Arrow file, or a frame.
        options: How the table is read.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "means.csv")
    ...     _ = file.write_text('name,mean\\n"clinic a, north",0.25\\nclinic b,0.75\\n')
    ...     read_means(file).names
    ('clinic a, north', 'clinic b')
    """
    table = source if isinstance(source, Table) else open_table(source, options)
    names: Sequence[str] | None = None
    if isinstance(table, TextTable) and is_list(table):
        means = _read_list(table)
    else:
        records = Schema(words("name"), numbers("mean", within(0, 1))).read(table)
        records.check_distinct("name")
        names = records.words["name"].distinct
        means = records.numbers["mean"]
    if len(means) < 2:
        raise DataError(
            f"{table.name} has {len(means)} mean; a bandit needs at least 2 arms. Add another.",
            rule="problems.means.too-few",
        )
    return BernoulliArms(means, names=names, source=table.name)


def is_list(table: Table) -> bool:
    """Return whether a table is a list of numbers without a header."""
    return is_number(",".join(table.header))


def _read_list(table: TextTable) -> Numbers:
    """Read one mean per line, after an optional first line with their number.

    A first line of 0 or 1 is a mean: no problem has fewer than two arms.
    """
    count = number_of(table.header[0])
    has_count = count > 1 and count.is_integer()
    if has_count:
        table.rename(("mean",))
    else:
        table = TextTable(table.document, table.options, header=("mean",))
    means = Schema(numbers("mean", within(0, 1))).read(table).numbers["mean"]
    if has_count and len(means) != count and not table.options.skip_bad:
        raise DataError(
            f"{table.header_place}: the line says {count:g} means, the file has {len(means)}. "
            "Correct the number, or delete that line.",
            rule="problems.means.count",
        )
    return means
