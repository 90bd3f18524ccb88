"""Privacy spent, in words: composed guarantees, the ledger behind them, and what they do not cover."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from posse.results import words
from posse.results.naming import labels
from posse.results.page import Safe, bullets, join, table, tag
from posse.results.record import Record
from posse.results.values import JSON, flat
from posse.results.words import common, words_of

Entry = dict[str, JSON]

HOLLOW = 20.0
"""Epsilon above which odds may change more than e^20, half a billion times: it is no promise by itself."""

_LEFT_OUT = ("not_covered", "not covered")
_SAID_ELSEWHERE = ("epsilon", "delta", "unit", "adjacency", "party", "covers", "sentence", *_LEFT_OUT)


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
        """The two numbers, which always stand together; an epsilon of None is one that is not finite."""
        epsilon = self.entry["epsilon"]
        return f"{'no finite ε' if epsilon is None else f'ε = {up(epsilon)}'} at δ = {up(self.entry.get('delta'))}"

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
        """What is protected: in words where the entry has them, and by the name of the unit and its neighbours."""
        unit = words_of(self.entry.get("unit") or "not stated")
        facts = [f"unit {unit}"] if (covers := _items(self.entry.get("covers"))) else []
        facts += [f"adjacency {text}" for text in _items(self.entry.get("adjacency"))]
        return f"for {words.listed(covers) if covers else f'unit {unit}'}" + (f" ({'; '.join(facts)})" if facts else "")

    @property
    def how(self) -> str:
        """How it was composed, and all else that the entry says."""
        others = {key.replace("_", " "): value for key, value in self.entry.items() if key not in _SAID_ELSEWHERE}
        return ", ".join(f"{key}: {words_of(value)}" for key, value in others.items())

    def sentence(self, party: str = "party") -> str:
        """Say all of it in one sentence; `party` is the system's word.

        >>> from posse.results.example import example_market_record
        >>> guarantees([example_market_record()])[0].sentence("agent")[:68]
        'p-fcb (tight), each of 4 agents: ε = 1 at δ = 1e-05 for one purchase'
        """
        how = f"; {self.how}" if self.how else ""
        hollow = f" {self.hollow}" if self.hollow else ""
        return f"{self.label}{self.whose(party)}: {self.figure} {self.unit}{how}.{hollow}"

    def whose(self, party: str) -> str:
        """Say whose guarantee it is: a name, or how many share it."""
        if len(self.parties) > 1:
            return f", each of {words.count(len(self.parties), party)}"
        return f", {self.parties[0]}" if self.parties else ""


def composed(entry: Entry) -> bool:
    """Return whether an entry is a composed guarantee: it has an epsilon, and says how it was composed."""
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
    return [{key: value for key, value in entry.items() if key not in _LEFT_OUT} for entry in entries]


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
    """Write an epsilon or a delta with four digits, rounded up: a guarantee is never shown as better than it is.

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


LONG = 8
"""A ledger with more rows than this is folded away."""


def privacy(records: Sequence[Record]) -> Safe:
    """Return what was spent, whole: an epsilon never stands without its delta and its unit."""
    spending = [record for record in records if record.privacy]
    if not spending:
        return Safe("")
    party = common(record.words for record in spending).party
    cards = [_card(guarantee, party) for guarantee in guarantees(records)]
    parts = [tag("h2", "Privacy spent"), *([tag("div", join(cards), cls="promises")] if cards else [])]
    named = zip(records, labels(records), strict=True)
    parts += [_ledger(record, label, named=len(records) > 1) for record, label in named if ledger(record)]
    left_out = not_covered(spending)
    return join([*parts, *([tag("h3", "Not covered"), bullets(left_out)] if left_out else [])])


def _card(guarantee: Guarantee, party: str) -> Safe:
    below = [tag("span", guarantee.unit, cls="unit"), tag("span", f"{guarantee.label}{guarantee.whose(party)}")]
    names = [tag("span", words.listed(guarantee.parties))] if len(guarantee.parties) > 1 else []
    how = [tag("span", f"{guarantee.how[0].upper()}{guarantee.how[1:]}.")] if guarantee.how else []
    hollow = [tag("span", guarantee.hollow, cls="hollow")] if guarantee.hollow else []
    return tag("div", tag("b", guarantee.figure), *below, *hollow, *names, *how, cls="card")


def _ledger(record: Record, label: str, *, named: bool) -> Safe:
    entries = ledger(record)
    keys = list(dict.fromkeys(key for entry in entries for key in entry))
    numeric = [i for i, key in enumerate(keys) if all(_is_number(entry.get(key)) for entry in entries)]
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
