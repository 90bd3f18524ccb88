"""A run in progress is a row of the store; one whose process is gone is listed as lost. Older
stores are upgraded.
"""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from posse.core.errors import StoreError
from posse.results import Store
from posse.results import store as storing
from posse.results.record import Record
from posse.results.store import SILENT, is_lost, process_start, this_host
from tests.kit.records import example_record


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "runs.sqlite", timeout=0.2)


def head(id: str = "0run", **changes: object) -> Record:
    """A record of which nothing is known yet but its settings and seeds."""
    nothing = {"total": (), "pulls": (), "steps": (), "reward": (), "regret": None, "seconds": 0.0}
    return example_record(**{"id": id, **nothing, **changes})


def change(store: Store, statement: str, *values: object) -> None:
    db = sqlite3.connect(store.path)
    with db:
        db.execute(statement, values)
    db.close()


def test_a_run_in_progress_is_listed_with_how_far_it_is(store: Store) -> None:
    store.save(example_record(id="0old"))
    handle = store.begin(head())
    row = store.list()[0]
    assert (row.id, row.status, row.progress, row.pid) == (
        "0run",
        "running",
        "0 of 200",
        os.getpid(),
    )
    handle.beat(120, 800)
    row = store.list()[0]
    assert (row.time, row.whole, row.progress) == (120, 800, "120 of 800")
    assert row.age is not None
    assert row.age < 60
    assert store.get("0run").state == "running: 120 of 200 steps"
    assert store.get("last").id == "0old"
    assert handle.end(example_record(id="0run")) == "0run"
    assert [(row.id, row.status, row.progress) for row in store.list()] == [
        ("0run", "finished", ""),
        ("0old", "finished", ""),
    ]
    assert store.get("last").id == "0run"


def test_the_record_may_have_an_id_of_its_own(store: Store) -> None:
    handle = store.begin(head())
    handle.end(example_record(id="0end"))
    assert [row.id for row in store.list()] == ["0end"]


