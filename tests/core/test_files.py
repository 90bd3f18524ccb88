"""Files: whole or not at all, private from the first byte, never over another one unless asked."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from posse.core.errors import CertificateError, DataError
from posse.core.files import (
    PRIVATE,
    PUBLIC,
    check_only_owner_writes,
    check_private,
    make_private_folder,
    open_whole,
    write_whole,
)


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_whole(path, b"old")
    with open_whole(path) as file:
        file.write(b"ne")
        assert path.read_bytes() == b"old"
        file.write(b"w")
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "fault", [KeyboardInterrupt(), OSError(errno.ENOSPC, "full"), ValueError("not this")]
)
@pytest.mark.parametrize("durable", [True, False])
def test_what_stops_half_way_leaves_the_old_file_alone(
    tmp_path: Path, fault: BaseException, durable: bool
) -> None:
    path = tmp_path / "a.json"
    write_whole(path, b"old")

    def half() -> None:
        with open_whole(path, durable=durable) as file:
            file.write(b"half")
            raise fault

    with pytest.raises(DataError if isinstance(fault, OSError) else type(fault)):
        half()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("mode", [PRIVATE, PUBLIC])
def test_the_mode_holds_from_the_first_byte_whatever_the_umask(tmp_path: Path, mode: int) -> None:
    before = os.umask(0o000)
    try:
        with open_whole(tmp_path / "key.pem", mode=mode) as file:
            assert stat.S_IMODE(os.fstat(file.fileno()).st_mode) == mode
            (part,) = tmp_path.iterdir()
            assert stat.S_IMODE(part.stat().st_mode) == mode
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "key.pem").stat().st_mode) == mode


def test_without_replace_the_first_stays(tmp_path: Path) -> None:
    path, link = tmp_path / "key.pem", tmp_path / "link.pem"
    write_whole(path, b"first", replace=False)
    link.symlink_to(tmp_path / "nowhere")
    for taken in (path, link):
        with pytest.raises(DataError) as caught:
            write_whole(taken, b"second", replace=False)
        assert caught.value.rule == "core.path.exists"
    assert path.read_bytes() == b"first"
    assert sorted(tmp_path.iterdir()) == [path, link]


def test_what_need_not_be_durable_waits_for_no_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int) -> None:
        raise AssertionError("waited for the disk")

    monkeypatch.setattr(os, "fsync", refuse)
    write_whole(tmp_path / "progress", b"1", durable=False)
    assert (tmp_path / "progress").read_bytes() == b"1"
    with pytest.raises(AssertionError):
        write_whole(tmp_path / "progress", b"2")
    assert (tmp_path / "progress").read_bytes() == b"1"


def test_a_folder_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    make_private_folder(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    folder.chmod(0o777)
    with pytest.raises(CertificateError) as caught:
        make_private_folder(folder)
    assert caught.value.rule == "core.permissions.written-by-others"
    assert caught.value.reason == "permissions"


def test_a_file_that_others_may_read_can_be_trusted_but_is_not_private(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    write_whole(path, b"secret", mode=PUBLIC)
    check_only_owner_writes(path)
    with pytest.raises(CertificateError):
        check_private(path)
    path.chmod(PRIVATE)
    check_private(path)
