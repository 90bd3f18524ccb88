"""Records as rows, frames and files, with one column per parameter; and queries of rows."""

from __future__ import annotations

import csv
import io
import json
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from posse.core.check import did_you_mean, require, suggestion
from posse.core.errors import ConfigError, DataError, MissingExtraError
from posse.core.files import open_whole
from posse.core.statistics import Floats, standard_error
from posse.results.naming import labels
from posse.results.record import Record, several
from posse.results.render import render_report
from posse.results.values import JSON
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
    """Yield the points of all curves, by record, run and step.

    `COLUMNS` come first, then one column per parameter (`policy.tau`; `config.seed` if the name is
    taken). `seed` is None in a deployment, `regret` if the true means are not known.
    """
    for record, label, settings in _described(several(records), COLUMNS):
        steps = record.steps.tolist()
        for run in range(record.runs):
            head: Row = {"record": record.id, "label": label, "level": record.level, "run": run}
            head["seed"] = _seed(record, run)
            regrets = _run_of(record.regret, run, len(steps))
            for step, reward, regret in zip(
                steps, record.reward[run].tolist(), regrets, strict=True
            ):
                yield {**head, "step": step, "reward": reward, "regret": regret, **settings}


def party_rows(records: Record | Iterable[Record]) -> Iterator[Row]:
    """Yield what each party earned and regretted by the end of each run.

    A record without parties has no row. `total` and `regret` are None if the record does not hold
    them; parameters follow as in `rows`.
    """
    for record, label, settings in _described(several(records), PARTY_COLUMNS):
        for run in range(record.runs):
            head: Row = {"record": record.id, "label": label, "run": run}
            head["seed"] = _seed(record, run)
            totals = _run_of(record.party_total, run, len(record.parties))
            regrets = _run_of(record.party_regret, run, len(record.parties))
            for party, total, regret in zip(record.parties, totals, regrets, strict=True):
                yield {**head, "party": party, "total": total, "regret": regret, **settings}


def _described(
    records: Sequence[Record], columns: Sequence[str]
) -> Iterator[tuple[Record, str, Row]]:
    """Yield each record with its label and its parameters."""
    yield from zip(records, labels(records), _parameters(records, columns), strict=True)


def _run_of(array: Floats | None, run: int, size: int) -> list[float | None]:
    """Return a row of an array; None for each value if there is no array."""
    return [None] * size if array is None else list(array[run].tolist())


def summary_rows(records: Record | Iterable[Record]) -> list[Row]:
    """Return one row per record: its names, what was earned, costs, parameters and figures."""
    chosen = several(records)
    heads = [_head(record, label) for record, label in zip(chosen, labels(chosen), strict=True)]
    columns = tuple(heads[0]) if heads else ()
    summaries = []
    for record, head, settings in zip(chosen, heads, _parameters(chosen, columns), strict=True):
        for name in ("config.policy", "config.horizon"):  # the same as policy and horizon
            settings.pop(name, None)
        row = head | settings
        figures = _renamed(record.summary, {*row, "data"}, "summary")
        summaries.append({**row, **figures, "data": data_of(record)})
    return summaries


