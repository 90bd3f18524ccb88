"""Rounds of evaluation: the estimate of all logs together, under masks and noise too, and
deployment behind a gate.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'posse-bandits[flower]'")
pytest.importorskip(
    "sklearn", reason="scikit-learn is not installed: pip install 'posse-bandits[data]'"
)

from flwr.app import Message

from posse.policies.evaluation.offline import Log
from posse.policies.evaluation.offline import evaluate as whole
from posse.privacy.aggregation.messages import Unmask
from posse.systems.fed_contextual.computing.models import leaves_of, shape_of, tree_of
from posse.systems.fed_contextual.flower import deployment, evaluation, server_app
from posse.systems.fed_contextual.flower.deployment import Version, Versions, write_version
from posse.systems.fed_contextual.flower.device import model_of, rates_of, task_of
from posse.systems.fed_contextual.flower.evaluation import estimate_of, moved_by, words_of
from posse.systems.fed_contextual.flower.settings import (
    EVALUATIONS,
    MEASURE,
    RESULT,
    DeviceSettings,
)
from posse.systems.fed_contextual.flower.wire import STAGE, decode
from posse.systems.fed_contextual.levels import learns

from .grids import FakeGrid, leaves

NODES = 14


def settings(folder: Path, **values: Any) -> DeviceSettings:
    usual = {
        "rounds": 2,
        "cohort": NODES,
        "deploy_every": 2,
        "seed": 5,
        "samples": 64,
        "evaluate": "snips",
    }
    return DeviceSettings.of(
        {**usual, "out": str(folder / "out"), "evaluation_clip": 150.0, **values}
    )


def logging(made: DeviceSettings, folder: Path, meddle: Any = None) -> FakeGrid:
    """A fleet of devices with logs of their own."""
    grid, rng = FakeGrid(made, NODES, folder, meddle), np.random.default_rng(1)
    for at, node in enumerate(grid.nodes):
        path, arms = folder / f"log-{at}.npz", rng.integers(0, 10, 40)
        np.savez(
            path,
            contexts=rng.random((40, 64), np.float32),
            arms=arms,
            rewards=(arms == at % 10).astype(float),
            probabilities=np.full(40, 0.1),
        )
        grid.contexts[node.node_id].node_config["log"] = str(path)
    return grid


def play(
    made: DeviceSettings, folder: Path, run: Path | None = None
) -> tuple[FakeGrid, list[dict[str, Any]]]:
    grid = logging(made, folder)
    server_app.run(grid, made, "1")
    return grid, [
        json.loads(line)
        for line in ((run or folder) / "out" / EVALUATIONS).read_text().splitlines()
    ]


@pytest.mark.parametrize("method", ["ips", "snips", "dr"])
@pytest.mark.parametrize("secure", [False, True])
def test_devices_estimate_what_all_logs_together_do(
    tmp_path: Path, method: str, secure: bool
) -> None:
    made = settings(tmp_path, evaluate=method, secure=secure, gate=-10.0)
    grid, (found,) = play(made, tmp_path)
    logs = [np.load(context.node_config["log"]) for context in grid.contexts.values()]
    contexts, arms, rewards, probabilities = (
        np.concatenate([log[name] for log in logs])
        for name in ("contexts", "arms", "rewards", "probabilities")
    )
    model, like = task_of(made).model, shape_of(model_of(made))
    scores = np.asarray(
        model.scores(tree_of(Versions(tmp_path / "out").read(2).leaves, like), contexts), np.float64
    )
    target = np.asarray(task_of(made).policy(scores, *rates_of(made).explore), np.float64)
    target /= target.sum(axis=1, keepdims=True)
    kept = Log(arms, rewards, probabilities, clients=np.repeat(np.arange(NODES), 40))
    expected = whole(kept, target, method, predictions=scores)
    assert found["devices"] == NODES
    assert (found["value"], found["low"]) == pytest.approx((expected.value, expected.low), abs=2e-3)
    assert found["passed"]
    assert {one["version"] for one in Versions(tmp_path / "out").held.values()} == {2}


def test_a_version_below_the_gate_is_kept_and_not_deployed(tmp_path: Path) -> None:
    made = settings(tmp_path, gate=0.9)
    state = server_app.run(logging(made, tmp_path), made, "1")
    (found,) = map(json.loads, (tmp_path / "out" / EVALUATIONS).read_text().splitlines())
    versions = Versions(tmp_path / "out")
    assert not found["passed"]
    acts, first = leaves_of(state.deployed), versions.read(0).leaves
    assert all(map(np.array_equal, acts, first))  # what devices act with in rounds of training
    assert not all(map(np.array_equal, leaves_of(state.params), first))
    assert versions.known() == [0, 2]
    assert versions.wanted is not None
    assert versions.wanted.version == 0
    assert {one["version"] for one in versions.held.values()} == {0}


@pytest.mark.parametrize("secure", [False, True])
def test_an_evaluation_under_noise_is_paid_for_like_a_round(tmp_path: Path, secure: bool) -> None:
    """Its interval is wider by the noise; a device that cannot estimate sends zeros."""
    made = settings(
        tmp_path, rounds=3, noise=1.0, devices=NODES, delta=1e-3, secure=secure, evaluation_clip=0.5
    )
    _, (found, last) = play(made, tmp_path)
    result = json.loads((tmp_path / "out" / RESULT).read_text())
    assert last["version"] == made.rounds, "it is evaluated when all rounds are over"
    assert result["paid_rounds"] == made.rounds + 2
    assert found["noise"] == pytest.approx(np.hypot(0.5, 0.25) + secure * np.sqrt(6) / 8192)
    figures = (tmp_path / "out/metrics.prom").read_text().split("posse_epsilon_spent{")[1].split()
    assert float(figures[1]) == pytest.approx(result["privacy"][0]["epsilon"])
    assert any(
        "low-order bits of the sums of an evaluation" in one
        for one in result["privacy"][0]["not_covered"]
    )


@pytest.mark.parametrize("clip", [0.001, 0.01, 0.1, 1.0, 30.0])
def test_one_device_moves_rounded_sums_by_no_more_than_noise_is_made_for(
    tmp_path: Path, clip: float
) -> None:
    made = settings(tmp_path, secure=True, evaluation_clip=clip)
    v = np.abs(np.random.default_rng(1).standard_normal((50_000, 3)))
    a, b, rows = (v * (clip * (1 - 1e-3) / np.linalg.norm(v, axis=1, keepdims=True))).T
    words = words_of(np.stack([a, b, rows, a * a, a * b, b * b]))
    worst = np.linalg.norm(words.astype(np.int32) / MEASURE, axis=0).max()
    assert worst <= moved_by(made)
    if clip == 0.01:
        assert worst > moved_by(made.but(secure=False)), (
            "rounding moves them further than the clip alone"
        )


def test_a_run_that_was_stopped_in_an_evaluation_goes_on_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The round before it is not done again: devices would not unmask a second sum of its model."""
    made, found = settings(tmp_path, gate=-10.0), []

    def stopped(*told: Any) -> Any:
        found.append(told[2])
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(server_app, "evaluate", stopped)
        with pytest.raises(KeyboardInterrupt):
            play(made, tmp_path)
    again = tmp_path / "again"
    again.mkdir()
    grid, (line,) = play(made, again, tmp_path)
    assert found == [line["version"]] == [2]
    assert {one.metadata.message_type for one in grid.sent} == {"evaluate"}
    wanted = Versions(tmp_path / "out").wanted
    assert wanted is not None
    assert wanted.version == 2


