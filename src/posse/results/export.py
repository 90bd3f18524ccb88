"""Records as rows, frames and files, with one column per parameter; and queries of rows."""

from __future__ import annotations

import csv
import io
import json
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
import numpy.typing as npt

from posse.core.check import did_you_mean, ensure, require
from posse.core.errors import ConfigError, MissingExtraError
from posse.core.files import open_whole
from posse.core.statistics import Floats, standard_error
from posse.results.naming import labels
from posse.results.record import Record, several
from posse.results.render import render_report
from posse.results.values import JSON, all_names
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


TYPES = {"run": "int64", "seed": "uint64", "step": "int64"}
"""Arrow types of columns that are neither text nor floats."""
FLOATS = ("reward", "regret", "total")

Column = Sequence[Scalar] | npt.NDArray[np.generic]
Table = dict[str, Column]


def rows(records: Record | Iterable[Record]) -> Iterator[Row]:
    """Yield the points of all curves, by record, run and step.

    `COLUMNS` come first, then one column per parameter (`policy.tau`; `config.seed` if the name is
    taken). `seed` is None in a deployment, `regret` if the true means are not known.
    """
    return _rows(_curves(several(records)))


def party_rows(records: Record | Iterable[Record]) -> Iterator[Row]:
    """Yield what each party earned and regretted by the end of each run.

    A record without parties has no row. `total` and `regret` are None if the record does not hold
    them; parameters follow as in `rows`.
    """
    return _rows(_parties(several(records)))


def _curves(records: Sequence[Record]) -> Iterator[Table]:
    for record, label, settings in _described(records, COLUMNS):
        points = record.steps.size
        size = record.runs * points
        yield {
            **_names(record, label, size),
            "level": [record.level] * size,
            **_runs(record, points),
            "step": np.tile(record.steps, record.runs),
            "reward": record.reward.ravel(),
            "regret": _values(record.regret, size),
            **{name: [value] * size for name, value in settings.items()},
        }


def _parties(records: Sequence[Record]) -> Iterator[Table]:
    for record, label, settings in _described(records, PARTY_COLUMNS):
        size = record.runs * len(record.parties)
        yield {
            **_names(record, label, size),
            **_runs(record, len(record.parties)),
            "party": record.parties * record.runs,
            "total": _values(record.party_total, size),
            "regret": _values(record.party_regret, size),
            **{name: [value] * size for name, value in settings.items()},
        }


def _described(
    records: Sequence[Record], columns: Sequence[str]
) -> Iterator[tuple[Record, str, Row]]:
    """Yield each record with its label and its parameters."""
    yield from zip(records, labels(records), _parameters(records, columns), strict=True)


def _names(record: Record, label: str, size: int) -> Table:
    return {"record": [record.id] * size, "label": [label] * size}


def _runs(record: Record, rows_per_run: int) -> Table:
    """Return the columns of the number of each run, and of its seed."""
    seeds = np.array(record.seeds or [None] * record.runs, np.uint64 if record.seeds else object)
    runs = np.arange(record.runs)
    return {"run": np.repeat(runs, rows_per_run), "seed": np.repeat(seeds, rows_per_run)}


def _values(array: Floats | None, size: int) -> Column:
    """Return the values of an array in one column; None for each if there is no array."""
    return [None] * size if array is None else array.ravel()


def _rows(tables: Iterable[Table]) -> Iterator[Row]:
    for table in tables:
        columns = [
            column.tolist() if isinstance(column, np.ndarray) else column
            for column in table.values()
        ]
        for values in zip(*columns, strict=True):
            yield dict(zip(table, values, strict=True))


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
    chosen = several(records)
    if curves:
        return _arrow(chosen, COLUMNS, _curves(chosen))
    arrow = require("pyarrow", extra="frames")
    summaries = aligned(summary_rows(chosen))
    return arrow.Table.from_pylist(summaries, schema=arrow.schema(_types(summaries)))


def _arrow(records: Sequence[Record], columns: Sequence[str], tables: Iterable[Table]) -> pa.Table:
    """Return tables of records as one Arrow table, with the same columns for all of them."""
    arrow = require("pyarrow", extra="frames")
    types = {name: TYPES.get(name, "string") for name in columns}
    types |= {name: "float64" for name in FLOATS if name in types}
    schema = arrow.schema([*types.items(), *_types(_parameters(records, columns))])
    parts = [arrow.table(table, schema=schema) for table in tables]
    return arrow.concat_tables([schema.empty_table(), *parts])


def _types(rows: Sequence[Row]) -> list[tuple[str, str]]:
    """Return the name and the Arrow type of each column of aligned rows."""
    types = {bool: "bool", int: "int64", float: "float64"}
    columns = []
    for name in rows[0] if rows else ():
        kinds = {type(row[name]) for row in rows} - {type(None)}
        kind = float if kinds == {int, float} else next(iter(kinds), str)
        columns.append((name, types.get(kind, "string")))
    return columns


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
    columns = {}
    for name in all_names(rows):
        columns[name] = _of_one_type([row.get(name) for row in rows])
    return [{name: columns[name][i] for name in columns} for i in range(len(rows))]


def _of_one_type(values: list[Scalar]) -> list[Scalar]:
    types = {type(value) for value in values if value is not None}
    # No column of integers holds an integer of more than 64 bits.
    too_large = any(isinstance(value, int) and abs(value) >= 2**63 for value in values)
    if not too_large and (len(types) < 2 or types == {int, float}):
        return values
    return [None if value is None else words_of(value) for value in values]


