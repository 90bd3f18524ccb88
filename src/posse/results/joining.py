"""What joining is worth: the result of each party with the federation and without it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from posse.core.statistics import Floats, Interval, holm, regret_ratio, standard_error, t_p_value
from posse.results import words
from posse.results.naming import labels
from posse.results.record import Record, several

ALL = "all together"

ALPHA = 0.05
"""Probability that chance alone makes a verdict clear, or names a party of a table as worse off."""


@dataclass(frozen=True)
class Share:
    """The result of one party: means over runs. Comparisons are None without a record of it alone."""

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
    def saved(self) -> float | None:
        """Regret that joining saved. It varies less by chance than the reward gained."""
        if self.regret is None or self.regret_alone is None:
            return None
        return self.regret_alone - self.regret

    @property
    def changes(self) -> tuple[float | None, float | None]:
        """What joining brought: reward gained and regret saved."""
        return self.difference, self.saved

    @property
    def p_values(self) -> tuple[float | None, float | None]:
        """Probabilities of changes as large if joining does nothing: Student's t, runs - 1 degrees.

        >>> gain, relief = Share("a", 5.0, 9.0, -4.0, 1.0, runs=5).p_values
        >>> round(gain, 4), relief
        (0.0161, None)
        """
        gain = _p_value(self.difference, self.error, self.runs)
        return gain, _p_value(self.saved, self.regret_error, self.runs)

    @property
    def gain(self) -> int:
        """Sign of the difference: ±2 if it is clear, ±1 if it may be chance, 0 if there is none."""
        adjusted = holm(self.p_values)
        return _side(self.difference, adjusted[0])

    @property
    def relief(self) -> int:
        """The same for the regret that joining saved."""
        adjusted = holm(self.p_values)
        return _side(self.saved, adjusted[1])

    @property
    def loses(self) -> bool:
        """Whether joining clearly cost this party: less earned, or more regret."""
        return harmed(self, holm(self.p_values))

    @property
    def doubtful(self) -> bool:
        """Whether the party earned less, which may be chance, and its regret does not decide."""
        return not self.loses and self.gain < 0 and self.relief < 2

    @property
    def verdict(self) -> str:
        """How joining changed the result of the party; empty without a comparison.

        If joining does nothing to a party, at most 5 % of the verdicts are clear: its two tests are
        adjusted by Holm. The verdict on one run names it as one.

        >>> Share("a", 5.0, 9.0, -4.0, 1.0, runs=9).verdict
        'loses'
        >>> Share("b", 9.0, 8.5, 0.5, 1.0, runs=9).verdict
        'perhaps gains'
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
            return "more in this one run" if self.difference > 0 else "less in this one run"
        if self.relief == -2:
            harm = {-2: "loses", 2: "gains, but regrets more"}
            return harm.get(self.gain, "regrets more")
        if self.relief == 2 and abs(self.gain) < 2:
            return "regrets less"
        return _VERDICTS[self.gain]


_VERDICTS = {-2: "loses", -1: "perhaps loses", 0: "even", 1: "perhaps gains", 2: "gains"}


@dataclass(frozen=True)
class Joining:
    """A record by party, compared with the record of the same parties alone, if there is one."""

    record: Record
    baseline: Record | None
    shares: tuple[Share, ...]
    """One per party, in the order of the record."""
    whole: Share
    """All parties together: an average over winners and losers."""
    ratio: Interval | None
    """Federated regret ratio of all parties together, with its interval over runs, if known."""
    label: str = ""

    @property
    def losers(self) -> tuple[str, ...]:
        """Parties for which joining was clearly a loss.

        If joining does nothing to anybody, the probability that a party is named is at most 5 %:
        the tests of all parties, two each, are adjusted by Holm. One run names nobody.
        """
        adjusted = iter(holm([p for share in self.shares for p in share.p_values]))
        pairs = zip(self.shares, zip(adjusted, adjusted, strict=True), strict=True)
        return tuple(share.party for share, p_values in pairs if harmed(share, p_values))

    @property
    def doubtful(self) -> tuple[str, ...]:
        """Parties that earned less, or lose if judged alone, which may be chance among so many."""
        losers = self.losers
        unclear = [share for share in self.shares if share.party not in losers]
        return tuple(share.party for share in unclear if share.doubtful or share.loses)

    @property
    def sentence(self) -> str:
        """Who is worse off with the federation, and who perhaps is."""
        parts = []
        nouns = self.record.words
        if self.losers:
            names = words.listed(self.losers)
            parts.append(f"Worse off joined, in {nouns.reward} or regret: {names}.")
        elif self.record.runs > 1:
            everyone = words.count(len(self.shares), nouns.party)
            parts.append(f"None of {everyone} is clearly worse off joined.")
        if self.doubtful:
            what = "Perhaps worse off" if self.record.runs > 1 else "Earned less in this one run"
            parts.append(f"{what}, which may be chance: {words.listed(self.doubtful)}.")
        return " ".join(parts)


