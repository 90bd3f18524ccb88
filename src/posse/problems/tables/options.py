"""How a table is read: what a file does not say for certain is given by its user, not guessed."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from posse.core.errors import ConfigError

DECIMALS = (".", ",")


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
    """What the table calls a column, by the name that a problem has for it."""
    delimiter: str | None = None
    """What separates columns of a text file; None for the one that the header shows."""
    notes: list[str] = field(default_factory=list, compare=False)
    """Readers append one sentence for each thing that they dropped or left out."""
    watch: Callable[[float], None] | None = field(default=None, compare=False)
    """Called with the share of a table that has been read."""

    def __post_init__(self) -> None:
        check_encoding(self.encoding)
        if self.decimal not in DECIMALS:
            raise ConfigError(
                f"decimal must be . or a comma, got {self.decimal!r}.",
                rule="problems.decimal.unknown",
            )
        if self.delimiter is not None and (len(self.delimiter) != 1 or self.delimiter in '"\r\n'):
            raise ConfigError(
                "delimiter must be one character, not a quote or a line end, got "
                f"{self.delimiter!r}.",
                rule="problems.delimiter.not-a-character",
            )

    def column(self, name: str) -> str:
        """Return what the table calls a column."""
        return self.columns.get(name, name)

    def note(self, sentence: str) -> None:
        """Keep a sentence about what was dropped, once."""
        if sentence not in self.notes:
            self.notes.append(sentence)


def check_encoding(encoding: str) -> None:
    """Raise if Python has no such encoding."""
    try:
        codecs.lookup(encoding or "utf-8")
    except LookupError:
        raise ConfigError(
            f"unknown encoding '{encoding}'. Give one such as latin-1, cp1252 or utf-16.",
            rule="problems.encoding.unknown",
        ) from None
