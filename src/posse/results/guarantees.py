"""What the privacy ledger of a record proves: composed guarantees, releases, and what is excluded."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain

from posse.results import words
from posse.results.naming import labels
from posse.results.record import Record
from posse.results.values import JSON
from posse.results.words import rounded_up, words_of

Entry = dict[str, JSON]

HOLLOW = 20.0
"""An epsilon above it allows odds to change by more than e^20, half a billion times."""

_EXCLUDED = ("not_covered", "not covered")
_IN_THE_SENTENCE = (
    "epsilon",
    "delta",
    "unit",
    "adjacency",
    "party",
    "covers",
    "sentence",
    *_EXCLUDED,
)


@dataclass(frozen=True)
class Guarantee:
    """A composed guarantee, and the parties that have it."""

    label: str
    """The record that it belongs to."""
    parties: tuple[str, ...]
    entry: Entry
    """Its entry in the ledger, without the party."""

    @property
    def figure(self) -> str:
        """Epsilon and delta, which are never shown apart; an epsilon of None is infinite."""
        epsilon = self.entry["epsilon"]
        first = "no finite ε" if epsilon is None else f"ε = {rounded_up(epsilon)}"
        return f"{first} at δ = {rounded_up(self.entry.get('delta'))}"

    @property
    def hollow(self) -> str:
        """A sentence if the figure is correct but promises nothing; else empty."""
        epsilon = self.entry["epsilon"]
        if epsilon is None:
            return "This is no promise at all."
        if isinstance(epsilon, int | float) and epsilon > HOLLOW:
            return f"True, but an ε above {HOLLOW:g} promises nothing alone."
        return ""

    @property
    def unit(self) -> str:
        """What is protected: in words, if the entry has them, and the name of its unit."""
        unit = f"unit {words_of(self.entry.get('unit') or 'not stated')}"
        covers = _items(self.entry.get("covers"))
        facts = [f"adjacency {text}" for text in _items(self.entry.get("adjacency"))]
        if covers:
            facts.insert(0, unit)
            unit = words.listed(covers)
        return f"for {unit} ({'; '.join(facts)})" if facts else f"for {unit}"

    @property
    def how(self) -> str:
        """How it was composed, and all other keys of the entry."""
        parts = []
        for key, value in self.entry.items():
            if key not in _IN_THE_SENTENCE:
                parts.append(f"{key.replace('_', ' ')}: {words_of(value)}")
        return ", ".join(parts)

    def sentence(self, party: str = "party") -> str:
        """Return all of it in one sentence; `party` is the system's noun."""
        text = f"{self.label}{self.owner(party)}: {self.figure} {self.unit}"
        if self.how:
            text += f"; {self.how}"
        return f"{text}. {self.hollow}".rstrip()

    def owner(self, party: str) -> str:
        """Return the party that has it, or how many parties share it."""
        if len(self.parties) > 1:
            return f", each of {words.count(len(self.parties), party)}"
        return "".join(f", {name}" for name in self.parties)


def composed(entry: Entry) -> bool:
    """Return whether an entry is a composed guarantee, and not a single release."""
    return "epsilon" in entry and "composition" in entry


def guarantees(records: Iterable[Record]) -> list[Guarantee]:
    """Return the composed guarantees; parties of a record with the same one share it."""
    chosen = tuple(records)
    names = labels(chosen) if any(record.privacy for record in chosen) else [""] * len(chosen)
    result: list[Guarantee] = []
    for record, label in zip(chosen, names, strict=True):
        groups: list[tuple[Entry, list[str]]] = []
        for entry in map(dict, record.privacy):
            if not composed(entry):
                continue
            party = entry.pop("party", None)
            same = [parties for other, parties in groups if other == entry]
            if not same:
                same = [[]]
                groups.append((entry, same[0]))
            if party is not None:
                same[0].append(words_of(party))
        result += [Guarantee(label, tuple(parties), entry) for entry, parties in groups]
    return result


def ledger(record: Record) -> list[Entry]:
    """Return the entries of single releases, without the list of what is not covered."""
    entries = []
    for entry in record.privacy:
        if not composed(dict(entry)):
            entries.append({key: entry[key] for key in entry if key not in _EXCLUDED})
    return entries


def not_covered(records: Iterable[Record]) -> list[str]:
    """Return what the guarantees exclude, each sentence once."""
    entries = chain.from_iterable(record.privacy for record in records)
    sentences = [_items(entry.get(key)) for entry in entries for key in _EXCLUDED]
    return list(dict.fromkeys(chain.from_iterable(sentences)))


def _items(value: JSON) -> list[str]:
    """Return the items of a list as text, or the only value."""
    if isinstance(value, list | tuple):
        return [words_of(item) for item in value]
    return [words_of(value)] if value else []
