"""A party that records its own view over TLS: every message once whatever happens, and estimates
from it alone.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from posse.core.errors import DataError
from posse.core.fixed import REWARD_ONE
from posse.results.store import Store
from posse.runtime import local
from posse.runtime.journal import framed, split
from posse.runtime.network.deployment import make_party
from posse.runtime.network.recording import FIRST_STATE, VIEW, Recorded, RecordingEngine, read
from posse.runtime.place import open_place
from posse.systems.audit import audit, read_view
from posse.systems.parties import deploy_by_name, read_result
from posse.systems.samba.attacks.owners import own_arm
from tests.kit import mpc
from tests.kit.federations import QUICK, laid_out, run_all
from tests.kit.torment import Torment

RECORD = "\n[record]\nview = true\n"


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("POSSE_HOME", str(tmp_path / "home"))


def record(paths: dict[str, Path], *names: str) -> None:
    for name in names:
        paths[name].write_text(paths[name].read_text() + RECORD)


def file_of(folder: Path, name: str) -> Path:
    return folder / name / "journal" / VIEW


def check_each_once(kept: Recorded) -> None:
    """Every message of every link is there once, in order."""
    numbers: dict[tuple[str, str], list[int]] = {}
    for one in kept.seen:
        numbers.setdefault(one.link, []).append(one.number)
    assert numbers
    for link, found in numbers.items():
        assert found == list(range(1, len(found) + 1)), link
    assert (kept.missing, kept.torn, kept.full) == (0, 0, False)


def posse(*arguments: object) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COLUMNS": "200"}
    return subprocess.run(
        [sys.executable, "-m", "posse", *map(str, arguments)],
        capture_output=True,
        text=True,
        env=environment,
    )


@pytest.mark.parametrize(("level", "policy"), [("paper", "ucb"), ("strict", "epsilon-greedy")])
def test_comp_and_controller_record_what_they_see_and_audit_it(tmp_path, level, policy):
    """Both are killed on the way: no message is lost, none is there twice, and comp finds what its
    level says.
    """
    values: dict[str, Any] = {"policy": policy, "sync": True, "level": level}
    federation = Torment(tmp_path, 3, owners=4, budget=240, **values)
    record(federation.paths, "comp", "controller")
    with federation:
        federation.go(4, ("comp", "controller"), again=0)
    assert sum(federation.kills.values()) >= 2
    assert not file_of(tmp_path, "clinic-1").exists()  # off unless asked for
    for name in ("comp", "controller"):
        path = file_of(tmp_path, name)
        assert path.stat().st_mode & 0o777 == 0o600
        check_each_once(read(path))
    view = read_view(file_of(tmp_path, "comp"))
    assert view.parties == ("comp",)
    assert set(view.secrets) == {"comp"}  # its own, and nobody else's
    made = audit(view)
    assert {row.verdict for row in made} == {"not scored"}
    total = read_result(tmp_path / "customer" / "journal")["total"]
    if level == "paper":
        said = made["tracker"].says
        assert (
            abs(float(said.partition("total ")[2].partition(";")[0].replace(",", "")) - total) <= 1
        )
    else:
        assert made["tracker"].says.endswith("not the total")
    # From the command line: by the file, and by the record that points to it.
    shown = posse("audit", file_of(tmp_path, "comp"))
    assert shown.returncode == 0, shown.stderr
    assert "no truth to score estimates against" in " ".join(shown.stdout.split())
    assert "finds it out" not in shown.stdout
    (row,) = (row for row in Store().list() if row.party == "comp")
    assert str(file_of(tmp_path, "comp")) in posse("runs", "show", row.id).stdout.replace("\n", "")
    found = json.loads(posse("audit", row.id, "--json").stdout)
    assert [one["attack"] for one in found["rows"]] == [one.attack for one in made]
    assert Store().get(row.id).audits
    (other,) = (row for row in Store().list() if row.party == "clinic-1")
    refused = posse("audit", other.id)
    assert refused.returncode != 0
    assert "it has recorded no view" in refused.stderr


def test_the_puller_of_the_contextual_bandit_audits_what_it_recorded(tmp_path):
    paths = {path.stem: path for path in mpc.laid_out(tmp_path, steps=30)}
    record(paths, "puller")
    processes = [local.start_one(path) for path in paths.values()]
    try:
        assert [process.handle.wait(240) for process in processes] == [0] * len(processes)
    finally:
        local.stop(processes)
    path = file_of(tmp_path, "puller")
    check_each_once(read(path))
    view = read_view(path)
    assert audit(view).left_out["arms"].startswith("it compares with rows that the adversary knows")
    like = tmp_path / "like.toml"
    (tmp_path / "known").mkdir()
    world = mpc.write_world(tmp_path / "known")
    features = "".join(f'{name} = "{file}"\n' for name, file in world["features"].items())
    like.write_text(f'problem = "own"\nrewards = "{world["rewards"]}"\n[features]\n{features}')
    shown = posse("audit", path, "--like", like)
    assert shown.returncode == 0, shown.stderr
    assert "4 features of 30 steps" in shown.stdout
    assert "no truth to score estimates against" in " ".join(shown.stdout.split())


# One process --------------------------------------------------------------------------------------


def opened(path: Path, log: list[dict[str, Any]] | None = None) -> Any:
    def keep(event: str, **fields: Any) -> None:
        if log is not None:
            log.append({"event": event, **fields})

    place = open_place(path)
    return make_party(place, deploy_by_name(place.file.protocol).build, timing=QUICK, log=keep)[0]


def finish(paths: list[Path], log: list[dict[str, Any]] | None = None) -> None:
    async def go() -> None:
        parties = [opened(path, log) for path in paths]
        await run_all(parties)
        for party in parties:
            if isinstance(party.engine, RecordingEngine):
                party.engine.view.write(state=True)
            party.engine.close()

    asyncio.run(go())


@pytest.fixture
def made(tmp_path):
    """A short run whose comp recorded its view."""
    paths = laid_out(tmp_path, owners=3, budget=40, policy="epsilon-greedy")
    record({path.stem: path for path in paths}, "comp")
    finish(paths)
    return tmp_path, paths, file_of(tmp_path, "comp")


@pytest.mark.parametrize("policy", ["ucb", "epsilon-greedy"])
def test_an_owner_estimates_from_its_own_record(tmp_path, policy):
    """One owner pulls in each step: together the owners read that many pulls off their views at
    every point.
    """
    paths = laid_out(tmp_path, owners=3, budget=60, policy=policy)
    owners = ("clinic-1", "clinic-2", "clinic-3")
    record({path.stem: path for path in paths}, *owners)
    finish(paths)
    views = [read_view(file_of(tmp_path, name)) for name in owners]
    arms = [own_arm(view, None) for view in views]
    assert sum(own.pulls for own in arms).tolist() == arms[0].terms.points
    for name, view, own in zip(owners, views, arms, strict=True):
        state = view.secrets[name]
        assert (own.pulls[-1], own.sums[-1] * REWARD_ONE) == (state["pulls"], state["units"])
    row = audit(views[0])["owner-alone"]
    assert (row.verdict, row.value) == ("not scored", None)
    assert row.says


def test_what_is_no_view_or_not_whole_gets_one_line(made, tmp_path):
    _, _, path = made
    data = path.read_bytes()
    cut, foreign, other = tmp_path / "cut.log", tmp_path / "foreign.log", tmp_path / "other.log"
    records, _ = split(data)
    some = b"".join(map(framed, records[: len(records) * 2 // 3]))
    cut.write_bytes(data[: len(some) + 3])  # within a record
    foreign.write_bytes(b"step,arm\n1,2\n" * 40)
    damaged = bytearray(data)
    damaged[len(data) // 2] ^= 1
    other.write_bytes(damaged)
    for file in (cut, other):
        with pytest.raises(DataError) as error:
            read_view(file)
        assert error.value.rule == "systems.view.cut-off"
    with pytest.raises(DataError, match="is no view that a party recorded"):
        read_view(foreign)
    with pytest.raises(DataError, match="cannot read the view"):
        read_view(tmp_path / "none.log")
    for file in (cut, foreign):
        refused = posse("audit", file)
        assert (refused.returncode != 0, refused.stdout) == (True, "")
        assert len(refused.stderr.strip().splitlines()) == 1
    middle = [record for number, record in enumerate(records) if number not in (3, 4, 5)]
    cut.write_bytes(b"".join(map(framed, middle)))
    with pytest.raises(DataError, match="lacks 3 messages") as error:
        read_view(cut)
    assert error.value.rule == "systems.view.messages-missing"
    cut.write_bytes(framed(records[0]))
    with pytest.raises(DataError) as error:
        read_view(cut)
    assert error.value.rule == "systems.view.no-state"


def test_a_torn_end_is_cut_off_and_what_the_journal_has_lost_is_taken_out(made):
    """A dead machine may keep more of one file than of the other."""
    folder, paths, path = made
    whole = read(path)
    path.write_bytes(path.read_bytes() + b"\x07half a record")
    comp = next(one for one in paths if one.stem == "comp")
    opened(comp).engine.close()
    again = read(path)
    assert (again.torn, again.seen) == (0, whole.seen)
    # The journal's last records are gone: comp is to take them in again, in whatever order they
    # come.
    log = folder / "comp" / "journal" / "journal-00000000.log"
    records, _ = split(log.read_bytes())
    log.write_bytes(b"".join(map(framed, records[:-40])))
    engine = opened(comp).engine
    reached = {link: engine._reached(link) for link in {one.link for one in whole.seen}}
    engine.close()
    shorter = read(path)
    assert len(shorter.seen) < len(whole.seen)
    assert Counter(one.link for one in shorter.seen) == Counter(reached)
    check_each_once(shorter)


def test_a_view_of_another_party_is_not_written_into(made):
    folder, paths, path = made
    target = folder / "controller" / "journal" / VIEW
    target.write_bytes(path.read_bytes())
    record({one.stem: one for one in paths}, "controller")
    with pytest.raises(DataError, match="is the view of 'comp' in run trial-1"):
        opened(next(one for one in paths if one.stem == "controller"))


def test_a_full_view_keeps_its_beginning_and_says_so(tmp_path):
    paths = laid_out(tmp_path, owners=3, budget=200, policy="epsilon-greedy")
    comp = next(path for path in paths if path.stem == "comp")
    comp.write_text(comp.read_text() + RECORD + "limit_mb = 0.03\n")
    log: list[dict[str, Any]] = []
    finish(paths, log)
    path = file_of(tmp_path, "comp")
    opened(comp).engine.close()  # and started again it is full still
    kept = read(path)
    assert kept.full
    assert path.stat().st_size < 60_000
    assert sum("has reached its limit of 0.03 MB" in str(one.get("why")) for one in log) == 1
    made = audit(read_view(path))
    assert "it reached its limit, and what came later is not in it" in made.sections()[0].notes[0]
    assert made["tracker"].says


def test_a_view_that_cannot_be_written_stops_no_run(tmp_path):
    paths = laid_out(tmp_path, owners=2, budget=30)
    record({path.stem: path for path in paths}, "comp")
    target = file_of(tmp_path, "comp")
    target.mkdir(parents=True)  # no file can have this name
    log: list[dict[str, Any]] = []
    finish(paths, log)
    assert [
        "cannot be written, and the run goes on without it" in str(one["why"])
        for one in log
        if one["event"] == "view"
    ]
    assert opened(next(path for path in paths if path.stem == "customer")).engine.role.finished


def test_recording_that_begins_in_the_middle_is_refused_by_audits(tmp_path):
    """The state is written when there are enough messages, so a view of a party that was killed can
    be audited.
    """
    paths = laid_out(tmp_path, owners=3, budget=40, policy="epsilon-greedy")
    finish(paths)
    comp = next(path for path in paths if path.stem == "comp")
    record({comp.stem: comp}, "comp")
    engine = opened(comp).engine  # everything is in its journal still, so the view is whole
    assert isinstance(engine, RecordingEngine)
    engine.checkpoint()
    engine.close()
    kept = read(file_of(tmp_path, "comp"))
    check_each_once(kept)
    assert len(kept.seen) > FIRST_STATE
    assert kept.state["kind"] == "comp"
    file_of(tmp_path, "comp").unlink()
    opened(comp).engine.close()  # its journal is a snapshot now: what was before is not made again
    with pytest.raises(DataError) as error:
        read_view(file_of(tmp_path, "comp"))
    assert error.value.rule == "systems.view.no-state"
