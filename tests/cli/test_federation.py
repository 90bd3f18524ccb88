"""`posse up`, `posse party` and what an operator asks of a party: as a user types them."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from posse.cli.operators.up import _ended
from posse.cli.operators.watch import Watch
from posse.core.errors import PosseError, StalledError
from posse.results.store import Store
from posse.runtime.network.health import words
from posse.runtime.network.operate import _own_source
from posse.systems.registry import run
from posse.systems.samba.settings import Samba
from tests.kit.commands import SECONDS, Call, Start, last_line, one_line, stopped
from tests.kit.federations import free_port, laid_out

BUDGET = 600

FILE = """
run = "trial-1"
budget = {budget}
policy = "ucb"
level = "strict"
listen = "127.0.0.1:{port}"

[world]
seed = 7
owners = 2

[[owner]]
name = "clinic-1"

[[owner]]
name = "clinic-2"
"""


def until(holds: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < end, f"waited {SECONDS} s for: {what}"
        time.sleep(0.1)


def child(parent: int, file: str) -> int:
    """The process that a parent started for a party's file."""
    for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
        if file in Path(f"/proc/{pid}/cmdline").read_text():
            return int(pid)
    raise AssertionError(f"no process runs {file}")


def test_a_source_that_fails_at_every_call_is_printed_with_what_to_do() -> None:
    """Once, and again when it fails after it had answered; three failures in a row make a party's
    status name them.
    """
    party = SimpleNamespace(source_trouble=(2, "OSError: closed"))
    assert _own_source(party) == {}  # type: ignore[arg-type]
    party.source_trouble = (3, "OSError: closed")
    status = _own_source(party)  # type: ignore[arg-type]
    running = {"finished": False, "paused": False, "waiting": {}}
    assert words({**running, **status}) == "its source fails (3 times)"
    watch = Watch(None, None)  # type: ignore[arg-type]
    process: Any = SimpleNamespace(name="clinic-1", file=Path("clinic-1.toml"))
    messages = []
    for source in (status["source"], status["source"], None, status["source"]):
        messages += watch._failure(process, source)  # type: ignore[arg-type]
    assert len(messages) == 2
    for text in ("'clinic-1'", "3 times", "OSError: closed", "clinic-1.toml"):
        assert text in messages[0]


def test_progress_is_a_share_of_the_last_step_that_is_known() -> None:
    """A run may end before the last step that the file of the federation names."""
    watch = Watch(None, SimpleNamespace(steps=1_000_000))  # type: ignore[arg-type]
    assert watch._progress({"step": 7, "horizon": 70}) == (0.1, "step 7 of 70")
    assert watch._progress({"step": 7, "horizon": None})[0] == 7 / 1_000_000
    assert watch._progress({"step": 7, "horizon": 7}) == (1.0, "step 7 of 7")


def test_the_line_of_a_run_has_why_it_waits_from_the_first_step_on() -> None:
    for step in (None, 7):
        watch = Watch(None, SimpleNamespace(steps=9))  # type: ignore[arg-type]
        waiting = {"clinic-2": "its journal was deleted"}
        _, line = watch._progress({"step": step, "horizon": 9, "waiting": waiting})
        assert "without clinic-2 (its journal was deleted)" in line
        assert watch._progress({"step": step})[1] == ("step 7" if step else "starting")


@pytest.mark.parametrize(
    ("code", "kind"), [(2, PosseError), (StalledError.exit_code, StalledError)]
)
def test_a_federation_ends_with_the_code_of_the_party_that_stopped(
    tmp_path: Path, code: int, kind: type[PosseError]
) -> None:
    log = tmp_path / "comp.log"
    log.write_text("error: [P830] the run has waited for 'clinic-2'.\n")
    ended = SimpleNamespace(name="comp", log=log, handle=SimpleNamespace(returncode=code))
    with pytest.raises(PosseError, match="'clinic-2'") as stopped:
        _ended(SimpleNamespace(processes=[ended]), None, tmp_path)  # type: ignore[arg-type]
    assert type(stopped.value) is kind
    assert stopped.value.exit_code == code


