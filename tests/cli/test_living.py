"""A federation from its founding to a member that leaves, by the commands that a user types."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Call
from tests.network.federations import free_port

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
def test_found_enrol_serve_submit_leave(posse: Call, process: Callable[..., subprocess.Popen[str]]) -> None:
    listen, enrol = (f"127.0.0.1:{free_port()}" for _ in range(2))
    made = posse(
        "found", "traders", "--role", "agent", "--called", "agent-1", "--listen", listen, "--enrol", enrol
    )  # fmt: skip
    assert made.code == 0, made.err
    founder = "traders/agent-1.toml"
    running = [process("serve", founder)]
    try:
        until(lambda: posse("queue", founder).code == 0)
        own = ["--ca", "traders/authority", "--role", "agent", "--name", "agent-2", "--address", enrol]
        assert posse("ca", "token", *own, "--out", "token").code == 0
        assert posse("enrol", "--token-file", "token").code == 0
        lines = ['identity = "agent-2"', 'founder = "agent-1"', f'home = "{listen}"', "[consent]", "budget = 40"]
        Path("agent-2.toml").write_text("\n".join(lines))
        running.append(process("serve", "agent-2.toml"))
        for name, horizon in (("one", 40), ("two", 41)):
            Path(f"{name}.toml").write_text(RUN.format(run=name, horizon=horizon))

        done = posse("submit", "one.toml", "--at", founder)
        assert done.code == 0, done.err
        assert "run one: the part of agent-1 is over: it earned" in done.out
        again = json.loads(posse("submit", "one.toml", "--at", founder, "--json").out)
        assert again["party"] == "agent-1"
        refused = posse("submit", "two.toml", "--at", founder)
        assert refused.code == 2
        assert "agent-2 refused: decisions would be 41; budget is 40." in refused.err

        assert posse("renew", "agent-2.toml").code == 0
        shown = json.loads(posse("queue", "agent-2.toml", "--json").out)
        assert shown["parts"] == {"one": {"state": "over", "text": ""}}
        assert shown["spent"]["decisions"] == 40
        left = posse("leave", "agent-2.toml")
        assert left.code == 0, left.err
        assert running[1].wait(PATIENCE) == 0
        members = json.loads(posse("status", founder, "--json").out)["members"]
        assert list(members) == ["agent-1"]
        assert posse("stop", founder).code == 0
        assert running[0].wait(PATIENCE) == 0
    finally:
        for each in running:
            each.terminate()
            each.communicate()


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
    outcome = posse("serve", "member.toml")
    assert outcome.code == 2
    assert says in outcome.err
    assert outcome.err.count("\n") <= 2


def test_a_service_that_does_not_run_is_said(posse: Call) -> None:
    Path("member.toml").write_text('identity = "x"')
    outcome = posse("queue", "member.toml")
    assert outcome.code == 2
    assert "Start it with: posse serve member.toml" in outcome.err
