"""Tests on columns that keep some rows of a table, such as age>=30,neighbourhood=Harbour."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from posse.core.errors import ConfigError, DataError
from posse.problems.tables.cells import is_number, text_of
from posse.problems.tables.schema import Column, Mask, Records, words
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

    def needed(self, table: Table, others: Mapping[str, str]) -> list[Column]:
        """Return the tested columns that are not read already, by what the table calls these."""
        places = {table.place(header) for header in others.values()}
        tested = [column for column in self.columns if column not in others]
        return [words(column) for column in tested if table.place(column) not in places - {None}]

    def kept(self, records: Records) -> Mask:
        """Return which rows pass; raise if none does."""
        passed = np.ones(len(records), np.bool_)
        for column, sign, value in self.tests:
            passed &= _passed(records, column, sign, value)
        if not passed.any():
            raise self.nothing_kept(records.file)
        return passed

    def keeps(self, record: Mapping[str, object], place: str) -> bool:
        """Return whether a single record passes; one without a tested field does not."""
        return all(
            text_of(record.get(column))
            and _holds(text_of(record[column]), sign, value, f"{place}, field '{column}'")
            for column, sign, value in self.tests
        )

    def nothing_kept(self, file: str) -> DataError:
        """Return the error that no row passes."""
        tests = ", ".join("".join(test) for test in self.tests)
        return DataError(
            f"{file} has no row where {tests}. Widen where, or leave it out.",
            rule="problems.where.no-rows",
        )


def _passed(records: Records, column: str, sign: str, value: str) -> Mask:
    """Return which rows pass one test."""
    place = f"{records.file}, column '{column}'"
    name = column
    if column not in records.headers:
        names_by_header = {header.lower(): name for name, header in records.headers.items()}
        name = names_by_header[column.lower()]
    if name in records.numbers:
        distinct, code = np.unique(records.numbers[name], return_inverse=True)
        texts = [f"{number:.17g}" for number in distinct]
    else:
        texts, code = list(records.words[name].distinct), records.words[name].code
    holds = np.array([_holds(text, sign, value, place) for text in texts], np.bool_)
    return np.asarray(holds[code])


def _holds(text: str, sign: str, value: str, place: str) -> bool:
    """Return whether a cell passes a test: as a number if the value is one, else as a word."""
    if not is_number(value):
        return _SIGNS[sign](text.casefold(), value.casefold())
    if not is_number(text):
        raise DataError(
            f"{place} holds '{text}', which is not a number.", rule="problems.where.not-numbers"
        )
    return _SIGNS[sign](float(text), float(value))