def test_a_party_whose_run_stalls_exits_with_3_and_can_be_started_again(
    tmp_path: Path, process: Start
) -> None:
    (path,) = [
        path for path in laid_out(tmp_path, level="strict", sync=True) if path.stem == "comp"
    ]
    path.write_text(f"stalled_after = 0.5\n{path.read_text()}")
    for _ in range(2):
        with stopped(process("party", str(path))) as running:
            _, said = running.communicate(timeout=SECONDS)
        assert running.returncode == StalledError.exit_code == 3
        assert "[P830]" in said
        assert "'controller'" in said
    assert {row.status for row in Store().list()} == {"interrupted"}


def step_of(posse: Call, file: Path) -> int:
    told = posse("party", "status", str(file), "--json")
    return int(json.loads(told.out)["step"]) if told.code == 0 else 0


@pytest.mark.usefixtures("fresh")
def test_a_federation_is_paused_killed_interrupted_and_ends_as_the_plain_bandit(
    tmp_path: Path, posse: Call, process: Start
) -> None:
    file, controller = tmp_path / "fed.toml", tmp_path / "fed" / "controller.toml"
    file.write_text(FILE.format(budget=BUDGET, port=free_port()))
    with stopped(process("up", str(file))) as running:
        until(lambda: step_of(posse, controller) > 3, "the first steps")
        until(
            lambda: {row.status for row in Store().list()} == {"running"}, "a row for every party"
        )
        assert "posse party resume" in posse("party", "pause", str(controller)).out
        shown = posse("party", "status", str(controller))
        assert re.search(r"state +paused", shown.out)
        found = json.loads(posse("party", "doctor", str(controller), "--json").out)
        (manifest,) = [one["said"] for one in found if one["what"] == "manifest"]
        assert manifest.split(":")[0] in shown.out
        assert [one["what"] for one in found if not one["fine"]] == ["running"]  # for it is paused
        again = posse("up", str(file))
        assert "runs already" in one_line(again)
        killed = child(running.pid, "clinic-2.toml")
        os.kill(killed, signal.SIGKILL)
        until(
            lambda: posse("party", "status", str(tmp_path / "fed" / "clinic-2.toml")).code == 0,
            "its second life",
        )
        assert child(running.pid, "clinic-2.toml") != killed
        at = step_of(posse, controller)
        assert posse("party", "resume", str(controller)).code == 0
        until(lambda: step_of(posse, controller) > at, "steps after the pause")
        running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=SECONDS)
        assert running.returncode == 130
        assert "'clinic-2' was killed" in err
        assert re.search(
            rf"stopped at pull \d+ of {BUDGET}; continue with: posse up \S*fed.toml$", err.strip()
        )
    assert "No such process" not in err
    assert [row.status for row in Store().list()] == ["interrupted"] * 6
    with stopped(process("up", str(file), "--json")) as running:
        out, _ = running.communicate(timeout=SECONDS)
        assert running.returncode == 0
    told = json.loads(out)
    assert (told["total"],) == run(
        Samba(policy="ucb", owners=2, budget=BUDGET, seed=7).plain()
    ).total
    assert told["pulls"] == BUDGET
    over = posse("up", str(file), "--json")
    assert (over.code, json.loads(over.out)) == (0, told)
    assert "over" in over.err
    records_fit(posse, told)
    comp = posse("party", "status", str(tmp_path / "fed" / "comp.toml"))
    assert comp.code == 0
    assert "the part of comp is over" in comp.out.replace("\n", " ")
    file.write_text(FILE.format(budget=BUDGET + 1, port=free_port()))
    changed = f"budget is {BUDGET} when it began and {BUDGET + 1} in the file now"
    assert changed in one_line(posse("up", str(file)))


