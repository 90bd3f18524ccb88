"""Records leave as a file, in the format that its name asks for."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from posse.core.errors import DataError
from posse.core.extras import require
from posse.results.files import whole
from posse.results.frames import COLUMNS, rows, several, to_arrow
from posse.results.parties import PARTY_COLUMNS, parties_to_arrow, party_rows
from posse.results.record import ARRAYS, RunRecord
from posse.results.report import render_report
from posse.version import __version__

Writer = Callable[[Sequence[RunRecord], BinaryIO], None]


def export(records: RunRecord | Iterable[RunRecord], path: str | Path, *, parties: bool = False) -> Path:
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


def _csv(records: Sequence[RunRecord], file: BinaryIO) -> None:
    _lines(COLUMNS, rows(records), file)


def _party_csv(records: Sequence[RunRecord], file: BinaryIO) -> None:
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


def _parquet(records: Sequence[RunRecord], file: BinaryIO) -> None:
    require("pyarrow.parquet", extra="frames").write_table(to_arrow(records), file, compression="zstd")


def _party_parquet(records: Sequence[RunRecord], file: BinaryIO) -> None:
    require("pyarrow.parquet", extra="frames").write_table(parties_to_arrow(records), file, compression="zstd")


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

PARTY_FORMATS: dict[str, Writer] = {".csv": _party_csv, ".parquet": _party_parquet}
"""Suffixes that it knows for what each party earned; .json and .html hold it anyway."""