def test_a_secure_run_that_was_stopped_anywhere_behind_its_masks_is_as_if_it_had_not_been(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While two devices have unmasked, in a round and in the evaluation; before its version is
    kept, and after.
    """
    stopped: list[Any] = []

    def made_in(folder: Path) -> DeviceSettings:
        folder.mkdir()
        return settings(folder, secure=True, gate=-10.0, rounds=1, deploy_every=1)

    def stop_once(why: Any) -> None:
        if why not in stopped:
            stopped.append(why)
            raise KeyboardInterrupt

    def meddle(node: int, sent: Message, reply: Message | None) -> Message | None:
        message = (
            decode(sent.content[STAGE]["message"]) if "message" in sent.content[STAGE] else None
        )
        if isinstance(message, Unmask):
            asked.setdefault(message.terms, set()).add(node)
            if len(asked[message.terms]) == 2:
                stop_once(message.terms)
        return reply

    def deploy(state: Any) -> Any:
        stop_once("before it is deployed")
        return state._replace(deployed=state.params)

    def write(path: Path, version: Version) -> None:
        if version.version:
            stop_once("before its file is written")
        write_version(path, version)

    whole, parts = made_in(tmp_path / "whole"), made_in(tmp_path / "parts")
    server_app.run(logging(whole, tmp_path / "whole"), whole, "1")
    monkeypatch.setattr(server_app, "deploy", deploy)
    monkeypatch.setattr(deployment, "write_version", write)
    asked: dict[bytes, set[int]] = {}
    grid = logging(parts, tmp_path / "parts", meddle)
    for run in range(1, 6):
        for context in grid.contexts.values():
            context.run_id = run
        with suppress(KeyboardInterrupt):
            server_app.run(grid, parts, str(run))
            break
    assert (run, len(stopped), len(asked)) == (5, 4, 2), (
        "a round and an evaluation, each unmasked under one terms"
    )
    for one, other in zip(
        leaves(tmp_path / "whole/out"), leaves(tmp_path / "parts/out"), strict=True
    ):
        np.testing.assert_array_equal(one, other)
    lines = [(tmp_path / one / "out" / EVALUATIONS).read_text() for one in ("whole", "parts")]
    assert lines[0] == lines[1]
    assert {one["version"] for one in Versions(tmp_path / "parts/out").held.values()} == {1}


def state_of(number: float) -> Any:
    model = {"w": np.full((64, 10), number, np.float32)}
    return SimpleNamespace(params=model, deployed=model)


def test_an_estimate_is_taken_up_for_the_same_candidate_and_settings_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another model of the same number, another estimator and other limits are estimated anew;
    another gate is not.
    """
    made, calls = settings(tmp_path), []

    def estimated(*_: Any) -> dict[str, Any]:
        calls.append(0.1 * len(calls))
        return {"value": calls[-1], "low": calls[-1], "high": 1.0, "devices": NODES, "noise": 0.0}

    def asked(with_: DeviceSettings, number: float = 0.0, version: int = 2) -> tuple[int, bool]:
        before = len(calls)
        fleet: Any = SimpleNamespace(settings=with_)
        passed, _ = evaluation.evaluate(fleet, state_of(number), version, "1", None, tmp_path)
        return len(calls) - before, passed

    monkeypatch.setattr(evaluation, "_estimated", estimated)
    assert asked(made) == (1, True)
    assert asked(made) == asked(made.but(timeout=9.0)) == (0, True)
    assert asked(made.but(gate=0.5)) == (0, False), "the gate is held against the old estimate"
    assert [asked(made, 1.0)[0], asked(made, 1.0, 3)[0]] == [1, 1]
    others: list[dict[str, Any]] = [
        {"evaluate": "ips"},
        {"most_weight": 5.0},
        {"evaluation_clip": 2.0},
        {"policy": "greedy"},
        {"explore": 0.2},
    ]
    assert [asked(made.but(**other))[0] for other in others] == [1] * len(others)
    assert asked(made) == (0, True), "the first estimate is still known"
    assert evaluation.lines_of(tmp_path, EVALUATIONS)[-1]["value"] == 0.0


def test_lines_of_evaluations_are_json_and_levels_say_what_leaves_a_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    endless = {"value": 0.5, "low": -np.inf, "high": np.inf, "devices": 1, "noise": 0.0}
    monkeypatch.setattr(evaluation, "_estimated", lambda *told: endless)
    passed, _ = evaluation.evaluate(
        SimpleNamespace(settings=settings(tmp_path)), state_of(0.0), 2, "1", None, tmp_path
    )  # type: ignore[arg-type]
    line = json.loads((tmp_path / EVALUATIONS).read_text(), parse_constant=pytest.fail)
    assert (passed, line["passed"], line["low"], line["high"]) == (False, False, None, None)
    said = [learns({"masked": False, "evaluate": method})[0] for method in ("", "snips")]
    assert ["six clipped sums" in one for one in said] == [False, True]


def test_noise_widens_the_interval() -> None:
    """Over draws of noise the interval holds the value more often than it says."""
    rng, sums, hits = np.random.default_rng(3), np.array([600.0, 1000, 1000, 400, 640, 1040]), 0
    for _ in range(400):
        found = estimate_of(sums + 20 * rng.standard_normal(6), 1000, "snips", 20.0)
        hits += found["low"] <= 0.6 <= found["high"]
    assert hits >= 380