def records_fit(posse: Call, told: dict[str, Any]) -> None:
    """Every party has one record, of what it may know, and all belong to one run."""
    records = {row.party: Store().get(row.id) for row in Store().list()}
    assert len(Store()) == len(records) == 6
    assert len({record.run_id for record in records.values()}) == 1
    assert {record.status for record in records.values()} == {"finished"}
    customer, controller = records["customer"], records["controller"]
    assert told["record"] == customer.id
    assert (customer.total, customer.steps_done, customer.arms) == ((told["total"],), BUDGET, 0)
    assert customer.config["policy"]["name"] == "ucb"
    assert customer.summary["manifest"] == controller.summary["manifest"] == told["manifest"]
    for name in ("controller", "comp"):
        assert (records[name].total, records[name].arms, records[name].steps_done) == (
            (),
            0,
            BUDGET,
        )
    owners = [records[f"clinic-{i}"] for i in (1, 2)]
    assert sum(owner.total[0] for owner in owners) == told["total"]
    assert sum(int(owner.pulls.sum()) for owner in owners) == BUDGET
    assert not any(record.seeds or record.regret is not None for record in records.values())
    assert all(record.seconds > 0 and record.leaks for record in records.values())
    assert all(
        "Rewards, scores and choices" in record.shown("protects")[0] for record in records.values()
    )
    there = {hop.hop: (hop.messages, hop.bytes) for hop in controller.traffic}
    for hop in ("owner -> controller", "controller -> owner"):
        here = [one for owner in owners for one in owner.traffic if one.hop == hop]
        assert sum(one.messages for one in here) == there[hop][0]
        # A signature that is made again after a kill may be a few bytes longer or shorter.
        assert abs(sum(one.bytes for one in here) - there[hop][1]) < 40
    listed = posse("runs", "list").out
    assert all(name in listed for name in records)
    assert "total" in posse("runs", "show", customer.id).out
    assert customer.run_id in posse("runs", "show", customer.id).out
    assert posse("runs", "report", customer.id, controller.id, "--out", "fed.html").code == 0
    assert "Records of one run" in posse("compare", customer.id, controller.id, "--full").out


def test_a_deleted_journal_is_named_by_every_party_until_it_is_put_back(
    tmp_path: Path, posse: Call, process: Start
) -> None:
    file, folder = tmp_path / "fed.toml", tmp_path / "fed"
    file.write_text(FILE.format(budget=BUDGET, port=free_port()))
    others = ["controller", "comp", "dealer", "customer", "clinic-1"]

    def reasons() -> list[str]:
        told = [posse("party", "status", str(folder / f"{name}.toml"), "--json") for name in others]
        shown = [json.loads(each.out) for each in told if each.code == 0]
        return [
            each["waiting"]["clinic-2"]
            for each in shown
            # One that does not run any more has finished, and waits for nobody.
            if each["running"] and "clinic-2" in each["waiting"] and not each["healthy"]
        ]

    with (
        (tmp_path / "said.txt").open("w") as said,
        stopped(process("up", str(file), stderr=said)) as running,
    ):
        until(lambda: step_of(posse, folder / "controller.toml") > 3, "the first steps")
        journal, away = folder / "clinic-2" / "journal", tmp_path / "away"
        journal.rename(away)
        os.kill(child(running.pid, "clinic-2.toml"), signal.SIGKILL)
        until(
            lambda: sum("[P810]" in why for why in reasons()) == len(others),
            "everybody to know why",
        )
        found = {
            one["what"]: one
            for one in json.loads(posse("party", "doctor", str(folder / "comp.toml"), "--json").out)
        }
        assert not found["running"]["fine"]
        assert "[P810]" in found["running"]["said"]
        until(
            lambda: "[P810]" in (tmp_path / "said.txt").read_text(),
            "a line of 'posse up' that says why",
        )
        shutil.rmtree(journal)
        away.rename(journal)
        os.kill(child(running.pid, "clinic-2.toml"), signal.SIGKILL)
        until(lambda: not reasons(), "nobody to wait")
        assert running.wait(SECONDS) == 0
    (total,) = run(Samba(policy="ucb", owners=2, budget=BUDGET, seed=7).plain()).total
    assert (
        json.loads((folder / "customer" / "journal" / "result.json").read_text())["total"] == total
    )


