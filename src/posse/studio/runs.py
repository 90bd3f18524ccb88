"""The runs of the store, which the command line shares: list, compare, export, delete and take that
back.
"""

from __future__ import annotations

import io
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posse.core import check
from posse.core.errors import StoreError
from posse.core.statistics import Band, band
from posse.results.document import comparison_tables
from posse.results.export import export
from posse.results.naming import labels
from posse.results.render import render_report
from posse.results.store import RunRow, Store
from posse.results.words import common
from posse.studio.catalogue import plain
from posse.studio.guard import Refused

if TYPE_CHECKING:
    from posse.results.record import Record
    from posse.studio.catalogue import Catalogue

LISTED = 1000
"""Rows of one answer, at most."""
TOGETHER = 20
"""Runs that are compared or exported at once, at most."""
REGRET = 60.0
"""Seconds in which a deletion can be taken back."""
SORTS = ("when", "label", "system", "policy", "level", "reward", "seconds", "status")
TYPES = {"csv": "text/csv", "parquet": "application/vnd.apache.parquet", "svg": "image/svg+xml"}


class Runs:
    """The store as a page needs it."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._heads: dict[tuple[str, str], dict[str, Any]] = {}
        self._deleted: dict[str, tuple[float, Record]] = {}
        self._mark: object = None

    @property
    def store(self) -> Store:
        """The store of this machine."""
        return Store()

    def moved(self) -> bool:
        """Whether the file of the store was written since this was last asked."""
        path, mark = self.store.path, []
        for one in (path, path.with_name(f"{path.name}-wal")):
            with suppress(OSError):
                found = os.stat(one)
                mark.append((found.st_mtime_ns, found.st_size))
        before, self._mark = self._mark, mark
        return before != mark

    def listed(self, wanted: str = "", sort: str = "-when") -> dict[str, Any]:
        """List runs that have all of some words, in an order."""
        store = self.store
        rows = store.list(LISTED)
        fresh = [row.id for row in rows if (row.id, row.status) not in self._heads]
        found = store.heads(fresh)
        by_id = {row.id: row for row in rows}
        for id, head in found.items():
            self._heads[id, by_id[id].status] = _facts(head)
        known = {(row.id, row.status) for row in rows}
        self._heads = {key: facts for key, facts in self._heads.items() if key in known}
        made = [_row(row, self._heads.get((row.id, row.status), {})) for row in rows]
        for word in wanted.lower().split():
            made = [row for row in made if word in _text(row)]
        key, falling = sort.lstrip("-"), sort.startswith("-")
        check.one_of(SORTS, sort=key)
        made.sort(
            key=lambda row: (row[key] is not None, row[key] if row[key] is not None else 0),
            reverse=falling,
        )
        return {"rows": made, "total": len(rows)}

    def get(self, id: str) -> Record:
        """Return a record, or refuse."""
        try:
            return self.store.get(id[:80])
        except StoreError as error:
            raise Refused(404, error.text) from error

    def several(self, ids: Any) -> list[Record]:
        """Return records by their ids."""
        if (
            not isinstance(ids, list)
            or not ids
            or not all(isinstance(one, str) for one in ids)
            or len(ids) > TOGETHER
        ):
            raise Refused(400, f"ids must be a list of 1 to {TOGETHER} ids.", field="ids")
        return [self.get(id) for id in dict.fromkeys(ids)]

    def shown(self, id: str) -> dict[str, Any]:
        """Return one run with its curves, and the settings that start it again."""
        record = self.get(id)
        again = self._catalogue.again(record)
        return {**plain(record.metadata()), **self.compared([record]), "again": again}

    def compared(self, records: Sequence[Record]) -> dict[str, Any]:
        """Return curves with bands, times, traffic and pulls of runs beside each other."""
        names, nouns = labels(records), common(record.words for record in records)
        lines = {
            what: [_line(*pair, what) for pair in zip(records, names, strict=True)]
            for what in ("reward", "regret")
        }
        curves = [
            {"name": what, "unit": nouns.reward, "series": series}
            for what, series in lines.items()
            if any(one["points"] for one in series)
        ]
        tables = comparison_tables(records, names)
        sections = [{**table.plain(), "title": table.heading} for table in tables]
        return {"curves": curves, "sections": sections}

    def delete(self, id: str) -> dict[str, Any]:
        """Delete a run; for a while it can be taken back."""
        record, now = self.get(id), time.monotonic()
        if record.status == "running":
            raise Refused(409, "this run is still going on. Cancel it first.")
        self._deleted = {one: kept for one, kept in self._deleted.items() if kept[0] > now}
        self.store.delete(record.id)
        self._deleted[record.id] = (now + REGRET, record)
        return {"id": record.id, "seconds": REGRET}

    def undelete(self, id: str) -> dict[str, Any]:
        """Take a deletion back."""
        until, record = self._deleted.get(id, (0.0, None))
        if record is None or until < time.monotonic():
            raise Refused(404, "this run was not deleted here, or too long ago.")
        self.store.save(record)
        del self._deleted[id]
        return {"id": id}

    def exported(self, ids: Sequence[str], form: str) -> tuple[bytes, str]:
        """Return runs as a file, and its type."""
        if form not in TYPES:
            raise Refused(400, f"format must be one of {', '.join(TYPES)}.", field="format")
        records = self.several(list(ids))
        if form == "svg":
            check.require("matplotlib", extra="plot")
            from posse.results import regret_curves, reward_curves

            known = all(record.regret is not None for record in records)
            buffer = io.BytesIO()
            (regret_curves(records) if known else reward_curves(records)).savefig(
                buffer, format="svg"
            )
            return buffer.getvalue(), TYPES[form]
        with tempfile.TemporaryDirectory() as folder:
            path = export(records, Path(folder) / f"runs.{form}")
            return path.read_bytes(), TYPES[form]

    def report(self, ids: Sequence[str]) -> str:
        """Return the report that the command line writes."""
        check.require("matplotlib", extra="plot")
        return render_report(self.several(list(ids)))


def _facts(head: Record) -> dict[str, Any]:
    """What a row needs of a record beside its columns."""
    interval = None
    if len(head.total) > 1:
        made = band(head.total)
        interval = [float(made.low), float(made.high)]
    return {
        "label": head.own_label or head.label,
        "own": head.own_label,
        "interval": interval,
        "party": head.party,
        "protection": head.protection,
        "settings": plain(head.settings()),
    }


def _row(row: RunRow, facts: Mapping[str, Any]) -> dict[str, Any]:
    running = {} if row.time is None else {"time": row.time, "whole": row.whole}
    return {
        "id": row.id,
        "label": row.policy,
        "system": row.kind,
        "policy": row.policy,
        "level": row.level,
        "reward": row.total_mean,
        "interval": None,
        "seconds": row.seconds,
        "when": row.created,
        "status": row.status,
        "runs": row.runs,
        "arms": row.arms,
        "horizon": row.horizon,
        "problem": row.problem,
        **running,
        **facts,
    }


def _text(row: Mapping[str, Any]) -> str:
    names = ("id", "label", "system", "policy", "level", "status", "problem", "party", "protection")
    return " ".join(str(row.get(name, "")) for name in names).lower()


def _line(record: Record, name: str, what: str) -> dict[str, Any]:
    values = getattr(record, what)
    if values is None or not values.size:
        return {"name": name, "points": []}
    made: Band = band(values)
    steps = record.steps.tolist()

    def points(of: Any) -> list[list[float]]:
        return [list(pair) for pair in zip(steps, of.tolist(), strict=True)]

    bands = {"low": points(made.low), "high": points(made.high)} if made.runs > 1 else {}
    return {"name": name, "points": points(made.mean), "what": made.what, **bands}
