"""The columns that a problem needs, and their typed arrays from a table.

`read_encoded` also reads all other columns as features: numbers as they are, categories one-hot,
dates left out. The first rows decide the kind of a column. Words are a category if each appears
twice on average, and at most `MOST` are different. Other words are an error.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from posse.core.errors import DataError
from posse.problems.requirements import Ints, Mask
from posse.problems.tables.cells import (
    TRUTH,
    Cells,
    Fault,
    Numbers,
    WordIndex,
    is_missing,
    number_fault,
)
from posse.problems.tables.mapping import as_flag, suggest_columns
from posse.problems.tables.options import BadRows
from posse.problems.tables.table import MOST, Look, Table, TableBlock

Values = NDArray[np.generic]
"""Numbers, or places of words in an index."""
RowFaults = tuple[Mask, Callable[[int], Fault]]
"""Bad rows of a block, and what is wrong with a row."""


@dataclass(frozen=True)
class Rule:
    """A rule for the numbers of a column; a row with another number is bad."""

    fits: Callable[[Numbers], Mask]
    """Returns which numbers keep the rule."""
    text: str
    """The rule in words, after "must"."""
    remedy: str = "Correct it."

    def fault(self, values: Numbers) -> Callable[[int], Fault]:
        """Return a function that returns the fault of a row."""
        return lambda row: (f"must {self.text}, got {values[row]:.12g}", self.remedy)


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
    """Whether it holds finite numbers; otherwise words."""
    rules: tuple[Rule, ...] = ()
    """Rules of its numbers."""
    check: Callable[[str], Fault | None] | None = None
    """Returns the fault of a word; None if there is none."""
    optional: bool = False
    gaps: bool = False
    """Whether a number may be missing; it is then NaN."""
    truth: bool = False
    """Whether words such as yes and no are 1 and 0, if the column has only such words."""

    def word_fault(self, word: str) -> Fault | None:
        """Return the fault of a word of this column."""
        if not word:
            return "the cell is empty", "Fill it, or delete the row."
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
    """Return a column of words; a cell such as N/A is bad."""

    def fault(word: str) -> Fault | None:
        if is_missing(word):
            return f"'{word}' is missing", "Give a word, or delete the row."
        return None if check is None else check(word)

    return Column(name, check=fault)


@dataclass(frozen=True, eq=False)
class Words:
    """A column of words: the distinct ones as they appear, and which of them each row has."""

    distinct: tuple[str, ...]
    code: Ints

    def __getitem__(self, row: int) -> str:
        return self.distinct[int(self.code[row])]

    def take(self, rows: NDArray[np.integer] | Mask) -> Words:
        """Return the words of some rows."""
        return Words(self.distinct, self.code[rows])


@dataclass(frozen=True, eq=False)
class Records:
    """The good rows of a table, by column, and the line of each row."""

    file: str
    line: Ints
    words: dict[str, Words]
    numbers: dict[str, Numbers]
    headers: dict[str, str]
    """Names of the columns in the table."""

    def __len__(self) -> int:
        return len(self.line)

    def place(self, row: int, column: str) -> str:
        """Return the words by which errors name a cell."""
        return f"{self.file}, row {self.line[row]}, column '{self.headers.get(column, column)}'"

    def take(self, rows: NDArray[np.integer] | Mask) -> Records:
        """Return some rows."""
        return Records(
            self.file,
            self.line[rows],
            {name: words.take(rows) for name, words in self.words.items()},
            {name: values[rows] for name, values in self.numbers.items()},
            self.headers,
        )

    def check_distinct(self, column: str) -> None:
        """Raise if two rows have the same word."""
        entries = self.words[column]
        first = np.unique(entries.code, return_index=True)[1]
        again = np.setdiff1d(np.arange(len(self)), first)
        if len(again):
            row = int(again[0])
            earlier = self.line[first[entries.code[row]]]
            raise DataError(
                f"{self.place(row, column)}: '{entries[row]}' is on row {earlier} too. Keep one, "
                "or rename it.",
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
            DataError: Rows are bad, and the options do not drop them; or there are no rows.
        """
        headers = self.find(table)
        columns = [column for column in self.columns if column.name in headers]
        numbers = {
            column: _NumberReader(column, headers[column.name], table)
            for column in columns
            if column.numbers
        }
        words = {
            column: _WordReader(column, headers[column.name])
            for column in columns
            if not column.numbers
        }
        every: Mapping[Column, _Reader] = {**numbers, **words}
        readers = [every[column] for column in columns]
        # A column that is read as words too has no numbers in its source.
        holds_numbers = {reader.header: reader in numbers.values() for reader in every.values()}
        bad = BadRows(table.name, table.options)
        lines = [_read_block(block, readers, bad) for block in table.blocks(holds_numbers, bad)]
        bad.settle(sum(map(len, lines)))
        if not lines:
            raise DataError(
                f"{table.name} has a header and no rows. Add one row for each value.",
                rule="problems.rows.none",
            )
        return Records(
            table.name,
            np.concatenate(lines),
            {column.name: reader.words() for column, reader in words.items()},
            {column.name: reader.numbers() for column, reader in numbers.items()},
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


class _Reader(ABC):
    """Reads one column, block by block."""

    def __init__(self, column: Column, header: str) -> None:
        self.column = column
        self.header = header
        self._parts: list[Values] = []
        self._dropped = False

    @abstractmethod
    def read(self, cells: Cells) -> Values:
        """Read the cells of a block."""

    @abstractmethod
    def faults(self, values: Values, cells: Cells) -> list[RowFaults]:
        """Return the bad rows of a block."""

    def keep(self, values: Values, good: Mask | None) -> None:
        """Keep the good rows of a block; None if all are good."""
        self._dropped |= good is not None
        self._parts.append(values if good is None else values[good])

    def _values(self) -> Values:
        return self._parts[0] if len(self._parts) == 1 else np.concatenate(self._parts)


class _NumberReader(_Reader):
    """Reads a column of numbers."""

    def __init__(self, column: Column, header: str, table: Table) -> None:
        super().__init__(column, header)
        self._decimal = table.decimal
        self._truth = column.truth and table.looks()[header].kind == "truth"

    def read(self, cells: Cells) -> Values:
        """Read numbers; NaN where a cell has none."""
        values = cells.numbers(self._decimal)
        if self._truth:
            for row in np.flatnonzero(np.isnan(values)).tolist():
                values[row] = TRUTH.get(cells.text(row).strip().lower(), np.nan)
        return values

    def faults(self, values: Values, cells: Cells) -> list[RowFaults]:
        """Return the rows without a number, and those with a number that breaks a rule."""
        numbers = values.astype(np.float64, copy=False)
        finite = np.isfinite(numbers)
        bad = ~finite
        if self.column.gaps:
            for row in np.flatnonzero(bad).tolist():
                bad[row] = not is_missing(cells.text(row))
        faults = [(bad, lambda row: number_fault(cells.text(row), self._decimal))]
        for rule in self.column.rules:
            faults.append((finite & ~rule.fits(numbers), rule.fault(numbers)))
        return [(mask, fault) for mask, fault in faults if mask.any()]

    def numbers(self) -> Numbers:
        """Return the numbers of all rows."""
        return self._values().astype(np.float64, copy=False)


class _WordReader(_Reader):
    """Reads a column of words."""

    def __init__(self, column: Column, header: str) -> None:
        super().__init__(column, header)
        self._index = WordIndex(column.word_fault)

    def read(self, cells: Cells) -> Values:
        """Read the number of each word in the index."""
        return cells.codes(self._index)

    def faults(self, values: Values, cells: Cells) -> list[RowFaults]:
        """Return the rows whose word is bad."""
        word_faults = self._index.faults
        if not word_faults:
            return []
        bad = np.isin(values, list(word_faults))
        return [(bad, lambda row: word_faults[int(values[row])])] if bad.any() else []

    def words(self) -> Words:
        """Return the words of all rows."""
        code = self._values().astype(np.int64, copy=False)
        distinct = list(self._index)
        if not self._dropped:
            return Words(tuple(distinct), code)
        # The index has words of dropped rows too.
        used, first = np.unique(code, return_index=True)
        order = used[np.argsort(first)]
        place = np.zeros(len(distinct), np.int64)
        place[order] = np.arange(len(order))
        return Words(tuple(distinct[number] for number in order), place[code])


def _read_block(block: TableBlock, readers: Sequence[_Reader], bad: BadRows) -> Ints:
    """Read a block; return the lines of its good rows."""
    lines = np.asarray(block.lines, np.int64)
    values = [reader.read(block.cells[reader.header]) for reader in readers]
    faults = [
        (reader.header, *row_faults)
        for reader, column in zip(readers, values, strict=True)
        for row_faults in reader.faults(column, block.cells[reader.header])
    ]
    good: Mask | None = None
    if faults or block.blank is not None:
        good = np.ones(len(lines), np.bool_) if block.blank is None else ~block.blank
        for header, mask, fault in faults:
            for row in np.flatnonzero(mask & good).tolist():
                problem, remedy = fault(row)
                bad.add(int(lines[row]), f", column '{header}': {problem}", remedy)
            good &= ~mask
        lines = lines[good]
    for reader, column in zip(readers, values, strict=True):
        reader.keep(column, good)
    return lines


def _field(column: str) -> str:
    return column if column.isidentifier() and column.islower() else "columns"


class Encoded(NamedTuple):
    """The columns that a problem needs, and all other columns as features."""

    records: Records
    names: tuple[str, ...]
    values: Numbers
    """(rows, features)"""


def other_columns(table: Table, columns: Sequence[Column]) -> list[str]:
    """Return the names of the columns that a problem does not need by name.

    >>> from posse.problems.tables.schema import words
    >>> from posse.problems.tables.table import open_table
    >>> from posse.problems.tables.text import Document
    >>> table = open_table(Document("clinic.csv", b"row;age;dose\\nann;0.3;0.4"))
    >>> other_columns(table, [words("row")])
    ['age', 'dose']
    """
    needed = set(Schema(*columns).find(table).values())
    others = [name for name in table.header if name not in needed]
    if not others:
        names = " and ".join(f"'{column.name}'" for column in columns)
        raise DataError(
            f"{table.header_place}: no column but {names} in the header. Add the numbers.",
            rule="problems.columns.no-numbers",
        )
    if "" in others:
        raise DataError(
            f"{table.header_place}: a column has no name in the header. Name it, or delete it.",
            rule="problems.columns.unnamed",
        )
    return others


def read_encoded(
    table: Table,
    columns: Sequence[Column],
    *,
    features: Sequence[str] = (),
    ignored: Sequence[str] = (),
) -> Encoded:
    """Read the columns that a problem needs, and all other columns as features.

    Args:
        table: The table.
        columns: Columns that a problem needs; they are no features.
        features: The features of a model, in this order: the other columns must be theirs by name,
            and their words known.
        ignored: Columns, in lower case, that the table may have in addition to these features.

    >>> from posse.problems.tables.schema import words
    >>> from posse.problems.tables.table import open_table
    >>> from posse.problems.tables.text import Document
    >>> text = "row,age,town\\n1,0.1,Bern\\n2,0.2,Chur\\n3,0.3,Bern\\n4,0.4,Chur"
    >>> encoded = read_encoded(open_table(Document("v.csv", text.encode())), [words("row")])
    >>> encoded.names, encoded.values[:2].tolist()
    (('age', 'town=Bern', 'town=Chur'), [[0.1, 1.0, 0.0], [0.2, 0.0, 1.0]])
    """
    others = other_columns(table, columns)
    looks = {name: look for name, look in table.looks().items() if name in others}
    if features:
        kinds = _kinds_of_model(table, looks, features, ignored)
    else:
        kinds = {name: _kind(table, name, look) for name, look in looks.items()}
    needed = [_needed(name, kind, features) for name, kind in kinds.items() if kind in _READ]
    if not needed:
        raise DataError(
            f"{table.name}: no column but dates ({', '.join(kinds)}). Add numbers or categories.",
            rule="problems.columns.dates-only",
        )
    records = Schema(*columns, *needed).read(table)
    for left_out, what in _LEFT_OUT.items():
        names = [name for name, kind in kinds.items() if kind == left_out]
        if names:
            table.options.note(f"{table.name}: {what} were left out ({', '.join(names)}).")
    values: dict[str, Numbers] = {}
    for column in needed:
        if column.numbers:
            values[column.name] = records.numbers[column.name]
        else:
            values |= _one_hot(records, column.name, limited=not features)
    zeros = np.zeros(len(records))
    order = tuple(features) or tuple(values)
    return Encoded(records, order, np.stack([values.get(name, zeros) for name in order], axis=1))


_READ = ("number", "category")
_LEFT_OUT = {"date": "dates", "ignored": "columns that are no features"}
"""Kinds of columns that are not read, and their names in a note."""


def _needed(name: str, kind: str, features: Sequence[str]) -> Column:
    """Return the column that a feature is read from."""
    if kind == "number":
        return numbers(name)
    if not features:
        return category(name)
    vocabulary = frozenset(features)

    def fault(word: str) -> Fault | None:
        if f"{name}={word}" in vocabulary:
            return None
        return f"the model never learnt '{word}'", "Correct it, or leave the row out."

    return category(name, fault)


def _one_hot(records: Records, name: str, *, limited: bool) -> dict[str, Numbers]:
    """Return a column of 0 and 1 for each word of a category."""
    words = records.words[name]
    if limited and len(words.distinct) > MOST:
        raise DataError(
            f"{records.file}, column '{name}': a category has at most {MOST} different words, got "
            f"{len(words.distinct):,}. Group them, or delete the column.",
            rule="problems.features.too-many-words",
        )
    codes = sorted(range(len(words.distinct)), key=words.distinct.__getitem__)
    return {
        f"{name}={words.distinct[code]}": (words.code == code).astype(np.float64) for code in codes
    }


def _kind(table: Table, name: str, look: Look) -> str:
    """Return the kind of a column; raise if its words are not a category."""
    if look.kind == "text":
        words = look.words
        raise DataError(
            f"{table.name}, column '{name}': '{words[0]}' is not a number, and the column is not a "
            f"category: it has {len(set(words)):,} different words in {len(words):,} rows. Write "
            "numbers, group the words, or delete the column. A column that identifies clients is "
            f"named with client={name}.",
            rule="problems.features.text",
        )
    return "category" if look.kind == "truth" else look.kind


def _kinds_of_model(
    table: Table, looks: Mapping[str, Look], features: Sequence[str], ignored: Sequence[str]
) -> dict[str, str]:
    """Return the kind of each column, by the features of a model."""
    kinds: dict[str, str] = {}
    sources: Counter[str] = Counter()
    for name, look in looks.items():
        words = [feature for feature in features if feature.startswith(f"{name}=")]
        if name in features:
            kinds[name] = "number"
            sources[name] += 1
        elif words:
            kinds[name] = "category"
            sources.update(words)
        elif name.lower() in ignored:
            kinds[name] = "ignored"
        elif look.kind == "date":
            kinds[name] = "date"
    more = ", ..." if len(features) > 8 else ""
    learnt = f"The model learnt {', '.join(features[:8])}{more}"
    unknown = [f"'{name}'" for name in looks if name not in kinds]
    if unknown:
        raise DataError(
            f"{table.name}: the model has no feature {', '.join(unknown)}. {learnt}: delete other "
            "columns.",
            rule="problems.features.unknown",
        )
    for feature in features:
        if sources[feature] != 1:
            raise DataError(
                f"{table.name}: the feature '{feature}' of the model must come from one column, "
                f"got {sources[feature]}. {learnt}: give these columns.",
                rule="problems.features.missing",
            )
    return kinds