def test_a_store_that_cannot_be_written_stops_no_party(
    tmp_path: Path, process: Start, home: Path
) -> None:
    home.write_text("no folder")
    file = tmp_path / "fed.toml"
    file.write_text(FILE.format(budget=30, port=free_port()))
    with stopped(process("up", str(file), "--json")) as running:
        out, err = running.communicate(timeout=SECONDS)
        assert running.returncode == 0, err
    told = json.loads(out)
    assert told["pulls"] == 30
    assert (told["total"],) == run(Samba(policy="ucb", owners=2, budget=30, seed=7).plain()).total
    log = (tmp_path / "fed" / "customer.log").read_text()
    assert log.count("leaves no record") == 1


def test_a_party_alone_waits_says_for_whom_and_stops(
    tmp_path: Path, posse: Call, process: Start
) -> None:
    comp = next(path for path in laid_out(tmp_path) if path.stem == "comp")
    with stopped(process("party", str(comp))) as running:
        until(lambda: posse("party", "status", str(comp)).code == 0, "an answer")
        until(
            lambda: "cannot reach" in posse("party", "status", str(comp)).out, "a call that fails"
        )
        assert re.search(r"state +waiting for controller", posse("party", "status", str(comp)).out)
        assert "is in use by another process" in last_line(posse("party", str(comp)).err)
        assert "the part of this comp cannot end the run. Ask the operator" in one_line(
            posse("party", "end", str(comp))
        )
        assert "continue with: posse party" in posse("party", "stop", str(comp)).out
        out, err = running.communicate(timeout=SECONDS)
    assert running.returncode == 0
    assert "stopped before the end" in out
    assert [json.loads(line)["event"] for line in err.splitlines()] == [
        "started",
        "unreachable",
        "stopped",
    ]
    assert "no party runs with the journal" in one_line(posse("party", "status", str(comp)))
    assert "Start it with 'posse party'" in one_line(posse("party", "pause", str(comp)))


def test_a_port_in_use_is_one_line(tmp_path: Path, posse: Call) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        controller = laid_out(tmp_path, listen=f"127.0.0.1:{port}")[0]
        told = posse("party", str(controller))
        assert told.code == 2
        assert "says: Address already in use" in last_line(told.err)
        assert f"('127.0.0.1', {port})). Stop what holds the port" in last_line(told.err)
        assert ("listen", False) in findings(posse, controller)


def findings(posse: Call, file: Path) -> list[tuple[str, bool]]:
    told = posse("party", "doctor", str(file), "--json")
    found = [(one["what"], one["fine"]) for one in json.loads(told.out)]
    assert told.code == (0 if all(fine for _, fine in found) else 1)
    return found


def test_the_doctor_finds_nothing_in_a_good_set_up(tmp_path: Path, posse: Call) -> None:
    controller = laid_out(tmp_path)[0]
    assert all(fine for _, fine in findings(posse, controller))
    assert "is free" in posse("party", "doctor", str(controller)).out


