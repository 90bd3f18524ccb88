"""How a table is read, and what is reported about rows that cannot be read."""

from __future__ import annotations

import codecs
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from posse.core.errors import ConfigError, DataError
from posse.problems.requirements import Requirement, check_all

PLACES = 5
"""Bad rows that an error lists for each remedy. It counts the others."""


@dataclass(frozen=True)
class ReadOptions:
    """Options for reading tables, and messages of the readers to the user."""

    encoding: str = ""
    """Encoding of a text file; empty for UTF-8, or UTF-16 with its byte order mark."""
    decimal: str = "."
    """Decimal mark of numbers in text."""
    skip_bad: bool = False
    """Whether rows that cannot be read are dropped."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """Names of columns in the table, by the names that a problem has for them."""
    delimiter: str | None = None
    """Character between the columns of a text file; by default the reader finds it."""
    notes: list[str] = field(default_factory=list, compare=False)
    """Readers append one sentence for everything that they leave out."""
    watch: Callable[[float], None] | None = field(default=None, compare=False)
    """Called with the share of a table that has been read."""

    def __post_init__(self) -> None:
        check_encoding(self.encoding)
        check_all(self, _OPTIONS)

    def column(self, name: str) -> str:
        """Return the name of a column in the table."""
        return self.columns.get(name, name)

    def note(self, sentence: str) -> None:
        """Add a sentence to the notes, once."""
        if sentence not in self.notes:
            self.notes.append(sentence)


_OPTIONS: tuple[Requirement[ReadOptions], ...] = (
    Requirement(
        "problems.decimal.unknown",
        lambda options: options.decimal in (".", ","),
        lambda options: f"decimal must be . or a comma, got {options.decimal!r}.",
    ),
    Requirement(
        "problems.delimiter.not-a-character",
        lambda options: (
            options.delimiter is None
            or (len(options.delimiter) == 1 and options.delimiter not in '"\r\n')
        ),
        lambda options: (
            "delimiter must be one character, not a quote or a line end, got "
            f"{options.delimiter!r}."
        ),
    ),
)


def check_encoding(encoding: str) -> None:
    """Raise if Python has no such encoding."""
    try:
        codecs.lookup(encoding or "utf-8")
    except LookupError:
        raise ConfigError(
            f"unknown encoding '{encoding}'. Give one such as latin-1, cp1252 or utf-16.",
            rule="problems.encoding.unknown",
        ) from None


@dataclass
class BadRows:
    """Rows of one table that cannot be read."""

    file: str
    options: ReadOptions
    places: dict[str, list[tuple[int, str]]] = field(default_factory=lambda: defaultdict(list))
    """The first lines, with what is wrong there, by their remedy."""
    counts: Counter[str] = field(default_factory=Counter)
    """Number of rows, by their remedy."""

    def add(self, line: int, problem: str, remedy: str) -> None:
        """Add a row.

        Args:
            line: Line of the file.
            problem: What is wrong, after the words "row N".
            remedy: What the user must do.
        """
        self.counts[remedy] += 1
        if self.counts[remedy] <= PLACES:
            self.places[remedy].append((line, f"row {line}{problem}"))

    def settle(self, good: int) -> None:
        """Raise one error for all rows, or note that they were dropped.

        Args:
            good: Number of rows that could be read.
        """
        count = self.counts.total()
        total = count + good
        if not count:
            return
        if self.options.skip_bad and good:
            self.options.note(
                f"{self.file}: {count:,} of {total:,} rows were dropped as bad. "
                f"{' '.join(map(self._list_places, self._remedies()))}"
            )
            return
        places = " ".join(f"{self._list_places(each)} {each}" for each in self._remedies())
        if self.options.skip_bad:
            raise DataError(
                f"{self.file}: none of its {total:,} rows can be read. {places}",
                rule="problems.rows.all-bad",
            )
        if count == 1:
            remedy = self._remedies()[0]
            drop = " Or drop the row with --skip-bad (skip_bad = true)." if good else ""
            raise DataError(
                f"{self.file}, {self.places[remedy][0][1]}. {remedy}{drop}",
                rule="problems.rows.bad",
            )
        drop = " Or drop them with --skip-bad (skip_bad = true)." if good else ""
        raise DataError(
            f"{self.file}: {count:,} of {total:,} rows are bad. {places}{drop}",
            rule="problems.rows.several-bad",
        )

    def _remedies(self) -> list[str]:
        """Return the remedies in the order of their first lines."""
        return sorted(self.places, key=lambda remedy: min(self.places[remedy]))

    def _list_places(self, remedy: str) -> str:
        """List the rows that have one remedy, as a sentence."""
        texts = [text for _, text in sorted(self.places[remedy])]
        more = self.counts[remedy] - len(texts)
        if more:
            texts.append(f"and {more:,} more")
        return f"R{'; '.join(texts)[1:]}."
