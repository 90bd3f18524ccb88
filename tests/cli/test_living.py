"""A federation from its founding to a member that leaves, by the commands that a user types."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kit.commands import Call, one_line
from tests.kit.federations import free_port

PATIENCE = 300.0
RUN = """
protocol = "dp-combinatorial"
run = "{run}"
agents = 2
producers = 6
horizon = {horizon}
start = 10
seed = 5
alpha = 0.2
"""


def until(wanted: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not wanted():
        assert time.monotonic() < end
        time.sleep(0.1)


@pytest.mark.usefixtures("fresh")
def test_found_enrol_serve_submit_leave(
    posse: Call, process: Callable[..., subprocess.Popen[str]]
) -> None:
    listen, enrol = (f"127.0.0.1:{free_port()}" for _ in range(2))
    made = posse(
        "federation",
        "create",
        "traders",
        "--role",
        "agent",
        "--called",
        "agent-1",
        "--listen",
        listen,
        "--enrol",
        enrol,
    )
    assert made.code == 0, made.err
    founder = "traders/agent-1.toml"
    with Path(founder).open("a") as file:
        file.write('[consent]\ncustomers = ["agent-2"]\n')
    running = [process("party", "serve", founder)]
    try:
        until(lambda: posse("federation", "queue", founder).code == 0)
        own = [
            "--ca",
            "traders/authority",
            "--role",
            "agent",
            "--name",
            "agent-2",
            "--address",
            enrol,
        ]
        assert posse("federation", "ca", "token", *own, "--out", "token").code == 0
        assert posse("party", "enrol", "--token-file", "token").code == 0
        lines = [
            'identity = "agent-2"',
            'founder = "agent-1"',
            f'home = "{listen}"',
            "[consent]",
            "budget = 40",
        ]
        Path("agent-2.toml").write_text("\n".join(lines))
        running.append(process("party", "serve", "agent-2.toml"))
        for name, horizon in (("one", 40), ("two", 41), ("three", 30)):
            Path(f"{name}.toml").write_text(RUN.format(run=name, horizon=horizon))

        done = posse("federation", "submit", "one.toml", "--at", founder)
        assert done.code == 0, done.err
        assert "run one: the part of agent-1 is over: it earned" in done.out
        again = json.loads(posse("federation", "submit", "one.toml", "--at", founder, "--json").out)
        assert again["party"] == "agent-1"
        refused = posse("federation", "submit", "two.toml", "--at", founder)
        assert refused.code == 2
        assert (
            "agent-2 refused: the run is outside budget in its [consent]. Its own log has the value. "
            "To propose it again" in refused.err
        )
        assert refused.err.count("[P") == 1

        # A member that the founder's consent names proposes one, and drops none but its own.
        own_run = posse("federation", "submit", "three.toml", "--at", "agent-2.toml")
        assert own_run.code == 0, own_run.err
        assert "run three: the part of agent-2 is over: it earned" in own_run.out
        dropped = posse("federation", "queue", "agent-2.toml", "--cancel", "one")
        assert dropped.code == 2
        assert "you proposed no run 'one'." in dropped.err
        unknown = posse(
            "federation", "queue", "agent-2.toml", "--cancel", "zz"
        ).err  # in the same words: names of runs are not shown
        assert unknown == dropped.err.replace("one", "zz")

        assert posse("party", "renew", "agent-2.toml").code == 0
        found = {
            each["what"]: each["said"]
            for each in json.loads(posse("party", "doctor", "agent-2.toml", "--json").out)
        }
        assert found["way to agent-1"] == "connected"
        assert found["ledger"] == "2 runs, 70 decisions"
        assert posse("party", "doctor", founder).code == 0
        kept = posse("party", "backup", "agent-2.toml", "--out", "kept")
        assert "the service of agent 'agent-2' in federation traders, with all its runs" in kept.out
        refused = posse("party", "restore", "kept", "agent-2.toml")
        assert refused.code == 2
        assert "a running service needs no backup. Stop it first." in refused.err
        shown = json.loads(posse("federation", "queue", "agent-2.toml", "--json").out)
        assert shown["parts"] == {run: {"state": "over", "text": ""} for run in ("one", "three")}
        assert shown["spent"]["decisions"] == 70
        left = posse("party", "leave", "agent-2.toml")
        assert left.code == 0, left.err
        assert running[1].wait(PATIENCE) == 0
        members = json.loads(posse("party", "status", founder, "--json").out)["members"]
        assert list(members) == ["agent-1"]
        assert posse("party", "stop", founder).code == 0
        assert running[0].wait(PATIENCE) == 0
    finally:
        for each in running:
            each.terminate()
            each.communicate()


OPERATIONS = (Path(__file__).parents[2] / "docs" / "operations.md").read_text(encoding="utf-8")
FOUNDED = re.findall(r"posse federation create [^`#\n]+", OPERATIONS)


def is_connected(posse: Call, file: str) -> bool:
    """Whether a service is connected to the founder; the founder's own is."""
    return bool(
        json.loads(posse("federation", "queue", file, "--json").out).get("home", "connected")
        == "connected"
    )


