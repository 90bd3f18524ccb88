"""The section of a report on parties: what each earned, and what joining was worth to it."""

from __future__ import annotations

from collections.abc import Sequence

from posse.results import words
from posse.results.joining import ALL, Joining, Share, joining
from posse.results.markup import Safe, join, table, tag
from posse.results.record import RunRecord
from posse.results.vocabulary import Vocabulary, common


def parties(records: Sequence[RunRecord]) -> Safe:
    """Return a table of parties a record, beside the same parties alone; those that lose are named above it."""
    found = joining(records)
    if not found:
        return Safe("")
    compared = any(joined.baseline is not None for joined in found)
    party = common(joined.record.words for joined in found).party
    heading = "What joining is worth" if compared else f"What each {party} earned"
    named = len(records) > 1
    return join([tag("h2", heading), *(_compared(j) if j.baseline else _single(j, named=named) for j in found)])


def _single(joined: Joining, *, named: bool) -> Safe:
    said = joined.record.words
    shares = (*joined.shares, joined.whole)
    rows = [(share.party, words.number(share.total), words.number(share.regret)) for share in shares]
    shown = table((said.party, said.earned, said.regret), rows, numeric=(1, 2))
    return join([_head(joined.record), shown]) if named else shown


def _compared(joined: Joining) -> Safe:
    record, said = joined.record, joined.record.words
    header = (said.party, f"{said.reward} alone", "joined", "difference", "regret alone", "joined", "ratio")
    shown = table(header, [_row(share, joined) for share in (*joined.shares, joined.whole)], numeric=range(1, 7))
    unit = f" in {said.money}" if said.money else ""
    note = f"Means of {words.count(record.runs, 'run')}{unit}; differences are paired by world seed, ± standard error."
    return join([_head(record), _verdict(joined, said), shown, tag("p", f"{note} {joined.rule}", cls="soft")])


def _head(record: RunRecord) -> Safe:
    return tag("h3", record.label, " ", tag("code", record.id))


def _verdict(joined: Joining, said: Vocabulary) -> Safe:
    losers, everyone = joined.losers, words.count(len(joined.shares), said.party)
    worse = f"Worse off joined, in {said.reward} or regret: {words.listed(losers)}"
    one = "One run cannot tell who is worse off joined."
    parts = [tag("p", one if joined.record.runs < 2 else f"None of {everyone} is clearly worse off joined.")]
    if losers:
        parts = [tag("p", tag("b", worse), f" ({len(losers)} of {everyone}).", cls="alert")]
    if joined.doubtful:
        parts.append(tag("p", joined.doubt, cls="alert"))
    if joined.ratio is not None:
        what = f" ({joined.ratio.what})" if joined.ratio.known else ", too few runs for an interval"
        parts.append(tag("p", f"Regret joined over regret alone, all together: {joined.ratio}{what}."))
    return join(parts)


def _row(share: Share, joined: Joining) -> tuple[object, ...]:
    # The mark stands below the name, where a small screen shows it without scrolling; an average gets no colour.
    better = "good" if max(share.gain, share.relief) == 2 and not share.loses else ""
    colour = "" if share.party == ALL else "warn" if share.party in joined.losers else better
    mark = tag("span", share.verdict, cls=f"tag {colour}")
    return (
        join([tag("span", share.party, cls="name"), Safe("<br>"), mark]),
        words.number(share.alone), words.number(share.total),
        words.plus_minus(share.difference, share.error), words.number(share.regret_alone), words.number(share.regret),
        words.fraction(share.ratio),
    )  # fmt: skip
