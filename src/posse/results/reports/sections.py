"""What a report says in words and tables: a comparison, what systems want shown, protection,
privacy spent, costs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from posse.results import words
from posse.results.compare import ComparedRun, Comparison
from posse.results.naming import ALONE, PLAIN, described, labels, warns
from posse.results.plots import page_colour, role_colours
from posse.results.record import Record, several
from posse.results.reports.page import Safe, bullets, join, table, tag
from posse.results.values import JSON, flat
from posse.results.words import common, words_of

Named = Sequence[tuple[Record, str]]
"""Records with their labels."""

Entry = dict[str, JSON]

HOLLOW = 20.0
"""Epsilon above which odds may change more than e^20, half a billion times: it is no promise by
itself.
"""

_LEFT_OUT = ("not_covered", "not covered")
_SAID_ELSEWHERE = (
    "epsilon",
    "delta",
    "unit",
    "adjacency",
    "party",
    "covers",
    "sentence",
    *_LEFT_OUT,
)

LONG = 8
"""A ledger with more rows than this is folded away."""

OPEN = 4
"""Caveats that stand open in a list; the others are folded."""


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
            "title": self.title,
            "columns": list(self.columns),
            "rows": [list(row) for row in self.rows],
            "notes": list(self.notes),
            "numeric": list(self.numeric),
        }


def sections(
    records: Record | Iterable[Record], names: Sequence[str] | None = None
) -> list[Section]:
    """Return the tables that the systems of these records want shown (`Record.show`).

    Tables of two columns that several records have under one title stand side by side, a column a
    record.
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
    """Return the tables of the systems as parts of a page; of one title the first stands open."""
    parts: list[Safe] = []
    seen: set[str] = set()
    for one in sections([record for record, _ in named], [label for _, label in named]):
        heading = ": ".join(part for part in (one.title, one.label) if part)
        body = [table(one.columns, one.rows, numeric=one.numeric)] if one.rows else []
        body += [tag("p", note, cls="soft") for note in one.notes]
        if heading and one.title in seen:
            parts.append(tag("details", tag("summary", heading), *body))
        else:
            parts += [*([tag("h2", heading)] if heading else []), *body]
        seen.add(one.title)
    return join(parts)


def comparison(compared: Comparison) -> Safe:
    """Return the table of a comparison, and its notes."""
    header = (
        "run",
        "level",
        "runs",
        compared.words.earned,
        "difference",
        "same run",
        "time",
        "ratio",
        "traffic",
    )
    rows = [
        (
            join([tag("span", row.label), Safe("<br>"), tag("code", row.id)]),
            level(row.protection),
            f"{row.runs:,}",
            words.plus_minus(row.mean, row.error),
            words.plus_minus(row.difference, row.difference_error),
            _same(row, first=i == 0),
            words.seconds(row.seconds),
            words.ratio(row.ratio),
            words.size(row.bytes),
        )
        for i, row in enumerate(compared.rows)
    ]
    reward = compared.words.reward.capitalize()
    note = (
        f"{reward} is the mean total of a run ± its standard error; difference and ratio are to "
        "the first line."
    )
    parts = [
        tag("h2", "Comparison"),
        table(header, rows, numeric=(2, 3, 4, 6, 7, 8)),
        tag("p", note, cls="soft"),
    ]
    return join([*parts, bullets(compared.notes) if compared.notes else Safe("")])


def _same(row: ComparedRun, *, first: bool) -> Safe | str:
    if first:
        return words.UNKNOWN
    return tag("span", "identical", cls="tag good") if row.identical else "no"


def protection(records: Sequence[Record]) -> Safe:
    """Say at each protection what is protected and what each role learns, beside what is not
    protected.
    """
    protects, learns, leaks = (
        _by_protection(records, what) for what in ("protects", "learns", "leaks")
    )
    parts = [tag("h2", "Protection")]
    for name, sentences in leaks.items():
        left = [
            tag("h3", "What is protected"),
            *(tag("p", one) for one in protects[name] or [_bare(name, learns[name])]),
        ]
        left += [tag("h4", "What each role learns"), folded(learns[name])] if learns[name] else []
        right = [tag("h3", "What is not protected"), folded(sentences or [_unsaid(name, records)])]
        parts.append(
            join(
                [
                    tag("p", level(name)),
                    tag("div", tag("div", *left), tag("div", *right), cls="sides"),
                ]
            )
        )
    return join(parts)


