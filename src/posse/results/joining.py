"""What joining is worth: the result of each party with the federation and without it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from posse.core.statistics import (
    LEVEL,
    Floats,
    Interval,
    mean_interval,
    regret_ratio,
    simultaneous_level,
    standard_error,
)
from posse.results import words
from posse.results.naming import labels
from posse.results.record import Record, several

ALL = "all together"

VERDICTS = {-2: "loses", -1: "perhaps loses", 0: "even", 1: "perhaps gains", 2: "gains"}
"""Verdicts by the sign of the reward gained, if the regret does not decide."""

VERDICTS_BY_REGRET = {
    -2: {**dict.fromkeys(VERDICTS, "regrets more"), -2: "loses", 2: "gains, but regrets more"},
    2: {**dict.fromkeys(VERDICTS, "regrets less"), -2: "loses", 2: "gains"},
}
"""Verdicts by the sign of the regret saved, if that is clear, and of the reward gained."""


@dataclass(frozen=True)
class Share:
    """The result of one party: means over runs. Without a record of it alone nothing is compared."""

    party: str
    total: float | None
    alone: float | None = None
    regret: float | None = None
    regret_alone: float | None = None
    gained: tuple[float, ...] = ()
    """Reward with the federation less that alone, run by run on the same world seeds."""
    saved: tuple[float, ...] = ()
    """Regret alone less that with the federation. It varies less by chance than the reward."""

    @property
    def difference(self) -> float | None:
        """Mean reward gained; None without a record alone."""
        return float(np.mean(self.gained)) if self.gained else None

    @property
    def error(self) -> float | None:
        """Standard error of the difference; None with fewer than two runs."""
        return standard_error(self.gained)

    @property
    def ratio(self) -> float | None:
        """Regret with federation over regret alone; None if the latter is not above 0."""
        if self.regret is None or self.regret_alone is None or self.regret_alone <= 0:
            return None
        return self.regret / self.regret_alone

    @property
    def tests(self) -> int:
        """How many of the two changes are known: reward gained and regret saved."""
        return bool(self.gained) + bool(self.saved)

    def signs(self, tests: int) -> tuple[int, int]:
        """Return the signs of the reward gained and of the regret saved.

        A sign is ±2 if the change is clear, ±1 if it may be chance, and 0 if there is none.

        Args:
            tests: Number of changes of which, with a probability of 95 %, none is called clear if
                joining does nothing.
        """
        level = simultaneous_level(LEVEL, max(1, tests))
        return _sign(self.gained, level), _sign(self.saved, level)

    @property
    def loses(self) -> bool:
        """Whether joining clearly cost this party: less reward, or more regret."""
        return -2 in self.signs(self.tests)

    @property
    def doubtful(self) -> bool:
        """Whether the party earned less, which may be chance, and its regret does not decide."""
        gain, relief = self.signs(self.tests)
        return gain == -1 and abs(relief) < 2

    @property
    def verdict(self) -> str:
        """How joining changed the result of the party; empty without a comparison.

        If joining does nothing to a party, at most 5 % of the verdicts are clear. The verdict on
        one run names it as one.

        >>> Share("a", 5.0, gained=(-4.0, -4.5, -3.5)).verdict
        'loses'
        >>> Share("b", 9.0, gained=(0.5, 2.5, -1.5)).verdict
        'perhaps gains'
        >>> Share("c", 9.0, gained=(0.5, 0.6, 0.4), saved=(-1.0, -1.1, -0.9)).verdict
        'gains, but regrets more'
        >>> Share("d", 5.0, gained=(-4.0,)).verdict
        'less in this one run'
        """
        if not self.gained:
            return ""
        gain, relief = self.signs(self.tests)
        if gain and len(self.gained) == 1:
            return "more in this one run" if gain > 0 else "less in this one run"
        return VERDICTS_BY_REGRET.get(relief, VERDICTS)[gain]


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
        the intervals of all parties, two each, hold together. One run names nobody.
        """
        tests = sum(share.tests for share in self.shares)
        return tuple(share.party for share in self.shares if -2 in share.signs(tests))

    @property
    def doubtful(self) -> tuple[str, ...]:
        """Parties that earned less, or lose if judged alone, which may be chance among so many."""
        losers = self.losers
        worse = [share.party for share in self.shares if share.doubtful or share.loses]
        return tuple(party for party in worse if party not in losers)

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
    label_of = dict(zip(map(id, chosen), labels(chosen), strict=True))
    candidates = [record for record in chosen if record.parties and _earned(record)]
    results = []
    for record in candidates:
        results.append(_joining(record, label_of[id(record)], _baseline(record, candidates)))
    baselines = {id(joined.baseline) for joined in results}
    return tuple(joined for joined in results if id(joined.record) not in baselines)


