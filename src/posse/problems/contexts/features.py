"""A user's own features: one table per party, aligned row by row, and a table of rewards.

A table has a column `row` that identifies the row (any text, all different) and one column per
feature. All tables hold the same rows in the same order. In a deployment, a party reads only its own
table (`read_block`), and compares the digest of its rows with those of the others. A run in one
place reads all tables (`read_features`).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import compress

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
from posse.problems.tables.frames import Frame
from posse.problems.tables.options import BadRows, ReadOptions
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
    """Line of each row in the file."""

    @property
    def ids_digest(self) -> str:
        """Digest of the identifiers in their order: two files with the same rows have the same."""
        return ids_digest(self.ids)

    def part(self, chosen: NDArray[np.bool_]) -> Rows:
        """Return some of the rows."""
        ids = tuple(compress(self.ids, chosen))
        return Rows(self.file, ids, self.names, self.values[chosen], self.line[chosen])

    def place(self, row: int) -> str:
        """Return the name of a row in errors."""
        return f"{self.file}, row {self.line[row]}"


@dataclass(frozen=True, eq=False)
class FeatureBlock(Rows):
    """The features that one party holds, every row within the norm that it declares."""

    bound: float


def ids_digest(ids: Sequence[str]) -> str:
    """Return the SHA-256 of identifiers, each after its length in bytes (8, big-endian), as hex.

    Whoever has the digest can check a guess of the whole list: share it only with parties that know
    the rows.

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
    options: ReadOptions | None = None,
) -> FeatureBlock:
    """Read one party's file.

    Args:
        path: A table with the columns row and one column per feature.
        bound: Largest norm of a row.
        scale: Whether a longer row is scaled down to the bound; otherwise it is bad.
        options: How the table is read.
    """
    options = options or ReadOptions()
    return _bounded(_read(path, options), bound, scale, options)


def read_rewards(
    path: FilePath | Frame,
    pays: RewardRange | None = None,
    options: ReadOptions | None = None,
) -> Rows:
    """Read what arms pay: a column `row`, and one column per arm.

    A column holds chances of a reward of 1, in [0, 1]; with `pays`, exactly what the arm pays,
    within that range.
    """
    table = open_table(path, options)
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
    name: str = "own",
    pays: RewardRange | None = None,
    options: ReadOptions | None = None,
) -> Contexts:
    """Read the tables of all parties and the rewards, for a run in one place.

    Args:
        files: A table for each party, by name.
        rewards: A table of what the arms pay.
        bounds: Largest norm of each party's part of a row; by default sqrt(D_p / D), by the number
            of features that the party holds.
        scale: Whether longer rows are scaled down to the bound; otherwise they are bad.
        name: Name of the problem.
        pays: The range of exact pays, if the rewards are no chances of a reward of 1.
        options: How the tables are read.

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
    options = options or ReadOptions()
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
    ends = np.cumsum([len(block.names) for block in blocks]).tolist()
    party_blocks = tuple(
        Block(party, tuple(range(end - len(block.names), end)), declared[party])
        for party, block, end in zip(tables, blocks, ends, strict=True)
    )
    values = np.concatenate([block.values for block in blocks], axis=1)
    return Contexts(name, values, party_blocks, paid.names, paid.values, pays=pays)


def _in_all(tables: Sequence[Rows], options: ReadOptions) -> list[Rows]:
    """Return the rows that are in every file; a dropped row has no counterpart in its file."""
    common = frozenset(tables[0].ids).intersection(*(table.ids for table in tables))
    if not common:
        raise DataError(
            "no row is in all files. Put the same rows in all of them.",
            rule="problems.rows.none-in-common",
        )
    masks = [np.array([row in common for row in table.ids], np.bool_) for table in tables]
    for table, mask in zip(tables, masks, strict=True):
        count = int((~mask).sum())
        if count:
            rows = "1 row was" if count == 1 else f"{count:,} rows were"
            options.note(f"{table.file}: {rows} left out that another file does not have.")
    return [table.part(mask) for table, mask in zip(tables, masks, strict=True)]


def check_aligned(one: Rows, other: Rows) -> None:
    """Raise unless two files hold the same rows in the same order."""
    for row, (mine, theirs) in enumerate(zip(one.ids, other.ids, strict=False)):
        if mine != theirs:
            raise DataError(
                f"files do not match: {one.place(row)} is '{mine}' and {other.place(row)} is "
                f"'{theirs}'. Put the same rows in the same order in both.",
                rule="problems.rows.not-aligned",
            )
    short, long = sorted((one, other), key=lambda table: len(table.ids))
    row = len(short.ids)
    if row < len(long.ids):
        raise DataError(
            f"files do not match: {short.file} ends after {row} rows, and {long.place(row)} is "
            f"'{long.ids[row]}'. Put the same rows in the same order in both.",
            rule="problems.rows.missing-in-file",
        )


def _declared(tables: Mapping[str, Rows], bounds: Mapping[str, float] | None) -> dict[str, float]:
    """Return the norm bound of every party."""
    if bounds is None:
        total = sum(len(table.names) for table in tables.values())
        return {party: math.sqrt(len(table.names) / total) for party, table in tables.items()}
    if set(bounds) != set(tables):
        raise ConfigError(
            f"bounds must name the parties of the features, {', '.join(tables)}, got "
            f"{', '.join(bounds) or 'none'}. Give one bound per party, or leave bounds out.",
            rule="problems.bounds.not-the-parties",
        )
    check_bounds(bounds)
    return {party: float(bounds[party]) for party in tables}


def _bounded(table: Rows, bound: float, scale: bool, options: ReadOptions) -> FeatureBlock:
    """Return the rows within a bound; longer rows are bad, or are scaled down to it."""
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