def folded(sentences: Sequence[str]) -> Safe:
    """List sentences; of many the first few, and the others folded."""
    if len(sentences) <= OPEN + 1:
        return bullets(sentences)
    more = tag("summary", f"{len(sentences) - OPEN} more")
    return join([bullets(sentences[:OPEN]), tag("details", more, bullets(sentences[OPEN:]))])


def _bare(name: str, learnt: Sequence[str]) -> str:
    if name == ALONE:
        return "Nothing is shared, so that there is nothing to protect."
    if name.startswith(PLAIN):
        return "Nothing: it ran without protection."
    return "All but what each role learns." if learnt else "These records do not say."


def level(name: str) -> Safe:
    """Mark a protection (`Record.protection`); one of which a part is switched off is an alarm."""
    return tag("span", described(name), cls="tag alarm" if warns(name) else "tag")


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
        return (
            f"Nothing is shared: each {party} keeps what it knows, and learns nothing from the "
            "others."
        )
    return "These records do not say what leaks. Do not take that for nothing."


@dataclass(frozen=True)
class Guarantee:
    """One composed guarantee and the parties that have it."""

    label: str
    """The record it is of."""
    parties: tuple[str, ...]
    entry: Entry
    """Its rows in the ledger, less the party."""

    @property
    def figure(self) -> str:
        """The two numbers, which always stand together; an epsilon of None is one that is not
        finite.
        """
        epsilon = self.entry["epsilon"]
        return (
            f"{'no finite ε' if epsilon is None else f'ε = {up(epsilon)}'} at δ = "
            f"{up(self.entry.get('delta'))}"
        )

    @property
    def hollow(self) -> str:
        """Say it where the figure is true and promises nothing; else nothing."""
        epsilon = self.entry["epsilon"]
        if epsilon is None:
            return "This is no promise at all."
        if not isinstance(epsilon, int | float) or epsilon <= HOLLOW:
            return ""
        return f"True, but an ε above {HOLLOW:g} promises nothing by itself."

    @property
    def unit(self) -> str:
        """What is protected: in words where the entry has them, and by the name of the unit and its
        neighbours.
        """
        unit = words_of(self.entry.get("unit") or "not stated")
        facts = [f"unit {unit}"] if (covers := _items(self.entry.get("covers"))) else []
        facts += [f"adjacency {text}" for text in _items(self.entry.get("adjacency"))]
        return f"for {words.listed(covers) if covers else f'unit {unit}'}" + (
            f" ({'; '.join(facts)})" if facts else ""
        )

    @property
    def how(self) -> str:
        """How it was composed, and all else that the entry says."""
        others = {
            key.replace("_", " "): value
            for key, value in self.entry.items()
            if key not in _SAID_ELSEWHERE
        }
        return ", ".join(f"{key}: {words_of(value)}" for key, value in others.items())

    def sentence(self, party: str = "party") -> str:
        """Say all of it in one sentence; `party` is the system's word."""
        how = f"; {self.how}" if self.how else ""
        hollow = f" {self.hollow}" if self.hollow else ""
        return f"{self.label}{self.whose(party)}: {self.figure} {self.unit}{how}.{hollow}"

    def whose(self, party: str) -> str:
        """Say whose guarantee it is: a name, or how many share it."""
        if len(self.parties) > 1:
            return f", each of {words.count(len(self.parties), party)}"
        return f", {self.parties[0]}" if self.parties else ""


def composed(entry: Entry) -> bool:
    """Return whether an entry is a composed guarantee: it has an epsilon, and says how it was
    composed.
    """
    return "epsilon" in entry and "composition" in entry


def guarantees(records: Iterable[Record]) -> list[Guarantee]:
    """Collect the composed guarantees; parties of one record with the same one share a line."""
    chosen = tuple(records)
    promised: list[Guarantee] = []
    for record, label in zip(chosen, labels(chosen), strict=True):
        groups: dict[str, tuple[list[str], Entry]] = {}
        for entry in filter(composed, map(dict, record.privacy)):
            party = entry.pop("party", None)
            parties, _ = groups.setdefault(repr(sorted(entry.items())), ([], entry))
            parties += [] if party is None else [words_of(party)]
        promised += [Guarantee(label, tuple(parties), entry) for parties, entry in groups.values()]
    return promised


