"""One HTML page about one run or several: what was earned, what it cost, what was protected and
what was not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from posse.core.errors import DataError, MissingExtraError
from posse.core.files import open_whole
from posse.core.statistics import standard_error
from posse.results import plots, words
from posse.results.compare import Comparison, compare, identical
from posse.results.joining import parties
from posse.results.naming import ALONE, PLACEBO, PLAIN, described, labels
from posse.results.record import Record, several
from posse.results.reports import audits
from posse.results.reports.answers import CHANCE, Answer, answer, sentence
from posse.results.reports.page import Safe, bullets, fragment, join, page, table, tag
from posse.results.reports.sections import (
    Named,
    comparison,
    costs,
    details,
    privacy,
    protection,
    systems,
)
from posse.results.words import common, plural
from posse.version import __version__

UNTWINNED = (PLAIN, ALONE, PLACEBO)
"""Levels that protect nothing, and so have no plain twin to stand beside."""


def report(records: Record | Iterable[Record], path: str | Path, notes: Sequence[str] = ()) -> Path:
    """Write the page of `render_report` to a file, whole or not at all, and return its path."""
    text = render_report(records, notes)
    with open_whole(path) as file:
        file.write(text.encode())
    return Path(path)


def render_report(records: Record | Iterable[Record], notes: Sequence[str] = ()) -> str:
    """Return a self-contained HTML page; `notes` are sentences of yours that go below the headline.

    Nothing on it is fetched from elsewhere and no script runs: it can be mailed, printed and kept.
    Text from records is escaped. Needs the extra `plot`.
    """
    chosen = several(records)
    if not chosen:
        raise DataError("a report needs at least one record.")
    named = list(zip(chosen, labels(chosen), strict=True))
    colours = list(
        plots.role_colours(
            chosen, {kind for record in chosen for kind in record.role_seconds}
        ).values()
    )
    parts = [_headline(named), _warnings(named), bullets(notes) if notes else Safe("")]
    tables = [systems(named), comparison(compare(chosen)) if len(chosen) > 1 else Safe("")]
    money = parties(chosen)  # what parties earned, and what to do, comes before a table of runs
    parts += [money, *tables] if money else tables[::-1]
    parts += [_figures(named, colours), protection(chosen), privacy(chosen)]
    parts += [audits.page_part(named), costs(named), details(named), _footer()]
    return page(_title(chosen), *(part for part in parts if part), style=plots.dark_style(colours))


def _title(records: Sequence[Record]) -> str:
    names = list(dict.fromkeys(record.problem_name for record in records))
    return names[0] if len(names) == 1 else f"{len(records)} runs on {len(names)} problems"


def _headline(named: Named) -> Safe:
    records = [record for record, _ in named]
    said = answer(records, [label for _, label in named])
    titles = ", ".join(dict.fromkeys(record.title for record in records))
    cards = [
        tag(
            "div",
            tag("b", card.value),
            tag("span", card.below),
            cls="card alarm" if card.alarm else "card",
        )
        for card in said.cards
    ]
    over = f"Posse report · {titles} · {_title(records)} · {records[0].created[:10]}"
    parts = [
        tag("p", over, cls="over"),
        tag("h1", said.headline),
        tag("p", " ".join(said.sentences), cls="lead"),
    ]
    return join([*parts, *([tag("div", join(cards), cls="cards")] if cards else []), _bars(said)])


def _bars(said: Answer) -> Safe:
    """Draw averages on one scale, from 0 (or the smallest, where one is below)."""
    if not said.bars:
        return Safe("")
    low = min(0.0, *(bar.value for bar in said.bars))
    whole = (max(bar.value for bar in said.bars) - low) or 1.0
    rows = [
        tag(
            "div",
            tag("span", bar.label, cls="name"),
            tag(
                "span",
                tag("i", style=f"width:{100 * max(0.0, bar.value - low) / whole:.1f}%"),
                cls="track",
            ),
            tag("b", bar.text),
            cls="bar yardstick" if bar.yardstick else "bar",
        )
        for bar in said.bars
    ]
    return join([tag("h2", said.measured), tag("div", join(rows), cls="bars")])


def _warnings(named: Named) -> Safe:
    pairs = [
        (f"{label}: " if len(named) > 1 else "", one)
        for record, label in named
        for one in record.warnings
    ]
    return join([tag("p", tag("b", "Warning: "), whose, one, cls="alert") for whose, one in pairs])


def _footer() -> Safe:
    return tag(
        "footer",
        tag("p", f"Written by Posse {__version__}. This page fetches nothing.", cls="soft"),
    )


def _figures(named: Named, colours: Sequence[tuple[str, str]]) -> Safe:
    """Return a section with every figure that these records allow, each with a caption."""
    parts = [
        tag(
            "figure",
            Safe(plots.inline(figure, prefix=f"f{i}", title=caption, colours=colours)),
            tag("figcaption", caption),
        )
        for i, (figure, caption) in enumerate(_drawn(named))
    ]
    return (
        join([tag("h2", "Figures"), tag("div", join(parts), cls="figures")]) if parts else Safe("")
    )


def _drawn(named: Named) -> Iterator[tuple[plots.Figure, str]]:
    """Draw each thing once: curves of runs that are equal bit for bit lie on each other and are
    drawn as one.
    """
    curved = [(record, label) for record, label in named if record.runs and record.steps.size]
    nouns = common(record.words for record, _ in named)
    pair = twins([record for record, _ in curved])
    distinct = _distinct(curved)
    if pair and len(curved) == 2:
        names = [label for record in pair for one, label in curved if one is record]
        yield (
            plots.secure_against_plain(*pair, labels=names[:2]),
            f"{_beside(pair[0])} against plain: {nouns.reward} over the {plural(nouns.step)}, and "
            "time taken.",
        )
    elif curved and not _learning(distinct):
        yield (
            plots.reward_curves(*_apart(distinct)),
            f"Cumulative {nouns.reward}, the mean over runs.",
        )
    if _learning(distinct):
        yield (
            plots.reward_rates(*_apart(distinct)),
            f"{nouns.reward.capitalize()} of a {nouns.step} on the way.",
        )
    regretful = [(record, label) for record, label in distinct if record.regret is not None]
    if regretful:
        yield (
            plots.regret_curves(*_apart(regretful)),
            _regret_caption([record for record, _ in regretful]),
        )
    for name in plots.shared_curves([record for record, _ in distinct]):
        yield plots.shown_curves(*_apart(distinct), name=name), f"{name[:1].upper()}{name[1:]}."
    # One bar compares with nothing: an owner of a deployment knows its own arm alone.
    pulled = [(record, label) for record, label in named if record.runs and 1 < record.arms <= 200]
    for group in _same_arms(_distinct(pulled)):
        drawn, names = _apart(group)
        by = "" if len(group) > 1 else f" by {names[0]}"
        yield (
            plots.pulls_per_arm(drawn, names),
            f"{common(record.words for record in drawn).pulled}{by}.",
        )
    # Shares of one role alone are all 100 %; of one record the table of costs says the same.
    timed = [
        (record, label)
        for record, label in named
        if len([x for x in record.role_seconds.values() if x > 0]) > 1
    ]
    if len(timed) > 1:
        yield plots.role_times(*_apart(timed)), "CPU time by role."


def _distinct(named: Named) -> list[tuple[Record, str]]:
    kept: list[tuple[Record, str]] = []
    for record, label in named:
        if not any(identical(record, other) for other, _ in kept):
            kept.append((record, label))
    return kept


def _learning(named: Named) -> bool:
    """Return whether these are runs that learn from contexts: what a round earns then grows, and
    the sum hides it.
    """
    return bool(named) and all(
        record.summary.get(CHANCE) is not None and _winnerless(record) for record, _ in named
    )


def _winnerless(record: Record) -> bool:
    return record.show.get("learnt") != {}


def _apart(named: Named) -> tuple[list[Record], list[str]]:
    return [record for record, _ in named], [label for _, label in named]


def twins(records: Sequence[Record]) -> tuple[Record, Record] | None:
    """Return a protected record and the plain one of the same policy and problem; None where there
    is no such pair.
    """
    for secure in records:
        for plain in records:
            alike = secure.policy == plain.policy and secure.problem == plain.problem
            # The twin of another level may draw in another order: it is not this run without
            # protection.
            alike = alike and plain.summary.get("twin_of", secure.level) == secure.level
            if (
                secure.level not in UNTWINNED
                and plain.level == PLAIN
                and alike
                and secure.runs
                and plain.runs
            ):
                return secure, plain
    return None


def _regret_caption(records: Sequence[Record]) -> str:
    caption = common(record.words for record in records).regret_caption
    best = "the best arm of every context"
    return (
        caption.replace("the best arm", best)
        if all(record.contextual for record in records)
        else caption
    )


def _beside(record: Record) -> str:
    return "Protected" if record.protected else f"Level {record.protection},"


def _same_arms(named: Named) -> list[list[tuple[Record, str]]]:
    groups: dict[tuple[str, ...], list[tuple[Record, str]]] = {}
    for record, label in named:
        groups.setdefault(record.arm_names, []).append((record, label))
    return list(groups.values())


def card(record: Record) -> str:
    """Return a record as a notebook shows it: headline, a small table, what is not protected, and
    its curve.

    The curve is left out where matplotlib is not installed.
    """
    (label,) = labels([record])
    earned = record.words.priced(words.plus_minus(record.total_mean, standard_error(record.total)))
    facts = {
        "system": record.title,
        "data": record.problem_name,
        "protection": described(record.protection),
        record.words.reward: earned if record.total else "not known",
        record.words.regret: words.number(record.regret_mean) if record.regret is not None else "",
        "CPU time": words.seconds(record.seconds) if record.seconds else "",
        "traffic": f"{words.count(record.messages, 'message')}, {words.size(record.bytes)}"
        if record.traffic
        else "",
    }
    parts = [
        tag("p", tag("b", label), " ", tag("code", record.id)),
        tag("p", sentence(record, label)),
        *(tag("p", tag("b", "Warning: "), one) for one in record.warnings),
        table(("", ""), [(name, value) for name, value in facts.items() if value]),
    ]
    if record.leaks:
        summary = tag("summary", f"What is not protected ({len(record.leaks)})")
        parts.append(tag("details", summary, bullets(record.leaks)))
    if record.runs and record.steps.size:
        with suppress(MissingExtraError):
            figure = plots.reward_curves(record)
            caption = f"Cumulative {record.words.reward} of {label}"
            parts.append(Safe(plots.inline(figure, prefix=f"posse-{record.id}", title=caption)))
    return fragment(*parts)


def compared_card(compared: Comparison) -> str:
    """Return a comparison as a notebook shows it: the answer, the table, and curves where there are
    some.
    """
    names = [row.label for row in compared.rows]
    parts = []
    if compared.records:
        said = answer(compared.records, names)
        parts += [tag("h2", said.headline), tag("p", " ".join(said.sentences))]
    parts.append(comparison(compared))
    curved = _distinct(
        [pair for pair in zip(compared.records, names, strict=False) if pair[0].steps.size]
    )
    if curved and all(record.runs for record, _ in curved):
        with suppress(MissingExtraError):
            figure = plots.reward_curves(*_apart(curved))
            ids = "-".join(record.id for record, _ in curved)
            title = f"Cumulative {compared.words.reward}"
            parts.append(Safe(plots.inline(figure, prefix=f"posse-{ids}", title=title)))
    return fragment(*parts)
