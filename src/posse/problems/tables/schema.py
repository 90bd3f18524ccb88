"""The columns that a problem needs, and the typed arrays that a table has of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from posse.core.errors import DataError
from posse.problems.tables.cells import (
    TRUTH,
    Cells,
    Fault,
    Numbers,
    WordIndex,
    is_missing,
    number_fault,
)
from posse.problems.tables.faults import BadRows
from posse.problems.tables.mapping import as_flag, suggest_columns
from posse.problems.tables.table import Block, Table

Mask = NDArray[np.bool_]
Values = NDArray[np.generic]
"""Numbers, or numbers of words."""


@dataclass(frozen=True)
class Rule:
    """What the numbers of a column must be; a row with another number is bad."""

    fits: Callable[[Numbers], Mask]
    text: str
    """The rule in words, after "must"."""
    remedy: str = "Correct it."


def within(low: float, high: float, remedy: str = "Correct it.") -> Rule:
    """Return the rule that numbers are in [low, high].

    >>> rule = within(0, 1)
    >>> rule.fits(np.array([0.5, 1.5])).tolist(), rule.text
    ([True, False], 'be in [0, 1]')
    """
    return Rule(
        lambda values: (values >= low) & (values <= high), f"be in [{low:g}, {high:g}]", remedy
    )


@dataclass(frozen=True)
class Column:
    """A column that a problem needs."""

    name: str
    numbers: bool = False
    """Whether it holds finite numbers; else words."""
    rules: tuple[Rule, ...] = ()
    """Rules of its numbers."""
    check: Callable[[str], Fault | None] | None = None
    """Returns what is wrong with a word."""
    optional: bool = False
    gaps: bool = False
    """Whether a number may be missing; it is then NaN."""
    truth: bool = False
    """Whether words such as yes and no are 1 and 0, in a column of such words alone."""

    def word_fault(self, word: str) -> Fault | None:
        """Return what is wrong with a word of this column."""
        if not word:
            return "is empty", "Fill it, or delete the row."
        return None if self.check is None else self.check(word)


def words(name: str, *, optional: bool = False) -> Column:
    """Return a column of words."""
    return Column(name, optional=optional)


def numbers(name: str, *rules: Rule) -> Column:
    """Return a column of numbers."""
    return Column(name, numbers=True, rules=rules)


def ratings(name: str, *rules: Rule) -> Column:
    """Return a column of numbers, or of words such as yes and no, which are 1 and 0."""
    return Column(name, numbers=True, rules=rules, truth=True)


def category(name: str, check: Callable[[str], Fault | None] | None = None) -> Column:
    """Return a column of words, in which a cell such as N/A is bad."""

    def fault(word: str) -> Fault | None:
        if is_missing(word):
            return f"'{word}' is missing", "Give a word, or delete the row."
        return None if check is None else check(word)

    return Column(name, check=fault)


@dataclass(frozen=True, eq=False)
class Words:
    """A column of words: the distinct ones as they appear, and which of them each row has."""

    distinct: tuple[str, ...]
    code: NDArray[np.int64]

    def __getitem__(self, row: int) -> str:
        return self.distinct[int(self.code[row])]

    def take(self, rows: NDArray[np.integer] | Mask) -> Words:
        """Return the words of some rows."""
        return Words(self.distinct, self.code[rows])


@dataclass(frozen=True, eq=False)
class Records:
    """The good rows of a table, by column, and the line of each row."""

    file: str
    line: NDArray[np.int64]
    words: dict[str, Words]
    numbers: dict[str, Numbers]
    headers: dict[str, str]
    """What the table calls each column."""

    def __len__(self) -> int:
        return len(self.line)

    def place(self, row: int, column: str) -> str:
        """Return what errors call a cell."""
        return f"{self.file}, row {self.line[row]}, column '{self.headers.get(column, column)}'"

    def check_distinct(self, column: str) -> None:
        """Raise if two rows have the same word."""
        entries = self.words[column]
        if len(entries.distinct) == len(entries.code):
            return
        _, first = np.unique(entries.code, return_index=True)
        row = int(np.setdiff1d(np.arange(len(entries.code)), first)[0])
        raise DataError(
            f"{self.place(row, column)}: '{entries[row]}' is on row "
            f"{self.line[first[entries.code[row]]]} too. Keep one, or rename it.",
            rule=f"problems.{_field(column)}.twice",
        )


class ColumnError(DataError):
    """A table has no column of a needed name."""

    def __init__(self, text: str, columns: dict[str, str], *, rule: str) -> None:
        super().__init__(text, rule=rule, field="columns")
        self.columns = columns
        """Columns that the table may mean, by the names that are needed; empty if none fit."""


@dataclass(frozen=True)
class Schema:
    """The columns that a problem needs.

    >>> from posse.problems.tables.table import open_table
    >>> from posse.problems.tables.text import Document
    >>> table = open_table(Document("r.csv", b"item;rating\\nheat;4\\nheat;5"))
    >>> records = Schema(words("item"), numbers("rating")).read(table)
    >>> records.words["item"].distinct, records.numbers["rating"].tolist()
    (('heat',), [4.0, 5.0])
    """

    columns: tuple[Column, ...]

    def __init__(self, *columns: Column) -> None:
        object.__setattr__(self, "columns", columns)

    def find(self, table: Table) -> dict[str, str]:
        """Return the name in the table of each column that the table has.

        Raises:
            ColumnError: The table lacks a column that is not optional.
        """
        headers = {}
        for column in self.columns:
            place = table.place(table.options.column(column.name))
            if place is not None:
                headers[column.name] = table.header[place]
            elif not column.optional:
                raise self._no_column(table, column.name)
        return headers

    def read(self, table: Table) -> Records:
        """Read the table.

        Raises:
            ColumnError: It lacks a column that is not optional.
            DataError: Rows are bad, and not to be dropped; or there are no rows.
        """
        headers = self.find(table)
        readers = [
            _Reader(column, headers[column.name], table)
            for column in self.columns
            if column.name in headers
        ]
        bad = BadRows(table.name, table.options)
        lines = []
        hold_numbers: dict[str, bool] = {}
        for each in readers:
            hold_numbers[each.header] = hold_numbers.get(each.header, True) and each.column.numbers
        for block in table.blocks(hold_numbers, bad):
            good = _read_block(block, readers, bad)
            block_lines = np.asarray(block.lines, np.int64)
            lines.append(block_lines if good is None else block_lines[good])
        count = sum(map(len, lines))
        bad.settle(count)
        if not lines:
            raise DataError(
                f"{table.name} has a header and no rows. Add one row for each value.",
                rule="problems.rows.none",
            )
        return Records(
            table.name,
            np.concatenate(lines),
            {each.column.name: each.words() for each in readers if not each.column.numbers},
            {each.column.name: each.values() for each in readers if each.column.numbers},
            headers,
        )

    def _no_column(self, table: Table, name: str) -> ColumnError:
        header = table.options.column(name)
        reason, rule = table.no_column(header)
        columns = {}
        if rule == "missing":
            needed = [(each.name, each.numbers) for each in self.columns]
            columns = suggest_columns(table, needed)
        if name in columns:
            reason += f" If the columns have other names, give {as_flag(columns)}."
        return ColumnError(
            f"{table.header_place}: {reason}", columns, rule=f"problems.columns.{rule}"
        )


class _Reader:
    """Reads one column, block by block."""

    def __init__(self, column: Column, header: str, table: Table) -> None:
        self.column = column
        self.header = header
        self._decimal = table.decimal
        self._truth = column.truth and table.looks()[header].kind == "truth"
        self._index = WordIndex(column.word_fault)
        self._parts: list[Values] = []
        self._dropped = False

    def read(self, cells: Cells) -> Values:
        """Read the cells of a block."""
        if not self.column.numbers:
            return cells.codes(self._index)
        values = cells.numbers(self._decimal)
        if self._truth:
            for row in np.flatnonzero(np.isnan(values)).tolist():
                values[row] = TRUTH.get(cells.text(row).strip().lower(), np.nan)
        return values

    def keep(self, values: Values, good: Mask | None) -> None:
        """Keep the good rows of a block."""
        self._dropped |= good is not None
        self._parts.append(values if good is None else values[good])

    def faults(self, values: Values, cells: Cells) -> list[tuple[Mask, Callable[[int], Fault]]]:
        """Return masks of bad rows, each with what is wrong with a row."""
        if self.column.numbers:
            return self._number_faults(values.astype(np.float64, copy=False), cells)
        word_faults = self._index.faults
        if not word_faults:
            return []
        codes = values.astype(np.int64, copy=False)
        return [(np.isin(codes, list(word_faults)), lambda row: word_faults[int(codes[row])])]

    def _number_faults(
        self, values: Numbers, cells: Cells
    ) -> list[tuple[Mask, Callable[[int], Fault]]]:
        bad = ~np.isfinite(values)
        if self.column.gaps:
            for row in np.flatnonzero(bad).tolist():
                bad[row] = not is_missing(cells.text(row))
        masks: list[tuple[Mask, Callable[[int], Fault]]] = []
        if bad.any():
            masks.append((bad, lambda row: number_fault(cells.text(row), self._decimal)))
        for rule in self.column.rules:
            broken = ~rule.fits(values) & np.isfinite(values)
            if broken.any():
                masks.append((broken, _rule_fault(rule, values)))
        return masks

    def words(self) -> Words:
        """Return the words of all rows."""
        code = self._whole().astype(np.int64, copy=False)
        if not self._dropped:
            return Words(tuple(self._index), code)
        # Words of dropped rows are no words of the table.
        used, first = np.unique(code, return_index=True)
        order = used[np.argsort(first)]
        distinct = list(self._index)
        place = np.zeros(len(distinct), np.int64)
        place[order] = np.arange(len(order))
        return Words(tuple(distinct[number] for number in order), place[code])

    def values(self) -> Numbers:
        """Return the numbers of all rows."""
        return self._whole().astype(np.float64, copy=False)

    def _whole(self) -> Values:
        return self._parts[0] if len(self._parts) == 1 else np.concatenate(self._parts)


def _rule_fault(rule: Rule, values: Numbers) -> Callable[[int], Fault]:
    return lambda row: (f"must {rule.text}, got {values[row]:.12g}", rule.remedy)


def _read_block(block: Block, readers: Sequence[_Reader], bad: BadRows) -> Mask | None:
    """Read a block; return its good rows, or None if all are good."""
    values = [reader.read(block.cells[reader.header]) for reader in readers]
    masks = [
        (reader.header, mask, fault)
        for reader, column in zip(readers, values, strict=True)
        for mask, fault in reader.faults(column, block.cells[reader.header])
    ]
    good = None
    if masks or block.blank is not None:
        good = np.ones(len(block.lines), np.bool_)
        if block.blank is not None:
            good &= ~block.blank
        for header, mask, fault in masks:
            for row in np.flatnonzero(mask & good).tolist():
                problem, remedy = fault(row)
                mark = " " if problem == "is empty" and remedy.startswith("Fill") else ": "
                bad.add(int(block.lines[row]), f", column '{header}'{mark}{problem}", remedy)
            good &= ~mask
    for reader, column in zip(readers, values, strict=True):
        reader.keep(column, good)
    return good


def _field(column: str) -> str:
    return column if column.isidentifier() and column.islower() else "columns"
