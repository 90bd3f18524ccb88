"""Summaries of a user's tables: kind, arms, dropped rows, and the command that runs on them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from posse.core.errors import ConfigError, DataError
from posse.problems.arms.settings import ProblemSettings, usual_threshold
from posse.problems.populations.settings import PopulationSettings
from posse.problems.recognise import Recognised, recognise, similar_names
from posse.problems.requirements import Floats
from posse.problems.tables.mapping import columns_text, suggest_columns
from posse.problems.tables.options import ReadOptions
from posse.problems.tables.schema import Schema, numbers, words
from posse.problems.tables.table import open_table

RATED = ("ratings", "wide", "reviews", "owners")
"""Kinds of tables that make arms of ratings."""


@dataclass(frozen=True)
class ArmSummary:
    """An arm of a table."""

    name: str
    count: int | None
    """Rows of the arm; None if the table has only its mean."""
    mean: float
    """Share of its ratings above the threshold, or mean of its rewards."""


@dataclass(frozen=True)
class Summary:
    """The content of tables."""

    kind: str
    """One of `posse.problems.recognise.TITLES`."""
    arms: tuple[ArmSummary, ...]
    flags: Mapping[str, object]
    """The settings that read the tables, other than their paths."""
    command: tuple[str, ...]
    """Words of a command that runs on the tables."""
    threshold: float | None = None
    dropped: tuple[str, ...] = ()
    similar: list[tuple[str, ...]] = field(default_factory=list)
    """Names of arms that differ only in case or spaces."""

    @property
    def rows(self) -> int:
        """Rows that could be read."""
        return sum(arm.count or 0 for arm in self.arms)


def summarise(files: Sequence[Path], columns: Mapping[str, str] | None = None) -> Summary:
    """Summarise one table, or the tables of several owners.

    Args:
        files: One file, or one file per owner; or a folder of these.
        columns: What the tables call their columns; guessed if left out.
    """
    if len(files) == 1 and files[0].is_file():
        recognised = recognise(files[0], ReadOptions(columns=columns or {}))
        if recognised.kind == "log":
            return _log(files[0], recognised)
        if recognised.kind == "clients":
            return _clients(files[0], recognised)
        if recognised.kind not in (*RATED, "means"):
            return _part(files[0], recognised)
        return _arms(str(files[0]), recognised.kind, recognised.settings())
    data = str(files[0]) if len(files) == 1 else tuple(map(str, files))
    first = ProblemSettings(data=data).owner_files()[0]
    names = dict(columns or suggest_columns(open_table(first), [("rating", True)]))
    return _arms(data, "owners", {"columns": names} if names else {})


def _arms(data: str | tuple[str, ...], kind: str, flags: dict[str, object]) -> Summary:
    """Summarise arms."""
    settings = ProblemSettings.make({"data": data, **flags})
    try:
        settings.ratings()
    except DataError as error:
        if error.rule not in ("problems.rows.bad", "problems.rows.several-bad"):
            raise
        flags = {**flags, "skip_bad": True}
        settings = ProblemSettings.make({"data": data, **flags})
    ratings = settings.ratings()
    threshold = None
    counts: dict[str, int] = {}
    if ratings is not None:
        counts = dict(zip(ratings.names, ratings.counts.tolist(), strict=True))
        threshold = 0.5
        if not ratings.are_rewards:
            threshold = usual_threshold(ratings)
            flags = {**flags, "threshold": threshold}
            settings = ProblemSettings.make({"data": data, **flags})
    arms = settings.arms()
    paths = (data,) if isinstance(data, str) else data
    return Summary(
        kind=kind,
        arms=_by_mean(arms.names, map(counts.get, arms.names), arms.means),
        flags=flags,
        command=("posse", "run", "samba", "--data", *paths, *as_flags(flags)),
        threshold=threshold,
        dropped=settings.dropped,
        similar=similar_names(arms.names),
    )


def _by_mean(
    names: Iterable[str], counts: Iterable[int | None], means: Floats
) -> tuple[ArmSummary, ...]:
    """Return arms, the largest mean first."""
    summaries = map(ArmSummary, names, counts, means.tolist())
    return tuple(sorted(summaries, key=lambda arm: -arm.mean))


def _log(file: Path, recognised: Recognised) -> Summary:
    """Summarise a log of decisions: the mean reward of each arm as it was logged."""
    options = ReadOptions(
        recognised.encoding, recognised.decimal, skip_bad=True, columns=recognised.columns
    )
    table = open_table(file, options)
    records = Schema(words("arm"), numbers("reward"), numbers("probability")).read(table)
    arms = records.words["arm"]
    counts = np.bincount(arms.code)
    sums = np.bincount(arms.code, records.numbers["reward"])
    flags = recognised.settings()
    if options.notes:
        flags["skip_bad"] = True
    return Summary(
        kind="log",
        arms=_by_mean(arms.distinct, counts.tolist(), sums / counts),
        flags=flags,
        command=("posse", "evaluate", str(file), *as_flags(flags)),
        dropped=tuple(options.notes),
        similar=similar_names(arms.distinct),
    )


def _clients(file: Path, recognised: Recognised) -> Summary:
    """Summarise samples of clients: how many samples have each label."""
    flags = recognised.settings()
    settings = PopulationSettings.make({"data": str(file), **flags})
    population = settings.population()
    labels = np.asarray(population.labels)
    counts = np.bincount(labels, minlength=len(population.arms))
    shares = counts / len(labels)
    return Summary(
        kind="clients",
        arms=tuple(map(ArmSummary, population.arms, counts.tolist(), shares.tolist())),
        flags=flags,
        command=("posse", "run", "fed-contextual", "--data", str(file), *as_flags(flags)),
        dropped=settings.dropped,
        similar=similar_names(population.arms),
    )


def _part(file: Path, recognised: Recognised) -> Summary:
    """Refuse a table that is one part of a problem, and name the command that takes all parts."""
    commands = {
        "offers": "posse run dp-combinatorial --offers {} --qualities QUALITIES.csv",
        "qualities": "posse run dp-combinatorial --offers OFFERS.csv --qualities {}",
        "features": "posse run mpc-contextual --features party-1={},party-2=OTHER.csv --rewards "
        "REWARDS.csv",
    }
    raise ConfigError(
        f"{file} is one of the files of a problem. Give all of them: "
        f"{commands[recognised.kind].format(file)}",
        rule="problems.file.one-of-several",
    )


def as_flags(settings: Mapping[str, object]) -> list[str]:
    """Return settings as words of a command.

    >>> as_flags({"columns": {"item": "shop"}, "skip_bad": True, "threshold": 3.0})
    ['--columns', 'item=shop', '--skip-bad', '--threshold', '3']
    """
    flags: list[str] = []
    for name, value in settings.items():
        flags.append(f"--{name.replace('_', '-')}")
        if isinstance(value, Mapping):
            flags.append(columns_text(value))
        elif isinstance(value, float):
            flags.append(f"{value:g}")
        elif value is not True:
            flags.append(str(value))
    return flags
