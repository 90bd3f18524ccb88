"""What reports of fed-contextual contain beside its records."""

from __future__ import annotations

from collections.abc import Sequence

from posse.results import words
from posse.results.record import Record
from posse.results.section import Section
from posse.systems.fed_contextual.settings import FedContextual
from posse.systems.modules import Report

_ROWS = (
    ("average reward", "average_reward"),
    ("the same, last tenth of the rounds", "average_reward_last_tenth"),
    ("mean probability of the chosen arm", "average_probability"),
    ("decisions", "samples"),
    ("rounds a second", "rounds_a_second"),
)
"""Labels of the rows that compare records, and keys of their summaries."""


def sections(records: Sequence[Record]) -> list[Section]:
    """Return what the records earned per decision, and the decisions of the first one by arm."""
    tables = []
    if len(records) > 1:
        tables.append(_comparison(records))
    first = records[0]
    if first.arms:
        counts = zip(first.arm_names, first.pulls.sum(axis=0).tolist(), strict=True)
        rows = tuple((name, f"{count:,}") for name, count in counts)
        tables.append(Section("Decisions", ("arm", "decisions"), rows, numeric=(1,)))
    return tables


def _comparison(records: Sequence[Record]) -> Section:
    rows = []
    for label, key in _ROWS:
        numbers = [_number(record, key) for record in records]
        rows.append((label, *numbers))
    columns = ("", *(record.protection for record in records))
    return Section("A decision", columns, tuple(rows), numeric=tuple(range(1, len(columns))))


def _number(record: Record, key: str) -> str:
    value = record.summary.get(key)
    if not isinstance(value, int | float):
        return words.number(None, 4)
    return words.number(value, 4)


REPORT: Report[FedContextual] = Report(compared_by_default=False, sections=sections)
