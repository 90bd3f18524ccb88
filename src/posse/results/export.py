"""Records leave: as rows and frames with one column a parameter, or as a file in the format its
name asks for.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from posse.core.check import require, suggestion
from posse.core.errors import ConfigError, DataError, MissingExtraError
from posse.core.files import whole
from posse.results.naming import labels
from posse.results.record import Record, several
from posse.results.render import render_report
from posse.results.statistics import standard_error
from posse.results.words import words_of
from posse.version import __version__

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

Scalar = str | int | float | bool | None
Row = dict[str, Scalar]

COLUMNS = ("record", "label", "level", "run", "seed", "step", "reward", "regret")
"""Columns of `rows`, before those of the parameters."""

PARTY_COLUMNS = ("record", "label", "run", "seed", "party", "total", "regret")
"""Columns of `party_rows`, before those of the parameters."""


def rows(records: Record | Iterable[Record]) -> Iterator[Row]:
    """Yield the points of all curves, record by record, run by run, step by step.

    `COLUMNS` come first, then one column a parameter (`policy.tau`; `config.seed` where the name is
    taken). `seed` is None in a deployment, `regret` where the true means are not known.
    """
    chosen = several(records)
    for record, label, settings in zip(
        chosen, labels(chosen), _parameters(chosen, COLUMNS), strict=True
    ):
        steps = record.steps.tolist()
        for run in range(record.runs):
            head: Row = {"record": record.id, "label": label, "level": record.level, "run": run}
            head["seed"] = _seed(record, run)
            regret = [None] * len(steps) if record.regret is None else record.regret[run].tolist()
            for step, reward, lost in zip(steps, record.reward[run].tolist(), regret, strict=True):
                yield {**head, "step": step, "reward": reward, "regret": lost, **settings}


def party_rows(records: Record | Iterable[Record]) -> Iterator[Row]:
    """Yield what each party earned and regretted by the end of each run; a record without parties
    has no row.

    `total` and `regret` are None where the record does not hold them; parameters follow as in
    `rows`.
    """
    chosen = several(records)
    for record, label, settings in zip(
        chosen, labels(chosen), _parameters(chosen, PARTY_COLUMNS), strict=True
    ):
        totals = None if record.party_total is None else record.party_total.tolist()
        regrets = None if record.party_regret is None else record.party_regret.tolist()
        for run in range(record.runs):
            head: Row = {
                "record": record.id,
                "label": label,
                "run": run,
                "seed": _seed(record, run),
            }
            for i, party in enumerate(record.parties):
                total = None if totals is None else totals[run][i]
                regret = None if regrets is None else regrets[run][i]
                yield {**head, "party": party, "total": total, "regret": regret, **settings}


def summary_rows(records: Record | Iterable[Record]) -> list[Row]:
    """Return one row a record: its names, what was earned, what it cost, every parameter and every
    further figure.
    """
    chosen = several(records)
    heads: list[Row] = [
        {
            "record": record.id,
            "run_id": record.run_id,
            "party": record.party,
            "created": record.created,
            "kind": record.kind,
            "status": record.status,
            "label": label,
            "policy": record.policy,
            "level": record.level,
            "protection": record.protection,
            "problem": record.problem_name,
            "horizon": record.horizon,
            "arms": record.arms,
            "runs": record.runs,
            "total_mean": record.total_mean,
            "total_error": standard_error(record.total),
            "regret_mean": record.regret_mean,
            "seconds": record.seconds,
            "messages": record.messages,
            "bytes": record.bytes,
            "version": record.version,
        }
        for record, label in zip(chosen, labels(chosen), strict=True)
    ]
    columns = tuple(heads[0]) if heads else ()
    # The horizon and the policy stand there already, under the same names.
    tables = [
        {
            name: value
            for name, value in one.items()
            if name not in ("config.policy", "config.horizon")
        }
        for one in _parameters(chosen, columns)
    ]
    return [
        {
            **head,
            **settings,
            **_renamed(record.summary, {*head, *settings, "data"}, "summary"),
            "data": data_of(record),
        }
        for head, settings, record in zip(heads, tables, chosen, strict=True)
    ]


def data_of(record: Record) -> str:
    """Name the data of a record as a list shows it: the file or data set that was given, or the
    problem.
    """
    given = record.settings().get("data")
    return given if isinstance(given, str) and given else record.problem_name


def to_arrow(records: Record | Iterable[Record], *, curves: bool = True) -> pa.Table:
    """Return `rows` as an Arrow table; seeds are unsigned, what is not known is null.

    Without `curves` it is one row a record instead (`summary_rows`): every setting and every figure
    a column.
    """
    arrow = require("pyarrow", extra="frames")
    chosen = several(records)
    if not curves:
        table = aligned(summary_rows(chosen))
        return arrow.Table.from_pylist(table, schema=arrow.schema(_fields(table, arrow)))
    settings = _parameters(chosen, COLUMNS)
    text, types = (
        arrow.string(),
        (arrow.int64(), arrow.uint64(), arrow.int64(), arrow.float64(), arrow.float64()),
    )
    schema = arrow.schema(
        [*zip(COLUMNS, (text, text, text, *types), strict=True), *_fields(settings, arrow)]
    )
    tables = [schema.empty_table()]
    for record, label, own in zip(chosen, labels(chosen), settings, strict=True):
        runs, points = record.runs, record.steps.size
        n = runs * points
        seeds = (
            np.repeat(np.array(record.seeds, dtype=np.uint64), points)
            if record.seeds
            else arrow.nulls(n)
        )
        columns = {
            "record": arrow.repeat(record.id, n),
            "label": arrow.repeat(label, n),
            "level": arrow.repeat(record.level, n),
            "run": np.repeat(np.arange(runs, dtype=np.int64), points),
            "seed": seeds,
            "step": np.tile(record.steps, runs),
            "reward": record.reward.ravel(),
            "regret": arrow.nulls(n) if record.regret is None else record.regret.ravel(),
            **{
                name: arrow.repeat(arrow.scalar(value, schema.field(name).type), n)
                for name, value in own.items()
            },
        }
        tables.append(arrow.table(columns, schema=schema))
    return arrow.concat_tables(tables)


def to_pandas(records: Record | Iterable[Record], *, curves: bool = True) -> pd.DataFrame:
    """Return `to_arrow` as a pandas frame; seeds are `UInt64`, in which a missing one does not turn
    all into floats.
    """
    pandas = _installed("pandas")
    table = to_arrow(records, curves=curves)
    unsigned = require("pyarrow", extra="frames").uint64()
    frame: pd.DataFrame = table.to_pandas(types_mapper={unsigned: pandas.UInt64Dtype()}.get)
    return frame


def to_polars(records: Record | Iterable[Record], *, curves: bool = True) -> pl.DataFrame:
    """Return `to_arrow` as a polars frame."""
    polars = _installed("polars")
    frame: pl.DataFrame = polars.from_arrow(to_arrow(records, curves=curves))
    return frame


def aligned(rows: Sequence[Row]) -> list[Row]:
    """Give all rows the same columns and each column one type: None where a row lacks it, text
    where types differ.
    """
    names = dict.fromkeys(name for row in rows for name in row)
    kinds = {name: {type(row[name]) for row in rows if row.get(name) is not None} for name in names}
    texts = {name for name, types in kinds.items() if len(types) > 1 and types != {int, float}}

    def value(row: Row, name: str) -> Scalar:
        one = row.get(name)
        return words_of(one) if name in texts and one is not None else one

    return [{name: value(row, name) for name in names} for row in rows]


_CONDITION = re.compile(r"\s*([\w. -]+?)\s*(!=|<=|>=|==?|<|>|~)\s*(?![=<>!~])(.*?)\s*", re.DOTALL)
_GROUPED = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+(\.\d*)?")
_TESTS: dict[str, Callable[[float | str, float | str], bool]] = {
    "=": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,  # type: ignore[operator]
    "<=": lambda a, b: a <= b,  # type: ignore[operator]
    ">": lambda a, b: a > b,  # type: ignore[operator]
    ">=": lambda a, b: a >= b,  # type: ignore[operator]
    "~": lambda a, b: str(b).lower() in str(a).lower(),
}


def filtered(
    rows: Sequence[Row], conditions: Iterable[str], also: Mapping[str, str] | None = None
) -> list[Row]:
    """Keep rows for which all conditions hold, such as "policy=ucb", "horizon>=1000" or
    "label~trial" (holds the text).

    `also` are other words for columns, such as the headings under which they are shown (`ALSO`).
    What reads as numbers is compared as numbers, all else as text; a word in a column of numbers is
    neither more nor less than any. What a row does not know fits no condition but "!=".

    >>> rows = [{"policy": "ucb", "horizon": 100}, {"policy": "thompson", "horizon": 2000}]
    >>> filtered(rows, ["horizon>500", "policy!=ucb"])
    [{'policy': 'thompson', 'horizon': 2000}]
    """
    kept = list(rows)
    for condition in conditions:
        name, sign, wanted = split(condition)
        name = column(name, rows, also)
        numeric = any(_number(row.get(name)) is not None for row in rows)
        kept = [row for row in kept if _holds(row.get(name), sign, wanted, numeric)]
    return kept


def split(condition: str) -> tuple[str, str, str]:
    """Split a condition into the name of a column, a sign and a value.

    >>> split("policy == ucb")
    ('policy', '=', 'ucb')
    """
    found = _CONDITION.fullmatch(condition)
    if found is None:
        raise ConfigError(
            f"a condition must be like policy=ucb or horizon>=1000, got '{condition}'."
        )
    name, sign, wanted = found.groups()
    return name, "=" if sign == "==" else sign, wanted


def _holds(value: Scalar, sign: str, wanted: str, numeric: bool) -> bool:
    if value is None:
        return sign == "!="
    own, other = _number(value), _number(wanted)
    if sign != "~" and own is not None and other is not None:
        return _TESTS[sign](own, other)
    if sign != "~" and own is not None and not isinstance(value, str):
        raise ConfigError(f"'{wanted}' is compared with the number {own:g}. Give a number.")
    if sign[0] in "<>" and numeric and other is not None:
        return False
    return _TESTS[sign](words_of(value), {"true": "yes", "false": "no"}.get(wanted.lower(), wanted))


def _number(value: Scalar) -> float | None:
    """Read a number, also a text of one, in which commas may part groups of three digits; None for
    all else.
    """
    if value is None or isinstance(value, bool):
        return None
    try:
        return float(
            value.replace(",", "")
            if isinstance(value, str) and _GROUPED.fullmatch(value)
            else value
        )
    except ValueError:
        return None


def ordered(
    rows: Sequence[Row], names: Iterable[str], also: Mapping[str, str] | None = None
) -> list[Row]:
    """Sort by columns, the first one first; "-" before a name turns its order round. What is not
    known comes last.

    >>> [row["n"] for row in ordered([{"n": 1}, {"n": None}, {"n": 3}], ["-n"])]
    [3, 1, None]
    """
    made = list(rows)
    for name in reversed(list(names)):
        at = column(name.removeprefix("-"), rows, also)
        known = [row for row in made if row.get(at) is not None]
        number = all(isinstance(row[at], int | float) for row in known)
        known.sort(
            key=lambda row: row[at] if number else words_of(row[at]),  # type: ignore[arg-type, return-value]
            reverse=name.startswith("-"),
        )
        made = [*known, *(row for row in made if row.get(at) is None)]
    return made


def grouped(
    rows: Sequence[Row], names: Iterable[str], also: Mapping[str, str] | None = None
) -> list[Row]:
    """Return a row a group of equal values in these columns: how many records, and the mean of
    every other number.

    The parties of a deployment each keep a record of one run, with what that party knows: they are
    grouped by party too, since a mean over them would be of nothing.

    >>> grouped(
    ...     [
    ...         {"p": "a", "n": 1, "w": "x"},
    ...         {"p": "a", "n": 2, "w": "y"},
    ...         {"p": "b", "n": 5, "w": "z"},
    ...     ],
    ...     ["p"],
    ... )
    [{'p': 'a', 'records': 2, 'n': 1.5}, {'p': 'b', 'records': 1, 'n': 5.0}]
    """
    by = list(dict.fromkeys(column(name, rows, also) for name in names))
    by += ["party"] if "party" not in by and any(row.get("party") for row in rows) else []
    groups: dict[tuple[Scalar, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row.get(name) for name in by), []).append(row)
    made = []
    for key, same in groups.items():
        one: Row = {**dict(zip(by, key, strict=True)), "records": len(same)}
        for name in dict.fromkeys(name for row in rows for name in row if name not in by):
            values = [row[name] for row in same if row.get(name) is not None]
            if values and all(
                isinstance(x, int | float) and not isinstance(x, bool) for x in values
            ):
                one[name] = float(np.mean([float(x) for x in values]))  # type: ignore[arg-type]
        made.append(one)
    return made


def column(name: str, rows: Sequence[Row], also: Mapping[str, str] | None = None) -> str:
    """Return the column that is meant: its name, or another word for it (`also`, else `ALSO`), with
    "-" or "_".
    """
    known = tuple(dict.fromkeys(name for row in rows for name in row))
    words = ALSO if also is None else also
    for wanted in (words.get(name, name), name):
        for one in (wanted, wanted.replace("-", "_"), f"policy.{wanted}", f"config.{wanted}"):
            if one in known or not known:
                return one
    shown = tuple(word for word, stored in words.items() if stored in known)
    hint = suggestion(name, (*known, *shown))
    if len(known) > MANY:
        meant, names = (
            hint.partition(" Known: ")[0],
            ", ".join(sorted({*shown, *SHOWN.intersection(known)})),
        )
        hint = f"{meant} Known: {names}; and every name in 'posse runs list --json'."
    raise ConfigError(f"unknown column '{name}'.{hint}")


ALSO = {
    "id": "record",
    "system": "kind",
    "steps": "horizon",
    "earned": "total_mean",
    "regret": "regret_mean",
    "made": "created",
}
"""Words under which a list shows columns of `summary_rows`; both words find the column."""

SHOWN = frozenset(("policy", "level", "arms", "runs", "data", "party", "label"))
"""Columns that a list shows under their own names."""

MANY = 30
"""Of more columns than this an error names those that a list shows."""


def _parties_to_arrow(records: Sequence[Record]) -> pa.Table:
    arrow = require("pyarrow", extra="frames")
    text, number = arrow.string(), arrow.float64()
    types = (text, text, arrow.int64(), arrow.uint64(), text, number, number)
    fields = _fields(_parameters(records, PARTY_COLUMNS), arrow)
    schema = arrow.schema([*zip(PARTY_COLUMNS, types, strict=True), *fields])
    return arrow.Table.from_pylist(list(party_rows(records)), schema=schema)


def _parameters(records: Sequence[Record], columns: Sequence[str]) -> list[Row]:
    """Return the parameters of each record, all under the same names and of one type a name; None
    where one lacks it.

    A name that one of the other columns has gets "config." before it. A list is written as a text.
    """
    tables = [_renamed(record.settings(), columns, "config") for record in records]
    names = dict.fromkeys(name for table in tables for name in table)
    kinds = {
        name: {type(table[name]) for table in tables if table.get(name) is not None}
        for name in names
    }
    texts = {name for name, types in kinds.items() if len(types) > 1 and types != {int, float}}
    # A number that no column of integers holds.
    texts |= {
        name
        for name in names
        for table in tables
        if isinstance(x := table.get(name), int) and abs(x) >= 2**63
    }

    def value(table: Row, name: str) -> Scalar:
        one = table.get(name)
        return words_of(one) if name in texts and one is not None else one

    return [{name: value(table, name) for name in names} for table in tables]


def _renamed(values: Mapping[str, object], others: Iterable[str], prefix: str) -> Row:
    """Return values as scalars, with a prefix where one of the other columns has the name."""
    reserved = set(others)
    return {
        f"{prefix}.{name}" if name in reserved else name: one
        if one is None or isinstance(one, str | int | float)
        else words_of(one)  # type: ignore[arg-type]
        for name, one in values.items()
    }


def _fields(tables: Sequence[Row], arrow: ModuleType) -> list[tuple[str, object]]:
    """Return the name and the Arrow type of each parameter."""
    types = {bool: arrow.bool_(), int: arrow.int64(), float: arrow.float64()}
    fields = []
    for name in tables[0] if tables else ():
        kinds = {type(table[name]) for table in tables if table[name] is not None}
        kind = float if kinds == {int, float} else next(iter(kinds), str)
        fields.append((name, types.get(kind, arrow.string())))
    return fields


def _seed(record: Record, run: int) -> int | None:
    return record.seeds[run] if record.seeds else None


def _installed(name: str) -> ModuleType:
    # Neither is in an extra of ours: who wants such a frame has the library itself.
    try:
        return require(name, extra="frames")
    except MissingExtraError as error:
        raise MissingExtraError(
            f"{name} is not installed. Install it with: pip install {name}"
        ) from error


Writer = Callable[[Sequence[Record], BinaryIO, bool], None]
"""Writes records to a file; the last argument asks for what parties earned."""


def export(records: Record | Iterable[Record], path: str | Path, *, parties: bool = False) -> Path:
    """Write records to a file and return its path; the suffix says how.

    | suffix | holds |
    |---|---|
    | .csv, .parquet | the curves in long form (`rows`) |
    | .json | everything, arrays included |
    | .html | the page that `report` writes |

    With `parties` a .csv or .parquet file holds what each party earned by the end of each run
    (`party_rows`) instead of the curves. The file appears whole or not at all.

    >>> export([], "runs.xlsx")
    Traceback (most recent call last):
    ...
    posse.core.errors.DataError: [P200] cannot export to '.xlsx'. Known: .csv, .html, .json,
    .parquet.
    """
    path = Path(path)
    known, suffix = PARTY_FORMATS if parties else tuple(FORMATS), path.suffix.lower()
    if suffix not in known:
        what = " what parties earned" if parties else ""
        raise DataError(
            f"cannot export{what} to '{path.suffix or path.name}'. Known: "
            f"{', '.join(sorted(known))}."
        )
    chosen = several(records)
    if not chosen:
        raise DataError(f"there is nothing to write to {path}. Give at least one record.")
    if parties and not any(record.parties for record in chosen):
        raise DataError(
            "none of these records says what each party earned. Export the curves, without "
            "'parties'."
        )
    with whole(path) as file:
        FORMATS[suffix](chosen, file, parties)
    return path


def _csv(records: Sequence[Record], file: BinaryIO, parties: bool) -> None:
    columns, lines = (PARTY_COLUMNS, party_rows(records)) if parties else (COLUMNS, rows(records))
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    try:
        # Python writes the shortest digits that give the same float back, so nothing is lost.
        writer = csv.DictWriter(text, [*columns, *_parameters(records, columns)[0]])
        writer.writeheader()
        writer.writerows(lines)
    finally:
        # Flushes, and leaves the file open for its owner to close.
        text.detach()


def _parquet(records: Sequence[Record], file: BinaryIO, parties: bool) -> None:
    table = _parties_to_arrow(records) if parties else to_arrow(records)
    require("pyarrow.parquet", extra="frames").write_table(table, file, compression="zstd")


def _json(records: Sequence[Record], file: BinaryIO, parties: bool) -> None:
    body = {"posse": __version__, "records": [record.document() for record in records]}
    file.write(json.dumps(body, ensure_ascii=False, allow_nan=False, indent=1).encode())


def _html(records: Sequence[Record], file: BinaryIO, parties: bool) -> None:
    file.write(render_report(records).encode())


FORMATS: dict[str, Writer] = {".csv": _csv, ".parquet": _parquet, ".json": _json, ".html": _html}
"""Suffixes that `export` knows."""

PARTY_FORMATS = (".csv", ".parquet")
"""Suffixes that it knows for what each party earned; .json and .html hold it anyway."""
