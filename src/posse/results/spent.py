"""The section of a report on privacy spent: guarantees first, then the ledger, then what neither covers."""

from __future__ import annotations

from collections.abc import Sequence

from posse.results import guarantees, words
from posse.results.guarantees import Entry, Guarantee
from posse.results.markup import Safe, bullets, flat, join, table, tag
from posse.results.record import RunRecord
from posse.results.values import JSON
from posse.results.vocabulary import common

LONG = 8
"""A ledger with more rows than this is folded away."""


def privacy(records: Sequence[RunRecord]) -> Safe:
    """Return what was spent, whole: an epsilon never stands without its delta and its unit."""
    spending = [record for record in records if record.privacy]
    if not spending:
        return Safe("")
    party = common(record.words for record in spending).party
    composed = [_card(guarantee, party) for guarantee in guarantees.guarantees(spending)]
    parts = [tag("h2", "Privacy spent"), *([tag("div", join(composed), cls="promises")] if composed else [])]
    parts += [_ledger(record, named=len(records) > 1) for record in spending if guarantees.ledger(record)]
    left_out = guarantees.not_covered(spending)
    return join([*parts, *([tag("h3", "Not covered"), bullets(left_out)] if left_out else [])])


def _card(guarantee: Guarantee, party: str) -> Safe:
    below = [tag("span", guarantee.unit, cls="unit"), tag("span", f"{guarantee.label}{guarantee.whose(party)}")]
    names = [tag("span", words.listed(guarantee.parties))] if len(guarantee.parties) > 1 else []
    how = [tag("span", f"{guarantee.how[0].upper()}{guarantee.how[1:]}.")] if guarantee.how else []
    hollow = [tag("span", guarantee.hollow, cls="hollow")] if guarantee.hollow else []
    return tag("div", tag("b", guarantee.figure), *below, *hollow, *names, *how, cls="card")


def _ledger(record: RunRecord, *, named: bool) -> Safe:
    entries = guarantees.ledger(record)
    keys = list(dict.fromkeys(key for entry in entries for key in entry))
    numeric = [i for i, key in enumerate(keys) if all(_is_number(entry.get(key)) for entry in entries)]
    rows = ([_cell(entry, key) for key in keys] for entry in entries)
    header = [record.words.party if key == "party" else key.replace("_", " ") for key in keys]
    shown = table(header, rows, numeric=numeric)
    title = f"Ledger of {record.label}: {words.count(len(entries), 'entry')}"
    if len(entries) > LONG:
        return tag("details", tag("summary", title, " ", tag("code", record.id)), shown)
    return join([tag("h3", title, " ", tag("code", record.id)), shown]) if named else shown


def _cell(entry: Entry, key: str) -> str:
    value = entry.get(key, words.UNKNOWN)
    if isinstance(value, float):
        return guarantees.up(value) if key in ("epsilon", "delta") else f"{value:.4g}"
    return flat(value)[0][1] if not isinstance(value, dict) else ", ".join(f"{k} {v}" for k, v in flat(value))


def _is_number(value: JSON) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
