"""The journal: what was written is there again, torn ends are cut, a failing disk stops and loses
nothing.
"""

from __future__ import annotations

import errno
import os
import stat

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posse.core.errors import JournalError
from posse.runtime.journal import _MARK, Journal, copy
from posse.runtime.network import engine
from posse.runtime.network.engine import Engine
from posse.version import PROTOCOL_VERSION
from tests.kit.toy_roles import WORDS, Done, Hub
from tests.network.disks import FailingDisk

RECORDS = [b"", b"one", b"x" * 1000, bytes(range(256))]


def filled(folder, records=RECORDS, snapshot=None):
    journal = Journal(folder)
    if snapshot is not None:
        journal.checkpoint(snapshot)
    for record in records:
        journal.append(record)
    journal.write()
    journal.close()


def held(folder):
    journal = Journal(folder)
    try:
        return journal.snapshot, list(journal.records())
    finally:
        journal.close()


def test_gives_back_what_was_written(tmp_path):
    filled(tmp_path)
    assert held(tmp_path) == (None, RECORDS)
    filled(tmp_path, [b"more"])
    assert held(tmp_path) == (None, [*RECORDS, b"more"])


def test_a_snapshot_replaces_what_came_before(tmp_path):
    filled(tmp_path)
    filled(tmp_path, [b"after"], snapshot=b"state")
    assert held(tmp_path) == (b"state", [b"after"])
    filled(tmp_path, [], snapshot=b"state 2")
    assert held(tmp_path) == (b"state 2", [])
    assert sorted(os.listdir(tmp_path)) == ["journal-00000002.log", "lock", "snapshot-00000002"]
    assert copy(tmp_path).first == b"state 2"
    (tmp_path / "journal-00000002.log").unlink()  # as in a copy that somebody made by hand
    assert copy(tmp_path).first == b"state 2"
    assert held(tmp_path) == (b"state 2", [])


def test_snapshots_leave_no_file_open(tmp_path):
    journal = Journal(tmp_path)
    before = len(os.listdir("/proc/self/fd"))
    for number in range(5):
        journal.checkpoint(b"state %d" % number)
    assert len(os.listdir("/proc/self/fd")) == before
    journal.close()


def test_what_was_added_and_not_written_is_lost_as_in_a_crash(tmp_path):
    journal = Journal(tmp_path)
    journal.append(b"lost")
    journal.close()
    assert held(tmp_path) == (None, [])


@settings(deadline=None, max_examples=100)
@given(
    st.lists(
        st.binary(max_size=60).filter(lambda record: not record.startswith(_MARK)), max_size=8
    ),
    st.data(),
)
def test_a_torn_end_is_cut_at_the_last_whole_record(tmp_path_factory, records, data):
    folder = tmp_path_factory.mktemp("journal")
    filled(folder, records)
    path = folder / "journal-00000000.log"
    whole = path.read_bytes()
    cut = data.draw(st.integers(0, len(whole)))
    path.write_bytes(whole[:cut])
    kept, at = [], 0
    for record in records:
        at += 8 + len(record)
        if at <= cut:
            kept.append(record)
    assert held(folder) == (None, kept)
    filled(folder, [b"next"])
    assert held(folder) == (None, [*kept, b"next"])  # and what comes after is read again


def test_a_record_that_would_be_read_as_a_mark_is_refused(tmp_path):
    journal = Journal(tmp_path)
    with pytest.raises(ValueError, match="may not begin with"):
        journal.append(_MARK + b"7")
    journal.close()
    assert held(tmp_path) == (None, [])


@settings(deadline=None, max_examples=100)
@given(st.integers(0, 10_000), st.integers(1, 255))
def test_an_altered_record_is_not_taken_for_one(tmp_path_factory, at, change):
    folder = tmp_path_factory.mktemp("journal")
    filled(folder)
    path = folder / "journal-00000000.log"
    data = bytearray(path.read_bytes())
    data[at % len(data)] ^= change
    path.write_bytes(data)
    _, records = held(folder)
    assert records == RECORDS[: len(records)]
    assert len(records) < len(RECORDS)


def test_a_damaged_snapshot_is_told(tmp_path):
    filled(tmp_path, snapshot=b"state")
    path = tmp_path / "snapshot-00000001"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(JournalError, match="snapshot-00000001 is damaged"):
        Journal(tmp_path)


def test_records_reach_the_disk_where_there_is_no_fdatasync(tmp_path, monkeypatch):
    """As on macOS."""
    fsync = os.fsync
    synced = []

    def note(descriptor):
        fsync(descriptor)
        synced.append(os.fstat(descriptor).st_size)

    monkeypatch.delattr(os, "fdatasync", raising=False)
    monkeypatch.setattr(os, "fsync", note)
    journal = Journal(tmp_path)
    journal.append(b"one")
    journal.write()
    journal.sync()
    assert synced == [journal.size]
    journal.close()
    assert held(tmp_path) == (None, [b"one"])


