"""Curves in long form, one row a run and a step, for whichever tool comes next."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import TYPE_CHECKING, TypedDict

import numpy as np

from posse.core.errors import MissingExtraError
from posse.core.extras import require
from posse.results.bands import standard_error
from posse.results.record import RunRecord

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa


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


def several(records: RunRecord | Iterable[RunRecord]) -> tuple[RunRecord, ...]:
    """Accept one record where several are expected."""
    return (records,) if isinstance(records, RunRecord) else tuple(records)


def rows(records: RunRecord | Iterable[RunRecord]) -> Iterator[Row]:
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


def to_arrow(records: RunRecord | Iterable[RunRecord]) -> pa.Table:
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


def to_pandas(records: RunRecord | Iterable[RunRecord]) -> pd.DataFrame:
    """Return the rows as a pandas frame; seeds are `UInt64`, in which a missing one does not turn all into floats."""
    pandas = _installed("pandas")
    table = to_arrow(records)
    unsigned = require("pyarrow", extra="frames").uint64()
    frame: pd.DataFrame = table.to_pandas(types_mapper={unsigned: pandas.UInt64Dtype()}.get)
    return frame


def to_polars(records: RunRecord | Iterable[RunRecord]) -> pl.DataFrame:
    """Return the rows as a polars frame."""
    polars = _installed("polars")
    frame: pl.DataFrame = polars.from_arrow(to_arrow(records))
    return frame


def summary_rows(records: RunRecord | Iterable[RunRecord]) -> list[dict[str, str | int | float | None]]:
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


def _last_regret(record: RunRecord) -> float | None:
    return float(record.regret[:, -1].mean()) if record.regret is not None and record.regret.size else None


def _installed(name: str) -> ModuleType:
    # Neither is in an extra of ours: who asks for such a frame has, or wants, the library itself.
    try:
        return require(name, extra="frames")
    except MissingExtraError as error:
        raise MissingExtraError(f"{name} is not installed. Install it with: pip install {name}") from error
