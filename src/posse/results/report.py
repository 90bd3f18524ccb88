"""One HTML page about one run or several: what was earned, what it cost, what was protected and what was not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from posse.core.errors import DataError
from posse.core.files import whole
from posse.results import words
from posse.results.compare import ComparedRun, Comparison, compare, identical
from posse.results.joining import parties
from posse.results.naming import ALONE, PLACEBO, PLAIN, remark, told, warns
from posse.results.page import Safe, bullets, join, page, table, tag
from posse.results.plots import pulls_per_arm, regret_curves, reward_curves, role_times, secure_against_plain
from posse.results.privacy import privacy
from posse.results.record import Record, several
from posse.results.statistics import standard_error
from posse.results.theme import inline, role_colour
from posse.results.words import common, flat, plural
from posse.version import __version__

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def write_report(records: Record | Iterable[Record], path: str | Path, notes: Sequence[str] = ()) -> Path:
    """Write the report of `render_report` to a file, whole or not at all, and return its path."""
    text = render_report(records, notes)
    with whole(path) as file:
        file.write(text.encode())
    return Path(path)


def render_report(records: Record | Iterable[Record], notes: Sequence[str] = ()) -> str:
    """Return a self-contained HTML page; `notes` are sentences of yours that go below the headline.

    Nothing on it is fetched from elsewhere and no script runs: it can be mailed, printed and kept. Text from records
    is escaped. Needs the extra `plot`.
    """
    chosen = several(records)
    if not chosen:
        raise DataError("a report needs at least one record.")
    parts = [_headline(chosen), bullets(notes) if notes else Safe("")]
    if len(chosen) > 1:
        parts.append(comparison(compare(chosen)))
    parts += [parties(chosen), figures(chosen), protection(chosen)]
    parts += [privacy(chosen), costs(chosen), details(chosen), _footer()]
    return page(_title(chosen), *(part for part in parts if part))


def _title(records: Sequence[Record]) -> str:
    names = list(dict.fromkeys(record.problem_name for record in records))
    return names[0] if len(names) == 1 else f"{len(records)} runs on {len(names)} problems"


def _headline(records: Sequence[Record]) -> Safe:
    first = records[0]
    over = f"Posse report · {first.kind} · {first.created[:10]}"
    cards = _cards(first) if len(records) == 1 else [_card_of(record) for record in records]
    return join(
        [tag("p", over, cls="over"), tag("h1", _title(records)), tag("p", _lead(records), cls="lead"),
         tag("div", join(cards), cls="cards")]
    )  # fmt: skip


def _lead(records: Sequence[Record]) -> str:
    first = records[0]
    said = first.words
    earned = said.priced(words.plus_minus(first.total_mean, standard_error(first.total)))
    over = f"over {words.count(first.budget, said.step)} ({words.count(first.runs, 'run')})"
    text = f"{first.label} earned {earned} {over} in {words.seconds(first.seconds)}."
    if not first.runs:
        text = f"{first.label} finished no run."
    if first.status != "finished":
        text += f" It was not finished: {first.state}."
    same = [record.label for record in records[1:] if identical(record, first)]
    what = f"Same {words.plural(said.pull)} and same {said.reward}"
    return text + (f" {what}, bit for bit: {', '.join(same)}." if same else "")


def _cards(record: Record) -> list[Safe]:
    earned = words.plus_minus(record.total_mean, standard_error(record.total))
    hops = f"{words.count(record.messages, 'message')}" if record.traffic else "no messages recorded"
    return [
        _card(earned, f"cumulative {record.words.earned}, mean ± standard error"),
        _card(words.seconds(record.seconds), f"CPU time, {words.count(record.runs, 'run')}"),
        _card(words.size(record.bytes), hops),
        _card(_level(record), "level of protection", warn=not record.protected),
    ]


def _card_of(record: Record) -> Safe:
    below = f"{record.label}, {words.seconds(record.seconds)}"
    earned = record.words.priced(words.plus_minus(record.total_mean, standard_error(record.total)))
    below += f", {remark(record.protection)}" if remark(record.protection) else ""
    return _card(earned, below, warn=not record.protected)


def _card(value: str, below: str, *, warn: bool = False) -> Safe:
    return tag("div", tag("b", value), tag("span", below), cls="card warn" if warn else "card")


def _level(record: Record) -> str:
    return "plain: none" if record.level == PLAIN else record.protection


def _footer() -> Safe:
    return tag("footer", tag("p", f"Written by Posse {__version__}. This page fetches nothing.", cls="soft"))


UNTWINNED = (PLAIN, ALONE, PLACEBO)
"""Levels that protect nothing, and so have no plain twin to be set beside."""


def figures(records: Sequence[Record]) -> Safe:
    """Return a section with every figure that these records allow, each with a caption."""
    parts = [
        tag("figure", Safe(inline(figure, prefix=f"f{i}", title=caption)), tag("figcaption", caption))
        for i, (figure, caption) in enumerate(_drawn(records))
    ]
    return join([tag("h2", "Figures"), *parts]) if parts else Safe("")


def twins(records: Sequence[Record]) -> tuple[Record, Record] | None:
    """Find a protected record and the plain one of the same policy and problem, in this order."""
    for secure in records:
        for plain in records:
            alike = secure.policy == plain.policy and secure.problem == plain.problem
            # The twin of another level breaks ties elsewhere: it is not what this run would be without protection.
            alike = alike and plain.summary.get("twin_of", secure.level) == secure.level
            if secure.level not in UNTWINNED and plain.level == PLAIN and alike and secure.runs and plain.runs:
                return secure, plain
    return None


def _drawn(records: Sequence[Record]) -> Iterator[tuple[Figure, str]]:
    ran = [record for record in records if record.runs]
    curved = [record for record in ran if record.steps.size]
    said = common(record.words for record in ran)
    pair = twins(curved)
    if pair:
        yield (
            secure_against_plain(*pair),
            f"{_beside(pair[0])} against plain: {said.reward} over the {plural(said.step)}, and time taken.",
        )
    if curved:
        yield reward_curves(curved), f"Cumulative {said.reward}, the mean over runs."
    regretful = [record for record in curved if record.regret is not None]
    if regretful:
        yield regret_curves(regretful), _regret_told(regretful)
    for group in _same_arms([record for record in ran if 0 < record.arms <= 200]):
        names = "" if len(group) > 1 else f" by {group[0].label}"
        yield pulls_per_arm(group), f"{common(record.words for record in group).pulled}{names}."
    # Shares of one role alone are all 100 %.
    if len({role for record in records for role, taken in record.role_seconds.items() if taken > 0}) > 1:
        yield role_times(records), "CPU time by role."


def _regret_told(records: Sequence[Record]) -> str:
    told = common(record.words for record in records).regret_told
    best = "the best arm of every context"
    return told.replace("the best arm", best) if all(record.contextual for record in records) else told


def _beside(record: Record) -> str:
    return "Protected" if record.protected else f"Level {record.protection},"


def _same_arms(records: Sequence[Record]) -> list[list[Record]]:
    groups: dict[tuple[str, ...], list[Record]] = {}
    for record in records:
        groups.setdefault(record.arm_names, []).append(record)
    return list(groups.values())


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


def protection(records: Sequence[Record]) -> Safe:
    """Say which protection was on, and what was not protected."""
    parts = [tag("h2", "What is not protected")]
    for level_, leaks in _by_level(records).items():
        parts += [tag("h3", level(level_)), bullets(leaks or (_unsaid(level_, records),))]
    return join(parts)


def costs(records: Sequence[Record]) -> Safe:
    """Return what a step costs, time by role and traffic by hop, for the records that have them."""
    parts = []
    for record in records:
        tables = [part for part in (_step(record), _times(record), _traffic(record)) if part]
        heading = [tag("h3", record.label, " ", tag("code", record.id))] if len(records) > 1 and tables else []
        parts += [*heading, *tables]
    return join([tag("h2", "Time and traffic"), *parts]) if parts else Safe("")


def details(records: Sequence[Record]) -> Safe:
    """Return configuration, problem, figures and seeds of each record, folded away where there are several."""
    parts = []
    for record in records:
        head = tag("summary", record.label, " ", tag("code", record.id))
        folded = {} if len(records) > 1 else {"open": ""}
        parts.append(tag("details", head, _facts(record), **folded))
    return join([tag("h2", "Configuration"), *parts])


def level(name: str) -> Safe:
    """Mark a protection (`Record.protection`); plain, or a part of it switched off, is a warning (`levels`)."""
    return tag("span", told(name), cls=f"tag {'warn' if warns(name) else ''}")


def _unsaid(level_: str, records: Sequence[Record]) -> str:
    if level_ == ALONE:
        party = common(record.words for record in records).party
        return f"Nothing is shared: each {party} keeps what it knows, and learns nothing from the others."
    return "These records do not say what leaks. Do not take that for nothing."


def _facts(record: Record) -> Safe:
    facts = [("kind", record.kind), ("status", record.state), ("created", record.created), ("version", record.version)]
    # Its words are how the page reads, not what was learnt.
    problem = {key: value for key, value in record.problem.items() if key != "words"}
    tables = [("Run", facts), ("Configuration", flat(record.config)), ("Problem", flat(problem))]
    if record.summary:
        tables.append(("Summary", flat(record.summary)))
    parts = [join([tag("h3", name), table(("key", "value"), rows)]) for name, rows in tables if rows != [("", "{}")]]
    return join([*parts, tag("h3", "World seeds"), _seeds(record)])


def _seeds(record: Record) -> Safe:
    if not record.seeds:
        return tag("p", f"None: the {words.plural(record.words.reward)} came from the world, not from a simulation.")
    shown = ", ".join(str(seed) for seed in record.seeds[:50])
    more = f", … ({len(record.seeds):,} in all)" if len(record.seeds) > 50 else ""
    what = f"World seed of a simulation, one a run; whoever knows it knows every {record.words.reward}: "
    return tag("p", what, tag("code", shown + more))


def _step(record: Record) -> Safe:
    rows = step_costs(record)
    return table((f"a {record.words.step}", "costs"), rows, numeric=(1,)) if rows else Safe("")


def _times(record: Record) -> Safe:
    whole = sum(record.role_seconds.values())
    rows = [
        (join([tag("span", cls="dot", style=f"background:{role_colour(role)}"), tag("span", role)], ""),
         words.seconds(value), f"{value / whole:.1%}" if whole else words.UNKNOWN)
        for role, value in sorted(record.role_seconds.items(), key=lambda item: -item[1])
    ]  # fmt: skip
    return table(("role", "CPU time", "share"), rows, numeric=(1, 2)) if rows else Safe("")


def _traffic(record: Record) -> Safe:
    rows = [(hop.hop.replace("->", "→"), f"{hop.messages:,}", words.size(hop.bytes)) for hop in record.traffic]
    if len(rows) > 1:
        rows.append(("all", f"{record.messages:,}", words.size(record.bytes)))
    return table(("hop", "messages", "bytes"), rows, numeric=(1, 2)) if rows else Safe("")


def _same(row: ComparedRun, *, first: bool) -> Safe | str:
    if first:
        return words.UNKNOWN
    return tag("span", "identical", cls="tag good") if row.identical else "no"


def _by_level(records: Sequence[Record]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for record in records:
        said = found.setdefault(record.protection, [])
        said += [leak for leak in record.leaks if leak not in said]
    return found


_PARTY = "party"


def step_costs(record: Record) -> list[tuple[str, str]]:
    """Return lines of a table, what and how much; none for a record that does not count rounds.

    >>> from posse.results.example import example_record
    >>> step_costs(example_record())
    []
    >>> made = example_record(summary={"rounds_a_step": 11, "bytes_a_step_sent_by_a_party": 41_303})
    >>> step_costs(made)[:2]
    [('rounds', '11'), ('bytes that a party sends', '41.3 kB')]
    """
    rounds, steps = record.summary.get("rounds_a_step"), record.steps_done
    if not isinstance(rounds, int | float) or not steps:
        return []
    rows = [("rounds", words.number(rounds, 3))]
    together = record.summary.get("model_frozen_for_steps")
    if together is not None:
        rows.append((f"{words.plural(record.words.step)} that share rounds and a model", str(together)))
    for what, key in (("sends", "bytes_a_step_sent_by_a_party"), ("is dealt", "bytes_a_step_dealt_to_a_party")):
        size = record.summary.get(key)
        rows += [(f"bytes that a party {what}", words.size(int(size)))] if isinstance(size, int | float) else []
    return [*rows, *_step_times(record, steps), *_planned(record)]


def _step_times(record: Record, steps: int) -> list[tuple[str, str]]:
    parties = max(1, len(record.party_names))
    found = []
    for role, spent in record.role_seconds.items():
        each = spent / steps / (parties if role == _PARTY else 1)
        found.append((f"CPU time of {'each' if role == _PARTY else 'the'} {role}", words.seconds(each)))
    return found


def _planned(record: Record) -> list[tuple[str, str]]:
    """Tell what the same rounds would take between machines; an estimate, and called one."""
    latency, one = (record.summary.get(key) for key in ("latency_ms", "planned_seconds_a_step"))
    if not isinstance(latency, int | float) or not isinstance(one, int | float):
        return []
    bandwidth = record.config.get("bandwidth")
    wire = f" and {bandwidth:g} Mbit/s" if isinstance(bandwidth, int | float) else ""
    every = words.count(record.budget, record.words.step)
    there = f"estimated time at {latency:g} ms one way{wire}"
    return [(there, words.seconds(one)), (f"the same for all {every}", words.seconds(one * record.budget))]
