"""A list of what ships with Posse, such as the policies of one kind."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True)
class Listing:
    """A list of policies, data or the like: a table for people, and plain data for programs."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    entries: tuple[dict[str, Any], ...]
    """One per item, as `--json` prints it. Rows about custom policies or data have no entry."""
    notes: tuple[str, ...] = ()
    numeric: tuple[int, ...] = ()
    """Columns of the table that hold numbers."""

    def named_like(self, word: str) -> Listing:
        """Return the rows whose name contains a word, with their entries and notes."""
        lower = word.lower()
        rows = tuple(row for row in self.rows if lower in row[0].lower())
        labels = tuple(f"{row[0]}:" for row in rows)
        return replace(
            self,
            rows=rows,
            entries=tuple(entry for entry in self.entries if lower in entry["name"].lower()),
            notes=tuple(note for note in self.notes if note.startswith(labels)),
        )