def ledger(record: Record) -> list[Entry]:
    """Return the entries of single releases, without what is said once for all (`not_covered`)."""
    entries = [dict(entry) for entry in record.privacy if not composed(dict(entry))]
    return [
        {key: value for key, value in entry.items() if key not in _LEFT_OUT} for entry in entries
    ]


def not_covered(records: Iterable[Record]) -> list[str]:
    """Collect what the guarantees leave out, each once."""
    sentences: dict[str, None] = {}
    for record in records:
        for entry in record.privacy:
            sentences |= dict.fromkeys(item for key in _LEFT_OUT for item in _items(entry.get(key)))
    return list(sentences)


def _items(value: JSON) -> list[str]:
    """Write a list item by item, anything else as the only one."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [words_of(item) for item in value]
    return [words_of(value)] if value else []


def up(value: JSON) -> str:
    """Write an epsilon or a delta with four digits, rounded up: a guarantee is never shown as
    better than it is.

    >>> up(0.211012), up(1e-5), up(0.9999999), up(0.1459), up(245132.7), up(None)
    ('0.2111', '1e-05', '1', '0.1459', '245,200', 'not stated')
    """
    if not isinstance(value, int | float):
        return "not stated" if value is None else words_of(value)
    if value <= 0 or not math.isfinite(value):
        return f"{value:g}"
    near = float(f"{value:.3e}")
    step = 10.0 ** (math.floor(math.log10(value)) - 3)
    above = near if near >= value else near + step
    return f"{above:,.0f}" if 1e4 <= above < 1e15 else f"{above:.4g}"


def privacy(records: Sequence[Record]) -> Safe:
    """Return what was spent, whole: an epsilon never stands without its delta and its unit."""
    spending = [record for record in records if record.privacy]
    if not spending:
        return Safe("")
    party = common(record.words for record in spending).party
    cards = [_guarantee(guarantee, party) for guarantee in guarantees(records)]
    parts = [
        tag("h2", "Privacy spent"),
        *([tag("div", join(cards), cls="promises")] if cards else []),
    ]
    named = zip(records, labels(records), strict=True)
    parts += [
        _ledger(record, label, named=len(records) > 1) for record, label in named if ledger(record)
    ]
    left_out = not_covered(spending)
    if not left_out:
        return join(parts)
    return join(
        [
            *parts,
            tag("details", tag("summary", f"Not covered ({len(left_out)})"), bullets(left_out)),
        ]
    )


def _guarantee(guarantee: Guarantee, party: str) -> Safe:
    below = [
        tag("span", guarantee.unit, cls="unit"),
        tag("span", f"{guarantee.label}{guarantee.whose(party)}"),
    ]
    names = [tag("span", words.listed(guarantee.parties))] if len(guarantee.parties) > 1 else []
    how = [tag("span", f"{guarantee.how[0].upper()}{guarantee.how[1:]}.")] if guarantee.how else []
    hollow = [tag("span", guarantee.hollow, cls="hollow")] if guarantee.hollow else []
    return tag("div", tag("b", guarantee.figure), *below, *hollow, *names, *how, cls="card")


def _ledger(record: Record, label: str, *, named: bool) -> Safe:
    entries = ledger(record)
    keys = list(dict.fromkeys(key for entry in entries for key in entry))
    numeric = [
        i for i, key in enumerate(keys) if all(_is_number(entry.get(key)) for entry in entries)
    ]
    rows = ([_cell(entry, key) for key in keys] for entry in entries)
    header = [record.words.party if key == "party" else key.replace("_", " ") for key in keys]
    shown = table(header, rows, numeric=numeric)
    title = f"Ledger of {label}: {words.count(len(entries), 'entry')}"
    if len(entries) > LONG:
        return tag("details", tag("summary", title, " ", tag("code", record.id)), shown)
    return join([tag("h3", title, " ", tag("code", record.id)), shown]) if named else shown


def _cell(entry: Entry, key: str) -> str:
    value = entry.get(key, words.UNKNOWN)
    if isinstance(value, float):
        return up(value) if key in ("epsilon", "delta") else f"{value:.4g}"
    if isinstance(value, dict):
        return ", ".join(f"{name} {words_of(one)}" for name, one in flat(value))
    return words_of(value)


def _is_number(value: JSON) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def costs(named: Named) -> Safe:
    """Return time by role and traffic by hop, for the records that have them."""
    kinds = dict.fromkeys(kind for record, _ in named for kind in record.role_seconds)
    colours = role_colours([record for record, _ in named], kinds)
    parts = []
    for record, label in named:
        tables = [part for part in (_times(record, colours), _traffic(record)) if part]
        heading = (
            [tag("h3", label, " ", tag("code", record.id))] if len(named) > 1 and tables else []
        )
        parts += [*heading, *tables]
    return join([tag("h2", "Time and traffic"), *parts]) if parts else Safe("")


REST = "rest of the process"
"""Row of the CPU time that no role took: the simulated world, messages on their way, the record."""


def times(record: Record) -> dict[str, float]:
    """Return CPU time by role, the most first, and last what the process took beside them (`REST`).

    Records of several processes may have more time of roles than of the process that wrote them,
    and then no rest.
    """
    roles = dict(sorted(record.role_seconds.items(), key=lambda item: -item[1]))
    rest = record.seconds - sum(roles.values())
    return {**roles, REST: rest} if roles and rest > 0.001 * record.seconds else roles


def _times(record: Record, colours: dict[str, tuple[str, str]]) -> Safe:
    shown = times(record)
    whole = sum(shown.values())
    rows: list[tuple[Safe | str, str, str]] = [
        (
            _role(record, kind, colours),
            words.seconds(value),
            f"{value / whole:.1%}" if whole else words.UNKNOWN,
        )
        for kind, value in shown.items()
    ]
    if len(rows) > 1:
        rows.append(("all", words.seconds(whole), "100.0%"))
    made = table(("role", "CPU time", "share"), rows, numeric=(1, 2)) if rows else Safe("")
    note = tag(
        "p",
        f"{REST.capitalize()}: the simulated world, passing messages on, keeping the record.",
        cls="soft",
    )
    return join([made, note]) if REST in shown else made


def _role(record: Record, kind: str, colours: dict[str, tuple[str, str]]) -> Safe | str:
    if kind == REST:
        return REST
    dot = tag("span", cls="dot", style=f"background:{page_colour(colours[kind])}")
    return join([dot, tag("span", record.role_label(kind))], "")


def _traffic(record: Record) -> Safe:
    rows = [
        (hop.hop.replace("->", "→"), f"{hop.messages:,}", words.size(hop.bytes))
        for hop in record.traffic
    ]
    if len(rows) > 1:
        rows.append(("all", f"{record.messages:,}", words.size(record.bytes)))
    return table(("hop", "messages", "bytes"), rows, numeric=(1, 2)) if rows else Safe("")


def details(named: Named) -> Safe:
    """Return configuration, problem, figures and seeds of each record, folded away."""
    parts = []
    for record, label in named:
        head = tag("summary", label, " ", tag("code", record.id))
        parts.append(tag("details", head, _facts(record)))
    return join([tag("h2", "Configuration"), *parts])


def _facts(record: Record) -> Safe:
    facts = {
        "system": record.title,
        "status": record.state,
        "created": record.created,
        "version": record.version,
    }
    if record.party or record.run_id != record.id:
        facts |= {"run": record.run_id, "party": record.party or "all"}
    # Its words are how the page reads, not what was learnt.
    problem = {key: value for key, value in record.problem.items() if key != "words"}
    tables = {
        "Run": facts,
        "Configuration": record.config,
        "Problem": problem,
        "Summary": record.summary,
    }
    parts = [
        join(
            [
                tag("h3", name),
                table(("key", "value"), [(key, words_of(value)) for key, value in flat(values)]),
            ]
        )
        for name, values in tables.items()
        if values
    ]
    return join([*parts, tag("h3", "World seeds"), _seeds(record)])


def _seeds(record: Record) -> Safe:
    if not record.seeds:
        return tag(
            "p",
            f"None: the {words.plural(record.words.reward)} came from the world, not from a "
            "simulation.",
        )
    shown = ", ".join(str(seed) for seed in record.seeds[:50])
    more = f", … ({len(record.seeds):,} in all)" if len(record.seeds) > 50 else ""
    what = (
        "World seed of a simulation, one a run; whoever knows it knows every "
        f"{record.words.reward}: "
    )
    return tag("p", what, tag("code", shown + more))