def test_heartbeats_are_throttled(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(storing.time, "monotonic", lambda: now[0])
    handle = store.begin(head())
    for done in range(10):
        handle.beat(done, 800)
        now[0] += 0.3
    assert store.list()[0].time == 8  # at 0, 1.2 and 2.4 seconds


def test_a_store_that_is_locked_stops_no_run(store: Store) -> None:
    handle = store.begin(head())
    other = sqlite3.connect(store.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    handle.beat(5, 800)
    with pytest.raises(StoreError, match="locked by another process"):
        handle.end(example_record(id="0run"))
    other.execute("ROLLBACK")
    other.close()
    handle.end(example_record(id="0run"))
    assert store.list()[0].status == "finished"


def test_what_an_exception_ended_is_listed_as_failed(store: Store) -> None:
    with pytest.raises(ZeroDivisionError), store.begin(head("0bad")):
        _ = 1 / 0
    with store.begin(head("0none")):
        pass
    assert [(row.id, row.status) for row in store.list()] == [("0bad", "failed")]


def test_two_runs_cannot_have_one_id(store: Store) -> None:
    store.begin(head())
    with pytest.raises(StoreError, match="already in"):
        store.begin(head())


CHILD = """
import sys
from posse.results import Store
from tests.kit.records import example_record
store = Store(sys.argv[1])
handle = store.begin(example_record(id="0child"))
handle.beat(42, 800)
print("begun", flush=True)
sys.stdin.read()
"""


def test_a_run_whose_process_was_killed_is_lost(store: Store) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(store.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stdin is not None
    assert child.stdout.readline() == "begun\n"
    assert store.list()[0].status == "running"
    child.kill()
    child.wait()
    child.stdout.close()
    child.stdin.close()
    row = store.list()[0]
    assert (row.status, row.progress) == ("lost", "42 of 800")
    assert store.get("0child").state == "lost after 42 of 800 steps"
    assert store.delete("0child") == 1
    assert store.list() == []


def test_another_process_of_the_same_number_is_not_the_run(store: Store) -> None:
    store.begin(head())
    if not process_start(os.getpid()):
        pytest.skip("this system does not say when a process began")
    change(store, "UPDATE live SET process = 'an earlier one'")
    assert store.list()[0].status == "lost"


def test_another_machine_is_believed_while_it_beats(store: Store) -> None:
    store.begin(head())
    change(store, "UPDATE live SET host = 'elsewhere', pid = 1")
    row = store.list()[0]
    assert (row.status, row.host) == ("running", "elsewhere")
    change(store, "UPDATE live SET beat = beat - ?", SILENT + 60)
    assert store.list()[0].status == "lost"


def test_a_process_that_nobody_can_ask_about_is_believed_while_it_beats(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("posse.results.store.process_start", lambda pid: "")
    assert not is_lost(7, "", this_host(), age=1.0)
    assert is_lost(7, "", this_host(), age=SILENT + 1)


def test_heads_are_records_without_their_curves(store: Store) -> None:
    store.save(example_record(id="0a"))
    store.save(example_record(id="0b"))
    change(store, "UPDATE runs SET fields = '{' WHERE id = '0b'")
    heads = store.heads(["0a", "0b", "0c"])
    assert list(heads) == ["0a"]
    assert (heads["0a"].label, heads["0a"].total_mean) == (
        "ucb (standard)",
        store.get("0a").total_mean,
    )
    assert (heads["0a"].steps.size, heads["0a"].arms, heads["0a"].steps_done) == (0, 3, 800)


OLDER = """
CREATE TABLE runs (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, created TEXT NOT NULL, kind TEXT NOT NULL,
    status TEXT NOT NULL, level TEXT NOT NULL, policy TEXT NOT NULL, problem TEXT NOT NULL, runs INTEGER NOT NULL,
    arms INTEGER NOT NULL, budget INTEGER NOT NULL, total_mean REAL, seconds REAL NOT NULL, version TEXT NOT NULL,
    fields TEXT NOT NULL);
CREATE TABLE arrays (run TEXT NOT NULL, name TEXT NOT NULL, data BLOB NOT NULL, PRIMARY KEY (run, name));
INSERT INTO runs VALUES (1, '0old', '2026-01-02T03:04:05+00:00', 'clinics', 'finished', 'paper', 'ucb', 'two arms',
    1, 2, 2, 1.0, 0.5, '0.1.0', '{"kind":"clinics","config":{"policy":{"name":"ucb"},"budget":2,"aes":false},
    "problem":{"name":"two arms","names":["a","b"],"means":[0.2,0.8]},"level":"paper","total":[1.0],"parties":[],
    "seeds":[7],"leaks":[],"status":"finished","role_seconds":{},"seconds":0.5,"privacy":[],"summary":{},"id":"0old",
    "created":"2026-01-02T03:04:05+00:00","version":"0.1.0",
    "traffic":[{"hop":"owner -> comp","messages":3,"bytes":12}]}');
INSERT INTO arrays VALUES
    ('0old', 'steps', x'706f7373652d61727261792d31203c693820320a789c6364800026280d0000300004'),
    ('0old', 'reward', x'706f7373652d61727261792d31203c663820312c320a789c636040061fec01022f0130'),
    ('0old', 'regret', x'706f7373652d61727261792d31203c663820312c320a789c33360681c7f6c6501a0023e004a9'),
    ('0old', 'pulls', x'706f7373652d61727261792d31203c693820312c320a789c6364800046280d0000280003');
PRAGMA application_id = 0x706F7373;
PRAGMA user_version = 1;
"""
"""A store as version 1 wrote it."""


def older(path: Path) -> Path:
    db = sqlite3.connect(path)
    db.executescript(OLDER)
    db.close()
    return path


def test_a_store_of_the_version_before_is_upgraded_in_place(tmp_path: Path) -> None:
    store = Store(older(tmp_path / "runs.sqlite"))
    (row,) = store.list()
    assert (row.id, row.run_id, row.party, row.horizon, row.status) == (
        "0old",
        "0old",
        "",
        2,
        "finished",
    )
    record = store.get("last")
    assert (record.horizon, record.total, record.pulls.tolist(), record.run_id) == (
        2,
        (1.0,),
        [[1, 1]],
        "0old",
    )
    assert record.regret is not None
    assert record.settings() == {"policy": "ucb", "horizon": 2, "aes": False}
    store.begin(head())
    store.save(example_record(id="0new"))
    assert [row.id for row in Store(store.path).list()] == ["0new", "0run", "0old"]


def test_an_upgrade_that_fails_changes_nothing(tmp_path: Path) -> None:
    path = older(tmp_path / "runs.sqlite")
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE live (what TEXT)")  # in the way of ours
    db.commit()
    db.close()
    with pytest.raises(StoreError, match="cannot be used"):
        Store(path)
    db = sqlite3.connect(path)
    assert db.execute("PRAGMA user_version").fetchone() == (1,)
    assert "budget" in [column[1] for column in db.execute("PRAGMA table_info(runs)")]
    db.close()