# Queries ------------------------------------------------------------------------------------------


ALSO = {
    "id": "record",
    "system": "kind",
    "steps": "horizon",
    "earned": "total_mean",
    "regret": "regret_mean",
    "made": "created",
}
"""Headings under which a list shows columns of `summary_rows`; both names find the column."""

SHOWN = ("arms", "data", "label", "level", "party", "policy", "runs")
"""Columns that a list shows under their own names."""

_CONDITION = re.compile(r"\s*([\w. -]+?)\s*(!=|<=|>=|==?|<|>|~)\s*(?![=<>!~])(.*?)\s*", re.DOTALL)
_TESTS: dict[str, Callable[[float | str, float | str], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "~": lambda value, part: str(part).lower() in str(value).lower(),
}


def filtered(
    rows: Sequence[Row], conditions: Iterable[str], also: Mapping[str, str] = ALSO
) -> list[Row]:
    """Return the rows for which all conditions hold, such as "policy=ucb" or "horizon>=1000".

    Args:
        rows: Rows of `summary_rows`.
        conditions: A column, a sign and a value; "label~trial" holds if the label contains the
            text. Numbers are compared as numbers, all else as text. A value that a row does not
            know fulfils "!=" alone.
        also: Other names of columns.

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
    test = _TESTS[sign]
    number = _number(value)
    other_number = _number(other)
    if sign == "~" or not numeric:
        return test(words_of(value), {"true": "yes", "false": "no"}.get(other.lower(), other))
    if number is not None and other_number is not None:
        return test(number, other_number)
    if not isinstance(value, str):
        raise ConfigError(
            f"'{other}' is compared with the number {value:g}. Give a number.",
            rule="results.condition.not-a-number",
        )
    # A word is neither more nor less than a number.
    return test(value, other) if sign in ("=", "!=") else False


def _number(value: Scalar) -> float | None:
    """Return a number, also of a text; None for all else."""
    if value is None or isinstance(value, bool):
        return None
    try:
        return float(value)
    except ValueError:
        return None


def ordered(rows: Sequence[Row], names: Iterable[str], also: Mapping[str, str] = ALSO) -> list[Row]:
    """Sort by columns, the first one first; "-" before a name reverses it. None comes last.

    >>> [row["n"] for row in ordered([{"n": 1}, {"n": None}, {"n": 3}], ["-n"])]
    [3, 1, None]
    """
    result = list(rows)
    for name in reversed(list(names)):
        key = column(name.removeprefix("-"), rows, also)
        values = _of_one_type([row.get(key) for row in result])
        order = [i for i, value in enumerate(values) if value is not None]
        order.sort(key=values.__getitem__, reverse=name.startswith("-"))  # type: ignore[arg-type]
        unknown = [i for i, value in enumerate(values) if value is None]
        result = [result[i] for i in order + unknown]
    return result


def column(name: str, rows: Sequence[Row], also: Mapping[str, str] = ALSO) -> str:
    """Return the column that a name means: its own name, or another one (`also`).

    "-" is the same as "_", and the prefixes "policy." and "config." may be omitted.
    """
    names = all_names(rows)
    full_name = also.get(name, name)
    spellings = []
    for each in (full_name, name):
        spellings += [each, each.replace("-", "_"), f"policy.{each}", f"config.{each}"]
    for spelling in spellings:
        if spelling in names or not names:
            return spelling
    headings = [heading for heading, stored in also.items() if stored in names]
    usual = sorted({*headings, *{*names} & {*SHOWN}})
    raise ConfigError(
        f"unknown column '{name}'.{did_you_mean(name, (*names, *headings))} Known: "
        f"{', '.join(usual)}; and every name in 'posse runs list --json'.",
        rule="results.column.unknown",
    )


# Files --------------------------------------------------------------------------------------------


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
        scalar = value if isinstance(value, str | int | float | None) else words_of(value)
        row[f"{prefix}.{name}" if name in reserved else name] = scalar
    return row


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
    what = " what parties earned" if parties else ""
    ensure(
        suffix in formats,
        f"cannot export{what} to '{path.suffix or path.name}'. Known: {', '.join(sorted(formats))}.",
        rule="results.suffix.unknown",
    )
    chosen = several(records)
    ensure(
        chosen,
        f"there is nothing to write to {path}. Give at least one record.",
        rule="results.records.none",
    )
    ensure(
        not parties or any(record.parties for record in chosen),
        "none of these records has what each party earned. Export the curves, without 'parties'.",
        rule="results.parties.none",
    )
    with open_whole(path) as file:
        FORMATS[suffix](chosen, file, parties)
    return path


def _csv(records: Sequence[Record], file: BinaryIO, parties: bool) -> None:
    columns = PARTY_COLUMNS if parties else COLUMNS
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    try:
        # Python writes the shortest digits that give the same float back, so nothing is lost.
        writer = csv.DictWriter(text, [*columns, *_parameters(records, columns)[0]])
        writer.writeheader()
        writer.writerows(party_rows(records) if parties else rows(records))
    finally:
        # Flushes, and leaves the file open for its owner to close.
        text.detach()


def _parquet(records: Sequence[Record], file: BinaryIO, parties: bool) -> None:
    table = _arrow(records, PARTY_COLUMNS, _parties(records)) if parties else to_arrow(records)
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
