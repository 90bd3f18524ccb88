"""The sections of a report that are words and tables."""

from __future__ import annotations

from collections.abc import Sequence

from posse.results import levels, words
from posse.results.compare import ComparedRun, Comparison
from posse.results.markup import Safe, bullets, flat, join, table, tag
from posse.results.palette import role_colour
from posse.results.record import RunRecord
from posse.results.step_costs import step_costs
from posse.results.vocabulary import common


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


def protection(records: Sequence[RunRecord]) -> Safe:
    """Say which protection was on, and what was not protected."""
    parts = [tag("h2", "What is not protected")]
    for level_, leaks in _by_level(records).items():
        parts += [tag("h3", level(level_)), bullets(leaks or (_unsaid(level_, records),))]
    return join(parts)


def costs(records: Sequence[RunRecord]) -> Safe:
    """Return what a step costs, time by role and traffic by hop, for the records that have them."""
    parts = []
    for record in records:
        tables = [part for part in (_step(record), _times(record), _traffic(record)) if part]
        heading = [tag("h3", record.label, " ", tag("code", record.id))] if len(records) > 1 and tables else []
        parts += [*heading, *tables]
    return join([tag("h2", "Time and traffic"), *parts]) if parts else Safe("")


def details(records: Sequence[RunRecord]) -> Safe:
    """Return configuration, problem, figures and seeds of each record, folded away where there are several."""
    parts = []
    for record in records:
        head = tag("summary", record.label, " ", tag("code", record.id))
        folded = {} if len(records) > 1 else {"open": ""}
        parts.append(tag("details", head, _facts(record), **folded))
    return join([tag("h2", "Configuration"), *parts])


def level(name: str) -> Safe:
    """Mark a protection (`RunRecord.protection`); plain, or a part of it switched off, is a warning (`levels`)."""
    return tag("span", levels.told(name), cls=f"tag {'warn' if levels.warns(name) else ''}")


def _unsaid(level_: str, records: Sequence[RunRecord]) -> str:
    if level_ == levels.ALONE:
        party = common(record.words for record in records).party
        return f"Nothing is shared: each {party} keeps what it knows, and learns nothing from the others."
    return "These records do not say what leaks. Do not take that for nothing."


def _facts(record: RunRecord) -> Safe:
    facts = [("kind", record.kind), ("status", record.state), ("created", record.created), ("version", record.version)]
    # Its words are how the page reads, not what was learnt.
    problem = {key: value for key, value in record.problem.items() if key != "words"}
    tables = [("Run", facts), ("Configuration", flat(record.config)), ("Problem", flat(problem))]
    if record.summary:
        tables.append(("Summary", flat(record.summary)))
    parts = [join([tag("h3", name), table(("key", "value"), rows)]) for name, rows in tables if rows != [("", "{}")]]
    return join([*parts, tag("h3", "World seeds"), _seeds(record)])


def _seeds(record: RunRecord) -> Safe:
    if not record.seeds:
        return tag("p", f"None: the {words.plural(record.words.reward)} came from the world, not from a simulation.")
    shown = ", ".join(str(seed) for seed in record.seeds[:50])
    more = f", … ({len(record.seeds):,} in all)" if len(record.seeds) > 50 else ""
    what = f"World seed of a simulation, one a run; whoever knows it knows every {record.words.reward}: "
    return tag("p", what, tag("code", shown + more))


def _step(record: RunRecord) -> Safe:
    rows = step_costs(record)
    return table((f"a {record.words.step}", "costs"), rows, numeric=(1,)) if rows else Safe("")


def _times(record: RunRecord) -> Safe:
    whole = sum(record.role_seconds.values())
    rows = [
        (join([tag("span", cls="dot", style=f"background:{role_colour(role)}"), tag("span", role)], ""),
         words.seconds(value), f"{value / whole:.1%}" if whole else words.UNKNOWN)
        for role, value in sorted(record.role_seconds.items(), key=lambda item: -item[1])
    ]  # fmt: skip
    return table(("role", "CPU time", "share"), rows, numeric=(1, 2)) if rows else Safe("")


def _traffic(record: RunRecord) -> Safe:
    rows = [(hop.hop.replace("->", "→"), f"{hop.messages:,}", words.size(hop.bytes)) for hop in record.traffic]
    if len(rows) > 1:
        rows.append(("all", f"{record.messages:,}", words.size(record.bytes)))
    return table(("hop", "messages", "bytes"), rows, numeric=(1, 2)) if rows else Safe("")


def _same(row: ComparedRun, *, first: bool) -> Safe | str:
    if first:
        return words.UNKNOWN
    return tag("span", "identical", cls="tag good") if row.identical else "no"


def _by_level(records: Sequence[RunRecord]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for record in records:
        said = found.setdefault(record.protection, [])
        said += [leak for leak in record.leaks if leak not in said]
    return found
