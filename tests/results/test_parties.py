import csv
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from posse.core.errors import DataError
from posse.results import Store, export, identical, party_rows
from posse.results.store import arrays_of, build, text_of
from tests.kit.records import example_market_record, example_record


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"party_total": [[1.0, 2.0]] * 6}, r"party_total must have shape \(6, 4\)"),
        ({"party_regret": [[1.0] * 4]}, r"party_regret must have shape \(6, 4\)"),
        ({"party_total": [[float("nan")] * 4] * 6}, "party_total must be finite"),
        ({"parties": ("a", "b", "a", "c")}, "got 'a' twice"),
        ({"parties": ("a", "b", "", "c")}, "got an empty one"),
        ({"parties": ()}, "party_total must have shape"),
    ],
)
def test_parties_that_do_not_fit_are_refused(change: dict[str, object], says: str) -> None:
    with pytest.raises(DataError, match=says):
        example_market_record(**change).validate()


def test_parties_come_back_bit_for_bit(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs.sqlite")
    for record in (
        example_market_record(),
        example_market_record(party_regret=None),
        example_record(),
    ):
        store.save(record)
        back = store.get(record.id)
        assert back == record
        assert back.parties == record.parties
    assert store.get(record.id).party_total is None
    assert example_market_record(id="0a") != example_market_record(
        id="0a", party_total=np.ones((6, 4))
    )


def test_a_record_written_before_there_were_parties_still_loads() -> None:
    record = example_record()
    fields = json.loads(text_of(record))
    del fields["parties"]
    blobs = arrays_of(record)
    assert set(blobs) == {"steps", "reward", "regret", "pulls"}
    assert build(json.dumps(fields), blobs, "it") == record


def test_a_failed_run_may_hold_no_party() -> None:
    empty = {"seeds": (), "steps": [], "reward": [], "regret": None, "total": (), "pulls": []}
    record = example_market_record(status="failed", **empty, party_total=[], party_regret=None)
    assert list(party_rows(record)) == []


def test_rows_are_the_arrays_in_long_form() -> None:
    market = example_market_record(id="0a", runs=2, seeds=(0, 2**64 - 1))
    rows = list(
        party_rows(
            [market, example_record(), example_market_record(id="0b", runs=1, party_regret=None)]
        )
    )
    assert len(rows) == 2 * 4 + 4
    assert [row["total"] for row in rows[:8]] == market.party_total.ravel().tolist()  # type: ignore[union-attr]
    assert [row["regret"] for row in rows[:8]] == market.party_regret.ravel().tolist()  # type: ignore[union-attr]
    assert rows[7]["seed"] == 2**64 - 1
    assert rows[8]["regret"] is None


def test_they_are_exported_when_asked_for(tmp_path: Path) -> None:
    records = [
        example_market_record(seeds=tuple(range(2**63, 2**63 + 6))),
        example_market_record(level="alone"),
    ]
    expected = [dict(row) for row in party_rows(records)]
    table = pq.read_table(export(records, tmp_path / "a.parquet", parties=True))
    assert table.to_pylist() == expected
    with export(records, tmp_path / "a.csv", parties=True).open(
        newline="", encoding="utf-8"
    ) as file:
        lines = list(csv.DictReader(file))
    assert [float(line["total"]) for line in lines] == [row["total"] for row in expected]
    body = json.loads(export(records, tmp_path / "a.json").read_text(encoding="utf-8"))
    assert body["records"][0]["party_total"] == records[0].party_total.tolist()  # type: ignore[union-attr]
    with pytest.raises(DataError, match=r"what parties earned to '.json'. Known: .csv, .parquet"):
        export(records, tmp_path / "b.json", parties=True)
    with pytest.raises(DataError, match="none of these records"):
        export(example_record(), tmp_path / "b.csv", parties=True)


def test_records_that_differ_in_one_party_are_not_identical() -> None:
    a = example_market_record()
    moved = np.array(a.party_total)
    moved[0, :2] += (1.0, -1.0)
    assert identical(a, example_market_record())
    assert not identical(a, example_market_record(party_total=moved))
    assert not identical(a, example_market_record(parties=("north", "south", "harbour", "other")))
