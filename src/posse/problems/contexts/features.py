"""A user's own features: one CSV file per party, aligned row by row, and what every arm pays in
another file.

A file has a header, a column `row` that identifies the row (any text, all different) and a column
of numbers for each feature. All files hold the same rows in the same order. In a deployment a party
reads its own file alone (`read_block`) and compares the digest of its rows with the others; a run
in one place reads them all (`read_features`).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from posse.core import check
from posse.core.errors import ConfigError, DataError
from posse.core.fixed import UNIT_RANGE, RewardRange
from posse.problems.contexts.contexts import (
    SLACK,
    Block,
    Contexts,
    check_bounds,
    check_count,
    row_norms,
    scale_to_bound,
)
from posse.problems.tables.encoded import other_columns, read_encoded
from posse.problems.tables.faults import BadRows
from posse.problems.tables.frames import Frame
from posse.problems.tables.options import ReadOptions
from posse.problems.tables.schema import Records, Schema, numbers, words
from posse.problems.tables.schema import within as in_range
from posse.problems.tables.table import open_table
from posse.problems.tables.text import FilePath

ROW = "row"


@dataclass(frozen=True, eq=False)
class Rows:
    """A table of numbers whose rows have identifiers."""

    file: str
    ids: tuple[str, ...]
    names: tuple[str, ...]
    """Names of the columns of numbers, in the order of the file."""
    values: NDArray[np.float64]
    """(rows, columns)"""
    line: NDArray[np.int64]
    """Line of the file on which each row stands."""

    @property
    def ids_digest(self) -> str:
        """Digest of the identifiers in their order: equal where two files hold the same rows."""
        return ids_digest(self.ids)

    def part(self, chosen: NDArray[np.bool_]) -> Rows:
        """Return some of the rows."""
        ids = tuple(id for id, good in zip(self.ids, chosen, strict=True) if good)
        return Rows(self.file, ids, self.names, self.values[chosen], self.line[chosen])

    def place(self, row: int) -> str:
        """Return what errors call a row."""
        return f"{self.file}, row {self.line[row]}"


@dataclass(frozen=True, eq=False)
class FeatureBlock(Rows):
    """The features that one party holds, every row within the norm that it declares."""

    bound: float


def ids_digest(ids: Sequence[str]) -> str:
    """SHA-256 over identifiers, each after its length in bytes (8, big-endian), as hex.

    It shows to who holds the identifiers of another list whether the two are equal, and lets
    guesses be checked: share it with parties that know the rows, not with the world.

    >>> ids_digest(["ab", "c"])[:12], ids_digest(["a", "bc"])[:12]
    ('601d5476e2cc', '3fafa1cf2f19')
    """
    digest = hashlib.sha256()
    for name in ids:
        word = name.encode()
        digest.update(len(word).to_bytes(8, "big") + word)
    return digest.hexdigest()


def read_block(
    path: FilePath | Frame,
    bound: float,
    *,
    scale: bool = False,
    delimiter: str | None = None,
    options: ReadOptions | None = None,
) -> FeatureBlock:
    """Read one party's file.

    Each row must be within the norm bound, or is scaled down to it with `scale`.
    """
    options = options or ReadOptions(delimiter=delimiter)
    return _bounded(_read(path, options), bound, scale, options)


def read_rewards(
    path: FilePath | Frame,
    delimiter: str | None = None,
    pays: RewardRange | None = None,
    options: ReadOptions | None = None,
) -> Rows:
    """Read what arms pay: a column `row`, and one column per arm.

    A column holds chances of a reward of 1, in [0, 1]; with `pays`, exactly what the arm pays,
    within that range.
    """
    table = open_table(path, options or ReadOptions(delimiter=delimiter))
    limits = pays or UNIT_RANGE
    remedy = "Correct it, or widen reward_range."
    if pays is None:
        remedy = "Correct it, or give exact pays their reward_range."
    rule = in_range(limits.low, limits.high, remedy)
    arms = other_columns(table, [words(ROW)])
    records = Schema(words(ROW), *(numbers(arm, rule) for arm in arms)).read(table)
    if len(arms) < 2:
        raise DataError(
            f"{table.name}: a bandit needs at least 2 arms, got the columns row,{','.join(arms)}. "
            "Add another.",
            rule="problems.rewards.one-arm",
        )
    return _rows(records, tuple(arms), np.stack([records.numbers[arm] for arm in arms], axis=1))


def read_features(
    files: Mapping[str, FilePath | Frame],
    rewards: FilePath | Frame,
    *,
    bounds: Mapping[str, float] | None = None,
    scale: bool = False,
    delimiter: str | None = None,
    name: str = "own",
    pays: RewardRange | None = None,
    options: ReadOptions | None = None,
) -> Contexts:
    """Read the files (or frames) of all parties and the rewards, for a run in one place.

    Without `bounds` a party's is sqrt(D_p / D), by the number of features it holds. With `pays` the
    file of rewards holds exact pays in that range, otherwise chances of a reward of 1.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     clinic, lab, pays = (
    ...         pathlib.Path(folder, f"{name}.csv") for name in ("clinic", "lab", "pays")
    ...     )
    ...     _ = clinic.write_text("row,age\\nann,0.5\\nbob,0.1\\n")
    ...     _ = lab.write_text("row,iron\\nann,0.2\\nbob,0.7\\n")
    ...     _ = pays.write_text("row,wait,treat\\nann,0,1\\nbob,0.9,0.3\\n")
    ...     contexts = read_features({"clinic": clinic, "lab": lab}, pays)
    >>> contexts.parties, contexts.arms, contexts.features.tolist()
    (('clinic', 'lab'), ('wait', 'treat'), [[0.5, 0.2], [0.1, 0.7]])
    """
    check_count(len(files))
    options = options or ReadOptions(delimiter=delimiter)
    tables = {party: _read(path, options) for party, path in files.items()}
    declared = _declared(tables, bounds)
    paid = read_rewards(rewards, pays=pays, options=options)
    blocks: Sequence[Rows] = [
        _bounded(table, declared[party], scale, options) for party, table in tables.items()
    ]
    if options.skip_bad:
        *blocks, paid = _in_all([*blocks, paid], options)
    for other in (*blocks, paid):
        check_aligned(blocks[0], other)
    ends = np.cumsum([0, *(len(block.names) for block in blocks)]).tolist()
    party_blocks = tuple(
        Block(party, tuple(range(low, high)), declared[party])
        for party, low, high in zip(tables, ends, ends[1:], strict=False)
    )
    values = np.concatenate([block.values for block in blocks], axis=1)
    return Contexts(name, values, party_blocks, paid.names, paid.values, pays=pays)


def _in_all(tables: Sequence[Rows], options: ReadOptions) -> list[Rows]:
    """Return the rows that are in every file: one that was dropped has no counterpart there."""
    common = frozenset(tables[0].ids).intersection(*(table.ids for table in tables))
    if not common:
        raise DataError(
            "no row is in all files. Put the same rows in all of them.",
            rule="problems.rows.none-in-common",
        )
    common_rows = []
    for table in tables:
        here = np.array([id in common for id in table.ids], np.bool_)
        common_rows.append(table.part(here))
        if not here.all():
            count = int((~here).sum())
            options.note(
                f"{table.file}: {count:,} row{'s' if count > 1 else ''} left out that another file "
                "does not have."
            )
    return common_rows


def check_aligned(one: Rows, other: Rows) -> None:
    """Refuse two files that do not hold the same rows in the same order."""
    for row, (mine, theirs) in enumerate(zip(one.ids, other.ids, strict=False)):
        if mine != theirs:
            raise DataError(
                f"files do not match: {one.place(row)} is '{mine}' and {other.place(row)} is "
                f"'{theirs}'. "
                "Put the same rows in the same order in both.",
                rule="problems.rows.not-aligned",
            )
    if len(one.ids) != len(other.ids):
        short, long = (one, other) if len(one.ids) < len(other.ids) else (other, one)
        row = len(short.ids)
        raise DataError(
            f"files do not match: {short.file} ends after {row} rows, and {long.place(row)} is "
            f"'{long.ids[row]}'. "
            "Put the same rows in the same order in both.",
            rule="problems.rows.missing-in-file",
        )


def _declared(tables: Mapping[str, Rows], bounds: Mapping[str, float] | None) -> dict[str, float]:
    """Give every party's norm bound."""
    if bounds is None:
        total = sum(len(table.names) for table in tables.values())
        return {party: math.sqrt(len(table.names) / total) for party, table in tables.items()}
    if set(bounds) != set(tables):
        raise ConfigError(
            f"bounds must name the parties of the features, {', '.join(tables)}, got "
            f"{', '.join(bounds) or 'none'}. "
            "Give one each, or leave bounds out.",
            rule="problems.bounds.not-the-parties",
        )
    check_bounds(bounds)
    return {party: float(bounds[party]) for party in tables}


