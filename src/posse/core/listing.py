"""A list of what ships with Posse, such as the policies of one kind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Listing:
    """A list of policies or data, for example: a table for people, and plain data for programs."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    entries: tuple[dict[str, Any], ...]
    """One per item of the list, as `--json` prints the item. Rows of the table that explain custom
    policies or data have no entry.
    """
    notes: tuple[str, ...] = ()
    numeric: tuple[int, ...] = ()
    """Positions of the columns that hold numbers."""
