"""A part of a document: a table, sentences, or both."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from posse.results.values import JSON
from posse.results.words import words_of


@dataclass(frozen=True)
class Section:
    """A table with notes, or a list of sentences. Every front door renders it in the same way."""

    title: str
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    notes: tuple[str, ...] = ()
    numeric: tuple[int, ...] = ()
    """Columns that are aligned to the right."""
    data: Mapping[str, Any] | None = None
    """The same content for programs."""
    label: str = ""
    """The record that it belongs to, if others have none or another one."""
    items: tuple[str, ...] = ()
    """Sentences of a list."""

    @property
    def heading(self) -> str:
        """Title and label."""
        return ": ".join(part for part in (self.title, self.label) if part)

    def plain(self) -> dict[str, JSON]:
        """Return the table as a record stores it."""
        return {
            "title": self.title,
            "columns": list(self.columns),
            "rows": [list(row) for row in self.rows],
            "notes": list(self.notes),
            "numeric": list(self.numeric),
        }

    @classmethod
    def read(cls, table: Mapping[str, Any], label: str = "") -> Section:
        """Return the section of a table in a record."""
        return cls(
            str(table.get("title", "")),
            _texts(table.get("columns", ())),
            tuple(_texts(row) for row in table.get("rows", ())),
            _texts(table.get("notes", ())),
            tuple(table.get("numeric", ())),
            label=label,
        )


def _texts(values: Iterable[JSON]) -> tuple[str, ...]:
    return tuple(words_of(value) for value in values)
