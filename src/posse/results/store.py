"""The local store of records, shared by the command line and the studio."""

from __future__ import annotations

import builtins
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import TracebackType

from posse.core import check
from posse.core.errors import StoreError
from posse.results import codec, schema
from posse.results.faults import told
from posse.results.location import default_path
from posse.results.record import RunRecord
from posse.results.schema import COLUMNS, RunRow


class Store:
    """Records in one SQLite file (write-ahead log), by default at `default_path()`.

    Every operation opens the file, does one transaction and closes it again: nothing is held in between, so any
    number of threads and processes may use one file, and a crash leaves whole records only. One that waits longer
    than `timeout` seconds for another writer is a `StoreError`, as is every other failure of the disk or the file.

    >>> import tempfile
    >>> from posse.results.example import example_record
    >>> folder = tempfile.TemporaryDirectory()
    >>> with Store(Path(folder.name) / "runs.sqlite") as store:
    ...     _ = store.save(example_record(id="0a-first"))
    ...     _ = store.save(example_record(id="0b-second", kind="simulate"))
    ...     [row.id for row in store.list()], store.get("0a").kind, store.get("last").id
    (['0b-second', '0a-first'], 'samba', '0b-second')
    >>> folder.cleanup()
    """

    def __init__(self, path: str | Path | None = None, *, timeout: float = 3.0) -> None:
        check.at_least(0, timeout=timeout)
        self.path = default_path() if path is None else Path(path).expanduser()
        self._timeout = timeout
        with self._open():
            pass

    def save(self, record: RunRecord, *, replace: bool = False) -> str:
        """Keep a record and return its id; the whole of it or nothing. An id that is taken needs `replace`."""
        row, blobs = schema.row_of(record), codec.arrays_of(record)
        text = codec.text_of(record)
        with self._open(write=True) as db:
            taken = db.execute("SELECT 1 FROM runs WHERE id = ?", (record.id,)).fetchone()
            if taken and not replace:
                raise StoreError(f"run {record.id} is already in {self.path}. Give it a new id, or pass replace=True.")
            _remove(db, record.id)
            marks = ", ".join("?" * (len(COLUMNS) + 1))
            db.execute(f"INSERT INTO runs ({', '.join(COLUMNS)}, fields) VALUES ({marks})", (*row, text))
            db.executemany("INSERT INTO arrays VALUES (?, ?, ?)", [(record.id, *item) for item in blobs.items()])
        return record.id

    def get(self, id: str) -> RunRecord:
        """Load a record by its id, by a prefix that only one id has, or by the word "last" (saved most recently)."""
        with self._open() as db:
            found = _resolve(db, id, self.path)
            (text,) = db.execute("SELECT fields FROM runs WHERE id = ?", (found,)).fetchone()
            blobs = dict(db.execute("SELECT name, data FROM arrays WHERE run = ?", (found,)))
        return codec.build(text, blobs, f"run {found} in {self.path}")

    def list(self, limit: int | None = None, kind: str | None = None) -> builtins.list[RunRow]:
        """List runs, the one saved last first, without loading their arrays."""
        if limit is not None:
            check.at_least(0, limit=limit)
        query = f"SELECT {', '.join(COLUMNS)} FROM runs WHERE ?1 IS NULL OR kind = ?1 ORDER BY seq DESC LIMIT ?2"
        with self._open() as db:
            # A negative limit is SQLite's word for no limit.
            return [RunRow(*row) for row in db.execute(query, (kind, -1 if limit is None else limit))]

    def delete(self, ids: str | Iterable[str]) -> int:
        """Delete runs by id or unique prefix and return how many; one unknown id, and none is deleted."""
        with self._open(write=True) as db:
            found = {_resolve(db, id, self.path) for id in ([ids] if isinstance(ids, str) else ids)}
            for id in found:
                _remove(db, id)
        return len(found)

    def __len__(self) -> int:
        with self._open() as db:
            (count,) = db.execute("SELECT count(*) FROM runs").fetchone()
        return int(count)

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Do nothing: between operations a store holds nothing that could be closed."""

    @contextmanager
    def _open(self, *, write: bool = False) -> Iterator[sqlite3.Connection]:
        with told(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with closing(schema.connect(self.path, self._timeout)) as db:
                # A writer takes its lock at once: upgrading a reader's lock later can fail without waiting.
                db.execute("BEGIN IMMEDIATE" if write else "BEGIN")
                try:
                    yield db
                    db.execute("COMMIT")
                except BaseException:
                    if db.in_transaction:
                        db.execute("ROLLBACK")
                    raise


def _remove(db: sqlite3.Connection, id: str) -> None:
    db.execute("DELETE FROM arrays WHERE run = ?", (id,))
    db.execute("DELETE FROM runs WHERE id = ?", (id,))


def _resolve(db: sqlite3.Connection, wanted: str, path: Path) -> str:
    """Find the one id that is meant, or say what is there instead."""
    if wanted == "last":
        row = db.execute("SELECT id FROM runs ORDER BY seq DESC LIMIT 1").fetchone()
        if row is None:
            raise StoreError(f"there is no run in {path} yet. Run one first, or set POSSE_HOME to where they are.")
        return str(row[0])
    query = "SELECT id FROM runs WHERE substr(id, 1, length(?1)) = ?1 ORDER BY id = ?1 DESC, seq DESC LIMIT 6"
    close = [str(row[0]) for row in db.execute(query, (wanted,))] if wanted else []
    if close and (close[0] == wanted or len(close) == 1):
        return close[0]
    if close:
        more = ", ..." if len(close) == 6 else ""
        raise StoreError(f"'{wanted}' begins several ids: {', '.join(close[:5])}{more}. Give more characters.")
    recent = tuple(str(row[0]) for row in db.execute("SELECT id FROM runs ORDER BY seq DESC LIMIT 5"))
    hint = check.nearest(wanted, recent) if recent else " The store is empty."
    raise StoreError(f"no run '{wanted}' in {path}.{hint.replace('Known:', 'Most recent:')}")