def test_one_process_at_a_time(tmp_path):
    journal = Journal(tmp_path)
    with pytest.raises(JournalError, match="in use by another process"):
        Journal(tmp_path)
    journal.close()
    Journal(tmp_path).close()


def test_files_are_for_their_owner_only(tmp_path):
    filled(tmp_path / "deep" / "er", snapshot=b"state")
    for path in (tmp_path / "deep" / "er").iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    assert stat.S_IMODE((tmp_path / "deep" / "er").stat().st_mode) == 0o700


@pytest.mark.parametrize("part", [False, True])
@pytest.mark.parametrize("after", range(6))
@pytest.mark.parametrize(
    ("kind", "error"), [("write", errno.ENOSPC), ("sync", errno.EIO), ("rename", errno.EIO)]
)
def test_a_failing_disk_stops_and_loses_nothing_that_was_answered(
    tmp_path, kind, error, after, part
):
    """Whatever fails and whenever: opened again, the journal holds all that `write` returned for,
    in order.
    """
    journal = Journal(tmp_path, FailingDisk(kind, after, error, part=part))
    safe, number = [], 0
    try:
        for _ in range(40):
            journal.append(b"%d" % number)
            journal.write()
            safe.append(number)
            number += 1
            journal.sync()
            if number % 3 == 0:
                journal.checkpoint(b"%d" % (number - 1))
    except JournalError as stopped:
        told = str(stopped)
    assert "Mend the disk and start the party again" in told
    journal.close()
    snapshot, records = held(tmp_path)
    first = -1 if snapshot is None else int(snapshot)
    found = [*range(first + 1), *map(int, records)]
    assert found in (safe, [*safe, number])  # what was being written when it failed may be there


def test_what_a_full_disk_took_in_part_does_not_hide_what_is_written_when_there_is_room(tmp_path):
    disk = FailingDisk("write", 1, part=True)
    journal = Journal(tmp_path, disk)
    journal.append(b"one")
    journal.write()
    journal.append(b"two")
    with pytest.raises(JournalError, match="No space left"):
        journal.write()
    disk._left = 10
    journal.append(b"three")
    journal.write()
    journal.close()
    assert held(tmp_path) == (None, [b"one", b"two", b"three"])


def old_journal(folder, format_, *, snapshot):
    """What earlier formats wrote: the first had run and party in words, the second no terms."""
    journal, encode, whose = Journal(folder), msgspec.msgpack.encode, [2, 2, "r", "hub", ""]
    links = {"a": [1, 0, 0, [b"x"]]} if format_ == 1 else {"a": [1, 0, 0, [b"x"], 1, 0]}
    if snapshot:
        head = [1, "r", "hub"] if format_ == 1 else [whose]
        journal.checkpoint(
            encode([*head, links, {}, 0, {"history": []}, [], *([0.0] * (format_ - 1))])
        )
    else:
        journal.append(encode((0, "hub", 0, b"r" if format_ == 1 else encode(whose))))
        journal.write()
    journal.close()


@pytest.mark.parametrize("format_", [1, 2])
@pytest.mark.parametrize("snapshot", [False, True])
def test_a_journal_of_the_version_before_is_refused_in_one_line(tmp_path, format_, snapshot):
    old_journal(tmp_path, format_, snapshot=snapshot)
    with pytest.raises(
        JournalError,
        match=r"was begun by another version of Posse.*Finish the run with the version",
    ):
        Engine(Hub(["a"], 1), Journal(tmp_path), ["a"], WORDS, run="r")


@pytest.mark.parametrize("snapshot", [False, True])
def test_a_journal_of_another_protocol_version_is_refused(tmp_path, monkeypatch, snapshot):
    with monkeypatch.context() as before:
        before.setattr(engine, "PROTOCOL_VERSION", PROTOCOL_VERSION - 1)
        begun = Engine(Hub(["a"], 1), Journal(tmp_path), ["a"], WORDS, run="r")
        begun.begin()
        begun.receive("a", 1, msgspec.msgpack.encode(Done(0, 5)))
        begun.commit()
        if snapshot:
            begun.checkpoint()
        begun._journal.close()
    with pytest.raises(
        JournalError, match=rf"protocol version {PROTOCOL_VERSION}\. Finish the run"
    ):
        Engine(Hub(["a"], 1), Journal(tmp_path), ["a"], WORDS, run="r")
