"""Records leave as a file, in the format that its name asks for."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, BinaryIO, TypedDict

import numpy as np

from posse.core.check import require
from posse.core.errors import DataError, MissingExtraError
from posse.core.files import whole
from posse.results.record import ARRAYS, Record, several
from posse.results.report import render_report
from posse.results.statistics import standard_error
from posse.version import __version__

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

Writer = Callable[[Sequence[Record], BinaryIO], None]


def export(records: Record | Iterable[Record], path: str | Path, *, parties: bool = False) -> Path:
    """Write records to a file and return its path; the suffix says how.

    | suffix | holds |
    |---|---|
    | .csv, .parquet | the curves in long form (`rows`) |
    | .json | everything, arrays included |
    | .html | the report (`write_report`) |

    With `parties` a .csv or .parquet file holds what each party earned by the end of each run (`party_rows`) instead
    of the curves. The file appears whole or not at all.

    >>> export([], "runs.xlsx")
    Traceback (most recent call last):
    ...
    posse.core.errors.DataError: [P200] cannot export to '.xlsx'. Known: .csv, .html, .json, .parquet.
    """
    path = Path(path)
    known = PARTY_FORMATS if parties else FORMATS
    writer = known.get(path.suffix.lower())
    if writer is None:
        what = " what parties earned" if parties else ""
        raise DataError(f"cannot export{what} to '{path.suffix or path.name}'. Known: {', '.join(sorted(known))}.")
    chosen = several(records)
    if not chosen:
        raise DataError(f"there is nothing to write to {path}. Give at least one record.")
    if parties and not any(record.parties for record in chosen):
        raise DataError("none of these records says what each party earned. Export the curves, without 'parties'.")
    with whole(path) as file:
        writer(chosen, file)
    return path


def _csv(records: Sequence[Record], file: BinaryIO) -> None:
    _lines(COLUMNS, rows(records), file)


def _party_csv(records: Sequence[Record], file: BinaryIO) -> None:
    _lines(PARTY_COLUMNS, party_rows(records), file)


def _lines(columns: Sequence[str], found: Iterable[Mapping[str, object]], file: BinaryIO) -> None:
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    try:
        # Python writes the shortest digits that give the same float back, so nothing is lost.
        writer = csv.DictWriter(text, columns)
        writer.writeheader()
        writer.writerows(found)
    finally:
        # Flushes, and leaves the file open for its owner to close.
        text.detach()


def _parquet(records: Sequence[Record], file: BinaryIO) -> None:
    require("pyarrow.parquet", extra="frames").write_table(to_arrow(records), file, compression="zstd")


def _party_parquet(records: Sequence[Record], file: BinaryIO) -> None:
    require("pyarrow.parquet", extra="frames").write_table(parties_to_arrow(records), file, compression="zstd")


def _json(records: Sequence[Record], file: BinaryIO) -> None:
    def arrays(record: Record) -> dict[str, object]:
        values = {name: getattr(record, name) for name in ARRAYS}
        return {name: None if array is None else array.tolist() for name, array in values.items()}

    body = {"posse": __version__, "records": [{**record.metadata(), **arrays(record)} for record in records]}
    file.write(json.dumps(body, ensure_ascii=False, allow_nan=False, indent=1).encode())


def _html(records: Sequence[Record], file: BinaryIO) -> None:
    file.write(render_report(records).encode())


FORMATS: dict[str, Writer] = {".csv": _csv, ".parquet": _parquet, ".json": _json, ".html": _html}
"""Suffixes that `export` knows."""

PARTY_FORMATS: dict[str, Writer] = {".csv": _party_csv, ".parquet": _party_parquet}
"""Suffixes that it knows for what each party earned; .json and .html hold it anyway."""


class Row(TypedDict):
    """One point of one curve; `seed` is None in a deployment, `regret` where the true means are not known."""

    record: str
    label: str
    level: str
    run: int
    seed: int | None
    step: int
    reward: float
    regret: float | None


COLUMNS = tuple(Row.__annotations__)


def rows(records: Record | Iterable[Record]) -> Iterator[Row]:
    """Yield the points of all curves, record by record, run by run, step by step.

    >>> from posse.results.example import example_record
    >>> first = next(rows(example_record(id="0a")))
    >>> first["record"], first["run"], first["seed"], first["step"]
    ('0a', 0, 0, 1)
    """
    for record in several(records):
        steps = record.steps.tolist()
        for run in range(record.runs):
            seed = record.seeds[run] if record.seeds else None
            regret = [None] * len(steps) if record.regret is None else record.regret[run].tolist()
            for step, reward, lost in zip(steps, record.reward[run].tolist(), regret, strict=True):
                yield Row(
                    record=record.id,
                    label=record.label,
                    level=record.level,
                    run=run,
                    seed=seed,
                    step=step,
                    reward=reward,
                    regret=lost,
                )


def to_arrow(records: Record | Iterable[Record]) -> pa.Table:
    """Return the rows as an Arrow table; seeds are unsigned, what is not known is null."""
    arrow = require("pyarrow", extra="frames")
    text, types = arrow.string(), (arrow.int64(), arrow.uint64(), arrow.int64(), arrow.float64(), arrow.float64())
    schema = arrow.schema(list(zip(COLUMNS, (text, text, text, *types), strict=True)))
    tables = [schema.empty_table()]
    for record in several(records):
        runs, points = record.runs, record.steps.size
        n = runs * points
        seeds = np.repeat(np.array(record.seeds, dtype=np.uint64), points) if record.seeds else arrow.nulls(n)
        columns = {
            "record": arrow.repeat(record.id, n),
            "label": arrow.repeat(record.label, n),
            "level": arrow.repeat(record.level, n),
            "run": np.repeat(np.arange(runs, dtype=np.int64), points),
            "seed": seeds,
            "step": np.tile(record.steps, runs),
            "reward": record.reward.ravel(),
            "regret": arrow.nulls(n) if record.regret is None else record.regret.ravel(),
        }
        tables.append(arrow.table(columns, schema=schema))
    return arrow.concat_tables(tables)


def to_pandas(records: Record | Iterable[Record]) -> pd.DataFrame:
    """Return the rows as a pandas frame; seeds are `UInt64`, in which a missing one does not turn all into floats."""
    pandas = _installed("pandas")
    table = to_arrow(records)
    unsigned = require("pyarrow", extra="frames").uint64()
    frame: pd.DataFrame = table.to_pandas(types_mapper={unsigned: pandas.UInt64Dtype()}.get)
    return frame


def to_polars(records: Record | Iterable[Record]) -> pl.DataFrame:
    """Return the rows as a polars frame."""
    polars = _installed("polars")
    frame: pl.DataFrame = polars.from_arrow(to_arrow(records))
    return frame


def summary_rows(records: Record | Iterable[Record]) -> list[dict[str, str | int | float | None]]:
    """Return one row a record: what was asked, what was earned, what it cost."""
    return [
        {
            "record": record.id,
            "created": record.created,
            "kind": record.kind,
            "status": record.status,
            "policy": record.policy,
            "level": record.level,
            "protection": record.protection,
            "problem": record.problem_name,
            "budget": record.budget,
            "arms": record.arms,
            "runs": record.runs,
            "total_mean": record.total_mean,
            "total_error": standard_error(record.total),
            "regret_mean": _last_regret(record),
            "seconds": record.seconds,
            "messages": record.messages,
            "bytes": record.bytes,
            "version": record.version,
            **record.summary,
        }
        for record in several(records)
    ]


def _last_regret(record: Record) -> float | None:
    return float(record.regret[:, -1].mean()) if record.regret is not None and record.regret.size else None


def _installed(name: str) -> ModuleType:
    # Neither is in an extra of ours: who asks for such a frame has, or wants, the library itself.
    try:
        return require(name, extra="frames")
    except MissingExtraError as error:
        raise MissingExtraError(f"{name} is not installed. Install it with: pip install {name}") from error


class PartyRow(TypedDict):
    """One party of one run; `total` and `regret` are None where the record does not hold them."""

    record: str
    label: str
    run: int
    seed: int | None
    party: str
    total: float | None
    regret: float | None


PARTY_COLUMNS = tuple(PartyRow.__annotations__)


def party_rows(records: Record | Iterable[Record]) -> Iterator[PartyRow]:
    """Yield what each party earned and regretted by the end of each run; a record without parties has no row.

    >>> from posse.results.example import example_market_record
    >>> first = next(party_rows(example_market_record(id="0a")))
    >>> first["record"], first["label"], first["run"], first["party"]
    ('0a', 'p-fcb (tight)', 0, 'north')
    """
    for record in several(records):
        totals = None if record.party_total is None else record.party_total.tolist()
        regrets = None if record.party_regret is None else record.party_regret.tolist()
        for run in range(record.runs):
            for i, party in enumerate(record.parties):
                yield PartyRow(
                    record=record.id,
                    label=record.label,
                    run=run,
                    seed=record.seeds[run] if record.seeds else None,
                    party=party,
                    total=None if totals is None else totals[run][i],
                    regret=None if regrets is None else regrets[run][i],
                )


def parties_to_arrow(records: Record | Iterable[Record]) -> pa.Table:
    """Return the rows as an Arrow table; seeds are unsigned, what is not known is null."""
    arrow = require("pyarrow", extra="frames")
    text, number = arrow.string(), arrow.float64()
    types = (text, text, arrow.int64(), arrow.uint64(), text, number, number)
    schema = arrow.schema(list(zip(PARTY_COLUMNS, types, strict=True)))
    return arrow.Table.from_pylist(list(party_rows(records)), schema=schema)
