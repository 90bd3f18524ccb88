"""A deployed model reaches every device, or is refused by it; a named version stays; who has
what.
"""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'posse-bandits[flower]'")
pytest.importorskip(
    "sklearn", reason="scikit-learn is not installed: pip install 'posse-bandits[data]'"
)

import jax
from flwr.app import Message, RecordDict

from posse.core.errors import ConfigError, DataError, PosseError, ProtocolError
from posse.systems.fed_contextual.computing.models import shape_of
from posse.systems.fed_contextual.flower import fleet, server_app, trial, wire
from posse.systems.fed_contextual.flower.client_app import model_file
from posse.systems.fed_contextual.flower.deployment import (
    Version,
    Versions,
    Wanted,
    check_fits,
    parsed,
    read_version,
    version_of,
    write_version,
)
from posse.systems.fed_contextual.flower.device import model_of
from posse.systems.fed_contextual.flower.settings import (
    EVALUATIONS,
    PROGRESS,
    WANTED,
    DeviceSettings,
    TrialSettings,
)

from .grids import FakeGrid
from .test_commands import posse

NODES = 5


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Time that passes only where the server sleeps."""

    class Clock:
        now = 0.0

        def monotonic(self) -> float:
            return self.now

        def sleep(self, seconds: float) -> None:
            self.now += seconds

    made = Clock()
    monkeypatch.setattr(fleet, "time", made)
    return made


def settings(folder: Path, **values: Any) -> DeviceSettings:
    usual = {
        "rounds": 3,
        "cohort": 2,
        "deploy_every": 2,
        "seed": 5,
        "samples": 32,
        "out": str(folder / "out"),
    }
    return DeviceSettings.of({**usual, "low": 0.0, "high": 1.0, **values})


def held(grid: FakeGrid) -> list[int | str]:
    """The version in each device's own file, or that it has none."""
    files = [model_file(grid.contexts[node.node_id]) for node in grid.nodes]
    return [read_version(path).version if path.exists() else "none" for path in files]


def test_every_device_has_the_last_model_and_one_that_refuses_says_why(
    tmp_path: Path, clock: Any
) -> None:
    """Two of five are drawn for a round; one is configured for another number of arms, and one
    connects later.
    """
    made = settings(tmp_path)
    grid = FakeGrid(made, NODES, tmp_path)
    late, whole = grid.nodes[4], grid.nodes
    grid.nodes = whole[:4]
    grid.contexts[whole[1].node_id].node_config["arms"] = 9
    foreign = replace(VERSION, version=3)  # of another run
    own = model_file(grid.contexts[whole[1].node_id])
    own.parent.mkdir(parents=True, exist_ok=True)
    write_version(own, foreign)
    server_app.run(grid, made, "1")
    grid.nodes = whole
    assert read_version(own).hash == foreign.hash
    assert held(grid) == [3, 3, 3, 3, "none"]
    versions = Versions(tmp_path / "out")
    assert versions.known() == [0, 2, 3]
    file = read_version(model_file(grid.contexts[whole[0].node_id]))
    assert file.hash == versions.read(3).hash == read_version(tmp_path / "out/model.npz").hash
    assert (file.policy, file.model, file.features, file.arms, file.bounds) == (
        "softmax",
        "linear",
        64,
        10,
        (0.0, 1.0),
    )
    assert file.run == (tmp_path / "out/record.txt").read_text()
    assert versions.held["node-0001"]["refused"] == 3
    assert (
        "is for arms 10, and this device is configured for 9" in versions.held["node-0001"]["why"]
    )
    figures = (tmp_path / "out/metrics.prom").read_text()
    for figure in (
        "posse_rounds_total",
        "posse_devices_present",
        "posse_devices_lost",
        "posse_updates_clipped",
        "posse_reward_mean",
        "posse_version_wanted",
    ):
        assert re.search(rf'^{figure}{{run="{file.run}"}} [\d.]+$', figures, re.M), figure
    assert f'posse_devices_with_version{{run="{file.run}",version="3"}} 3' in figures
    lines = [json.loads(line) for line in (tmp_path / "out/metrics.jsonl").read_text().splitlines()]
    assert [line["posse_rounds_total"] for line in lines] == [1, 2, 3, 3]
    assert lines[-1]["posse_devices_with_version"] == {"-1": 1, "3": 3}
    asked, deployed = len(grid.sent), len(grid.deployments)
    server_app.run(grid, made, "2")
    assert held(grid)[4] == 3, "a run that is over deploys, to who has not got it"
    assert (len(grid.sent), grid.deployments[deployed:]) == (asked, [4])
    code, out, _ = posse("status", str(tmp_path / "out"), "--json")
    told = json.loads(out)
    assert (code, told["wanted"]["version"], len(told["devices"])) == (0, 3, 5)
    shown = " ".join(posse("status", str(tmp_path / "out"))[1].split())
    assert "refuses it" in shown
    assert "this device is configured for 9" in shown
    assert late.name in told["devices"]
    versions.ask_again()
    assert versions.missing([one.name for one in whole]) == {"node-0001": 3}, (
        "a number is no version"
    )


