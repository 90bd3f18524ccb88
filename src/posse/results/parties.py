"""What each party earned, in long form: one row a run and a party."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, TypedDict

from posse.core.extras import require
from posse.results.frames import several
from posse.results.record import RunRecord

if TYPE_CHECKING:
    import pyarrow as pa


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


def party_rows(records: RunRecord | Iterable[RunRecord]) -> Iterator[PartyRow]:
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


def parties_to_arrow(records: RunRecord | Iterable[RunRecord]) -> pa.Table:
    """Return the rows as an Arrow table; seeds are unsigned, what is not known is null."""
    arrow = require("pyarrow", extra="frames")
    text, number = arrow.string(), arrow.float64()
    types = (text, text, arrow.int64(), arrow.uint64(), text, number, number)
    schema = arrow.schema(list(zip(PARTY_COLUMNS, types, strict=True)))
    return arrow.Table.from_pylist(list(party_rows(records)), schema=schema)
