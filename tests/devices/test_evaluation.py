"""Rounds of evaluation: the estimate of all logs together, under masks and noise too, and deployment behind a gate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'posse-bandits[flower]'")
pytest.importorskip("sklearn", reason="scikit-learn is not installed: pip install 'posse-bandits[data]'")

from posse.policies.evaluation.offline import Log
from posse.policies.evaluation.offline import evaluate as whole
from posse.protocols.fed_contextual.flower import server_app
from posse.protocols.fed_contextual.flower.deployment import Versions
from posse.protocols.fed_contextual.flower.device import model_of, rates_of, task_of
from posse.protocols.fed_contextual.flower.evaluation import estimate_of
from posse.protocols.fed_contextual.flower.settings import EVALUATIONS, RESULT, DeviceSettings
from posse.protocols.fed_contextual.models import shape_of, tree_of

from .grids import FakeGrid

NODES = 14


def settings(folder: Path, **values: Any) -> DeviceSettings:
    usual = {"rounds": 2, "cohort": NODES, "deploy_every": 2, "seed": 5, "samples": 64, "evaluate": "snips"}
    return DeviceSettings.of({**usual, "out": str(folder / "out"), "evaluation_clip": 150.0, **values})


def play(made: DeviceSettings, folder: Path) -> tuple[FakeGrid, list[dict[str, Any]]]:
    """Run a fleet of devices with logs of their own."""
    grid, rng = FakeGrid(made, NODES, folder), np.random.default_rng(1)
    for at, node in enumerate(grid.nodes):
        path, arms = folder / f"log-{at}.npz", rng.integers(0, 10, 40)
        np.savez(
            path, contexts=rng.random((40, 64), np.float32), arms=arms, rewards=(arms == at % 10).astype(float),
            probabilities=np.full(40, 0.1),
        )  # fmt: skip
        grid.contexts[node.node_id].node_config["log"] = str(path)
    server_app.run(grid, made, "1")
    return grid, [json.loads(line) for line in (folder / "out" / EVALUATIONS).read_text().splitlines()]


@pytest.mark.parametrize("method", ["ips", "snips", "dr"])
@pytest.mark.parametrize("secure", [False, True])
def test_devices_estimate_what_all_logs_together_do(tmp_path: Path, method: str, secure: bool) -> None:
    made = settings(tmp_path, evaluate=method, secure=secure, gate=-10.0)
    grid, (found,) = play(made, tmp_path)
    logs = [np.load(context.node_config["log"]) for context in grid.contexts.values()]
    contexts, arms, rewards, probabilities = (
        np.concatenate([log[name] for log in logs]) for name in ("contexts", "arms", "rewards", "probabilities")
    )
    model, like = task_of(made).model, shape_of(model_of(made))
    scores = np.asarray(model.scores(tree_of(Versions(tmp_path / "out").read(2).leaves, like), contexts), np.float64)
    target = np.asarray(task_of(made).policy(scores, *rates_of(made).explore), np.float64)
    target /= target.sum(axis=1, keepdims=True)
    kept = Log(arms, rewards, probabilities, clients=np.repeat(np.arange(NODES), 40))
    expected = whole(kept, target, method, predictions=scores)
    assert found["devices"] == NODES
    assert (found["value"], found["low"]) == pytest.approx((expected.value, expected.low), abs=2e-3)
    assert found["passed"]
    assert {one["version"] for one in Versions(tmp_path / "out").held.values()} == {2}


def test_a_version_below_the_gate_is_kept_and_not_deployed(tmp_path: Path) -> None:
    _, (found,) = play(settings(tmp_path, gate=0.9), tmp_path)
    versions = Versions(tmp_path / "out")
    assert not found["passed"]
    assert versions.known() == [0, 2]
    assert versions.wanted is not None
    assert versions.wanted.version == 0
    assert {one["version"] for one in versions.held.values()} == {0}


@pytest.mark.parametrize("secure", [False, True])
def test_an_evaluation_under_noise_is_paid_for_like_a_round(tmp_path: Path, secure: bool) -> None:
    """Its interval is wider by the noise; a device that cannot estimate sends zeros."""
    made = settings(tmp_path, noise=1.0, devices=NODES, delta=1e-3, secure=secure, evaluation_clip=0.5)
    _, (found,) = play(made, tmp_path)
    result = json.loads((tmp_path / "out" / RESULT).read_text())
    assert result["paid_rounds"] == made.rounds + 1
    assert found["noise"] == pytest.approx(np.hypot(0.5, 0.25))


def test_noise_widens_the_interval() -> None:
    """Over draws of noise the interval holds the value more often than it says."""
    rng, sums, hits = np.random.default_rng(3), np.array([600.0, 1000, 1000, 400, 640, 1040]), 0
    for _ in range(400):
        found = estimate_of(sums + 20 * rng.standard_normal(6), 1000, "snips", 20.0)
        hits += found["low"] <= 0.6 <= found["high"]
    assert hits >= 380