@pytest.mark.parametrize("log", [b"", b"PK\x03\x04 and no more"], ids=["empty", "truncated"])
def test_a_model_is_taken_where_the_log_is_not_whole(tmp_path: Path, log: bytes) -> None:
    (tmp_path / "log.npz").write_bytes(log)
    made = settings(tmp_path)
    grid = FakeGrid(made, 1, tmp_path, log=str(tmp_path / "log.npz"))
    model = [np.zeros(leaf.shape, np.float32) for leaf in jax.tree.leaves(shape_of(model_of(made)))]
    order = wire.version_order(version_of(made, "run", 3, model))
    grid.push_messages(
        [Message(order, dst_node_id=grid.nodes[0].node_id, message_type=fleet.DEPLOY)]
    )
    assert held(grid) == [3]


def test_a_named_version_holds_back_newer_ones_until_another_is_deployed(
    tmp_path: Path, clock: Any
) -> None:
    made = settings(tmp_path, rounds=4)
    grid, out = FakeGrid(made, 3, tmp_path), str(tmp_path / "out")
    versions = Versions(tmp_path / "out")
    server_app.run(grid, made, "1")
    assert held(grid) == [4] * 3
    assert posse("deploy", out, "--version", "2")[0] == 0
    server_app.run(grid, made.but(rounds=6), "2")
    assert (held(grid), versions.known()) == ([2] * 3, [0, 2, 4, 6])
    code, _, err = posse("deploy", out, "--version", "3")
    assert code == 2
    assert "there is no version 3. Name one of 0, 2, 4, 6" in err
    server_app.run(grid, made.but(rounds=7), "3")
    assert held(grid) == [2] * 3, "a refused command releases nothing, nor does another run"
    assert posse("deploy", out, "--version", "6")[0] == 0
    server_app.run(grid, made.but(rounds=8), "4")
    assert (held(grid), versions.known()) == ([6] * 3, [0, 2, 4, 6, 7, 8])
    assert posse("deploy", out)[0] == 0
    server_app.run(grid, made.but(rounds=10), "5")
    assert held(grid) == [10] * 3, "the newest, and those after it"


@pytest.mark.parametrize("canary", [0.0, 0.25])
def test_a_folder_of_0_1_goes_on_unless_a_version_is_tried_on_a_share_of_devices(
    tmp_path: Path, clock: Any, canary: float
) -> None:
    made = settings(tmp_path, rounds=2)
    grid, out = FakeGrid(made, 3, tmp_path), tmp_path / "out"
    server_app.run(grid, made, "1")
    before = {"version": 2, "canary": canary, "before": 0 if canary else -1, "pinned": False}
    (out / WANTED).write_text(json.dumps(before))
    if canary:
        with pytest.raises(DataError, match=r"version 2 to 25% of the devices.*deploy --version"):
            server_app.run(grid, made.but(rounds=4), "2")
        assert posse("status", str(out))[0] == 2
        assert len((out / PROGRESS).read_text().splitlines()) == 2, "no round is played"
        assert posse("deploy", str(out))[0] == 0
    server_app.run(grid, made.but(rounds=4), "3")
    assert held(grid) == [4] * 3


