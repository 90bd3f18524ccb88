"""Whatever happens to the file, the user gets one line, and no record is half there."""

import errno
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from posse.core.errors import StoreError
from posse.results import Store
from posse.results import store as storing
from posse.results.store import store_errors
from tests.kit.records import example_record

Change = Callable[[sqlite3.Connection], object]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "runs.sqlite", timeout=0.1)
    store.save(example_record(id="first"))
    return store


def one_line(error: pytest.ExceptionInfo[StoreError], path: Path) -> str:
    text = str(error.value)
    assert "\n" not in text
    assert str(path) in text
    assert text.startswith("[P300]")
    return text


def edit(path: Path, change: str) -> None:
    db = sqlite3.connect(path)
    db.execute(change)
    db.commit()
    db.close()


def pretend(monkeypatch: pytest.MonkeyPatch, change: Change) -> None:
    """Alter every connection that a store opens."""
    connect = storing.connect

    def altered(path: Path, timeout: float) -> sqlite3.Connection:
        db = connect(path, timeout)
        change(db)
        return db

    monkeypatch.setattr(storing, "connect", altered)


def test_locked_by_another_connection(store: Store) -> None:
    other = sqlite3.connect(store.path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    try:
        with pytest.raises(StoreError, match="locked by another process") as error:
            store.save(example_record(id="second"))
        one_line(error, store.path)
        assert store.get("last").id == "first"  # readers are not held up
    finally:
        other.execute("ROLLBACK")
        other.close()
    store.save(example_record(id="second"))
    assert len(store) == 2


def test_random_bytes_are_not_a_store(tmp_path: Path) -> None:
    path = tmp_path / "runs.sqlite"
    content = os.urandom(5000)
    path.write_bytes(content)
    with pytest.raises(StoreError, match="not a run store") as error:
        Store(path)
    one_line(error, path)
    assert path.read_bytes() == content


def test_a_truncated_file_is_damaged(store: Store) -> None:
    whole = store.path.read_bytes()
    store.path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(StoreError, match="is damaged") as error:
        store.get("first")
    one_line(error, store.path)


def test_no_space_left_keeps_nothing_of_the_record(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        pretend(
            patch,
            lambda db: db.execute(
                f"PRAGMA max_page_count = {store.path.stat().st_size // 4096 + 2}"
            ),
        )
        with pytest.raises(StoreError, match="no space left") as error:
            store.save(
                example_record(id="second", horizon=100_000, runs=4, config={"note": "x" * 100_000})
            )
        one_line(error, store.path)
    assert [row.id for row in store.list()] == ["first"]
    assert store.get("first").runs == 4


def test_no_space_for_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object, **kwargs: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "mkdir", full)
    with pytest.raises(StoreError, match="no space left on the disk"):
        Store(tmp_path / "new" / "runs.sqlite")


def test_a_failure_in_the_middle_of_a_save_keeps_nothing(store: Store) -> None:
    edit(
        store.path,
        "CREATE TRIGGER stop BEFORE INSERT ON arrays WHEN NEW.name = 'pulls' BEGIN SELECT "
        "RAISE(ABORT, 'stop'); END",
    )
    with pytest.raises(StoreError, match="stop"):
        store.save(example_record(id="second"))
    with pytest.raises(StoreError, match="stop"):
        store.save(example_record(id="first", kind="other"), replace=True)
    assert [(row.id, row.kind) for row in store.list()] == [("first", "clinics")]
    assert store.get("first").arms == 3


def test_read_only(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, lambda db: db.execute("PRAGMA query_only = ON"))
    with pytest.raises(StoreError, match="is read-only") as error:
        store.save(example_record(id="second"))
    one_line(error, store.path)


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (sqlite3.SQLITE_IOERR_WRITE, "the disk reports an error"),
        (sqlite3.SQLITE_BUSY_SNAPSHOT, "locked by another process"),
        (sqlite3.SQLITE_READONLY_DIRECTORY, "read-only"),
        (sqlite3.SQLITE_TOOBIG, "cannot be used: as sqlite says"),
    ],
)
def test_extended_and_rare_codes_are_told(tmp_path: Path, code: int, says: str) -> None:
    error = sqlite3.OperationalError("as sqlite says")
    error.sqlite_errorcode = code
    with pytest.raises(StoreError, match=says), store_errors(tmp_path):
        raise error


def test_a_folder_or_a_file_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="a part of the path is a file"):
        Store(tmp_path / "file" / "runs.sqlite")
    (tmp_path / "folder").mkdir()
    with pytest.raises(StoreError, match="cannot be opened"):
        Store(tmp_path / "folder")


def test_a_newer_store_is_refused_untouched(store: Store) -> None:
    edit(store.path, "PRAGMA user_version = 99")
    with pytest.raises(StoreError, match=r"newer Posse \(store version 99") as error:
        Store(store.path)
    assert "Install that version of Posse" in one_line(error, store.path)


def test_another_programs_database_is_refused_untouched(tmp_path: Path) -> None:
    path = tmp_path / "runs.sqlite"
    edit(path, "CREATE TABLE theirs (x)")
    before = path.read_bytes()
    with pytest.raises(StoreError, match="another program"):
        Store(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            "UPDATE arrays SET data = substr(data, 1, length(data) - 5) WHERE name = 'reward'",
            "array 'reward' holds",
        ),
        ("UPDATE arrays SET data = x'00ff' WHERE name = 'pulls'", "array 'pulls' no array header"),
        ("DELETE FROM arrays WHERE name = 'steps'", "steps"),
        ("UPDATE runs SET fields = substr(fields, 1, 40)", "is damaged"),
    ],
)
def test_a_damaged_record_is_named_and_can_be_deleted(store: Store, change: str, says: str) -> None:
    edit(store.path, change)
    with pytest.raises(StoreError, match=says) as error:
        store.get("first")
    assert "run first" in one_line(error, store.path)
    assert store.delete("first") == 1
