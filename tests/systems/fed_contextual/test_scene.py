"""Pictures of rounds: the cohort, what a decision earns, clipping and epsilon."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from posse.systems import registry
from posse.systems.fed_contextual.run import FedRun
from posse.systems.fed_contextual.scene import SCENE
from posse.systems.fed_contextual.settings import FedContextual

SYSTEM = registry.system("fed-contextual")
SMALL: dict[str, Any] = {
    "data": "digits",
    "clients": 12,
    "horizon": 6,
    "cohort": 4,
    "deploy_every": 2,
}


def begun(**more: Any) -> FedRun:
    run = SYSTEM.start(FedContextual(**{**SMALL, **more}))
    assert isinstance(run, FedRun)
    return run


def test_a_round_stands_in_the_picture_as_it_was() -> None:
    run = begun()
    run.advance(3)
    scene, state, record = SCENE.draw(run), run.state("cohort"), run.record()
    assert scene is not None
    drawn = [party["name"] for party in scene["parties"] if party["name"].startswith("device-")]
    assert drawn == [f"device-{number + 1}" for number in sorted(state["last_devices"])]
    assert "model of round 2 deployed" in scene["parties"][0]["text"]
    decisions = float(record.summary["samples"])
    assert scene["curves"]["a decision"] == pytest.approx(record.total[0] / decisions)
    assert scene["curves"]["at random"] == pytest.approx(float(record.summary["chance_reward"]))
    assert (
        scene["curves"]["at least"] <= scene["curves"]["a decision"] <= scene["curves"]["at most"]
    )
    assert scene["last"]["says"].startswith("Round 3: {cohort} of 4 devices makes")
    code = SCENE.pseudocode(run.settings)
    ran = [code["server"][number - 1] for number in scene["last"]["lines"]["server"]]
    assert not [text for text in ran if "deploy the model" in text]


def test_epsilon_of_the_rounds_done() -> None:
    run = begun(noise=1.0, delta=1e-3, clip=0.1)
    names = [figure["name"] for figure in (SCENE.draw(run) or {})["figures"]]
    assert "epsilon" in names
    run.advance(4)
    spent = next(
        figure for figure in (SCENE.draw(run) or {})["figures"] if figure["name"] == "epsilon"
    )
    mechanism = run.setup.mechanism
    assert mechanism is not None
    assert spent["value"] == mechanism.epsilon(4, 1e-3, "rdp")
    assert "after 4 rounds" in spent["text"]


def test_variants_switch_noise_and_secure_sums() -> None:
    found = dict(
        SCENE.variants(FedContextual(**{**SMALL, "noise": 1.0, "delta": 1e-3, "clip": 0.1}))
    )
    assert (found["without noise"].noise, found["without noise"].levels) == (0.0, 0)
    assert found["with secure sums"].levels == 65536
    assert found["with secure sums"].noise == 1.0


def test_what_a_list_of_systems_needs_does_not_import_jax() -> None:
    script = (
        "import sys; from posse.systems import registry\n"
        "from posse.systems.modules import commands_of, live_of, report_of, scene_of\n"
        "for system in registry.systems():\n"
        "    assert scene_of(system).scenarios\n"
        "    live_of(system), commands_of(system), report_of(system)\n"
        "fed = registry.system('fed-contextual')\n"
        "assert scene_of(fed).pseudocode(fed.Settings())\n"
        "assert 'jax' not in sys.modules, 'jax'"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
