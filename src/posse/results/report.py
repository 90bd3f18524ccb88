"""One HTML page about one run or several: what was earned, what it cost, what was protected and what was not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from posse.core.errors import DataError
from posse.results import levels, sections, spent, words, worth
from posse.results.bands import standard_error
from posse.results.compare import compare, identical
from posse.results.figures import figures
from posse.results.files import whole
from posse.results.frames import several
from posse.results.markup import Safe, bullets, join, tag
from posse.results.page import page
from posse.results.record import RunRecord
from posse.version import __version__


def write_report(records: RunRecord | Iterable[RunRecord], path: str | Path, notes: Sequence[str] = ()) -> Path:
    """Write the report of `render_report` to a file, whole or not at all, and return its path."""
    text = render_report(records, notes)
    with whole(path) as file:
        file.write(text.encode())
    return Path(path)


def render_report(records: RunRecord | Iterable[RunRecord], notes: Sequence[str] = ()) -> str:
    """Return a self-contained HTML page; `notes` are sentences of yours that go below the headline.

    Nothing on it is fetched from elsewhere and no script runs: it can be mailed, printed and kept. Text from records
    is escaped. Needs the extra `plot`.
    """
    chosen = several(records)
    if not chosen:
        raise DataError("a report needs at least one record.")
    parts = [_headline(chosen), bullets(notes) if notes else Safe("")]
    if len(chosen) > 1:
        parts.append(sections.comparison(compare(chosen)))
    parts += [worth.parties(chosen), figures(chosen), sections.protection(chosen)]
    parts += [spent.privacy(chosen), sections.costs(chosen), sections.details(chosen), _footer()]
    return page(_title(chosen), *(part for part in parts if part))


def _title(records: Sequence[RunRecord]) -> str:
    names = list(dict.fromkeys(record.problem_name for record in records))
    return names[0] if len(names) == 1 else f"{len(records)} runs on {len(names)} problems"


def _headline(records: Sequence[RunRecord]) -> Safe:
    first = records[0]
    over = f"Posse report · {first.kind} · {first.created[:10]}"
    cards = _cards(first) if len(records) == 1 else [_card_of(record) for record in records]
    return join(
        [tag("p", over, cls="over"), tag("h1", _title(records)), tag("p", _lead(records), cls="lead"),
         tag("div", join(cards), cls="cards")]
    )  # fmt: skip


def _lead(records: Sequence[RunRecord]) -> str:
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


def _cards(record: RunRecord) -> list[Safe]:
    earned = words.plus_minus(record.total_mean, standard_error(record.total))
    hops = f"{words.count(record.messages, 'message')}" if record.traffic else "no messages recorded"
    return [
        _card(earned, f"cumulative {record.words.earned}, mean ± standard error"),
        _card(words.seconds(record.seconds), f"CPU time, {words.count(record.runs, 'run')}"),
        _card(words.size(record.bytes), hops),
        _card(_level(record), "level of protection", warn=not record.protected),
    ]


def _card_of(record: RunRecord) -> Safe:
    below = f"{record.label}, {words.seconds(record.seconds)}"
    earned = record.words.priced(words.plus_minus(record.total_mean, standard_error(record.total)))
    remark = levels.remark(record.protection)
    below += f", {remark}" if remark else ""
    return _card(earned, below, warn=not record.protected)


def _card(value: str, below: str, *, warn: bool = False) -> Safe:
    return tag("div", tag("b", value), tag("span", below), cls="card warn" if warn else "card")


def _level(record: RunRecord) -> str:
    return "plain: none" if record.level == levels.PLAIN else record.protection


def _footer() -> Safe:
    return tag("footer", tag("p", f"Written by Posse {__version__}. This page fetches nothing.", cls="soft"))
