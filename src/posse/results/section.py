"""A part of a document: a table, sentences, or both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from posse.results.values import JSON, as_list
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
    data: Mapping[str, object] | None = None
    """The same content for programs."""
    label: str = ""
    """The record that it belongs to, if there are several records."""
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
    def read(cls, table: Mapping[str, JSON], label: str = "") -> Section:
        """Return the section of a table in a record."""
        numeric = (place for place in as_list(table.get("numeric")) if isinstance(place, int))
        return cls(
            str(table.get("title", "")),
            _texts(table.get("columns")),
            tuple(map(_texts, as_list(table.get("rows")))),
            _texts(table.get("notes")),
            tuple(numeric),
            label=label,
        )


def _texts(values: JSON) -> tuple[str, ...]:
    return tuple(map(words_of, as_list(values)))
