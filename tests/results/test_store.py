import dataclasses
import multiprocessing
import sqlite3
from pathlib import Path

import pytest

from posse.core.errors import StoreError
from posse.results import Store, default_path
from tests.kit.records import example_record

FILES = 12


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "deep" / "er" / "runs.sqlite", timeout=0.2)


def test_what_is_saved_comes_back_equal_in_another_store(store: Store) -> None:
    record = example_record(summary={"gap": float("nan")})
    assert store.save(record) == record.id
    assert Store(store.path).get(record.id) == record


def test_every_field_is_kept(store: Store) -> None:
    record = example_record(
        privacy=({"epsilon": 1.0},), summary={"gap": 0.5}, status="interrupted", version="9.9"
    )
    store.save(record)
    back = store.get("last")
    for field in dataclasses.fields(record):
        assert repr(getattr(back, field.name)) == repr(getattr(record, field.name)), field.name


def test_regret_that_is_not_known_stays_unknown(store: Store) -> None:
    store.save(example_record(regret=None))
    assert store.get("last").regret is None


def test_the_file_is_in_wal_mode_and_bears_our_mark(store: Store) -> None:
    db = sqlite3.connect(store.path)
    assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert db.execute("PRAGMA user_version").fetchone() == (2,)
    assert db.execute("PRAGMA application_id").fetchone()[0].to_bytes(4, "big") == b"poss"
    db.close()


def test_lists_are_newest_first_light_and_filtered(store: Store) -> None:
    for i, kind in enumerate(("clinics", "other", "clinics")):
        store.save(example_record(id=f"run-{9 - i}", kind=kind))
    rows = store.list()
    assert [row.id for row in rows] == ["run-7", "run-8", "run-9"]
    assert [row.id for row in store.list(limit=1)] == ["run-7"]
    assert [row.id for row in store.list(kind="other")] == ["run-8"]
    assert store.list(limit=0) == []
    assert (rows[0].policy, rows[0].problem, rows[0].runs, rows[0].horizon) == (
        "ucb",
        "three clinics",
        4,
        200,
    )
    assert rows[0].total_mean == store.get("run-7").total_mean


def test_a_list_does_not_read_arrays(store: Store) -> None:
    store.save(example_record())
    db = sqlite3.connect(store.path)
    db.execute("UPDATE arrays SET data = x'00'")
    db.commit()
    db.close()
    assert len(store.list()) == 1


def test_prefixes_must_name_one_run(store: Store) -> None:
    for id in ("abc", "abc-1", "abc-2", "abd-1"):
        store.save(example_record(id=id))
    assert store.get("abd").id == "abd-1"
    assert store.get("abc").id == "abc"  # a whole id wins over longer ones
    assert store.get("last").id == "abd-1"
    with pytest.raises(StoreError, match=r"'abc-' begins several ids: abc-2, abc-1\. Give more"):
        store.get("abc-")
    with pytest.raises(StoreError, match="Did you mean 'abd-1'"):
        store.get("abd-7")
    for wild in ("%", "_bc", "*", ""):
        with pytest.raises(StoreError, match="no run"):
            store.get(wild)


def test_an_empty_store_says_so(store: Store) -> None:
    with pytest.raises(StoreError, match=r"no run in .* yet"):
        store.get("last")
    with pytest.raises(StoreError, match="The store is empty"):
        store.get("abc")


def test_an_id_is_taken_once_unless_replaced(store: Store) -> None:
    store.save(example_record(id="abc"))
    with pytest.raises(StoreError, match="already in"):
        store.save(example_record(id="abc", kind="other"))
    assert store.get("abc").kind == "clinics"
    store.save(example_record(id="abc", kind="other", regret=None), replace=True)
    assert (store.get("abc").kind, store.get("abc").regret, len(store)) == ("other", None, 1)


def test_delete_is_all_or_nothing(store: Store) -> None:
    for id in ("abc-1", "abc-2", "abd-1"):
        store.save(example_record(id=id))
    with pytest.raises(StoreError, match="no run 'zzz'"):
        store.delete(["abc-1", "zzz"])
    assert len(store) == 3
    assert store.delete(["abc-1", "abd"]) == 2
    assert store.delete("abc-2") == 1
    db = sqlite3.connect(store.path)
    assert db.execute("SELECT count(*) FROM arrays").fetchone() == (0,)
    db.close()


def _save_some(folder: Path, name: str, start: "multiprocessing.synchronize.Barrier") -> None:
    # Many new files, each opened by all at the same moment: making the tables is where they get
    # into each other's way.
    for i in range(FILES):
        start.wait(30)
        store = Store(folder / f"{i}.sqlite", timeout=20)
        for k in range(3):
            store.save(example_record(id=f"{name}-{k}", runs=2))


def test_processes_make_and_fill_a_store_at_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    names = ("aa", "bb", "cc")
    start = context.Barrier(len(names))
    writers = [context.Process(target=_save_some, args=(tmp_path, name, start)) for name in names]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    assert [writer.exitcode for writer in writers] == [0, 0, 0]
    for i in range(FILES):
        store = Store(tmp_path / f"{i}.sqlite")
        assert {row.id for row in store.list()} == {
            f"{name}-{k}" for name in names for k in range(3)
        }
        assert store.get("bb-2").runs == 2


def test_the_default_place_follows_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.delenv("POSSE_HOME", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "xdg"))
    assert default_path() == tmp_path / "xdg" / "posse" / "runs.sqlite"
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_path() == tmp_path / ".local" / "share" / "posse" / "runs.sqlite"
    monkeypatch.setenv("POSSE_HOME", str(tmp_path / "mine"))
    assert Store().path == tmp_path / "mine" / "runs.sqlite"
    assert Store().path.exists()
