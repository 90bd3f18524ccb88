"""Tests on columns that keep some rows of a table, such as age>=30,neighbourhood=Harbour."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posse.core.errors import ConfigError, DataError
from posse.problems.tables.cells import is_number, text_of
from posse.problems.tables.schema import Column, Records, Schema, words
from posse.problems.tables.table import Table

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