def test_an_early_interrupt_of_a_run_that_has_begun_says_how_it_goes_on(
    tmp_path: Path, posse: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(paths: list[Path]) -> None:
        raise KeyboardInterrupt

    file = tmp_path / "fed.toml"
    file.write_text(FILE.format(budget=30, port=free_port()))
    monkeypatch.setattr("posse.cli.operators.up._check_none_runs", interrupt)
    for more in ([], ["--folder", str(tmp_path / "there")]):
        told = posse("up", str(file), *more)
        assert told.code == 130
        assert (
            told.err.splitlines()[-1]
            == f"interrupted; continue with: {' '.join(['posse up', str(file), *more])}"
        )


def test_a_federation_s_file_or_a_folder_in_the_place_of_a_party_s_is_named(
    tmp_path: Path, posse: Call
) -> None:
    file = tmp_path / "federation.toml"
    file.write_text('run = "trial"\nbudget = 9\n[[owner]]\nname = "a"\n')
    for command in ("status", "start", "pause", "end"):
        assert "a federation's file, with [[owner]], and not a party's" in one_line(
            posse("party", command, str(file))
        )
    assert "a federation's file" in posse("party", "doctor", str(file), "--json").out
    assert "it is a folder. Give a TOML file" in one_line(posse("party", "status", str(tmp_path)))
    file.write_text('identity = "a"\nhome = "127.0.0.1:7400"\n[consent]\nsystems = ["samba"]\n')
    assert (
        "this is the file of a service, and not of one party. Start it with 'posse party serve'."
        in one_line(posse("party", str(file)))
    )


@pytest.mark.parametrize(
    ("old", "new", "what", "said"),
    [
        ('identity = "clinic-1"', 'identity = "nowhere"', "file and identity", "posse party enrol"),
        ("sync =", "snyc =", "file and identity", "Did you mean 'sync'"),
        ("customer/party.crt", "nowhere.crt", "options and source", "nowhere.crt cannot be read"),
        ("customer/party.crt", "comp/party.crt", "options and source", "not of the customer"),
        ('kind = "bernoulli"', 'kind = "csv"', "options and source", "needs file"),
        (
            'kind = "bernoulli"',
            'kind = "python"\nfunction = "broken:f"',
            "options and source",
            "SyntaxError",
        ),
        ("[connect]\n", "[connect]\n# ", "way to controller", "Give listen"),
        ("[connect]\n", '[connect]\ncomp = "127.0.0.1:1"\n', "way to comp", "may name: controller"),
        ("127.0.0.1:", "127.0.0.1#", "way to controller", "host:port"),
    ],
)
def test_the_doctor_says_what_to_mend(
    tmp_path: Path,
    posse: Call,
    old: str,
    new: str,
    what: str,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    owners = [
        {"name": f"clinic-{i}", "source": {"kind": "bernoulli", "mean": 0.5}} for i in (1, 2, 3)
    ]
    laid_out(tmp_path, world=None, owner=owners)
    file = tmp_path / "clinic-1.toml"
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))
    (tmp_path / "broken.py").write_text("x = (\n")
    monkeypatch.setattr(sys, "path", list(sys.path))
    told = posse("party", "doctor", str(file), "--json")
    assert told.code == 1
    found = {one["what"]: one for one in json.loads(told.out)}
    assert not found[what]["fine"]
    assert said in found[what]["said"]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("policy =", "polcy =", "unknown setting 'polcy'. Did you mean 'policy'?"),
        ("budget = 50", "budget = 1", "budget must be at least"),
        ("budget = 50", "", "budget is needed"),
        ('level = "strict"', "", 'Add level = "strict"'),
        ('"clinic-2"', '"clinic-1"', "different names, got 'clinic-1' twice"),
        ('"clinic-2"', '"Clinic-2"', "owner name must be 1 to 63 of a-z, 0-9 and -"),
        ('"clinic-2"', '"comp"', "cannot be called 'comp'"),
        ('"trial-1"', '"Trial 1"', "run must be 1 to 63 of a-z"),
        ('run = "trial-1"', "", "run is needed"),
        ('"127.0.0.1:', '"localhost', "an address must be host:port"),
        ("[world]\nseed = 7\nowners = 2", "", "'clinic-1' has no source"),
        ('policy = "ucb"', 'policy = "ucd"', "Did you mean 'ucb'"),
        (
            'run = "trial-1"',
            'run = "trial-1"\nprotocol = "telepathy"',
            "unknown system 'telepathy'",
        ),
        (
            'name = "clinic-2"',
            'name = "clinic-2"\n[owner.source]\nkind = "sql"',
            "source of owner 'clinic-2'",
        ),
        ("[[owner]]", "[[ownr]]", "unknown setting 'ownr'"),
        ("[world]", "[world", "is not TOML"),
    ],
)
def test_a_mistake_in_a_federation_is_one_line_and_nothing_is_written(
    tmp_path: Path, posse: Call, old: str, new: str, said: str
) -> None:
    file = tmp_path / "fed.toml"
    text = FILE.format(budget=50, port=7400)
    assert old in text
    file.write_text(text.replace(old, new))
    assert said in one_line(posse("up", str(file)))
    assert not (tmp_path / "fed").exists()


