"""Every rule of the command line is broken once, by arguments or by what a party answers."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from posse.cli.app import app
from posse.cli.operators import party, service, up, watch
from posse.core.errors import LinkError, PosseError
from posse.results.store import Store
from tests.kit.commands import Call, one_line
from tests.kit.records import example_record
from tests.kit.rules import refusals, rules

RUN = "run samba --owners 3 --budget 10"
TOKEN = "federation ca token --role"
COMMANDS = {
    "cli.command.removed": "reproduce --list",
    "cli.data.unknown": "problems --data zzz",
    "cli.label.empty": f"{RUN} --label=",
    "cli.figure.unknown-format": f"{RUN} --figure a.gif",
    "cli.path.no-folder": f"{RUN} --report none/r.html",
    "cli.path.is-a-folder": f"{RUN} --report folder",
    "cli.brief.removed": f"{RUN} --brief",
    "cli.rows.other-columns": "predict model.npz rows.csv",
    "cli.model.not-a-model": "predict rows.csv rows.csv",
    "cli.model.not-kept": "predict 0run rows.csv",
    "cli.token.none-open": "federation ca serve",
    "cli.request.refused": "federation ca sign posse-ca/ca.crt --out a",
    "cli.request.not-readable": "federation ca sign none --out a",
    "cli.request.too-long": "federation ca sign big --out a",
    "cli.address.several-ways": "party enrol x --request a --answer b",
    "cli.address.missing": "party enrol --token-file token",
    "cli.token.missing": "party enrol",
    "cli.passphrase_file.not-readable": "federation ca init --run r --ca b --passphrase-file none",
    "cli.passphrase.no-terminal": "federation ca init --run r --ca b --passphrase",
    "cli.role.unknown": f"{TOKEN} ownr --name a",
    "cli.name.missing": f"{TOKEN} owner",
    "cli.name.given-to-sole-role": f"{TOKEN} comp --name x",
    "cli.name.is-a-role": f"{TOKEN} owner --name comp",
    "cli.yes.no-terminal": "runs delete 0run",
    "cli.allow.not-found": "studio --allow none",
    "cli.policy.too-few": "compare --policy ucb",
    "cli.policy.twice": "compare --policy ucb --policy ucb",
    "cli.ids.too-few": "compare 0run",
    "cli.over.missing": "sweep samba",
    "cli.over.not-a-list": "sweep samba --over seed",
    "cli.over.twice": "sweep samba --over seed=1 --over seed=2",
    "cli.service.not-running": "federation queue member.toml",
    "cli.run.too-long": "federation submit long.toml --at member.toml",
}
"""Rules, each with a command that breaks it."""


@pytest.fixture
def folder(posse: Call, tmp_path: Path) -> Path:
    """A folder with an authority, a run, a model and files that break rules."""
    assert posse("federation", "ca", "init", "--run", "trial-7").code == 0
    Path("folder").mkdir()
    Path("big").write_bytes(bytes(1 << 20))
    Path("rows.csv").write_text("a,b\n1,2\n")
    arms = {"leaf0": np.zeros(2), "leaf1": np.zeros((3, 2), np.float32), "arms": ["tea", "mate"]}
    np.savez("model.npz", **arms)
    Path("member.toml").write_text('identity = "a"\nhome = "127.0.0.1:7400"\n')
    Path("long.toml").write_text(f'system = "{"x" * 70_000}"\n')
    Store().save(example_record(id="0run", run_id="0run"))
    return tmp_path


@pytest.mark.parametrize("rule", COMMANDS)
def test_a_command_breaks_its_rule(posse: Call, folder: Path, rule: str) -> None:
    if rule == "cli.address.missing":
        made = posse(*f"{TOKEN} owner --name clinic-b --out token".split())
        assert made.code == 0, made.err
    outcome = posse(*COMMANDS[rule].split())
    assert outcome.code == 2
    assert f"(rule: {rule}; see docs/errors/P" in outcome.err


def test_bytes_that_are_no_text_are_no_token() -> None:
    outcome = CliRunner().invoke(app, ["party", "enrol", "-"], input=b"\xff\xfe")
    assert "(rule: cli.token.not-a-token; see docs/errors/P700.md)" in outcome.stderr


def test_a_place_of_another_user_and_a_folder_that_cannot_be_made_are_refused(
    posse: Call, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "rule: cli.folder.not-made;" in one_line(posse("demo", "--out", "big/demo"))
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert "rule: cli.path.not-writable;" in one_line(
        posse(*RUN.split(), "--report", "folder/r.html")
    )


# What parties and services answer -----------------------------------------------------------------

QUEUED = {"run": "march", "text": "no", "journal": "", "waiting": {}, "without": []}


def raises(error: Exception) -> Callable[..., Any]:
    def fail(*args: Any, **options: Any) -> Any:
        raise error

    return fail


def answers(**replaced: Any) -> Callable[[pytest.MonkeyPatch], None]:
    """Replace functions of `posse.cli.operators.service`; a value is what they return."""

    def replace(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(service, "PATIENCE", 0.0)
        for name, value in replaced.items():
            patch.setattr(service, name, value if callable(value) else lambda *_, v=value: v)

    return replace


FOUNDER = {"role": "owner", "service": "clinic-b", "serial": "1", "renewal": "no", "until": ""}
ANSWERS: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], Callable[[], object]]] = {
    "cli.run.refused": (
        answers(),
        lambda: service._print_result({**QUEUED, "phase": "refused"}, False),
    ),
    "cli.run.dropped": (
        answers(),
        lambda: service._print_result({**QUEUED, "phase": "dropped"}, False),
    ),
    "cli.run.not-dropped": (
        answers(_ask={**QUEUED, "phase": "over"}),
        lambda: service.queue(Path("a.toml"), cancel="march"),
    ),
    "cli.at.not-the-founder": (
        answers(_ask=FOUNDER),
        lambda: service.expel("clinic-c", at=Path("a.toml")),
    ),
    "cli.service.not-left": (answers(_ask="no"), lambda: service.leave(Path("a.toml"))),
    "cli.certificate.not-renewed": (
        answers(_ask=lambda path, command: FOUNDER if command == "status" else "no"),
        lambda: service.renew(Path("a.toml")),
    ),
    "cli.service.not-stopped": (
        answers(_ask="stopped", _process=1),
        lambda: service.stop_service(Path("a.toml")),
    ),
}


@pytest.mark.parametrize("rule", ANSWERS)
def test_an_answer_of_a_service_breaks_its_rule(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare, call = ANSWERS[rule]
    prepare(monkeypatch)
    with pytest.raises(PosseError) as caught:
        call()
    assert caught.value.rule == rule


@pytest.mark.parametrize(
    ("rule", "frozen", "answer"),
    [
        ("cli.service.refused", "", "it answers: not now"),
        ("cli.service.stuck", "process 1 is stopped", "no answer"),
    ],
)
def test_a_service_that_refuses_or_hangs_is_named(
    rule: str, frozen: str, answer: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("posse.runtime.network.operate.ask", raises(LinkError(answer)))
    monkeypatch.setattr("posse.runtime.network.health.not_answering", lambda folder: frozen)
    with pytest.raises(PosseError) as caught:
        service._answer(Path("member.toml"), "status", 0.0)
    assert caught.value.rule == rule


def ended(code: int, folder: Path) -> SimpleNamespace:
    """A watch over one process that ended with a code."""
    handle = SimpleNamespace(returncode=code)
    process = SimpleNamespace(name="comp", handle=handle, log=folder / "log", file=folder / "f")
    return SimpleNamespace(processes=[process])


PARTIES: dict[str, Callable[[Path], object]] = {
    "cli.listen.no-way-to-peer": lambda folder: party._reachable(
        SimpleNamespace(file=SimpleNamespace(listen=None, connect={})),  # type: ignore[arg-type]
        SimpleNamespace(peers=["comp"], remarks=()),  # type: ignore[arg-type]
    ),
    "cli.listen.cannot-listen": lambda folder: party.cannot_listen(
        OSError(errno.EADDRINUSE, "in use"), folder
    ),
    "cli.folder.not-readable": lambda folder: up._check_same(folder, {}, folder, ()),
    "cli.file.other-settings": lambda folder: up._check_same(
        written(folder / "begun", '{"owners": 3}'), {"owners": 4}, folder, ()
    ),
    "cli.party.ended-early": lambda folder: up._ended(
        ended(2, written(folder / "log", "error: no").parent),  # type: ignore[arg-type]
        None,  # type: ignore[arg-type]
        folder,
    ),
    "cli.run.stopped": lambda folder: up._ended(
        ended(0, folder),  # type: ignore[arg-type]
        SimpleNamespace(total_at=None),  # type: ignore[arg-type]
        folder,
    ),
    "cli.party.killed-too-often": lambda folder: restart_too_often(folder),
}


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def restart_too_often(folder: Path) -> None:
    made = watch.Watch(lambda file: None, SimpleNamespace())  # type: ignore[arg-type, return-value]
    made.processes = ended(-9, folder).processes
    made._restarts = {"comp": watch.MOST_RESTARTS}
    made._start_again(0, 9)


@pytest.mark.parametrize("rule", PARTIES)
def test_parties_on_this_machine_break_a_rule(rule: str, tmp_path: Path) -> None:
    with pytest.raises(PosseError) as caught:
        PARTIES[rule](tmp_path)
    assert caught.value.rule == rule


def test_what_a_running_party_refuses_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "comp.toml"
    monkeypatch.setattr(party, "_journal", lambda file: tmp_path)

    def rule_of(call: Callable[[], object]) -> str:
        with pytest.raises(PosseError) as caught:
            call()
        return caught.value.rule

    async def status(file: Path) -> dict[str, Any]:
        return {"step": 1}

    monkeypatch.setattr(party, "status_of", status)
    monkeypatch.setattr(up, "status_of", status)
    assert rule_of(lambda: up._check_none_runs([file])) == "cli.party.runs-already"
    monkeypatch.setattr(party, "STOPPING", 0.0)
    monkeypatch.setattr("posse.cli.operators.service.is_service", lambda file: False)
    monkeypatch.setattr("posse.runtime.network.operate.ask", lambda *_: status(file))
    assert rule_of(lambda: party.stop(file)) == "cli.party.not-stopped"

    def command(file: Path, words: str) -> dict[str, str]:
        if words == "status":
            return {"role": "owner"}
        raise LinkError(f"{operate.NO_COMMAND}")

    from posse.runtime.network import operate

    with monkeypatch.context() as patch:
        patch.setattr(party, "_command", command)
        assert rule_of(lambda: party.end(file)) == "cli.party.cannot-end"
    monkeypatch.setattr("posse.runtime.network.operate.ask", raises(LinkError("gone")))
    monkeypatch.setattr(
        "posse.systems.parties.read_result", lambda journal: {"run": "march", "outcome": "over"}
    )
    monkeypatch.setattr("posse.runtime.network.health.not_answering", lambda journal: "")
    assert rule_of(lambda: party._command(file, "status")) == "cli.party.not-running"


def test_a_service_is_restored_with_its_runs(
    folder: Path, posse: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    backup = SimpleNamespace(kind="service")
    monkeypatch.setattr("posse.runtime.backup.read", lambda archive: [backup])
    refused = posse("party", "restore", "big", "member.toml", "--without-journal")
    assert "rule: cli.without_journal.of-a-service;" in one_line(refused)


@pytest.mark.skipif(
    not Path("/proc/self").exists(), reason="needs a folder in which not even root can write: /proc"
)
def test_a_federation_in_a_folder_that_cannot_be_written_is_refused(
    folder: Path, posse: Call
) -> None:
    example = Path(__file__).parents[2] / "examples" / "federation.toml"
    refused = posse("up", str(example), "--folder", "/proc/posse")
    assert "rule: cli.folder.not-writable;" in one_line(refused)


ELSEWHERE = {
    "cli.example.with-file",
    "cli.file.missing",
    "cli.folder.not-writable",
    "cli.without_journal.of-a-service",
    "cli.token.not-a-token",
    "cli.folder.not-made",
    "cli.path.not-writable",
    "cli.service.refused",
    "cli.service.stuck",
    "cli.party.runs-already",
    "cli.party.not-stopped",
    "cli.party.cannot-end",
    "cli.party.not-running",
}
"""Rules that the other tests of this file break."""


def test_every_refusal_of_the_command_line_has_a_rule_that_is_broken_here() -> None:
    assert [one.where for one in refusals("cli/**/*.py") if not one.rule] == []
    broken = {*COMMANDS, *ANSWERS, *PARTIES, *ELSEWHERE}
    assert rules("cli/**/*.py") <= broken