def joining(records: Iterable[Record]) -> tuple[Joining, ...]:
    """Compare each party's result with and without the federation.

    The baseline of a record is the first one of level "alone" with the same problem, horizon,
    parties, world seeds and the settings that its system names in `show["baseline"]`. Without one
    the record is returned without a comparison. A baseline itself is not returned.
    """
    chosen = several(records)
    labelled = list(zip(chosen, labels(chosen), strict=True))
    pairs = [pair for pair in labelled if _has_party_totals(pair[0])]
    candidates = [record for record, _ in pairs]
    results = []
    baselines = []
    for record, label in pairs:
        baseline = _baseline(record, candidates)
        if baseline is not None:
            baselines.append(baseline)
        results.append(_joining(record, label, baseline))
    return tuple(
        joined for joined in results if not any(joined.record is baseline for baseline in baselines)
    )


def _has_party_totals(record: Record) -> bool:
    return bool(record.parties and record.runs) and record.party_total is not None


def _baseline(record: Record, candidates: Sequence[Record]) -> Record | None:
    """Return the first candidate without a federation that can be compared with a record."""
    settings = _shared(record, record)
    for candidate in candidates:
        if candidate is record and not record.federated:
            return None  # of several records alone the first is the baseline of the others
        if candidate.federated or candidate.status != "finished":
            continue
        if _shared(candidate, record) == settings and _order(record, candidate) is not None:
            return candidate
    return None


def _shared(record: Record, declaring: Record) -> tuple[object, ...]:
    """Return what a record must share with its baseline, by the settings that one declares."""
    names = declaring.shown("baseline")
    settings = [record.config.get(name) for name in names]
    return record.problem, record.horizon, record.parties, settings


def _order(record: Record, base: Record) -> list[int] | None:
    """Return the run of `base` with the seed of each run of `record`; None if the seeds differ."""
    run_of_seed = {seed: run for run, seed in enumerate(base.seeds)}
    distinct = len(run_of_seed) == base.runs == record.runs == len(set(record.seeds))
    if not distinct or run_of_seed.keys() != set(record.seeds):
        return None
    return [run_of_seed[seed] for seed in record.seeds]


def _joining(record: Record, label: str, base: Record | None) -> Joining:
    order = None if base is None else _order(record, base)
    figures = [
        record.party_total,
        _ordered(base, "party_total", order),
        record.party_regret,
        _ordered(base, "party_regret", order),
    ]
    shares = []
    for i, party in enumerate(record.parties):
        own = [None if each is None else each[:, i] for each in figures]
        shares.append(_share(party, *own))
    sums = [None if each is None else each.sum(axis=1) for each in figures]
    ratio = _ratio(sums[2], sums[3])
    return Joining(record, base, tuple(shares), _share(ALL, *sums), ratio, label)


def _ordered(base: Record | None, name: str, order: list[int] | None) -> Floats | None:
    """Return an array of the baseline with its runs in the order of the record's seeds."""
    array: Floats | None = getattr(base, name, None)
    return None if array is None else array[order]


def _share(
    party: str,
    total: Floats | None,
    alone: Floats | None,
    regret: Floats | None,
    regret_alone: Floats | None,
) -> Share:
    gain = _minus(total, alone)
    saved = _minus(regret, regret_alone)
    return Share(
        party,
        total=_mean(total),
        alone=_mean(alone),
        difference=_mean(gain),
        error=None if gain is None else standard_error(gain),
        regret=_mean(regret),
        regret_alone=_mean(regret_alone),
        regret_error=None if saved is None else standard_error(saved),
        runs=0 if total is None else total.size,
    )


def _minus(values: Floats | None, others: Floats | None) -> Floats | None:
    if values is None or others is None:
        return None
    return values - others


def _ratio(regret: Floats | None, alone: Floats | None) -> Interval | None:
    if regret is None or alone is None or (alone <= 0).any():
        return None
    return regret_ratio(regret[None, :], alone[None, :])


def harmed(share: Share, adjusted: Sequence[float]) -> bool:
    """Return whether one of the changes of a party is a clear loss, by their adjusted p-values."""
    return any(_side(*pair) == -2 for pair in zip(share.changes, adjusted, strict=True))


def _side(change: float | None, p_value: float) -> int:
    """Return the sign of a change, doubled if it is clear; 0 if there is none."""
    if not change:
        return 0
    sign = 1 if change > 0 else -1
    return 2 * sign if p_value <= ALPHA else sign


def _p_value(change: float | None, error: float | None, runs: int) -> float | None:
    if change is None or runs < 2 or error is None:
        return None
    if not error:
        return 0.0 if change else 1.0
    return t_p_value(change / error, runs - 1)


def _mean(values: Floats | None) -> float | None:
    return None if values is None else float(np.mean(values))