@pytest.mark.usefixtures("fresh")
def test_the_documented_commands_run_as_printed(
    posse: Call, process: Callable[..., subprocess.Popen[str]]
) -> None:
    """Those that found a federation and enrol a member, and those of its backup; the ports alone
    are free ones.
    """
    listen, enrol = (f"127.0.0.1:{free_port()}" for _ in range(2))
    text = OPERATIONS.replace("127.0.0.1:7400", listen).replace("127.0.0.1:7710", enrol)
    chapter = text.partition("## Standing federation\n")[2].partition("\n## ")[0]
    for name, content in zip(
        ("clinic-b", "march"), re.findall(r"```toml\n(.*?)```", chapter, re.DOTALL), strict=True
    ):
        Path(f"{name}.toml").write_text(content)
    (joining,) = re.findall(r"```sh\n(posse federation create .*?)```", text, re.DOTALL)
    (backup,) = re.findall(r"```sh\n(posse party backup .*?)```", text, re.DOTALL)
    lines = [shlex.split(line, comments=True)[1:] for line in (joining + backup).splitlines()]
    assert {tuple(line[:2]) for line in lines} == {
        ("federation", "create"),
        ("party", "serve"),
        ("federation", "ca"),
        ("party", "enrol"),
        ("federation", "submit"),
        ("federation", "queue"),
        ("party", "backup"),
        ("party", "restore"),
    }
    running: list[subprocess.Popen[str]] = []
    try:
        for words in lines:
            if words[1] == "serve":
                running.append(process(*words))
                file = words[2]
                until(lambda file=file: posse("federation", "queue", file).code == 0)  # type: ignore[misc]
                until(lambda file=file: is_connected(posse, file))  # type: ignore[misc]
                continue
            if words[1] == "create":
                words += ["--listen", listen, "--enrol", enrol]
            if words[1] == "restore":
                assert posse("party", "stop", "clinic-b.toml").code == 0
            outcome = posse(*words)
            if words[1] == "submit":  # clinic-b is the only member so far
                assert "the run needs controller 'controller', which is no member" in outcome.err
            else:
                assert outcome.code == 0, (words, outcome.err)
        members = json.loads(posse("party", "status", "hospitals/customer.toml", "--json").out)[
            "members"
        ]
        assert list(members) == ["clinic-b", "customer"]
        assert posse("party", "stop", "hospitals/customer.toml").code == 0
        assert [each.wait(PATIENCE) for each in running] == [0, 0]
    finally:
        for each in running:
            each.terminate()
            each.communicate()


@pytest.mark.parametrize("line", FOUNDED)
def test_a_documented_founding_makes_a_service_that_the_doctor_finds_in_order(
    posse: Call, line: str
) -> None:
    place = line.split()[3]
    made = posse(
        *line.split()[1:],
        "--listen",
        f"127.0.0.1:{free_port()}",
        "--enrol",
        f"127.0.0.1:{free_port()}",
    )
    assert made.code == 0, made.err
    (file,) = Path(place).glob("*.toml")
    found = json.loads(posse("party", "doctor", str(file), "--json").out)
    assert [one["said"] for one in found if not one["fine"]] == []
    assert f'founder = "{file.stem}"' in " ".join(made.out.split())
    token = posse(
        "federation",
        "ca",
        "token",
        "--ca",
        f"{place}/authority",
        "--role",
        "owner",
        "--name",
        "clinic-b",
    )
    assert "here runs: posse party serve, with the founder's file" in " ".join(token.err.split())


def test_the_documents_found_federations_with_and_without_a_part_in_runs() -> None:
    assert any("--role operator" in line for line in FOUNDED)
    assert len(FOUNDED) >= 3


def test_a_founder_without_a_part_in_runs_needs_a_name(posse: Call) -> None:
    assert "the role operator needs a name. Pass --called" in one_line(
        posse("federation", "create", "a", "--role", "operator")
    )
    assert "is the name of a role" in one_line(
        posse("federation", "create", "a", "--role", "operator", "--called", "customer")
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('identity = "x"', "there is no identity in"),
        ("", "identity"),
        ('identity = "x"\nbudgets = 3', "budgets"),
    ],
)
def test_mistakes_in_the_file_of_a_service(posse: Call, text: str, says: str) -> None:
    Path("member.toml").write_text(text)
    outcome = posse("party", "serve", "member.toml")
    assert outcome.code == 2
    assert says in outcome.err
    assert outcome.err.count("\n") <= 2


def test_a_service_that_does_not_run_is_said(posse: Call) -> None:
    Path("member.toml").write_text('identity = "x"')
    outcome = posse("federation", "queue", "member.toml")
    assert outcome.code == 2
    assert "Start it with: posse party serve member.toml" in outcome.err