def _bounded(table: Rows, bound: float, scale: bool, options: ReadOptions) -> FeatureBlock:
    """Return the rows within a bound; the others are bad, or scaled down to it."""
    check.between(0, 1, open_low=True, bound=bound)
    values = scale_to_bound(table.values, bound) if scale else table.values
    norms = row_norms(values)
    within = norms <= bound + SLACK
    bad = BadRows(table.file, options)
    for row in np.flatnonzero(~within).tolist():
        bad.add(
            int(table.line[row]),
            f" ('{table.ids[row]}'): features must have a norm of at most the bound {bound:.6g}, "
            f"got {norms[row]:.6g}",
            "Scale the features, or set scale to have longer rows scaled down.",
        )
    bad.settle(int(within.sum()))
    part = table.part(within)
    return FeatureBlock(part.file, part.ids, part.names, values[within], part.line, bound)


def _read(source: FilePath | Frame, options: ReadOptions) -> Rows:
    """Read features."""
    encoded = read_encoded(open_table(source, options), [words(ROW)])
    return _rows(encoded.records, encoded.names, encoded.values)


def _rows(records: Records, names: tuple[str, ...], values: NDArray[np.float64]) -> Rows:
    records.check_distinct(ROW)
    return Rows(records.file, records.words[ROW].distinct, names, values, records.line)
