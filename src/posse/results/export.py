"""Records leave as a file, in the format that its name asks for."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import BinaryIO

from posse.core.errors import DataError
from posse.core.extras import require
from posse.results.files import whole
from posse.results.frames import COLUMNS, rows, several, to_arrow
from posse.results.record import ARRAYS, RunRecord
from posse.results.report import render_report
from posse.version import __version__

Writer = Callable[[Sequence[RunRecord], BinaryIO], None]


def export(records: RunRecord | Iterable[RunRecord], path: str | Path) -> Path:
    """Write records to a file and return its path; the suffix says how.

    | suffix | holds |
    |---|---|
    | .csv, .parquet | the curves in long form (`rows`) |
    | .json | everything, arrays included |
    | .html | the report (`write_report`) |

    The file appears whole or not at all.

    >>> export([], "runs.xlsx")
    Traceback (most recent call last):
    ...
    posse.core.errors.DataError: [P200] cannot export to '.xlsx'. Known: .csv, .html, .json, .parquet.
    """
    path = Path(path)
    writer = FORMATS.get(path.suffix.lower())
    if writer is None:
        raise DataError(f"cannot export to '{path.suffix or path.name}'. Known: {', '.join(sorted(FORMATS))}.")
    chosen = several(records)
    if not chosen:
        raise DataError(f"there is nothing to write to {path}. Give at least one record.")
    with whole(path) as file:
        writer(chosen, file)
    return path


def _csv(records: Sequence[RunRecord], file: BinaryIO) -> None:
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    try:
        # Python writes the shortest digits that give the same float back, so nothing is lost.
        writer = csv.DictWriter(text, COLUMNS)
        writer.writeheader()
        writer.writerows(rows(records))
    finally:
        # Flushes, and leaves the file open for its owner to close.
        text.detach()


def _parquet(records: Sequence[RunRecord], file: BinaryIO) -> None:
    require("pyarrow.parquet", extra="frames").write_table(to_arrow(records), file, compression="zstd")


def _json(records: Sequence[RunRecord], file: BinaryIO) -> None:
    def arrays(record: RunRecord) -> dict[str, object]:
        values = {name: getattr(record, name) for name in ARRAYS}
        return {name: None if array is None else array.tolist() for name, array in values.items()}

    body = {"posse": __version__, "records": [{**record.metadata(), **arrays(record)} for record in records]}
    file.write(json.dumps(body, ensure_ascii=False, allow_nan=False, indent=1).encode())


def _html(records: Sequence[RunRecord], file: BinaryIO) -> None:
    file.write(render_report(records).encode())


FORMATS: dict[str, Writer] = {".csv": _csv, ".parquet": _parquet, ".json": _json, ".html": _html}
"""Suffixes that `export` knows."""
