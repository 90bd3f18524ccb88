"""Contexts: rows of features that are split over parties, and what every arm pays in every row.

Each party holds some columns of the joint vector x, its block, and declares a bound b_p on the norm
of that block. A linear bandit on shared features needs |x| <= 1, and between organisations no party
sees x. There are two ways to bound it:

- `declared`: the sum of b_p^2 is at most 1, which implies |x| <= 1. b_p is sqrt(D_p / D) unless a
  party declares another bound. Each party scales its part of a row down if it is longer
  (`scale_to_bound`). No other party takes part or learns how often.
- `joint`: rows have norm at most 1 as they are, which is checked where all columns are in one place
  (`joint_norm_checked`). Every bound is 1 and means nothing alone. This is for simulations and
  reproductions: bounds that every unit row keeps cannot have squares that add up to 1.

A user's own features are in one table per party, aligned row by row, with a column `row` that
identifies the row (any text, all different). Another table has the rewards of every arm. In a
deployment, a party reads only its own table (`read_block`), and compares the digest of its rows with
those of the others. A run in one place reads all tables (`read_features`).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from posse.core import check
from posse.core.compiled import compiled_scalar
from posse.core.errors import ConfigError, DataError
from posse.core.fixed import REWARD_ONE, UNIT_RANGE, RewardRange
from posse.core.random import INSTANCE, REWARD, uniform
from posse.problems.requirements import Floats, Ints, Mask, Requirement, check_all, check_entries
from posse.problems.tables.frames import Frame
from posse.problems.tables.options import BadRows, ReadOptions
from posse.problems.tables.schema import (
    Records,
    Schema,
    numbers,
    other_columns,
    read_encoded,
    words,
)
from posse.problems.tables.schema import within as in_range
from posse.problems.tables.table import open_table
from posse.problems.tables.text import FilePath

Bounds = Literal["joint", "declared"]

SLACK = 1e-9
"""What rounding may add to a norm, or to a sum of squared bounds."""
MOST_ROWS = 1 << 31
MOST_ARMS = 1 << 20

MOST_PARTIES = 1000

_SWEEP = 1


@dataclass(frozen=True)
class Block:
    """The columns of the joint vector that a party holds, and the largest norm of this part."""

    party: str
    columns: tuple[int, ...]
    bound: float

    def __post_init__(self) -> None:
        check_all(self, _BLOCK)


_BLOCK: tuple[Requirement[Block], ...] = (
    Requirement(
        "problems.parties.without-name",
        lambda block: block.party,
        lambda block: "a party must have a name, got an empty one. Give one.",
    ),
    Requirement(
        "problems.parties.without-feature",
        lambda block: block.columns,
        lambda block: (
            f"every party must hold at least 1 feature, got none for {block.party}. Leave it out."
        ),
    ),
    Requirement(
        "problems.bounds.out-of-range",
        lambda block: 0 < block.bound <= 1,
        lambda block: (
            f"bound of {block.party} must be in (0, 1], got {block.bound}. Features have norm at "
            "most 1."
        ),
    ),
)


def party_names(count: int) -> tuple[str, ...]:
    """Name parties by number.

    >>> party_names(2)
    ('party-1', 'party-2')
    """
    check_count(count)
    return tuple(f"party-{i + 1}" for i in range(count))


def split(
    features: int,
    parties: Sequence[str],
    counts: Sequence[int] | None = None,
    bounds: Bounds = "joint",
) -> tuple[Block, ...]:
    """Split columns over parties in contiguous blocks.

    The blocks have `counts` columns; by default they are even, and the first ones have one more.

    >>> [block.columns for block in split(5, ("clinic", "lab"))]
    [(0, 1, 2), (3, 4)]
    >>> [block.bound for block in split(4, ("clinic", "lab"), counts=(1, 3), bounds="declared")]
    [0.5, 0.8660254037844386]
    """
    check_count(len(parties))
    check.one_of(("joint", "declared"), bounds=bounds)
    if counts is None:
        least, more = divmod(features, len(parties))
        counts = [least + 1] * more + [least] * (len(parties) - more)
    sizes = tuple(counts)
    if len(sizes) != len(parties) or sum(sizes) != features or min(sizes) < 1:
        raise ConfigError(
            "columns must be one count of at least 1 per party, and add up to "
            f"{features} features, got {','.join(map(str, sizes))} for {len(parties)} parties. "
            "Change the counts or the parties.",
            rule="problems.columns.not-counts",
        )
    ends = np.cumsum(sizes).tolist()
    return tuple(
        Block(
            party,
            tuple(range(end - size, end)),
            math.sqrt(size / features) if bounds == "declared" else 1.0,
        )
        for party, size, end in zip(parties, sizes, ends, strict=True)
    )


def scale_to_bound(values: Floats, bound: float) -> Floats:
    """Scale each row down to the bound if it is longer; other rows do not change.

    >>> scale_to_bound(np.array([[3.0, 4.0], [0.1, 0.2]]), 0.5).tolist()
    [[0.3, 0.4], [0.1, 0.2]]
    """
    check.between(0, 1, open_low=True, bound=bound)
    norms = row_norms(values)[:, None]
    over = norms > bound
    # Divide by the largest entry first: the square of a large number is infinite.
    peak = np.where(over, np.abs(values).max(axis=1, keepdims=True), 1.0)
    direction = values / peak
    return np.where(
        over, direction / np.linalg.norm(direction, axis=1, keepdims=True).clip(1.0) * bound, values
    )


def row_norms(values: Floats) -> Floats:
    """Return the norm of each row; infinite if its square is too large for a float."""
    with np.errstate(over="ignore"):
        return np.asarray(np.linalg.norm(values, axis=1))


def scale_blocks(features: Floats, blocks: Sequence[Block]) -> Floats:
    """Scale the block of every party, as each party does in a deployment."""
    scaled = np.array(features, np.float64)
    for block in blocks:
        scaled[:, block.columns] = scale_to_bound(scaled[:, block.columns], block.bound)
    return scaled


def check_count(parties: int) -> None:
    """Raise unless features can be split over this number of parties."""
    if parties < 2:
        raise ConfigError(
            f"features must be split over at least 2 parties, got a party count of {parties}. Add "
            "one.",
            rule="problems.parties.too-few",
        )
    if parties > MOST_PARTIES:
        raise ConfigError(
            f"features are split over at most {MOST_PARTIES:,} parties, got {parties:,}.",
            rule="problems.parties.too-many",
        )


def check_rows(rows: int, available: int, name: str) -> None:
    """Raise unless a table has this number of rows."""
    if not 1 <= rows <= available:
        raise DataError(
            f"rows must be in [1, {available}], the number that {name} has, got {rows}. Ask for "
            "fewer.",
            rule="problems.rows.out-of-range",
        )


def check_bounds(bounds: Mapping[str, float]) -> None:
    """Raise unless declared bounds imply |x| <= 1.

    >>> check_bounds({"clinic": 0.8, "lab": 0.8})
    Traceback (most recent call last):
    ...
    posse.core.errors.ConfigError: [P100] squares of the parties' norm bounds must add up to at most
    1, got 1.28
    (clinic 0.8, lab 0.8). Lower some; 0.707106 each would do.
    """
    total = math.fsum(bound * bound for bound in bounds.values())
    if not total <= 1 + SLACK:
        bounds_text = ", ".join(f"{party} {bound:.6g}" for party, bound in bounds.items())
        even = math.floor(1e6 / math.sqrt(len(bounds))) / 1e6
        raise ConfigError(
            f"squares of the parties' norm bounds must add up to at most 1, got {total:.6g} "
            f"({bounds_text}). Lower some; {even:g} each would do.",
            rule="problems.bounds.too-large",
        )


def check_blocks(blocks: Sequence[Block], features: int) -> None:
    """Raise unless parties have different names, and exactly one block holds each column."""
    check_count(len(blocks))
    names = [block.party for block in blocks]
    if len(set(names)) < len(names):
        raise ConfigError(
            f"parties must have different names, got '{check.first_repeated(names)}' twice. Rename "
            "one.",
            rule="problems.parties.names-twice",
        )
    columns = np.concatenate([block.columns for block in blocks])
    party = np.repeat(names, [len(block.columns) for block in blocks])
    check_entries(
        (columns >= 0) & (columns < features),
        lambda place: DataError(
            f"columns must be in [0, {features}), got {columns[place]} for {party[place]}. Correct "
            "it.",
            rule="problems.blocks.column-out-of-range",
        ),
    )
    holders = np.bincount(columns, minlength=features)
    check_entries(
        holders <= 1,
        lambda column: DataError(
            f"every column must be held once, got column {column[0]} for "
            f"{' and for '.join(party[columns == column[0]])}. Take it from one of them.",
            rule="problems.blocks.column-twice",
        ),
    )
    check_entries(
        holders >= 1,
        lambda column: DataError(
            f"every column must be held by a party, got none for column {column[0]}. Add it to a "
            "party.",
            rule="problems.blocks.column-without-party",
        ),
    )


@compiled_scalar
def context_reward(mean: float, seed: int, row: int, arm: int) -> int:
    """Return the reward units of an arm in a row: 2^24 with probability `mean`, else 0."""
    return REWARD_ONE if uniform(seed, REWARD, arm, row, 0) < mean else 0


@compiled_scalar
def _draw_rewards(
    means: Floats,
    seed: int,
    rows: Ints,
    arms: Ints,
    out: Ints,
) -> None:
    for i in range(rows.shape[0]):
        out[i] = context_reward(means[rows[i], arms[i]], seed, rows[i], arms[i])


@compiled_scalar
def _draw_places(seed: int, sweep: int, places: Floats) -> None:
    for row in range(places.shape[0]):
        places[row] = uniform(seed, INSTANCE, _SWEEP + sweep, row, 0)


@dataclass(frozen=True, eq=False)
class Contexts:
    """A contextual bandit problem on features that are split over parties.

    Rewards and order are functions of the seed: an arm pays the same in a row in every sweep.

    >>> rows = np.array([[0.6, 0.8], [0.0, 1.0], [1.0, 0.0]])
    >>> pays = np.array([[0.1, 0.9], [0.0, 1.0], [1.0, 0.0]])
    >>> contexts = Contexts(
    ...     "three rows", rows, split(2, ("clinic", "lab")), ("wait", "treat"), pays, True
    ... )
    >>> (
    ...     [contexts.reward(7, row, arm=1) >> 24 for row in range(3)],
    ...     contexts.order(7, steps=7).tolist(),
    ... )
    ([1, 1, 0], [1, 0, 2, 0, 1, 2, 2])
    """

    name: str
    features: Floats
    """(rows, D): joint vectors, of norm at most 1."""
    blocks: tuple[Block, ...]
    """The columns of each party."""
    arms: tuple[str, ...]
    means: Floats
    """(rows, K): chance that an arm pays 1 in a row; with `pays`, its exact pay."""
    joint_norm_checked: bool = False
    """Norms were checked where all features lie together: in a simulation, never between
    organisations.
    """
    pays: RewardRange | None = None
    """Range of exact pays; None where arms pay 1 or 0 by chance."""

    def __post_init__(self) -> None:
        for name in ("features", "means"):
            array = _table(getattr(self, name), name)
            object.__setattr__(self, name, array)
            array.flags.writeable = False
        check_blocks(self.blocks, self.features.shape[1])
        if not self.joint_norm_checked:
            check_bounds({block.party: block.bound for block in self.blocks})
        check_all(self, _CONTEXTS)
        check_entries(
            self.reward_range.contains(self.means),
            lambda pair: DataError(
                f"means must be in {self.reward_range}, got {self.means[pair]:g} in row "
                f"{pair[0] + 1} for arm '{self.arms[pair[1]]}'. Scale them.",
                rule="problems.contexts.out-of-range",
            ),
        )
        _check_norms(self.features, self.blocks)

    def __len__(self) -> int:
        return len(self.features)

    @property
    def parties(self) -> tuple[str, ...]:
        """Names of the parties."""
        return tuple(block.party for block in self.blocks)

    @property
    def reward_range(self) -> RewardRange:
        """Least and largest reward."""
        return self.pays or UNIT_RANGE

    @property
    def scaled(self) -> Floats:
        """(rows, K): average pay of the arms, scaled to [0, 1]."""
        return self.means if self.pays is None else self.pays.units(self.means) / REWARD_ONE

    @property
    def best(self) -> float:
        """Average reward per row, if every row gets its best arm."""
        return float(self.means.max(axis=1).mean())

    def held(self, party: str) -> Floats:
        """Return the (rows, D_p) features that a party holds, in the order of its columns."""
        check.one_of(self.parties, party=party)
        return self.features[:, self.blocks[self.parties.index(party)].columns]

    def reward(self, seed: int, row: int, arm: int) -> int:
        """Return the reward units of an arm in a row: 0 or 2^24, or any between for exact pays."""
        if self.pays is not None:
            return int(self.pays.units(self.means[row, arm]))
        return int(context_reward(self.means[row, arm], np.uint64(seed), row, arm))

    def rewards(self, seed: int, rows: ArrayLike, arms: ArrayLike) -> Ints:
        """Return the reward units of many pulls, as `reward` does for one."""
        row, arm = np.broadcast_arrays(np.asarray(rows, np.int64), np.asarray(arms, np.int64))
        row, arm = np.ascontiguousarray(row.ravel()), np.ascontiguousarray(arm.ravel())
        for values, size in ((row, len(self)), (arm, len(self.arms))):
            if values.size and not (values.min() >= 0 and values.max() < size):
                raise IndexError(
                    f"expected numbers in [0, {size}), got {values.min()} to {values.max()}"
                )
        if self.pays is not None:
            return self.pays.units(self.means[row, arm])
        out = np.empty(len(row), np.int64)
        _draw_rewards(self.means, np.uint64(seed), row, arm, out)
        return out

    def order(self, seed: int, steps: int) -> Ints:
        """Return the row of every step: a new random permutation of the rows for each sweep.

        Fewer steps are a prefix of more. O(s log rows) for s steps, rounded up to whole sweeps.
        """
        check.at_least(1, steps=steps)
        places = np.empty(len(self))
        sweeps = []
        for sweep in range(-(-steps // len(self))):
            _draw_places(np.uint64(seed), sweep, places)
            sweeps.append(places.argsort(kind="stable"))
        return np.concatenate(sweeps)[:steps].astype(np.int64, copy=False)

    def first(self, rows: int) -> Contexts:
        """Return the first rows."""
        check_rows(rows, len(self), self.name)
        return replace(self, features=self.features[:rows], means=self.means[:rows])

    def describe(self) -> dict[str, object]:
        """Return what a record stores of the problem."""
        return {
            "name": self.name,
            "rows": len(self),
            "features": self.features.shape[1],
            "arms": list(self.arms),
            "best": self.best,
            "parties": [
                {"name": block.party, "features": len(block.columns), "bound": block.bound}
                for block in self.blocks
            ],
            "joint_norm_checked": self.joint_norm_checked,
            **({} if self.pays is None else {"reward_range": list(self.pays)}),
        }


_CONTEXTS: tuple[Requirement[Contexts], ...] = (
    Requirement(
        "problems.contexts.too-few-arms",
        lambda contexts: len(contexts.arms) >= 2,
        lambda contexts: f"a bandit needs at least 2 arms, got {len(contexts.arms)}. Add another.",
        DataError,
    ),
    Requirement(
        "problems.contexts.arms-twice",
        lambda contexts: len(set(contexts.arms)) == len(contexts.arms),
        lambda contexts: (
            f"arm names must differ, got '{check.first_repeated(contexts.arms)}' twice. Rename one."
        ),
        DataError,
    ),
    Requirement(
        "problems.contexts.shape",
        lambda contexts: contexts.means.shape == (len(contexts), len(contexts.arms)),
        lambda contexts: (
            f"means must be rows x arms, got {contexts.means.shape} for {len(contexts)} rows and "
            f"{len(contexts.arms)} arms. Give one mean for each row and arm."
        ),
        DataError,
    ),
    Requirement(
        "problems.contexts.too-large",
        lambda contexts: len(contexts) <= MOST_ROWS and len(contexts.arms) <= MOST_ARMS,
        lambda contexts: (
            f"contexts have at most 2^31 rows and 2^20 arms, got {len(contexts)} and "
            f"{len(contexts.arms)}. Take fewer."
        ),
        DataError,
    ),
)


def _table(values: ArrayLike, what: str) -> Floats:
    array = np.ascontiguousarray(values, np.float64)
    if array.flags.writeable:
        array = array.copy()  # a caller's own array stays writeable
    if array.ndim != 2 or not array.size:
        raise DataError(
            f"{what} must be a table with one row per context, got an array of shape "
            f"{array.shape}.",
            rule="problems.contexts.not-a-table",
        )
    check_entries(
        np.isfinite(array),
        lambda cell: DataError(
            f"{what} must be finite numbers, got {array[cell]} in row {cell[0] + 1}, column "
            f"{cell[1] + 1}. Correct it, or leave the row out.",
            rule="problems.contexts.not-finite",
        ),
    )
    return array


def _check_norms(features: Floats, blocks: tuple[Block, ...]) -> None:
    for block in blocks:
        norms = row_norms(features[:, block.columns])
        longest = int(norms.argmax())
        if norms[longest] > block.bound + SLACK:
            raise DataError(
                f"features of {block.party} must be within its bound {block.bound:.6g}, got a norm "
                f"of {norms[longest]:.6g} in row {longest + 1}. Scale the row down "
                "(scale_to_bound), or declare a larger bound.",
                rule="problems.bounds.exceeded",
            )
    norms = row_norms(features)
    longest = int(norms.argmax())
    if norms[longest] > 1 + SLACK:
        raise DataError(
            f"rows must have a norm of at most 1, got {norms[longest]:.6g} in row {longest + 1}. "
            "Scale them down.",
            rule="problems.contexts.norm-too-large",
        )


ROW = "row"


@dataclass(frozen=True, eq=False)
class Rows:
    """A table of numbers whose rows have identifiers."""

    file: str
    ids: tuple[str, ...]
    names: tuple[str, ...]
    """Names of the columns of numbers, in the order of the file."""
    values: Floats
    """(rows, columns)"""
    line: Ints
    """Line of each row in the file."""

    @property
    def ids_digest(self) -> str:
        """Digest of the identifiers in their order: two files with the same rows have the same."""
        return ids_digest(self.ids)

    def part(self, chosen: Mask) -> Rows:
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

    A party that has the digest can check a guess of the list: share it only with parties that know
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


def _rows(records: Records, names: tuple[str, ...], values: Floats) -> Rows:
    records.check_distinct(ROW)
    return Rows(records.file, records.words[ROW].distinct, names, values, records.line)
