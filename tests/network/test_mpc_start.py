"""Deployments that start from shares of an earlier one: each party from its own file, all from the
same run.
"""

from __future__ import annotations

import io
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from posse.core.errors import ConfigError, DataError, DisagreementError, JournalError, PosseError
from posse.runtime.network.operate import json_log
from posse.systems.mpc_contextual.roles.outside import gathered, read_shares
from posse.systems.mpc_contextual.terms import DEALER, PULLER
from tests.kit.mpc import found, laid_out, opened, run, twin


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 30 steps that is over; its shares lie in the journals."""
    folder = tmp_path_factory.mktemp("earlier")
    run(laid_out(folder))
    return folder


def again(folder: Path, earlier: Path, **values: Any) -> list[Path]:
    return laid_out(folder, start_from=str(earlier), **values)


def test_a_run_starts_from_the_shares_of_another_and_a_frozen_one_from_its_own(
    tmp_path: Path, earlier: Path
) -> None:
    (tmp_path / "learns").mkdir()
    paths = again(tmp_path / "learns", earlier, steps=20)
    assert all(
        "start_from" not in path.read_text() for path in paths if path.stem in (PULLER, DEALER)
    )
    run(paths)
    outcome = found(paths)
    assert outcome == twin(paths)
    kept = gathered(tmp_path / "learns")
    assert {share.start.partition(":")[0] for share in kept.values()} == {"50"}
    assert {name: share.data for name, share in kept.items()} == outcome.models
    assert read_shares(tmp_path / "learns").step == 20
    (tmp_path / "frozen").mkdir()
    paths = again(tmp_path / "frozen", tmp_path / "learns", frozen=True, steps=40, batch=4)
    run(paths)
    frozen = found(paths)
    assert frozen == twin(paths)
    assert frozen.models == outcome.models
    assert not list((tmp_path / "frozen").rglob("model-*.share"))
    with pytest.raises(JournalError, match=r"start_from|features"):
        changed(paths[0], tmp_path, kept["clinic-1"].data)


def changed(path: Path, folder: Path, data: bytes) -> None:
    """Open a party whose share to start from is another than when its run began, under the same
    tag.
    """
    line = re.search(r'start_from = "(.+)"', path.read_text())
    assert line is not None
    share = Path(line[1])
    body = share.read_bytes()
    words = bytearray(data)
    words[0] ^= 1
    import hashlib

    other = body.replace(data, bytes(words)).replace(
        hashlib.sha256(data).digest(), hashlib.sha256(words).digest()
    )
    share.write_bytes(other)
    try:
        opened(path)
    finally:
        share.write_bytes(body)


def test_wrong_and_mixed_shares_are_refused_in_one_line(tmp_path: Path, earlier: Path) -> None:
    (tmp_path / "other").mkdir()
    run(laid_out(tmp_path / "other", steps=30, run="trial-other"))
    (tmp_path / "now").mkdir()
    paths = again(tmp_path / "now", earlier, steps=5)
    first = paths[0]
    text = first.read_text()
    start = re.search(r'start = "(.+)"', text)
    own = re.search(r'start_from = "(.+)"', text)
    assert start is not None
    assert own is not None

    def refused(kind: type[PosseError], says: str, content: str) -> None:
        first.write_text(content)
        with pytest.raises(kind, match=says):
            opened(first)
        first.write_text(text)

    theirs = own[1].replace("clinic-1", "clinic-2")
    refused(
        DataError, "is the share of 'clinic-2', this is 'clinic-1'", text.replace(own[1], theirs)
    )
    elsewhere = str(tmp_path / "other" / "clinic-1" / "journal" / "model-30.share")
    refused(
        DisagreementError,
        "another run or step. Give the shares of one step",
        text.replace(own[1], elsewhere),
    )
    before = own[1].replace("model-30", "model-20")
    refused(DisagreementError, "another run or step", text.replace(own[1], before))
    without = text.replace(start[0] + "\n", "")
    refused(ConfigError, f'give start = "{start[1]}" to everyone', without)
    refused(ConfigError, "Give start_from with this party's own", text.replace(own[0] + "\n", ""))
    refused(ConfigError, "start must be steps and tag", text.replace(start[1], "30:x"))
    with pytest.raises(
        ConfigError, match=r"epsilon must be at most 0\.2, that of the earlier model, got 0\.25"
    ):
        again(tmp_path / "now", earlier, steps=5, epsilon="1/4")
    mixed = tmp_path / "mixed"
    for name in ("clinic-1", "clinic-2"):
        source = earlier if name == "clinic-1" else tmp_path / "other"
        (mixed / name).mkdir(parents=True)
        shutil.copy(source / name / "journal" / "model-30.share", mixed / name)
    with pytest.raises(DataError, match="is of another run than"):
        again(tmp_path / "now", mixed, steps=5)


def test_no_role_begins_without_waiting_for_its_disk_and_each_resumes_with_a_warning(
    tmp_path: Path,
) -> None:
    paths = laid_out(tmp_path, steps=3)
    waiting = {path: path.read_text() for path in paths}
    unsynced = {path: text.replace("sync = true", "sync = false") for path, text in waiting.items()}
    for path, text in unsynced.items():
        assert text != waiting[path]
        path.write_text(text)
        with pytest.raises(ConfigError, match="sync"):
            opened(path)
    another = tmp_path / "another"
    another.mkdir()
    with pytest.raises(ConfigError, match="sync"):
        laid_out(another, sync=False)
    assert not list(another.rglob("*.toml"))
    for path, text in waiting.items():
        path.write_text(text)
    run(paths)
    for path, text in unsynced.items():
        path.write_text(text)
        events: list[str] = []
        opened(path, log=lambda event, events=events, **_: events.append(event)).engine.close()
        assert "not synced" in events
    line = io.StringIO()
    json_log("clinic-1", line)("not synced", why="")
    assert json.loads(line.getvalue())["level"] == "warning"