def _earned(record: Record) -> bool:
    """Return whether it is known what each party earned."""
    return record.party_total is not None and record.runs > 0


def _baseline(record: Record, candidates: Sequence[Record]) -> Record | None:
    """Return the first candidate without a federation that can be compared with a record."""
    for candidate in candidates:
        if candidate.federated:
            continue
        if candidate is record:
            return None  # of several records alone the first is the baseline of the others
        if candidate.status == "finished" and _comparable(record, candidate):
            return candidate
    return None


def _comparable(record: Record, base: Record) -> bool:
    """Return whether two records share seeds, problem, and what the system of the first names."""
    if len(set(record.seeds)) != record.runs:
        return False
    settings = record.shown("baseline")
    facts = []
    for each in (record, base):
        values = [each.config.get(name) for name in settings]
        facts.append((sorted(each.seeds), each.problem, each.horizon, each.parties, values))
    return facts[0] == facts[1]


def _joining(record: Record, label: str, base: Record | None) -> Joining:
    parties = (*record.parties, ALL)
    unknown = np.full((record.runs, len(parties)), np.nan)
    runs = list(range(record.runs))
    total = _with_sum(record.party_total, runs, unknown)
    regret = _with_sum(record.party_regret, runs, unknown)
    alone = unknown
    regret_alone = unknown
    if base is not None:
        # The runs of the baseline in the order of the record's seeds.
        runs = [base.seeds.index(seed) for seed in record.seeds]
        alone = _with_sum(base.party_total, runs, unknown)
        regret_alone = _with_sum(base.party_regret, runs, unknown)
    shares = []
    for i, party in enumerate(parties):
        share = Share(
            party,
            _mean(total[:, i]),
            _mean(alone[:, i]),
            _mean(regret[:, i]),
            _mean(regret_alone[:, i]),
            _if_known(total[:, i] - alone[:, i]),
            _if_known(regret_alone[:, i] - regret[:, i]),
        )
        shares.append(share)
    ratio = None
    if shares[-1].saved and (regret_alone[:, -1] > 0).all():
        ratio = regret_ratio(regret[None, :, -1], regret_alone[None, :, -1])
    return Joining(record, base, tuple(shares[:-1]), shares[-1], ratio, label)


def _with_sum(array: Floats | None, runs: Sequence[int], unknown: Floats) -> Floats:
    """Return some runs of an array, (runs, parties), with the sum over parties as a last column."""
    if array is None:
        return unknown
    return np.column_stack([array[runs], array[runs].sum(axis=1)])


def _mean(values: Floats) -> float | None:
    """Return the mean; None if it is unknown."""
    return None if np.isnan(values).any() else float(values.mean())


def _if_known(values: Floats) -> tuple[float, ...]:
    """Return the values; an empty tuple if they are unknown."""
    return () if np.isnan(values).any() else tuple(values.tolist())


def _sign(changes: Sequence[float], level: float) -> int:
    """Return the sign of the mean change, doubled if it is clear; 0 if there is none."""
    if not changes:
        return 0
    interval = mean_interval(changes, level)
    sign = int(np.sign(interval.estimate))
    return 2 * sign if interval.excludes_zero else sign
