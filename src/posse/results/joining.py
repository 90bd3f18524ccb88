"""What joining is worth: the result of each party with the federation and without it."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from posse.core.statistics import Floats, Interval, holm, regret_ratio, standard_error, t_p_value
from posse.results import words
from posse.results.naming import labels
from posse.results.record import Record, several

Result = TypeVar("Result")

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
        if self.regret_alone is None or self.regret_alone <= 0:
            return None
        return _if_known(operator.truediv, self.regret, self.regret_alone)

    @property
    def saved(self) -> float | None:
        """Regret that joining saved. It varies less by chance than the reward gained."""
        return _if_known(operator.sub, self.regret_alone, self.regret)

    @property
    def p_values(self) -> tuple[float | None, float | None]:
        """Probabilities of changes as large if joining does nothing: Student's t, runs - 1 degrees.

        >>> gain, relief = Share("a", 5.0, 9.0, -4.0, 1.0, runs=5).p_values
        >>> round(gain, 4), relief
        (0.0161, None)
        """
        gain = _if_known(_p_value, self.difference, self.error, self.runs)
        return gain, _if_known(_p_value, self.saved, self.regret_error, self.runs)

    def signs(self, adjusted: Sequence[float]) -> tuple[int, int]:
        """Return signs of the reward gained and the regret saved, by their adjusted p-values.

        A sign is ±2 if the change is clear, ±1 if it may be chance, and 0 if there is none.
        """
        gain, relief = adjusted
        return _sign(self.difference, gain), _sign(self.saved, relief)

    @property
    def own_signs(self) -> tuple[int, int]:
        """The signs if this party is judged alone: its two tests are adjusted by Holm."""
        return self.signs(holm(self.p_values))

    @property
    def loses(self) -> bool:
        """Whether joining clearly cost this party: less earned, or more regret."""
        return -2 in self.own_signs

    @property
    def doubtful(self) -> bool:
        """Whether the party earned less, which may be chance, and its regret does not decide."""
        return self.own_signs in ((-1, -1), (-1, 0), (-1, 1))

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
        gain, relief = self.own_signs
        verdicts = _VERDICTS_BY_REGRET.get(relief, _VERDICTS)
        return verdicts[gain]


_VERDICTS = {-2: "loses", -1: "perhaps loses", 0: "even", 1: "perhaps gains", 2: "gains"}
"""Verdicts by the sign of the reward gained, if the regret does not decide."""

_VERDICTS_BY_REGRET = {
    -2: {**dict.fromkeys(_VERDICTS, "regrets more"), -2: "loses", 2: "gains, but regrets more"},
    2: {**dict.fromkeys(_VERDICTS, "regrets less"), -2: "loses", 2: "gains"},
}


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
        p_values: list[float | None] = []
        for share in self.shares:
            p_values += share.p_values
        adjusted = holm(p_values)
        losers = []
        for i, share in enumerate(self.shares):
            if -2 in share.signs(adjusted[2 * i : 2 * i + 2]):
                losers.append(share.party)
        return tuple(losers)

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
    pairs = [
        (record, label)
        for record, label in zip(chosen, labels(chosen), strict=True)
        if record.parties and record.party_total is not None and record.runs
    ]
    candidates = [record for record, _ in pairs]
    results = [_joining(record, label, _baseline(record, candidates)) for record, label in pairs]
    baselines = {id(joined.baseline) for joined in results}
    return tuple(joined for joined in results if id(joined.record) not in baselines)


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
    seeds = sorted(record.seeds)
    if seeds != sorted(base.seeds) or len(set(seeds)) != record.runs:
        return False
    own = (record.problem, record.horizon, record.parties)
    if own != (base.problem, base.horizon, base.parties):
        return False
    return all(
        record.config.get(name) == base.config.get(name) for name in record.shown("baseline")
    )


def _joining(record: Record, label: str, base: Record | None) -> Joining:
    figures = [_with_sum(record.party_total), None, _with_sum(record.party_regret), None]
    if base is not None:
        # The runs of the baseline in the order of the record's seeds.
        run_of_seed = {seed: run for run, seed in enumerate(base.seeds)}
        order = [run_of_seed[seed] for seed in record.seeds]
        figures[1] = _with_sum(base.party_total, order)
        figures[3] = _with_sum(base.party_regret, order)
    shares = []
    for i, party in enumerate((*record.parties, ALL)):
        shares.append(_share(party, *[None if each is None else each[:, i] for each in figures]))
    ratio = _if_known(_ratio, *[None if each is None else each[:, -1] for each in figures[2:]])
    return Joining(record, base, tuple(shares[:-1]), shares[-1], ratio, label)


def _with_sum(array: Floats | None, runs: Sequence[int] | slice = slice(None)) -> Floats | None:
    """Return some runs of an array, (runs, parties), with the sum over parties as a last column."""
    if array is None:
        return None
    chosen = array[runs]
    return np.column_stack([chosen, chosen.sum(axis=1)])


def _share(
    party: str,
    total: Floats | None,
    alone: Floats | None,
    regret: Floats | None,
    regret_alone: Floats | None,
) -> Share:
    gain = _if_known(operator.sub, total, alone)
    saved = _if_known(operator.sub, regret, regret_alone)
    return Share(
        party,
        total=_if_known(_mean, total),
        alone=_if_known(_mean, alone),
        difference=_if_known(_mean, gain),
        error=_if_known(standard_error, gain),
        regret=_if_known(_mean, regret),
        regret_alone=_if_known(_mean, regret_alone),
        regret_error=_if_known(standard_error, saved),
        runs=0 if total is None else total.size,
    )


def _if_known(function: Callable[..., Result], *values: object) -> Result | None:
    """Return the result of a function; None if one of its arguments is not known."""
    if any(value is None for value in values):
        return None
    return function(*values)


def _ratio(regret: Floats, alone: Floats) -> Interval | None:
    if (alone <= 0).any():
        return None
    return regret_ratio(regret[None, :], alone[None, :])


def _sign(change: float | None, p_value: float) -> int:
    """Return the sign of a change, doubled if it is clear; 0 if there is none."""
    sign = int(np.sign(change or 0.0))
    return 2 * sign if p_value <= ALPHA else sign


def _p_value(change: float, error: float, runs: int) -> float:
    if not error:
        return 0.0 if change else 1.0
    return t_p_value(change / error, runs - 1)


def _mean(values: Floats) -> float:
    return float(np.mean(values))
