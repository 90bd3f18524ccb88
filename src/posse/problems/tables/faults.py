"""Rows that cannot be read: all rows of a table are reported in one error."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from posse.core.errors import DataError
from posse.problems.tables.options import ReadOptions

PLACES = 5
"""Bad rows that are named for each remedy; all are counted."""


@dataclass
class BadRows:
    """Rows of one table that cannot be read."""

    file: str
    options: ReadOptions
    count: int = 0
    places: dict[str, list[tuple[int, str]]] = field(default_factory=dict)
    """The first lines by their remedy, and what is wrong there."""
    more: Counter[str] = field(default_factory=Counter)
    """By remedy, how many rows are not in `places`."""

    def add(self, line: int, problem: str, remedy: str) -> None:
        """Add a row.

        Args:
            line: Line of the file.
            problem: What is wrong, after the words "row N".
            remedy: What to do about it.
        """
        self.count += 1
        places = self.places.setdefault(remedy, [])
        if len(places) < PLACES:
            places.append((line, f"row {line}{problem}"))
        else:
            self.more[remedy] += 1

    def settle(self, good: int) -> None:
        """Raise one error for all rows, or note that they were dropped.

        Args:
            good: Number of rows that could be read.
        """
        if not self.count:
            return
        total = self.count + good
        if self.options.skip_bad and good:
            self.options.note(
                f"{self.file}: {self.count:,} of {total:,} rows were dropped as bad. "
                f"{self._listed(remedies=False)}"
            )
            return
        if self.count == 1 and not self.options.skip_bad:
            ((remedy, ((_, place),)),) = self.places.items()
            raise DataError(f"{self.file}, {place}. {remedy}", rule="problems.rows.bad")
        text = self._listed(remedies=True)
        if not any("Correct" in remedy for remedy in self.places):
            text += " Correct them."
        if self.options.skip_bad:
            raise DataError(
                f"{self.file}: none of its {total:,} rows can be read. {text}",
                rule="problems.rows.all-bad",
            )
        if good:
            text += " Or drop them with --skip-bad (skip_bad = true)."
        raise DataError(
            f"{self.file}: {self.count:,} of {total:,} rows are bad. {text}",
            rule="problems.rows.several-bad",
        )

    def _listed(self, *, remedies: bool) -> str:
        """List the places by what is to be done about them, each remedy once."""
        sentences = []
        for remedy, places in sorted(self.places.items(), key=lambda group: min(group[1])):
            text = "; ".join(place for _, place in sorted(places))
            if self.more[remedy]:
                text += f"; and {self.more[remedy]:,} more"
            sentences.append(f"R{text[1:]}.")
            if remedies:
                sentences.append(remedy)
        return " ".join(sentences)
