"""Two or more records side by side: what was earned, what it cost, and whether it is the same
run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from posse.core.errors import DataError
from posse.results.naming import labels
from posse.results.record import Record
from posse.results.statistics import standard_error
from posse.results.values import same
from posse.results.words import Vocabulary, common, plural

SHORTEST = 0.005
"""CPU seconds below which a time is mostly the clock and the caches, and no ratio is made of it."""
FEW_SCORES = 20_000
"""Steps times arms up to which a plain run can be interpreted: compiled it takes under 5 ms."""
INTERPRETED = 0.5
"""CPU seconds that interpreting a plain run takes at most."""


@dataclass(frozen=True)
class ComparedRun:
    """One record of a comparison; what needs two runs or a first record to compare with is None
    without.
    """

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
    paired: bool
    """Whether the difference was taken run by run, on the same world seeds."""
    identical: bool
    """Whether seeds, pulls and totals (of every party too) equal those of the first record bit for
    bit.
    """
    seconds: float
    ratio: float | None
    """Seconds over those of the first record; None where one of the two is too short to compare."""
    messages: int
    bytes: int


@dataclass(frozen=True)
class Comparison:
    """A table of records, compared with the first, and what to know when reading it."""

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
    r"""Compare records with the first one.

    On the same world seeds the difference is taken run by run, and its standard error is $s_d /
    \sqrt n$ of those differences d: the luck of the draw cancels. Otherwise it is $\sqrt{e_1^2 +
    e_2^2}$ of the two standard errors. Labels say what differs between the records (`labels`).
    Other horizons or problems are noted, or refused with `strict`.
    """
    chosen = tuple(records)
    if len(chosen) < 2:
        raise DataError(f"a comparison needs at least 2 records, got {len(chosen)}.")
    first = chosen[0]
    conflicts = _conflicts(chosen)
    if strict and conflicts:
        raise DataError(
            f"these runs cannot be compared: {' '.join(conflicts)} Leave out 'strict' to compare "
            "anyway."
        )
    rows = tuple(_row(*pair, first) for pair in zip(chosen, labels(chosen), strict=True))
    return Comparison(
        rows, (*conflicts, *_notes(chosen, rows)), common(record.words for record in chosen), chosen
    )


def identical(a: Record, b: Record) -> bool:
    """Return whether two records are the same run bit for bit: seeds, pulls of every arm, totals of
    runs and parties.

    Records that do not know what was earned are never called the same.
    """
    totals = (np.array(record.total, dtype=np.float64) for record in (a, b))
    alike = bool(a.total) and a.seeds == b.seeds and same(*totals) and same(a.pulls, b.pulls)
    return alike and a.parties == b.parties and same(a.party_total, b.party_total)


def times_as_long(record: Record, first: Record) -> float | None:
    """CPU seconds of a record over those of another, or None if one is too short to compare."""
    if _too_short(record) or _too_short(first):
        return None
    return record.seconds / first.seconds


def _too_short(record: Record) -> bool:
    """Whether the time of a record says nothing about longer runs."""
    few_scores = record.steps_done * record.arms <= FEW_SCORES
    interpreted = record.level == "plain" and few_scores and record.seconds < INTERPRETED
    return record.seconds < SHORTEST or interpreted


def _row(record: Record, label: str, first: Record) -> ComparedRun:
    # Rewards of different problems do not compare, whatever the seeds.
    alone = record is first or record.problem != first.problem
    apart, error, paired = (None, None, False) if alone else difference(record, first)
    return ComparedRun(
        id=record.id,
        label=label,
        level=record.level,
        protection=record.protection,
        runs=record.runs,
        mean=record.total_mean,
        error=standard_error(record.total),
        difference=apart,
        difference_error=error,
        paired=paired,
        identical=identical(record, first),
        seconds=record.seconds,
        ratio=times_as_long(record, first),
        messages=record.messages,
        bytes=record.bytes,
    )


def difference(record: Record, first: Record) -> tuple[float | None, float | None, bool]:
    """Mean total less that of another record, its standard error, and whether it was taken run by
    run.
    """
    if record.total_mean is None or first.total_mean is None:
        return None, None, False
    mine, theirs = (dict(zip(r.seeds, r.total, strict=False)) for r in (record, first))
    if mine and mine.keys() == theirs.keys() and len(mine) == record.runs == first.runs:
        each = [mine[seed] - theirs[seed] for seed in mine]
        return float(np.mean(each)), standard_error(each), True
    errors = standard_error(record.total), standard_error(first.total)
    apart = (
        None if errors[0] is None or errors[1] is None else float(np.hypot(errors[0], errors[1]))
    )
    return record.total_mean - first.total_mean, apart, False


def _conflicts(records: tuple[Record, ...]) -> list[str]:
    nouns = common(record.words for record in records)
    horizons = list(dict.fromkeys(f"{record.horizon:,}" for record in records))
    notes = (
        [f"The horizons differ ({', '.join(horizons)} {plural(nouns.step)})."]
        if len(horizons) > 1
        else []
    )
    if any(record.problem != records[0].problem for record in records):
        names = list(dict.fromkeys(record.problem_name for record in records))
        other = f"all are called {names[0]}, with other {plural(nouns.arm)}, means or sources"
        what = ", ".join(names) if len(names) > 1 else other
        notes.append(
            f"The problems differ ({what}): no difference is taken between rewards of two problems."
        )
    return notes


def _notes(records: tuple[Record, ...], rows: tuple[ComparedRun, ...]) -> list[str]:
    notes = []
    if rows[1:] and all(row.paired for row in rows[1:]):
        notes.append("The world seeds are the same: differences are paired, run by run.")
    elif any(row.paired for row in rows):
        paired = ", ".join(row.id for row in rows if row.paired)
        other = any(row.difference is not None and not row.paired for row in rows)
        said = " The others ran on other seeds." if other else ""
        notes.append(f"Paired by world seed with the first: {paired}.{said}")
    if any(_too_short(record) for record in records):
        notes.append(
            f"A time under {SHORTEST * 1000:.0f} ms, or of a plain run of up to {FEW_SCORES:,} "
            "scores, is too short to compare: no ratio is made of it."
        )
    versions = list(dict.fromkeys(record.version for record in records))
    if len(versions) > 1:
        notes.append(f"The versions of Posse differ ({', '.join(versions)}).")
    twins = list(dict.fromkeys(record.twin_of for record in records if record.twin_of))
    if len(twins) > 1:
        notes.append(
            f"Plain twins of different levels ({', '.join(twins)}): each draws as its own level "
            "does."
        )
    runs = Counter(record.run_id for record in records)
    notes += [
        f"Records of one run: {', '.join(record.id for record in records if record.run_id == run)}."
        for run, times in runs.items()
        if times > 1
    ]
    notes += [f"Run {r.id} was not finished: {r.state}." for r in records if r.status != "finished"]
    few = [row.id for row in rows if row.runs < 2]
    return (
        [*notes, f"Fewer than two runs have no standard error: {', '.join(few)}."] if few else notes
    )
