"""Two or more records in one table: what each earned, what it cost, and whether runs are the same."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from posse.core.errors import DataError
from posse.core.statistics import (
    Floats,
    Interval,
    paired_interval,
    standard_error,
    student,
    unknown_interval,
)
from posse.results.naming import labels
from posse.results.record import CHANCE, PLAIN, Record, nouns_of
from posse.results.values import same
from posse.results.words import Vocabulary, plural

SHORTEST = 0.005
"""CPU seconds below which a time is mostly the clock and the caches."""
FEW_SCORES = 20_000
"""Steps times arms up to which a plain run can be interpreted: compiled it takes under 5 ms."""
INTERPRETED = 0.5
"""CPU seconds that interpreting a plain run takes at most."""
FAILED_ERRORS = 0.75
"""Standard errors that a difference must keep with one more run that fails. With 1 Thompson sampling
against UCB (5,000 steps, five runs) is clear in 19 % of comparisons, with 0.75 in 96 %; with 0.5
settings that earn the same were called clear in 8 % of comparisons of five runs.
"""


@dataclass(frozen=True)
class Difference:
    """How much more the runs of a record earned than those of another one."""

    interval: Interval
    error: float | None
    """Standard error; None with too few runs."""
    paired: bool
    """Whether it was taken run by run, on the same world seeds."""
    survives: bool
    """Whether it would remain with one more run in which the better record fails."""

    @property
    def clear(self) -> bool:
        """Whether it is clear: the interval excludes 0, and one failed run would not undo it."""
        return self.interval.excludes_zero and self.survives


NO_DIFFERENCE = Difference(unknown_interval(math.nan), None, paired=False, survives=False)


@dataclass(frozen=True)
class ComparedRun:
    """One record of a comparison. Values that are not known are None."""

    id: str
    label: str
    level: str
    protection: str
    """The level, and what of it was switched off or whose plain twin it is."""
    runs: int
    mean: float | None
    error: float | None
    """Standard error of the mean."""
    difference: float | None
    """Mean total reward less that of the first record."""
    difference_error: float | None
    """Standard error of the difference."""
    difference_low: float | None
    """Lower end of its 95 % interval."""
    difference_high: float | None
    clear: bool
    """Whether the difference is more than chance, and one failed run would not undo it."""
    paired: bool
    """Whether the difference was taken run by run, on the same world seeds."""
    identical: bool
    """Whether seeds, pulls and totals equal those of the first record bit for bit."""
    seconds: float
    ratio: float | None
    """CPU seconds over those of the first record; None if those were not measured."""
    messages: int
    bytes: int


@dataclass(frozen=True)
class Comparison:
    """A table of records, compared with the first, and notes on how to read it."""

    rows: tuple[ComparedRun, ...]
    notes: tuple[str, ...]
    words: Vocabulary = field(default_factory=Vocabulary)
    """The words that all of the records share."""
    records: tuple[Record, ...] = field(default=(), repr=False, compare=False)
    """What is compared, for a picture."""

    def _repr_html_(self) -> str:
        """Return the answer, the table with its notes and a picture for a notebook."""
        from posse.results.render import comparison_card

        return comparison_card(self)


def compare(records: Iterable[Record], *, strict: bool = False) -> Comparison:
    """Compare records with the first one.

    Differences have standard errors and intervals (`difference`). Labels contain what differs
    between the records. Other horizons or problems are noted.

    Args:
        records: At least two.
        strict: Raise an error for records of other horizons or problems.
    """
    chosen = tuple(records)
    if len(chosen) < 2:
        raise DataError(
            f"a comparison needs at least 2 records, got {len(chosen)}. Name another run.",
            rule="results.records.too-few",
        )
    conflicts = _conflicts(chosen)
    if strict and conflicts:
        raise DataError(
            f"these runs cannot be compared: {' '.join(conflicts)} Leave out 'strict' to compare "
            "anyway.",
            rule="results.records.conflict",
        )
    names = labels(chosen)
    rows = tuple(_row(chosen[i], names[i], chosen[0]) for i in range(len(chosen)))
    nouns = nouns_of(chosen)
    return Comparison(rows, (*conflicts, *_notes(chosen, rows)), nouns, chosen)


def identical(a: Record, b: Record) -> bool:
    """Return whether two records are the same run bit for bit.

    The seeds, the pulls of every arm, and the totals of runs and parties must be equal. Records that
    do not know what was earned are never called the same.
    """
    if not a.total or (a.seeds, a.parties) != (b.seeds, b.parties):
        return False
    totals_are_same = same(np.array(a.total, np.float64), np.array(b.total, np.float64))
    return totals_are_same and same(a.pulls, b.pulls) and same(a.party_total, b.party_total)


def times_as_long(record: Record, first: Record) -> float | None:
    """Return the CPU seconds of a record over those of another; None if those were not measured."""
    return record.seconds / first.seconds if first.seconds else None


def too_short(record: Record) -> bool:
    """Return whether a run was too short to estimate the time of longer runs."""
    if record.seconds < SHORTEST:
        return True
    few_scores = record.steps_done * record.arms <= FEW_SCORES
    return record.level == PLAIN and few_scores and record.seconds < INTERPRETED


def _row(record: Record, label: str, first: Record) -> ComparedRun:
    apart = NO_DIFFERENCE
    # Rewards of different problems do not compare, whatever the seeds.
    if record is not first and record.problem == first.problem:
        apart = difference(record, first)
    return ComparedRun(
        id=record.id,
        label=label,
        level=record.level,
        protection=record.protection,
        runs=record.runs,
        mean=record.total_mean,
        error=standard_error(record.total),
        difference=_finite(apart.interval.estimate),
        difference_error=apart.error,
        difference_low=_finite(apart.interval.low),
        difference_high=_finite(apart.interval.high),
        clear=apart.clear,
        paired=apart.paired,
        identical=identical(record, first),
        seconds=record.seconds,
        ratio=times_as_long(record, first),
        messages=record.messages,
        bytes=record.bytes,
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def difference(record: Record, first: Record) -> Difference:
    r"""Return the mean total of a record less that of another one.

    On the same world seeds it is taken run by run: the luck of the draw cancels. The standard error
    is $s_d / \sqrt n$ of those differences d, and the interval Student's, corrected for skewness.
    Otherwise the standard error is $\sqrt{e_1^2 + e_2^2}$ of the two, and the interval Student's.

    Most runs of a bandit are often similar, and a few stay with a bad arm. In a sample without such
    a run the setting that sometimes fails looks better, by little and in every run; no statistic of
    that sample shows the truth. So a difference is `clear` only if it survives one more run in which
    the better setting fails: it earns what chance earns, or the least of any run if that is less.
    """
    if not record.total or not first.total:
        return NO_DIFFERENCE
    pairs = _paired_totals(record, first)
    if pairs is None:
        return _unpaired(record, first)
    totals, others = pairs
    differences = totals - others
    interval = paired_interval(differences)
    if not interval.known:
        return Difference(interval, None, paired=True, survives=False)
    gains = differences
    worse = others
    if interval.estimate < 0:
        gains = -differences
        worse = totals
    after = np.append(gains, min(0.0, _failed_total(record, first) - float(worse.mean())))
    error_after = float(after.std(ddof=1)) / math.sqrt(after.size)
    survives = float(after.mean()) > FAILED_ERRORS * error_after
    return Difference(interval, standard_error(differences), paired=True, survives=survives)


def _paired_totals(record: Record, first: Record) -> tuple[Floats, Floats] | None:
    """Return the totals of both records in the same order of seeds; None if the seeds differ."""
    totals = dict(zip(record.seeds, record.total, strict=False))
    others = dict(zip(first.seeds, first.total, strict=False))
    if totals.keys() != others.keys() or not len(totals) == record.runs == first.runs:
        return None
    return np.array([*totals.values()]), np.array([others[seed] for seed in totals])


def _unpaired(record: Record, first: Record) -> Difference:
    apart, error = _apart(record.total, first.total)
    if error is None:
        return Difference(unknown_interval(apart), None, paired=False, survives=False)
    interval = student(apart, error, min(record.runs, first.runs) - 1)
    better, other = (record, first) if apart > 0 else (first, record)
    after, error_after = _apart((*better.total, _failed_total(record, first)), other.total)
    survives = after > FAILED_ERRORS * (error_after or 0.0)
    return Difference(interval, error, paired=False, survives=survives)


def _apart(totals: Sequence[float], others: Sequence[float]) -> tuple[float, float | None]:
    """Return the difference of two independent means, and its standard error."""
    apart = float(np.mean(totals)) - float(np.mean(others))
    error = standard_error(totals)
    other_error = standard_error(others)
    if error is None or other_error is None:
        return apart, None
    return apart, math.hypot(error, other_error)


def _failed_total(*records: Record) -> float:
    """Return the total of a run that fails.

    It is the least of all runs, or what decisions at random earn if that is less.
    """
    totals = [min(record.total) for record in records]
    for record in records:
        chance = record.summary.get(CHANCE)
        if isinstance(chance, float):
            decisions = record.pulls.sum() / record.runs if record.arms else record.horizon
            totals.append(chance * float(decisions))
    return min(totals)


# Notes --------------------------------------------------------------------------------------------


def _conflicts(records: tuple[Record, ...]) -> list[str]:
    nouns = nouns_of(records)
    horizons = [f"{record.horizon:,}" for record in records]
    notes = _if_different("The horizons differ ({} " + f"{plural(nouns.step)}).", horizons)
    if any(record.problem != records[0].problem for record in records):
        names = list(dict.fromkeys(record.problem_name for record in records))
        what = ", ".join(names)
        if len(names) == 1:
            what = f"all are called {what}, with other {plural(nouns.arm)}, means or sources"
        notes.append(
            f"The problems differ ({what}): no difference is taken between rewards of two problems."
        )
    return notes


def _notes(records: tuple[Record, ...], rows: tuple[ComparedRun, ...]) -> list[str]:
    notes = _pairing_notes(rows)
    if any(map(too_short, records)):
        notes.append(SHORT_TIMES)
    notes += _if_different(
        "The versions of Posse differ ({}).", [record.version for record in records]
    )
    notes += _if_different(
        "Plain twins of different levels ({}): each draws as its own level does.",
        [record.twin_of for record in records],
    )
    ids_of_run: dict[str, list[str]] = {}
    for record in records:
        ids_of_run.setdefault(record.run_id, []).append(record.id)
        if record.status != "finished":
            notes.append(f"Run {record.id} was not finished: {record.state}.")
    for ids in ids_of_run.values():
        if len(ids) > 1:
            notes.append(f"Records of one run: {', '.join(ids)}.")
    few = [row.id for row in rows if row.runs < 2]
    if few:
        notes.append(f"Fewer than two runs have no standard error: {', '.join(few)}.")
    return notes


SHORT_TIMES = (
    "At least one run is too short to compare CPU times: most of its time is start-up, which longer "
    "runs do not repeat. Compare longer runs."
)


def _pairing_notes(rows: tuple[ComparedRun, ...]) -> list[str]:
    compared = [row for row in rows if row.difference is not None]
    paired = [row.id for row in compared if row.paired]
    if not paired:
        return []
    if len(paired) == len(rows) - 1:
        return ["The world seeds are the same: differences are paired, run by run."]
    note = f"Paired by world seed with the first: {', '.join(paired)}."
    if len(compared) > len(paired):
        note += " The others ran on other seeds."
    return [note]


def _if_different(sentence: str, names: Sequence[str]) -> list[str]:
    """Put names into a sentence if there are two different ones; empty names do not count."""
    different = list(dict.fromkeys(filter(None, names)))
    return [sentence.format(", ".join(different))] if len(different) > 1 else []