def test_the_share_of_devices_of_0_1_is_refused_and_an_app_of_0_1_without_one_is_read() -> None:
    assert DeviceSettings.of({"canary": 0.0, "rounds": 7}).rounds == 7
    with pytest.raises(ConfigError, match=r"got 0\.5.*deploy --version N"):
        DeviceSettings.of({"canary": 0.5})
    for command in (("deploy", "folder", "--canary", "0.5"), ("up", "--canary", "0.5")):
        code, _, err = posse(*command)
        assert code == 2
        assert "posse devices deploy --version N" in err
    code, _, err = posse("rollback", "folder", "--version", "2")
    assert code == 2
    assert "posse devices deploy --version N" in err


def test_what_is_wanted_after_a_version_is_said(tmp_path: Path) -> None:
    """A version that failed its gate is not deployed without its number; a pinned one stays, and
    that is said.
    """
    versions = Versions(tmp_path)
    said = [
        versions.add(replace(VERSION, version=number), want=want).said(number)
        for number, want in ((0, True), (2, True), (4, False))
    ]
    assert said == [
        "it is deployed",
        "it is deployed",
        "it is not deployed: version 2 stays",
    ]
    lines = [
        {"version": 2, "passed": False},
        {"version": 2, "passed": True},
        {"version": 4, "passed": False},
    ]
    (tmp_path / EVALUATIONS).write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert posse("deploy", str(tmp_path))[0] == 0
    assert versions.wanted == Wanted(2)
    assert posse("deploy", str(tmp_path), "--version", "4")[0] == 0
    assert versions.wanted == Wanted(4, pinned=True)
    pinned = versions.add(replace(VERSION, version=6)).said(6)
    assert pinned == "it is not deployed: version 4 stays until another one is deployed"


class Stopped(Exception):
    """The server stops here."""


def test_a_run_that_begins_again_deploys_the_first_model_it_has(tmp_path: Path, clock: Any) -> None:
    """A secure run without a seed draws another one; devices that hold the one before get it."""

    def meddle(node: int, sent: Message, reply: Message | None) -> Message | None:
        raise Stopped

    made = settings(tmp_path, rounds=1, cohort=3, seed=-1, secure=True)
    grid, versions = FakeGrid(made, 3, tmp_path, meddle), Versions(tmp_path / "out")
    with pytest.raises(Stopped):
        server_app.run(grid, made, "1")
    grid.meddle, before = None, versions.read(0).hash
    versions.note("node-0000", version=0, sha256=before)
    server_app.run(grid, made, "1")
    order = next(one.content for one in grid.sent if wire.PARAMS in one.content)
    first = versions.read(0)
    for kept, sent in zip(first.leaves, wire.unpacked(order[wire.PARAMS]), strict=True):
        np.testing.assert_array_equal(kept, sent)
    versions.note("device", version=0, sha256=before)
    versions.note("other", version=0, sha256=first.hash)
    versions.want(Wanted(0))
    versions.add(first)
    assert versions.missing(["device", "other"]) == {"device": 0}


VERSION = Version(
    "run",
    3,
    "softmax",
    0.05,
    "linear",
    2,
    3,
    (0.0, 1.0),
    [np.zeros(3, np.float32), np.ones((2, 3), np.float32)],
)
SHAPES = [(3,), (2, 3)]


@pytest.mark.parametrize(
    ("change", "node", "width", "words"),
    [
        ({"leaves": [np.zeros(4, np.float32), VERSION.leaves[1]]}, {}, None, "has not the arrays"),
        ({"leaves": [np.full(3, np.nan, np.float32), VERSION.leaves[1]]}, {}, None, "not finite"),
        ({"leaves": [np.zeros(3), VERSION.leaves[1]]}, {}, None, "not of 32 bits"),
        ({}, {"features": 3}, None, "is for features 2, and this device is configured for 3"),
        ({}, {"policy": "falcon"}, None, "is for policy 'softmax'"),
        ({}, {}, 7, "is for 2 features, and the log has 7"),
        ({}, {"low": -1.0}, None, "contexts from 0 to 1, and this device's go from -1 to 1"),
        ({}, {"high": 255}, None, "go from 0 to 255"),
    ],
)
def test_what_does_not_fit_is_refused(
    change: Any, node: dict[str, Any], width: int | None, words: str
) -> None:
    check_fits(
        VERSION, SHAPES, {"features": 2, "arms": 3, "policy": "softmax", "low": 0.0, "high": 1.0}, 2
    )
    with pytest.raises(ProtocolError, match=words):
        check_fits(replace(VERSION, **change), SHAPES, node, width)