def _head(record: Record, label: str) -> Row:
    return {
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


def data_of(record: Record) -> str:
    """Return the file or data set of a record, or the name of its problem."""
    data = record.settings().get("data")
    return data if isinstance(data, str) and data else record.problem_name


def to_arrow(records: Record | Iterable[Record], *, curves: bool = True) -> pa.Table:
    """Return `rows` as an Arrow table; seeds are unsigned, what is not known is null.

    Without `curves` it has one row per record instead (`summary_rows`).
    """
    arrow = require("pyarrow", extra="frames")
    chosen = several(records)
    if not curves:
        table = aligned(summary_rows(chosen))
        return arrow.Table.from_pylist(table, schema=arrow.schema(_fields(table, arrow)))
    text = arrow.string()
    numbers = (arrow.int64(), arrow.uint64(), arrow.int64(), arrow.float64(), arrow.float64())
    names = zip(COLUMNS, (text, text, text, *numbers), strict=True)
    schema = arrow.schema([*names, *_fields(_parameters(chosen, COLUMNS), arrow)])
    tables = [schema.empty_table()]
    for record, label, settings in _described(chosen, COLUMNS):
        columns = _arrow_columns(record, label, arrow)
        size = len(columns["step"])
        for name, value in settings.items():
            columns[name] = arrow.repeat(arrow.scalar(value, schema.field(name).type), size)
        tables.append(arrow.table(columns, schema=schema))
    return arrow.concat_tables(tables)


def _arrow_columns(record: Record, label: str, arrow: ModuleType) -> dict[str, Any]:
    """Return the columns of `rows` for one record, without parameters."""
    points = record.steps.size
    size = record.runs * points
    nulls = arrow.nulls(size)
    seeds = np.repeat(np.array(record.seeds, dtype=np.uint64), points)
    return {
        "record": arrow.repeat(record.id, size),
        "label": arrow.repeat(label, size),
        "level": arrow.repeat(record.level, size),
        "run": np.repeat(np.arange(record.runs, dtype=np.int64), points),
        "seed": seeds if record.seeds else nulls,
        "step": np.tile(record.steps, record.runs),
        "reward": record.reward.ravel(),
        "regret": nulls if record.regret is None else record.regret.ravel(),
    }


def to_pandas(records: Record | Iterable[Record], *, curves: bool = True) -> pd.DataFrame:
    """Return `to_arrow` as a pandas frame.

    Seeds are `UInt64`: a missing one does not turn all into floats.
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
    """Return rows with the same columns, each of one type.

    A value that a row lacks is None. Columns with values of different types become text.
    """
    types: dict[str, set[type]] = {}
    for row in rows:
        for name, value in row.items():
            types.setdefault(name, set()).add(_type(value))
    texts = set()
    for name, kinds in types.items():
        kinds.discard(type(None))
        if len(kinds) > 1 and kinds != {int, float}:
            texts.add(name)
    result = []
    for row in rows:
        values = {name: row.get(name) for name in types}
        for name in texts:
            if values[name] is not None:
                values[name] = words_of(values[name])
        result.append(values)
    return result


def _type(value: Scalar) -> type:
    """Return the type of a value; text for an integer that no column of integers holds."""
    if isinstance(value, int) and abs(value) >= 2**63:
        return str
    return type(value)


_CONDITION = re.compile(r"\s*([\w. -]+?)\s*(!=|<=|>=|==?|<|>|~)\s*(?![=<>!~])(.*?)\s*", re.DOTALL)
_GROUPED = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+(\.\d*)?")
_TESTS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "~": lambda value, part: str(part).lower() in str(value).lower(),
}


def filtered(
    rows: Sequence[Row], conditions: Iterable[str], also: Mapping[str, str] | None = None
) -> list[Row]:
    """Return the rows for which all conditions hold, such as "policy=ucb" or "horizon>=1000".

    Args:
        rows: Rows of `summary_rows`.
        conditions: A column, a sign and a value; "label~trial" holds if the label contains the
            text. What reads as numbers is compared as numbers, all else as text. A value that a
            row does not know fulfils "!=" alone.
        also: Other names of columns; by default `ALSO`.

    >>> rows = [{"policy": "ucb", "horizon": 100}, {"policy": "thompson", "horizon": 2000}]
    >>> filtered(rows, ["horizon>500", "policy!=ucb"])
    [{'policy': 'thompson', 'horizon': 2000}]
    """
    remaining = list(rows)
    for condition in conditions:
        name, sign, value = split(condition)
        name = column(name, rows, also)
        numeric = any(_number(row.get(name)) is not None for row in rows)
        remaining = [row for row in remaining if _holds(row.get(name), sign, value, numeric)]
    return remaining


def split(condition: str) -> tuple[str, str, str]:
    """Split a condition into the name of a column, a sign and a value.

    >>> split("policy == ucb")
    ('policy', '=', 'ucb')
    """
    match = _CONDITION.fullmatch(condition)
    if match is None:
        raise ConfigError(
            f"a condition must be like policy=ucb or horizon>=1000, got '{condition}'.",
            rule="results.condition.malformed",
        )
    name, sign, value = match.groups()
    return name, sign.replace("==", "="), value


def _holds(value: Scalar, sign: str, other: str, numeric: bool) -> bool:
    if value is None:
        return sign == "!="
    if sign == "~":
        return _TESTS[sign](words_of(value), other)
    number = _number(value)
    other_number = _number(other)
    if number is not None and other_number is not None:
        return _TESTS[sign](number, other_number)
    if number is not None and not isinstance(value, str):
        raise ConfigError(
            f"'{other}' is compared with the number {number:g}. Give a number.",
            rule="results.condition.not-a-number",
        )
    if numeric and other_number is not None and sign[0] in "<>":
        return False  # a word is neither more nor less than a number
    other = {"true": "yes", "false": "no"}.get(other.lower(), other)
    return _TESTS[sign](words_of(value), other)


def _number(value: Scalar) -> float | None:
    """Return a number, also of a text with commas between groups of digits; None for all else."""
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, str) and _GROUPED.fullmatch(value):
        value = value.replace(",", "")
    try:
        return float(value)
    except ValueError:
        return None


def ordered(
    rows: Sequence[Row], names: Iterable[str], also: Mapping[str, str] | None = None
) -> list[Row]:
    """Sort by columns, the first one first; "-" before a name reverses it. None comes last.

    >>> [row["n"] for row in ordered([{"n": 1}, {"n": None}, {"n": 3}], ["-n"])]
    [3, 1, None]
    """
    result = list(rows)
    for name in reversed(list(names)):
        key = column(name.removeprefix("-"), rows, also)
        unknown = [row for row in result if row.get(key) is None]
        result = [row for row in result if row.get(key) is not None]
        if all(isinstance(row[key], int | float) for row in result):
            result.sort(key=itemgetter(key), reverse=name.startswith("-"))
        else:
            texts = {id(row): words_of(row[key]) for row in result}
            result.sort(key=lambda row: texts[id(row)], reverse=name.startswith("-"))
        result += unknown
    return result


def grouped(
    rows: Sequence[Row], names: Iterable[str], also: Mapping[str, str] | None = None
) -> list[Row]:
    """Return one row per group of equal values in some columns, with the means of other numbers.

    The parties of a deployment each keep a record of one run, with what that party knows. They are
    grouped by party too: a mean over parties would be the mean of nothing.

    >>> rows = [
    ...     {"p": "a", "n": 1, "w": "x"},
    ...     {"p": "a", "n": 2, "w": "y"},
    ...     {"p": "b", "n": 5, "w": "z"},
    ... ]
    >>> grouped(rows, ["p"])
    [{'p': 'a', 'records': 2, 'n': 1.5}, {'p': 'b', 'records': 1, 'n': 5.0}]
    """
    keys = dict.fromkeys(column(name, rows, also) for name in names)
    if any(row.get("party") for row in rows):
        keys["party"] = None
    groups: dict[tuple[Scalar, ...], list[Row]] = {}
    others: dict[str, None] = {}
    for row in rows:
        groups.setdefault(tuple(row.get(name) for name in keys), []).append(row)
        others |= dict.fromkeys(name for name in row if name not in keys)
    result = []
    for values, same in groups.items():
        means: Row = {**dict(zip(keys, values, strict=True)), "records": len(same)}
        for name in others:
            mean = _mean([row.get(name) for row in same])
            if mean is not None:
                means[name] = mean
        result.append(means)
    return result


def _mean(values: Iterable[Scalar]) -> float | None:
    """Return the mean of the numbers; None if a value is not a number, or all are unknown."""
    numbers = []
    for value in values:
        if isinstance(value, str | bool):
            return None
        if value is not None:
            numbers.append(float(value))
    return float(np.mean(numbers)) if numbers else None


def column(name: str, rows: Sequence[Row], also: Mapping[str, str] | None = None) -> str:
    """Return the column that a name means: its own name, or another one (`also`, else `ALSO`).

    "-" is the same as "_", and the prefixes "policy." and "config." may be omitted.
    """
    names: dict[str, None] = {}
    for row in rows:
        names |= dict.fromkeys(row)
    aliases = ALSO if also is None else also
    for full_name in (aliases.get(name, name), name):
        for spelling in (
            full_name,
            full_name.replace("-", "_"),
            f"policy.{full_name}",
            f"config.{full_name}",
        ):
            if spelling in names or not names:
                return spelling
    headings = [alias for alias, stored in aliases.items() if stored in names]
    choices = (*names, *headings)
    hint = suggestion(name, choices)
    if len(names) > MANY:
        usual = sorted({*headings, *SHOWN.intersection(names)})
        hint = f"{did_you_mean(name, choices)} Known: {', '.join(usual)}; and every name in "
        hint += "'posse runs list --json'."
    raise ConfigError(f"unknown column '{name}'.{hint}", rule="results.column.unknown")


ALSO = {
    "id": "record",
    "system": "kind",
    "steps": "horizon",
    "earned": "total_mean",
    "regret": "regret_mean",
    "made": "created",
}
"""Headings under which a list shows columns of `summary_rows`; both names find the column."""

SHOWN = frozenset(("policy", "level", "arms", "runs", "data", "party", "label"))
"""Columns that a list shows under their own names."""

MANY = 30
"""Of more columns than this an error names those that a list shows."""


def _parties_to_arrow(records: Sequence[Record]) -> pa.Table:
    arrow = require("pyarrow", extra="frames")
    text = arrow.string()
    number = arrow.float64()
    types = (text, text, arrow.int64(), arrow.uint64(), text, number, number)
    fields = _fields(_parameters(records, PARTY_COLUMNS), arrow)
    schema = arrow.schema([*zip(PARTY_COLUMNS, types, strict=True), *fields])
    return arrow.Table.from_pylist(list(party_rows(records)), schema=schema)


def _parameters(records: Sequence[Record], columns: Sequence[str]) -> list[Row]:
    """Return the parameters of each record, under the same names and of one type per name.

    A name that one of the columns has gets "config." before it. A list is written as text.
    """
    return aligned([_renamed(record.settings(), columns, "config") for record in records])


def _renamed(values: Mapping[str, JSON], others: Iterable[str], prefix: str) -> Row:
    """Return values as scalars, with a prefix if one of the other columns has the name."""
    reserved = set(others)
    row: Row = {}
    for name, value in values.items():
        scalar = value if value is None or isinstance(value, str | int | float) else None
        if scalar is None and value is not None:
            scalar = words_of(value)
        row[f"{prefix}.{name}" if name in reserved else name] = scalar
    return row


def _fields(tables: Sequence[Row], arrow: ModuleType) -> list[tuple[str, object]]:
    """Return the name and the Arrow type of each parameter."""
    types = {bool: arrow.bool_(), int: arrow.int64(), float: arrow.float64()}
    fields = []
    for name in tables[0] if tables else ():
        kinds = {type(table[name]) for table in tables} - {type(None)}
        kind = float if kinds == {int, float} else next(iter(kinds), str)
        fields.append((name, types.get(kind, arrow.string())))
    return fields


def _seed(record: Record, run: int) -> int | None:
    return record.seeds[run] if record.seeds else None


def _installed(name: str) -> ModuleType:
    # Neither is in an extra of ours: users of such frames have the library already.
    try:
        return require(name, extra="frames")
    except MissingExtraError as error:
        raise MissingExtraError(
            f"{name} is not installed. Install it with: pip install {name}",
            rule="results.frames.not-installed",
            field=name,
        ) from error


Writer = Callable[[Sequence[Record], BinaryIO, bool], None]
"""Writes records to a file; the last argument asks for what parties earned."""


def export(records: Record | Iterable[Record], path: str | Path, *, parties: bool = False) -> Path:
    """Write records to a file in the format of its suffix, and return its path.

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
    suffix = path.suffix.lower()
    formats = PARTY_FORMATS if parties else tuple(FORMATS)
    if suffix not in formats:
        what = " what parties earned" if parties else ""
        raise DataError(
            f"cannot export{what} to '{path.suffix or path.name}'. Known: "
            f"{', '.join(sorted(formats))}.",
            rule="results.suffix.unknown",
        )
    chosen = several(records)
    if not chosen:
        raise DataError(
            f"there is nothing to write to {path}. Give at least one record.",
            rule="results.records.none",
        )
    if parties and not any(record.parties for record in chosen):
        raise DataError(
            "none of these records has what each party earned. Export the curves, without "
            "'parties'.",
            rule="results.parties.none",
        )
    with open_whole(path) as file:
        FORMATS[suffix](chosen, file, parties)
    return path


def _csv(records: Sequence[Record], file: BinaryIO, parties: bool) -> None:
    columns: Sequence[str] = COLUMNS
    lines = rows(records)
    if parties:
        columns = PARTY_COLUMNS
        lines = party_rows(records)
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
