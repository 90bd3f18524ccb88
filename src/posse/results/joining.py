"""What joining is worth: each party with federation beside the same party alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile

import numpy as np

from posse.results.bands import Z95, Floats, standard_error
from posse.results.bootstrap import Interval, regret_ratio
from posse.results.record import RunRecord

ALL = "all together"


@dataclass(frozen=True)
class Share:
    """One party in one record, the means over runs; what needs a record of it alone is None without."""

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

    @property
    def ratio(self) -> float | None:
        """Regret with federation over regret alone; None where the latter is not above 0."""
        if self.regret is None or self.regret_alone is None or self.regret_alone <= 0:
            return None
        return self.regret / self.regret_alone

    @property
    def gain(self) -> int:
        """Side of the difference: ±2 where it is clear, ±1 where chance could do it, 0 where there is none."""
        return _side(self.difference, self.error)

    @property
    def relief(self) -> int:
        """The same of the regret that joining saved, which has less chance in it than what was earned."""
        if self.regret is None or self.regret_alone is None:
            return 0
        return _side(self.regret_alone - self.regret, self.regret_error)

    @property
    def loses(self) -> bool:
        """Whether joining clearly cost this party: less earned, or more regretted."""
        return min(self.gain, self.relief) == -2

    @property
    def doubtful(self) -> bool:
        """Whether the party earned less, but chance could do it and its regret does not tell."""
        return not self.loses and self.gain < 0 and self.relief < 2

    @property
    def verdict(self) -> str:
        """Say how the party fares; empty without a comparison.

        >>> Share("a", 5.0, 9.0, -4.0, 1.0).verdict, Share("b", 9.0, 8.5, 0.5, 1.0).verdict
        ('loses', 'gains, within the error')
        >>> Share("c", 9.0, 8.5, 0.5, 0.1, regret=3.0, regret_alone=2.0, regret_error=0.1).verdict
        'gains, but regrets more'
        """
        if self.difference is None:
            return ""
        if self.loses:
            return "loses" if self.gain == -2 else "gains, but regrets more" if self.gain == 2 else "regrets more"
        if self.gain != 2 and self.relief == 2:
            return "regrets less"
        word = "loses" if self.gain < 0 else "gains" if self.gain > 0 else "even"
        return f"{word}, within the error" if abs(self.gain) == 1 else word


@dataclass(frozen=True)
class Joining:
    """A record party by party, beside the one alone where there is one."""

    record: RunRecord
    baseline: RunRecord | None
    shares: tuple[Share, ...]
    """One a party, in the order of the record."""
    whole: Share
    """All parties together: an average over winners and losers."""
    ratio: Interval | None
    """Federated regret ratio of all parties together, resampled over runs; None where it is not known."""

    @property
    def losers(self) -> tuple[str, ...]:
        """Parties for which joining was clearly a loss."""
        return tuple(share.party for share in self.shares if share.loses)

    @property
    def doubtful(self) -> tuple[str, ...]:
        """Parties that earned less, which chance could do."""
        return tuple(share.party for share in self.shares if share.doubtful)


def joining(records: Iterable[RunRecord]) -> tuple[Joining, ...]:
    """Set the parties of each record beside themselves alone.

    The baseline of a record is the first one of level "alone" with the same problem, budget, parties and world
    seeds; a record without one is given without the comparison. A baseline itself is not listed where it serves.

    >>> from posse.results.example import example_market_record
    >>> alone, tight = example_market_record(level="alone"), example_market_record(level="tight")
    >>> (found,) = joining([alone, tight])
    >>> found.losers, [share.party for share in found.shares], found.whole.difference > 0
    (('isles',), ['north', 'south', 'harbour', 'isles'], True)
    """
    chosen = [record for record in records if record.parties and record.runs and record.party_total is not None]
    bases = {id(record): _baseline(record, chosen) for record in chosen}
    serving = {id(base) for base in bases.values() if base is not None}
    return tuple(_joining(record, bases[id(record)]) for record in chosen if id(record) not in serving)


def _baseline(record: RunRecord, among: Sequence[RunRecord]) -> RunRecord | None:
    # Of several records alone the first is the baseline of the others, not each of each.
    others = among if record.federated else takewhile(lambda other: other is not record, among)
    asked = (record.problem, record.budget, record.parties)
    alone = (other for other in others if not other.federated)
    alike = (other for other in alone if (other.problem, other.budget, other.parties) == asked)
    return next((other for other in alike if _order(record, other) is not None), None)


def _order(record: RunRecord, base: RunRecord) -> list[int] | None:
    """Say which run of `base` had the seed of each run of `record`; None where the seeds are not the same."""
    at = {seed: run for run, seed in enumerate(base.seeds)}
    same = len(at) == base.runs == record.runs == len(set(record.seeds)) and at.keys() == set(record.seeds)
    return [at[seed] for seed in record.seeds] if same else None


def _joining(record: RunRecord, base: RunRecord | None) -> Joining:
    order = _order(record, base) if base is not None else None
    total, regret = record.party_total, record.party_regret
    total_alone = None if base is None or base.party_total is None else base.party_total[order]
    regret_alone = None if base is None or base.party_regret is None else base.party_regret[order]
    shares = tuple(
        _share(party, *(None if a is None else a[:, i] for a in (total, total_alone, regret, regret_alone)))
        for i, party in enumerate(record.parties)
    )
    sums = [None if a is None else a.sum(axis=1) for a in (total, total_alone, regret, regret_alone)]
    return Joining(record, base, shares, _share(ALL, *sums), _ratio(sums[2], sums[3]))


def _share(party: str, total: Floats | None, alone: Floats | None, regret: Floats | None, base: Floats | None) -> Share:
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
    )


def _ratio(regret: Floats | None, alone: Floats | None) -> Interval | None:
    if regret is None or alone is None or (alone <= 0).any():
        return None
    return regret_ratio(regret[None, :], alone[None, :])


def _side(change: float | None, error: float | None) -> int:
    """Tell the sign of a change, twice where it is beyond 1.96 standard errors; one run has the sign alone."""
    if not change:
        return 0
    clear = error is None or abs(change) > Z95 * error
    return (2 if clear else 1) * (1 if change > 0 else -1)


def _mean(values: Floats | None) -> float | None:
    return None if values is None else float(np.mean(values))