def test_what_was_altered_is_refused(tmp_path: Path) -> None:
    write_version(tmp_path / "model.npz", VERSION)
    read = read_version(tmp_path / "model.npz")
    assert read.about() == VERSION.about()
    for leaves, about in (
        ([VERSION.leaves[0], VERSION.leaves[1] * 2], VERSION.about()),
        (VERSION.leaves, VERSION.about().replace("softmax", "falcon")),
        (VERSION.leaves, VERSION.about().replace('"version": 3', '"version": 4')),
        (VERSION.leaves, VERSION.about().replace('"version": 3', '"version": Infinity')),
        (VERSION.leaves, "{}"),
    ):
        with pytest.raises(
            ProtocolError, match=r"is not what its hash says|does not say what it is"
        ):
            parsed(about, leaves)
    (tmp_path / "empty.npz").write_bytes(b"")
    with pytest.raises(DataError, match="cannot be read as a deployed model"):
        read_version(tmp_path / "empty.npz")


def test_a_killed_device_costs_a_grace_period_and_is_named(tmp_path: Path, clock: Any) -> None:
    """Time passes only where the server waits: the timeout of an hour is never waited for."""
    made = settings(tmp_path, rounds=2, cohort=4, least=3, timeout=3600.0, grace=5.0)

    def meddle(node: int, sent: Message, reply: Message | None) -> Message | None:
        return None if node == 1 else reply

    grid = FakeGrid(made, 4, tmp_path, meddle)
    server_app.run(grid, made, "1")
    lines = [json.loads(line) for line in (tmp_path / "out" / PROGRESS).read_text().splitlines()]
    assert [(len(line["clients"]), line["lost"]) for line in lines] == [(3, ["node-0001"]), (3, [])]
    assert (
        f'posse_devices_lost_total{{run="{(tmp_path / "out/record.txt").read_text()}"}} 1'
        in (tmp_path / "out/metrics.prom").read_text()
    )
    assert 5.0 <= clock.now < 30.0


