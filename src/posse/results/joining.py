"""What joining is worth: each party with federation beside the same party alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile

import numpy as np

from posse.core.statistics import Floats, Interval, holm, regret_ratio, standard_error, t_p_value
from posse.results import words
from posse.results.naming import labels
from posse.results.record import Record, several
from posse.results.reports.page import Safe, join, table, tag
from posse.results.words import Vocabulary, common

ALL = "all together"

ALPHA = 0.05
"""How often chance alone may make a verdict clear (of one party), or name anybody worse off (of a
whole table).
"""


@dataclass(frozen=True)
class Share:
    """One party in one record, the means over runs; what needs a record of it alone is None
    without.
    """

    party: str
    total: float | None
    alone: float | None = None
    difference: float | None = None
    """`total` less `alone`, run by run on the same world seeds."""
    error: float | None = None
    """Standard error of the difference."""
    regret: float | None = None
    regret_alone: float | None = None
    regret_error: float | None = None
    """Standard error of the difference of the two, run by run."""
    runs: int = 1
    """Runs that the means and errors are of."""

    @property
    def ratio(self) -> float | None:
        """Regret with federation over regret alone; None where the latter is not above 0."""
        if self.regret is None or self.regret_alone is None or self.regret_alone <= 0:
            return None
        return self.regret / self.regret_alone

    @property
    def changes(self) -> tuple[float | None, float | None]:
        """What joining brought: reward gained and regret saved, which has less chance in it than
        what was earned.
        """
        saved = (
            None
            if self.regret is None or self.regret_alone is None
            else self.regret_alone - self.regret
        )
        return self.difference, saved

    @property
    def p_values(self) -> tuple[float | None, float | None]:
        """Probability of changes as large, either way, if joining does nothing: Student's t, runs -
        1 degrees.

        >>> gain, relief = Share("a", 5.0, 9.0, -4.0, 1.0, runs=5).p_values
        >>> round(gain, 4), relief
        (0.0161, None)
        """
        errors = (self.error, self.regret_error)
        gain, relief = (
            _p_value(*pair, self.runs) for pair in zip(self.changes, errors, strict=True)
        )
        return gain, relief

    @property
    def gain(self) -> int:
        """Side of the difference: ±2 where it is clear, ±1 where it may be chance, 0 where there is
        none.
        """
        return _sides(self)[0]

    @property
    def relief(self) -> int:
        """The same of the regret that joining saved."""
        return _sides(self)[1]

    @property
    def loses(self) -> bool:
        """Whether joining clearly cost this party, judged by itself: less earned, or more
        regretted.
        """
        return harmed(self, holm(self.p_values))

    @property
    def doubtful(self) -> bool:
        """Whether the party earned less, which may be chance, and its regret does not decide."""
        return not self.loses and self.gain < 0 and self.relief < 2

    @property
    def verdict(self) -> str:
        """Say how the party fares; empty without a comparison.

        If joining does nothing to a party, at most 5 % of the verdicts are clear: its two tests are
        adjusted by Holm. The verdict of one run says that it is one.

        >>> (
        ...     Share("a", 5.0, 9.0, -4.0, 1.0, runs=9).verdict,
        ...     Share("b", 9.0, 8.5, 0.5, 1.0, runs=9).verdict,
        ... )
        ('loses', 'perhaps gains')
        >>> Share(
        ...     "c", 9.0, 8.5, 0.5, 0.1, regret=3.0, regret_alone=2.0, regret_error=0.1, runs=9
        ... ).verdict
        'gains, but regrets more'
        >>> Share("d", 5.0, 9.0, -4.0).verdict
        'less in this one run'
        """
        if self.difference is None:
            return ""
        if self.runs < 2 and self.difference:
            return f"{'more' if self.difference > 0 else 'less'} in this one run"
        if self.loses:
            return (
                "loses"
                if self.gain == -2
                else "gains, but regrets more"
                if self.gain == 2
                else "regrets more"
            )
        if self.gain != 2 and self.relief == 2:
            return "regrets less"
        word = "loses" if self.gain < 0 else "gains" if self.gain > 0 else "even"
        return f"perhaps {word}" if abs(self.gain) == 1 else word


@dataclass(frozen=True)
class Joining:
    """A record party by party, beside the one alone where there is one."""

    record: Record
    baseline: Record | None
    shares: tuple[Share, ...]
    """One a party, in the order of the record."""
    whole: Share
    """All parties together: an average over winners and losers."""
    ratio: Interval | None
    """Federated regret ratio of all parties together, with its interval over runs; None where it is
    not known.
    """
    label: str = ""
    """How the record is called beside the others."""

    @property
    def losers(self) -> tuple[str, ...]:
        """Parties for which joining was clearly a loss.

        In a table where joining does nothing to anybody, somebody is named with a probability of at
        most 5 %: the tests of all parties, two each, are adjusted by Holm. One run names nobody.
        """
        each = holm([p for share in self.shares for p in share.p_values])
        pairs = zip(self.shares, zip(each[::2], each[1::2], strict=True), strict=True)
        return tuple(share.party for share, adjusted in pairs if harmed(share, adjusted))

    @property
    def doubtful(self) -> tuple[str, ...]:
        """Parties that earned less, or lose when judged by themselves, which may be chance among so
        many.
        """
        clear = self.losers
        unclear = (share for share in self.shares if share.party not in clear)
        return tuple(share.party for share in unclear if share.doubtful or share.loses)

    @property
    def doubt(self) -> str:
        """Name the doubtful in a sentence; empty where there are none."""
        if not self.doubtful:
            return ""
        what = "Earned less in this one run" if self.record.runs < 2 else "Perhaps worse off"
        return f"{what}, which may be chance: {words.listed(self.doubtful)}."

    @property
    def rule(self) -> str:
        """Say what makes a verdict clear; empty for one run, which has none."""
        if self.record.runs < 2:
            return ""
        return (
            f"A verdict looks at one {self.record.words.party}: Student's t, at 5 %. Who is worse "
            "off: at 5 % for the "
            "whole table (Holm)."
        )


def joining(records: Iterable[Record]) -> tuple[Joining, ...]:
    """Set the parties of each record beside themselves alone.

    The baseline of a record is the first one of level "alone" with the same problem, horizon,
    parties, world seeds and the settings that its system names in `show["baseline"]`; a record
    without one is given without the comparison. A baseline itself is not listed where it serves.
    """
    shown = several(records)
    named = dict(zip(map(id, shown), labels(shown), strict=True))
    chosen = [
        record
        for record in shown
        if record.parties and record.runs and record.party_total is not None
    ]
    bases = {id(record): _baseline(record, chosen) for record in chosen}
    serving = {id(base) for base in bases.values() if base is not None}
    others = (record for record in chosen if id(record) not in serving)
    return tuple(_joining(record, named[id(record)], bases[id(record)]) for record in others)


def _baseline(record: Record, among: Sequence[Record]) -> Record | None:
    # Of several records alone the first is the baseline of the others, not each of each.
    others = among if record.federated else takewhile(lambda other: other is not record, among)
    wanted = _shared(record, record)
    alike = (other for other in others if not other.federated and _shared(other, record) == wanted)
    alike = (other for other in alike if other.status == "finished" or other is record)
    return next((other for other in alike if _order(record, other) is not None), None)


def _shared(record: Record, first: Record) -> tuple[object, ...]:
    """What a record and its baseline have in common; which settings do, the system of the first one
    says.
    """
    names = first.show.get("baseline", ())
    settings = (
        [record.config.get(str(name)) for name in names] if isinstance(names, Sequence) else []
    )
    return record.problem, record.horizon, record.parties, settings


def _order(record: Record, base: Record) -> list[int] | None:
    """Say which run of `base` had the seed of each run of `record`; None where the seeds are not
    the same.
    """
    at = {seed: run for run, seed in enumerate(base.seeds)}
    same = len(at) == base.runs == record.runs == len(set(record.seeds)) and at.keys() == set(
        record.seeds
    )
    return [at[seed] for seed in record.seeds] if same else None


def _joining(record: Record, label: str, base: Record | None) -> Joining:
    order = _order(record, base) if base is not None else None
    total, regret = record.party_total, record.party_regret
    total_alone = None if base is None or base.party_total is None else base.party_total[order]
    regret_alone = None if base is None or base.party_regret is None else base.party_regret[order]
    shares = tuple(
        _share(
            party,
            *(None if a is None else a[:, i] for a in (total, total_alone, regret, regret_alone)),
        )
        for i, party in enumerate(record.parties)
    )
    sums = [
        None if a is None else a.sum(axis=1) for a in (total, total_alone, regret, regret_alone)
    ]
    return Joining(record, base, shares, _share(ALL, *sums), _ratio(sums[2], sums[3]), label)


def _share(
    party: str,
    total: Floats | None,
    alone: Floats | None,
    regret: Floats | None,
    base: Floats | None,
) -> Share:
    gain = None if total is None or alone is None else total - alone
    return Share(
        party,
        total=_mean(total),
        alone=_mean(alone),
        difference=_mean(gain),
        error=None if gain is None else standard_error(gain),
        regret=_mean(regret),
        regret_alone=_mean(base),
        regret_error=None if regret is None or base is None else standard_error(regret - base),
        runs=0 if total is None else total.size,
    )


def _ratio(regret: Floats | None, alone: Floats | None) -> Interval | None:
    if regret is None or alone is None or (alone <= 0).any():
        return None
    return regret_ratio(regret[None, :], alone[None, :])


def harmed(share: Share, adjusted: Sequence[float]) -> bool:
    """Return whether one of the changes of a party is a clear loss, by their adjusted p-values."""
    pairs = zip(share.changes, adjusted, strict=True)
    return any(change is not None and change < 0 and p <= ALPHA for change, p in pairs)


def _sides(share: Share) -> tuple[int, int]:
    """Return the sign of either change, doubled where it is clear."""
    gain, relief = (
        (2 if p <= ALPHA else 1) * ((change > 0) - (change < 0)) if change else 0
        for change, p in zip(share.changes, holm(share.p_values), strict=True)
    )
    return gain, relief


def _p_value(change: float | None, error: float | None, runs: int) -> float | None:
    if change is None or runs < 2 or error is None:
        return None
    if not error:
        return 0.0 if change else 1.0
    return t_p_value(change / error, runs - 1)


def _mean(values: Floats | None) -> float | None:
    return None if values is None else float(np.mean(values))


def parties(records: Sequence[Record]) -> Safe:
    """Return a table of parties a record, beside the same parties alone; those that lose are named
    above it.
    """
    tables = joining(records)
    if not tables:
        return Safe("")
    compared = any(joined.baseline is not None for joined in tables)
    party = common(joined.record.words for joined in tables).party
    heading = "What joining is worth" if compared else f"What each {party} earned"
    named = len(records) > 1
    return join(
        [
            tag("h2", heading),
            *(_compared(j) if j.baseline else _single(j, named=named) for j in tables),
        ]
    )


def _single(joined: Joining, *, named: bool) -> Safe:
    nouns = joined.record.words
    shares = (*joined.shares, joined.whole) if len(joined.shares) > 1 else joined.shares
    rows = [
        (share.party, words.number(share.total), words.number(share.regret)) for share in shares
    ]
    shown = table((nouns.party, nouns.earned, nouns.regret), rows, numeric=(1, 2))
    return join([_head(joined), shown]) if named else shown


def _compared(joined: Joining) -> Safe:
    record, nouns = joined.record, joined.record.words
    header = (
        nouns.party,
        f"{nouns.reward} alone",
        "joined",
        "difference",
        "regret alone",
        "regret joined",
        "ratio",
    )
    shown = table(
        header,
        [_row(share, joined) for share in (*joined.shares, joined.whole)],
        numeric=range(1, 7),
    )
    unit = f" in {nouns.money}" if nouns.money else ""
    note = (
        f"Means of {words.count(record.runs, 'run')}{unit}; differences are paired by world seed, "
        "± standard error."
    )
    ratio = ""
    if joined.ratio is not None:
        what = f" ({joined.ratio.what})" if joined.ratio.known else ", too few runs for an interval"
        ratio = f" Regret joined over regret alone, all together: {joined.ratio}{what}."
    return join(
        [
            _head(joined),
            _verdict(joined, nouns),
            shown,
            tag("p", f"{note} {joined.rule}{ratio}", cls="soft"),
        ]
    )


def _head(joined: Joining) -> Safe:
    return tag("h3", joined.label, " ", tag("code", joined.record.id))


def _verdict(joined: Joining, nouns: Vocabulary) -> Safe:
    losers, everyone = joined.losers, words.count(len(joined.shares), nouns.party)
    worse = f"Worse off joined, in {nouns.reward} or regret: {words.listed(losers)}"
    one = "One run does not show who is worse off joined."
    parts = [
        tag(
            "p",
            one if joined.record.runs < 2 else f"None of {everyone} is clearly worse off joined.",
        )
    ]
    if losers:
        parts = [tag("p", tag("b", worse), f" ({len(losers)} of {everyone}).", cls="alert")]
    if joined.doubtful:
        parts.append(tag("p", joined.doubt, cls="caution"))
    return join(parts)


def _row(share: Share, joined: Joining) -> tuple[object, ...]:
    # The mark stands below the name, where a small screen shows it without scrolling; an average
    # gets no colour.
    better = "good" if max(share.gain, share.relief) == 2 and not share.loses else ""
    colour = "" if share.party == ALL else "alarm" if share.party in joined.losers else better
    mark = tag("span", share.verdict, cls=f"tag {colour}")
    return (
        join([tag("span", share.party, cls="name"), Safe("<br>"), mark]),
        words.number(share.alone),
        words.number(share.total),
        words.plus_minus(share.difference, share.error),
        words.number(share.regret_alone),
        words.number(share.regret),
        words.fraction(share.ratio),
    )
