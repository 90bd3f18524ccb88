"""The sections of a report that are words and tables, and the tables that a system wants shown of its runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from posse.results import words
from posse.results.compare import ComparedRun, Comparison
from posse.results.naming import ALONE, described, labels, warns
from posse.results.page import Safe, bullets, join, table, tag
from posse.results.record import Record, several
from posse.results.theme import page_colour, role_colours
from posse.results.values import JSON, flat
from posse.results.words import common, words_of

Named = Sequence[tuple[Record, str]]
"""Records with their labels."""


@dataclass(frozen=True)
class Section:
    """A table with notes, printed as it is by the command line and in reports."""

    title: str
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    notes: tuple[str, ...] = ()
    numeric: tuple[int, ...] = ()
    """Columns that are aligned to the right."""
    data: Mapping[str, Any] | None = None
    """The same for programs."""
    label: str = ""
    """The record it is of, where others have none or another one."""

    def plain(self) -> dict[str, Any]:
        """Return it as a record keeps it."""
        return {
            "title": self.title, "columns": list(self.columns), "rows": [list(row) for row in self.rows],
            "notes": list(self.notes), "numeric": list(self.numeric),
        }  # fmt: skip


def sections(records: Record | Iterable[Record], names: Sequence[str] | None = None) -> list[Section]:
    """Return the tables that the systems of these records want shown (`Record.show`).

    Tables of two columns that several records have under one title stand side by side, a column a record.

    >>> from posse.results.example import example_contextual_record
    >>> first, second = (example_contextual_record(horizon=horizon) for horizon in (300, 600))
    >>> sections(first)[0].columns, sections([first, second])[0].columns
    (('cost', 'a step'), ('cost', 'epsilon-greedy (shared), 300 steps', 'epsilon-greedy (shared), 600 steps'))
    """
    chosen = several(records)
    named = labels(chosen) if names is None else names
    titles: dict[str, list[Section]] = {}
    for record, label in zip(chosen, named, strict=True):
        for section in _own(record, label if len(chosen) > 1 else ""):
            titles.setdefault(section.title, []).append(section)
    return [section for same in titles.values() for section in _side_by_side(same)]


def _own(record: Record, label: str) -> list[Section]:
    tables: Any = record.show.get("sections", ())  # its shape was checked when the record was made

    def texts(values: Iterable[JSON]) -> tuple[str, ...]:
        return tuple(words_of(value) for value in values)

    return [
        Section(
            str(one.get("title", "")),
            texts(one.get("columns", ())),
            tuple(texts(row) for row in one.get("rows", ())),
            texts(one.get("notes", ())),
            tuple(one.get("numeric", ())),
            label=label,
        )
        for one in tables
    ]


def _side_by_side(same: Sequence[Section]) -> list[Section]:
    pairs = all(len(one.columns) == 2 and one.columns[0] == same[0].columns[0] for one in same)
    if len(same) == 1 or not pairs or len({one.label for one in same}) < len(same):
        return list(same)
    names = dict.fromkeys(name for one in same for name, _ in one.rows)
    cells = [{row[0]: row[1] for row in one.rows} for one in same]
    rows = tuple((name, *(one.get(name, words.UNKNOWN) for one in cells)) for name in names)
    notes = tuple(dict.fromkeys(note for one in same for note in one.notes))
    columns = (same[0].columns[0], *(one.label for one in same))
    return [Section(same[0].title, columns, rows, notes, tuple(range(1, len(columns))))]


def systems(named: Named) -> Safe:
    """Return the tables of the systems as parts of a page."""
    parts: list[Safe] = []
    for one in sections([record for record, _ in named], [label for _, label in named]):
        heading = ": ".join(part for part in (one.title, one.label) if part)
        parts += [tag("h2", heading)] if heading else []
        parts += [table(one.columns, one.rows, numeric=one.numeric)] if one.rows else []
        parts += [tag("p", note, cls="soft") for note in one.notes]
    return join(parts)


def comparison(compared: Comparison) -> Safe:
    """Return the table of a comparison, and its notes."""
    header = ("run", "level", "runs", compared.words.earned, "difference", "same run", "time", "ratio", "traffic")
    rows = [
        (
            join([tag("code", row.id), Safe("<br>"), tag("span", row.label)]), level(row.protection), f"{row.runs:,}",
            words.plus_minus(row.mean, row.error), words.plus_minus(row.difference, row.difference_error),
            _same(row, first=i == 0), words.seconds(row.seconds), words.ratio(row.ratio), words.size(row.bytes),
        )
        for i, row in enumerate(compared.rows)
    ]  # fmt: skip
    reward = compared.words.reward.capitalize()
    note = f"{reward} is the mean total of a run ± its standard error; the difference is to the first line."
    parts = [tag("h2", "Comparison"), table(header, rows, numeric=(2, 3, 4, 6, 7, 8)), tag("p", note, cls="soft")]
    return join([*parts, bullets(compared.notes) if compared.notes else Safe("")])


def _same(row: ComparedRun, *, first: bool) -> Safe | str:
    if first:
        return words.UNKNOWN
    return tag("span", "identical", cls="tag good") if row.identical else "no"


def protection(records: Sequence[Record]) -> Safe:
    """Say what each role learns at each protection, and what is not protected."""
    learns = {name: learnt for name, learnt in _by_protection(records, "learns").items() if learnt}
    parts = [tag("h2", "What each role learns")] if learns else []
    for name, sentences in learns.items():
        parts += [tag("h3", level(name)), bullets(sentences)]
    parts.append(tag("h2", "What is not protected"))
    for name, leaks in _by_protection(records, "leaks").items():
        parts += [tag("h3", level(name)), bullets(leaks or (_unsaid(name, records),))]
    return join(parts)


def level(name: str) -> Safe:
    """Mark a protection (`Record.protection`); plain, or a part of it switched off, is a warning."""
    return tag("span", described(name), cls=f"tag {'warn' if warns(name) else ''}")


def _by_protection(records: Sequence[Record], what: str) -> dict[str, list[str]]:
    """Collect sentences by protection, each once."""
    sentences: dict[str, list[str]] = {}
    for record in records:
        own: Any = record.leaks if what == "leaks" else record.show.get(what, ())
        known = sentences.setdefault(record.protection, [])
        known += [str(one) for one in own if one not in known]
    return sentences


def _unsaid(name: str, records: Sequence[Record]) -> str:
    if name == ALONE:
        party = common(record.words for record in records).party
        return f"Nothing is shared: each {party} keeps what it knows, and learns nothing from the others."
    return "These records do not say what leaks. Do not take that for nothing."


def costs(named: Named) -> Safe:
    """Return time by role and traffic by hop, for the records that have them."""
    kinds = dict.fromkeys(kind for record, _ in named for kind in record.role_seconds)
    colours = role_colours([record for record, _ in named], kinds)
    parts = []
    for record, label in named:
        tables = [part for part in (_times(record, colours), _traffic(record)) if part]
        heading = [tag("h3", label, " ", tag("code", record.id))] if len(named) > 1 and tables else []
        parts += [*heading, *tables]
    return join([tag("h2", "Time and traffic"), *parts]) if parts else Safe("")


def _times(record: Record, colours: dict[str, tuple[str, str]]) -> Safe:
    whole = sum(record.role_seconds.values())
    rows = [
        (join([tag("span", cls="dot", style=f"background:{page_colour(colours[kind])}"),
               tag("span", record.role_label(kind))], ""),
         words.seconds(value), f"{value / whole:.1%}" if whole else words.UNKNOWN)
        for kind, value in sorted(record.role_seconds.items(), key=lambda item: -item[1])
    ]  # fmt: skip
    return table(("role", "CPU time", "share"), rows, numeric=(1, 2)) if rows else Safe("")


def _traffic(record: Record) -> Safe:
    rows = [(hop.hop.replace("->", "→"), f"{hop.messages:,}", words.size(hop.bytes)) for hop in record.traffic]
    if len(rows) > 1:
        rows.append(("all", f"{record.messages:,}", words.size(record.bytes)))
    return table(("hop", "messages", "bytes"), rows, numeric=(1, 2)) if rows else Safe("")


def details(named: Named) -> Safe:
    """Return configuration, problem, figures and seeds of each record, folded away where there are several."""
    parts = []
    for record, label in named:
        head = tag("summary", label, " ", tag("code", record.id))
        folded = {} if len(named) > 1 else {"open": ""}
        parts.append(tag("details", head, _facts(record), **folded))
    return join([tag("h2", "Configuration"), *parts])


def _facts(record: Record) -> Safe:
    facts = {"system": record.title, "status": record.state, "created": record.created, "version": record.version}
    if record.party or record.run_id != record.id:
        facts |= {"run": record.run_id, "party": record.party or "all"}
    # Its words are how the page reads, not what was learnt.
    problem = {key: value for key, value in record.problem.items() if key != "words"}
    tables = {"Run": facts, "Configuration": record.config, "Problem": problem, "Summary": record.summary}
    parts = [
        join([tag("h3", name), table(("key", "value"), [(key, words_of(value)) for key, value in flat(values)])])
        for name, values in tables.items()
        if values
    ]
    return join([*parts, tag("h3", "World seeds"), _seeds(record)])


def _seeds(record: Record) -> Safe:
    if not record.seeds:
        return tag("p", f"None: the {words.plural(record.words.reward)} came from the world, not from a simulation.")
    shown = ", ".join(str(seed) for seed in record.seeds[:50])
    more = f", … ({len(record.seeds):,} in all)" if len(record.seeds) > 50 else ""
    what = f"World seed of a simulation, one a run; whoever knows it knows every {record.words.reward}: "
    return tag("p", what, tag("code", shown + more))