def test_answers_that_have_come_are_taken_although_the_time_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that was busy until then has not looked for them yet."""
    now = itertools.count(step=100)
    slow = SimpleNamespace(monotonic=lambda: float(next(now)), sleep=lambda seconds: None)
    monkeypatch.setattr(fleet, "time", slow)
    reply = SimpleNamespace(
        metadata=SimpleNamespace(reply_to_message_id="message-1"),
        has_error=lambda: False,
        content=RecordDict(),
    )
    grid = SimpleNamespace(
        push_messages=lambda messages: ["message-1"], pull_messages=lambda ids: [reply]
    )
    asked, node = fleet.Fleet(grid, settings(tmp_path, timeout=1.0), print), fleet.Node(1, "a")
    monkeypatch.setattr(asked, "_push", lambda sent, *about: {"message-1": node})
    assert asked.ask({node: RecordDict()}, 0) == {node: reply.content}
    assert asked.lost == set()


def test_a_device_that_is_gone_is_not_waited_for_in_every_round(tmp_path: Path, clock: Any) -> None:
    """Three of four are connected after the first round, and three are enough; when it is back all
    take part again.
    """
    made = settings(tmp_path, rounds=6, cohort=4, least=3, timeout=3600.0, grace=5.0)
    grid = FakeGrid(made, 4, tmp_path)
    all_, asked = grid.nodes, []

    def meddle(node: int, sent: Message, reply: Message | None) -> Message | None:
        asked.append(node)
        grid.nodes = (
            all_[:3] if len(asked) < 4 + 3 * 3 else all_
        )  # gone in the first round, back in the fourth
        return reply

    grid.meddle = meddle
    server_app.run(grid, made, "1")
    lines = [json.loads(line) for line in (tmp_path / "out" / PROGRESS).read_text().splitlines()]
    assert [len(line["clients"]) for line in lines] == [4, 3, 3, 3, 4, 4]
    assert 5.0 <= clock.now < 10.0, "it was waited for once"


def test_devices_that_do_not_answer_a_deployment_end_no_run(tmp_path: Path, clock: Any) -> None:
    made = settings(tmp_path, rounds=1, timeout=3600.0, grace=5.0)
    grid = FakeGrid(made, 3, tmp_path)
    grid.reach = False
    server_app.run(grid, made, "1")
    assert held(grid) == ["none"] * 3
    assert clock.now < 60.0
    with pytest.raises(ConfigError, match="holds no run on devices"):
        next(iter(_status(tmp_path / "nowhere")))


@pytest.mark.parametrize(("slow", "has"), [(3.0, 1), (40.0, "none")])
def test_the_last_model_has_the_grace_of_a_round_and_the_result_says_who_has_it_not(
    tmp_path: Path, clock: Any, slow: float, has: int | str
) -> None:
    """The first answer takes a while, since a device starts a process; the others have no less than
    it took.
    """
    made = settings(tmp_path, rounds=1, timeout=600.0, grace=0.5)
    grid = FakeGrid(made, 3, tmp_path)
    answers, push, pull, ready = (
        {},
        grid.push_messages,
        grid.pull_messages,
        [slow, 1.5 * slow, 1.9 * slow],
    )

    def pushed(messages: Any) -> list[str]:
        sent = list(messages)
        deployed = bool(sent) and sent[0].metadata.message_type == fleet.DEPLOY
        grid.reach = has == 1
        ids = push(sent)
        answers.update(
            {one: clock.now + ready[at] for at, one in enumerate(ids)} if deployed else {}
        )
        return ids

    grid.push_messages = pushed  # type: ignore[method-assign]
    grid.pull_messages = lambda ids: pull(one for one in ids if answers.get(one, 0) <= clock.now)  # type: ignore
    server_app.run(grid, made, "1")
    assert held(grid) == [has] * 3
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert result["waiting"] == (
        {} if has == 1 else dict.fromkeys(["node-0000", "node-0001", "node-0002"], 1)
    )


def test_the_end_of_a_trial_names_who_has_not_the_last_model(tmp_path: Path) -> None:
    made = trial.Trial(tmp_path, TrialSettings(folder=tmp_path).of_the_fleet(), 3)
    versions = Versions(made.out)
    versions.out.mkdir()
    versions.want(Wanted(3))
    versions.note("node-0003", version=0, refused=3, why="too wide")
    result = {
        "rounds": 3,
        "average_reward": 0.5,
        "reproducible": False,
        "model": "model.npz",
        "record": "abcd",
    }
    (made.out / "result.json").write_text(json.dumps({**result, "waiting": {"node-0002": 3}}))
    lines = [line for line in trial._result(made) if isinstance(line, str)]
    assert (
        "without the model that they shall have: node-0002 (version 3). The same command sends it"
        in lines[0]
    )
    assert "the model is refused by node-0003: 'posse devices status" in lines[1]


def test_the_reason_of_a_server_that_gives_up_while_it_is_asked_for_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = trial.Trial(tmp_path, TrialSettings(folder=tmp_path).of_the_fleet(), 3)
    made.out.mkdir()
    monkeypatch.setattr(
        made, "crew", SimpleNamespace(processes=[SimpleNamespace(alive=True, log="log")])
    )

    def status() -> str:
        (made.out / "failed.txt").write_text("[P500] a round needs 3 nodes")
        return "finished:failed"

    monkeypatch.setattr(made, "_status", status)
    with pytest.raises(PosseError, match=r"the server gave up: .* a round needs 3 nodes"):
        made._check(trial.DOUBT + 1)


def _status(folder: Path) -> Any:
    from posse.systems.fed_contextual.flower.deployment import status
    from posse.systems.fed_contextual.flower.settings import StatusSettings

    return status(StatusSettings(folder=folder))