def test_sources_beside_the_federation_are_pulled_in_slots(tmp_path: Path, process: Start) -> None:
    (tmp_path / "outcomes.csv").write_text("reward\n0.5\n")
    (tmp_path / "outcomes.py").write_text("def reward(run, number):\n    return 0.5\n")
    sources = [
        'kind = "csv"\nfile = "outcomes.csv"',
        'kind = "python"\nfunction = "outcomes:reward"',
    ]
    owners = [
        f'[[owner]]\nname = "clinic-{i}"\n[owner.source]\n{source}\n'
        for i, source in enumerate(sources)
    ]
    settings = f'run = "t"\nlevel = "strict"\nbudget = 20\nlisten = "127.0.0.1:{free_port()}"\n'
    (tmp_path / "fed.toml").write_text(settings + "".join(owners))
    with stopped(process("up", "fed.toml", "--json")) as running:
        out, err = running.communicate(timeout=SECONDS)
        assert running.returncode == 0, err
    assert json.loads(out)["total"] == 10
    records = {row.party: Store().get(row.id) for row in Store().list()}
    for name in ("controller", "comp", "clinic-0", "clinic-1"):
        assert records[name].summary["slot"] == 0.1
    journal = (tmp_path / "fed" / "clinic-0" / "journal" / "journal-00000000.log").read_bytes()
    # One slot before every pull but the first of both owners, and one after the last.
    assert journal.count(b"Tock") == 19 + records["comp"].summary["overruns"]
    assert "slot of 0.1 s" in records["customer"].leaks[-1]


def test_a_party_that_could_reach_nobody_does_not_start(tmp_path: Path, posse: Call) -> None:
    comp = next(path for path in laid_out(tmp_path) if path.stem == "comp")
    comp.write_text(comp.read_text().replace("[connect]\n", "[connect]\n# "))
    told = posse("party", str(comp))
    assert told.code == 2
    for text in ("a way to 'controller'", "Give listen", "[connect]", "VPN or a tunnel"):
        assert text in last_line(told.err)


@pytest.mark.parametrize("command", ["start", "doctor", "status"])
def test_a_party_folder_that_used_a_relay_is_told_what_replaces_it(
    tmp_path: Path, posse: Call, command: str
) -> None:
    comp = next(path for path in laid_out(tmp_path) if path.stem == "comp")
    text = comp.read_text()
    relayed = re.sub('controller = ".*"', 'controller = "relay:hub"', text)
    assert relayed != text
    for changed, names in ((f"relays = true\n{text}", "relays"), (relayed, "relay:hub")):
        comp.write_text(changed)
        told = posse("party", command, str(comp))
        assert told.code == 2 if command != "doctor" else told.code != 0
        for word in (names, "removed in 0.2", "Give listen", "VPN or a tunnel"):
            assert word in " ".join((told.out + told.err).split())
    comp.write_text(text)
    assert "removed" not in posse("party", "doctor", str(comp)).out


def test_owners_are_needed(tmp_path: Path, posse: Call) -> None:
    file = tmp_path / "fed.toml"
    file.write_text('run = "trial-1"\nbudget = 50\n')
    assert "at least 2 owners, got 0. Add [[owner]]" in one_line(posse("up", str(file)))


def test_files_that_are_not_there(posse: Call) -> None:
    for command in ("up", "party", "party start", "party status", "party pause", "party stop"):
        assert "there is no configuration file nowhere.toml" in one_line(
            posse(*command.split(), "nowhere.toml")
        )


def test_a_state_names_who_is_missing_and_never_whose_reward_is_awaited() -> None:
    status = {"waiting": {}, "paused": False, "finished": False, "step": 4}
    assert words(status) == "connected"
    assert words({**status, "paused": True}) == "paused"
    assert words({**status, "finished": True}) == "finished"
    assert words({**status, "waiting": {"comp": "", "a": ""}}) == "waiting for comp, a"
