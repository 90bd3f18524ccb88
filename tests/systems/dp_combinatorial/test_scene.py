"""Pictures of a market, and reports beside what is true."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from posse.systems import registry
from posse.systems.dp_combinatorial.federation import MarketRun
from posse.systems.dp_combinatorial.messages import Report
from posse.systems.dp_combinatorial.scene import SCENE, true_report
from posse.systems.dp_combinatorial.settings import DpCombinatorial

SYSTEM = registry.system("dp-combinatorial")
SMALL: dict[str, Any] = {"agents": 3, "producers": 6, "horizon": 80, "start": 10}


def begun(**more: Any) -> MarketRun:
    run = SYSTEM.start(DpCombinatorial(**{**SMALL, **more}), transcript=10_000)
    assert isinstance(run, MarketRun)
    return run


@pytest.mark.parametrize("more", [{}, {"noise": "none"}, {"rule": "fuse"}, {"policy": "placebo"}])
def test_a_report_without_its_noise_is_what_was_bought(more: dict[str, Any]) -> None:
    run = begun(**more)
    bought = {name: np.zeros(6) for name in run.parties}
    first, changed = run.parties[0], 0
    while (delivery := run.deliver()) is not None:
        if not isinstance(delivery.message, Report):
            continue
        assert delivery.explanation is not None
        protections = {part["protection"] for part in delivery.explanation["parts"]}
        assert ("noise" in protections) == (more.get("noise") != "none")
        assert all(
            part["opens"] == []
            for part in delivery.explanation["parts"]
            if part["protection"] == "noise"
        )
        units, good = true_report(run, delivery.sender, delivery.message)
        assert (good <= units).all()
        changed += not np.array_equal(units, delivery.message.units)
        if delivery.receiver == (first if delivery.sender != first else run.parties[1]):
            bought[delivery.sender] += units
    assert bool(changed) == (more.get("noise") != "none")
    reported = run.truth()["reported"]
    for j, name in enumerate(run.parties):
        if more.get("policy") == "placebo":
            assert not bought[name].any()
        else:
            assert bought[name].tolist() == reported[j].tolist()


def test_money_alone_is_that_of_a_run_alone() -> None:
    run = begun()
    alone = SYSTEM.start(run.settings.instead(policy="alone"))
    for _ in range(2):
        run.advance(40)
        alone.advance(40)
    scene, other = SCENE.draw(run), SCENE.draw(alone)
    assert scene is not None
    assert other is not None
    assert scene["curves"]["alone"] == pytest.approx(other["curves"]["revenue"])
    assert "alone" not in other["curves"]
    assert scene["curves"]["revenue"] == pytest.approx(run.record().total[0])
    assert (
        scene["figures"][1]["value"]
        == scene["figures"][1]["of"]
        == len(run.settings.report_rounds())
    )


def test_producers_stand_with_units_and_quality() -> None:
    run = begun(data="uniform")
    run.advance(30)
    scene = SCENE.draw(run)
    assert scene is not None
    producers = [party for party in scene["parties"] if party["kind"] == "producer"]
    assert [party["weight"] for party in producers] == run.world.bought.sum(axis=0).tolist()
    quality = run.settings.load().market.quality[0].tolist()
    assert [party["bar"]["truth"] for party in producers] == pytest.approx(quality, abs=6e-5)
    assert [party["label"] for party in scene["parties"][:3]] == [
        "Corner Grocer",
        "Harbour Market",
        "Mill Kitchen",
    ]


@pytest.mark.parametrize("policy", ["alone", "fcb", "naive"])
@pytest.mark.parametrize(("rounds", "start"), [(1, 1), (150, 15), (200, 200)])
def test_variants_of_short_runs_report_within_the_run(policy: str, rounds: int, start: int) -> None:
    settings = DpCombinatorial(policy=policy, rounds=rounds, agents=2)
    variants = dict(SCENE.variants(settings))
    assert variants["noisy reports"].start == start
    for variant in variants.values():
        assert variant.load().terms.rounds == rounds
