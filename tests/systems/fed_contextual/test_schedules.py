from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import posse
from posse.core.errors import ConfigError
from posse.policies.contextual.explorations import EpsilonGreedy, Falcon, Softmax
from posse.policies.contextual.schedules import explores_of
from posse.systems.fed_contextual.computing import rounds
from posse.systems.fed_contextual.computing.cohorts import Schedule
from posse.systems.fed_contextual.computing.rounds import Source
from posse.systems.fed_contextual.computing.server import begin
from posse.systems.fed_contextual.computing.training import Plan, Run, joined, train, train_many
from tests.systems.fed_contextual.toys import RATES, TASK, population, same

ROUNDS = Schedule(rounds=6, clients=12, cohort=4, deploy_every=2, samples=12)
VALUES = (0.8, 0.3, 0.05)
USUAL: dict[str, Any] = {
    "scale": "none",
    "rounds": 6,
    "cohort": 5,
    "deploy_every": 2,
    "batch": 4,
    "client_rate": 0.1,
    "server_rate": 0.05,
}


def scheduled(text: str) -> Plan:
    return Plan(TASK, RATES, ROUNDS, explores=explores_of(text, Softmax(), 3, 1.0, 1))


@pytest.mark.parametrize("where", ["device", "host"])
def test_a_schedule_is_runs_of_one_value_each_one_after_the_other(where: str) -> None:
    """The reference: two rounds with each value, every one begun from where the last stood; bit for
    bit.
    """
    source: Source = (
        rounds.resident(population(), 256)
        if where == "device"
        else rounds.host(population(), 12, 256)
    )
    state, parts = begin(TASK, 0), []
    for number, beta in enumerate(VALUES, 1):
        plan = Plan(TASK, RATES._replace(explore=(beta,)), ROUNDS._replace(rounds=2 * number))
        *_, (state, seen) = train(plan, state, source, 7, together=2)
        parts.append(seen)
    plan = scheduled("0.8,0.3,0.05")
    found = list(train(plan, begin(TASK, 0), source, 7, together=6))
    same((found[-1][0], joined([one for _, one in found])), (state, joined(parts)))
    if where == "device":
        (side, other), *_ = train_many(
            plan,
            [Run(0.1, 1.0, seed, begin(TASK, 0)) for seed in (7, 8)],
            source,
            side=2,
            together=6,
        )
        assert np.allclose(side[1].reward, found[-1][1].reward, atol=1e-4)
        assert not np.allclose(other[1].reward, side[1].reward)


def test_constant_and_one_value_are_a_run_without_a_schedule() -> None:
    assert posse.FedContextual(schedule=[0.8, 0.05]) == posse.FedContextual(schedule="0.8,0.05")
    assert posse.FedContextual(schedule=0.05) == posse.FedContextual(schedule="0.05")
    given = ({}, {"schedule": "0.05"}, {"schedule": "inverse-sqrt"})
    usual, listed, made = (
        posse.run(posse.FedContextual(**USUAL, **one), population=population()) for one in given
    )
    assert usual.config["schedule"] == "constant"
    assert (listed.total, listed.pulls.tolist()) == (usual.total, usual.pulls.tolist())
    assert not [one for one in usual.show["curves"] if one["name"].endswith("of the policy")]
    assert (made.total, made.pulls.tolist()) != (usual.total, usual.pulls.tolist())
    (curve,) = [one for one in made.show["curves"] if one["name"] == "beta of the policy"]
    assert curve["values"][0] == [round(0.05 / math.sqrt(i), 6) for i in (1, 1, 2, 2, 3, 3)]
    rounded = posse.FedContextual(**USUAL, schedule="inverse-sqrt", levels=1 << 20)
    assert (
        posse.run(rounded.plain(), population=population()).total == made.total
    )  # the twin has the schedule too


def test_formulas() -> None:
    falling = explores_of("inverse", EpsilonGreedy(0.4), 5, 1.0, 1)
    growing = explores_of("inverse-sqrt", Falcon(mu=3.0, gamma=10.0), 5, 1.0, 1)
    assert falling is not None
    assert growing is not None
    assert [falling(i)[0] for i in (1, 2, 4)] == [0.4, 0.2, 0.1]
    assert [growing(i) for i in (1, 4)] == [(3.0, 10.0), (3.0, 20.0)]
    own = explores_of("falcon", Falcon(gamma=1 / 30), 10, 5000.0, 650)
    assert own is not None
    assert own(1) == (10.0, 1.0)
    for i in (2, 7):
        t = 5000.0 * (i - 1)
        assert own(i) == (10.0, pytest.approx(math.sqrt(10 * t / (650 + math.log(t / 0.05))) / 30))
    assert all(one < other for one, other in pairwise([own(i)[1] for i in range(2, 9)]))


def test_falcons_own_takes_its_constant_from_gamma_and_arms_from_the_data() -> None:
    run = posse.start(
        posse.FedContextual(**USUAL, policy="falcon", schedule="falcon", gamma=2.0),
        population=population(),
    )
    plan = run.simulation.plan  # type: ignore[attr-defined]
    decisions = 5 * 2 * float(np.diff(population().offsets).mean())
    wanted = 2.0 * math.sqrt(3 * decisions / (18 + math.log(decisions / 0.05)))
    assert plan.at(1).explore == (3.0, 1.0)
    assert plan.at(2).explore == (3.0, pytest.approx(wanted))
    assert posse.FedContextual(policy="falcon", schedule="falcon").exploration() == Falcon(
        gamma=1 / 30
    )
    assert posse.FedContextual(policy="falcon").exploration() == Falcon()


def test_a_function_of_ones_own_and_what_is_seen_of_a_round(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "def half(i):\n    return 0.4 / 2 ** i\n\n\ndef wrong(i):\n    return 0.5 if i < 3 else "
        "-1\n"
    )
    settings = posse.FedContextual(**USUAL, policy="epsilon-greedy", schedule=f"{file}:half")
    run = posse.start(settings, population=population())
    run.finish()
    assert run.record().show["curves"][-1]["values"][0] == [0.2, 0.2, 0.1, 0.1, 0.05, 0.05]
    last = run.truth()  # worked through once more, with the last deployment's epsilon
    listed = posse.start(settings.but(schedule="0.2,0.1,0.05"), population=population())
    listed.finish()
    assert np.array_equal(last["arms"], listed.truth()["arms"])
    assert listed.record().total == run.record().total
    for count in (6, 4):  # the model after round 4 is deployed too, and an estimate acts with it
        settings = posse.FedContextual(**{**USUAL, "rounds": count}, schedule=f"{file}:wrong")
        with pytest.raises(
            ConfigError, match="deployment 3: beta must be a finite number above 0, got -1"
        ):
            posse.start(settings, population=population()).step()


def test_falcons_own_follows_from_the_data_and_no_figure_covers_that() -> None:
    noisy = posse.FedContextual(**USUAL, policy="falcon", noise=1.0, delta=1e-3)
    for schedule, said in (("falcon", True), ("10,20", False)):
        (entry, *_) = posse.run(noisy.but(schedule=schedule), population=population()).privacy
        assert ("FALCON's own schedule" in str(entry["not_covered"])) is said
    used = posse.live(
        noisy.but(schedule="falcon", clients=9), arms=("a", "b"), features=2, every=1
    )  # every is given
    for _ in range(3):
        used.reward(used.decide([0.3, 0.1]).id, 0.5)
    (entry, *_) = used.record().privacy
    assert "FALCON's own schedule" not in str(entry["not_covered"])


def test_a_bandit_in_use_follows_it() -> None:
    settings = posse.FedContextual(
        policy="epsilon-greedy", schedule="1,0", deploy_every=1, cohort=1, clients=2
    )
    bandit = posse.live(settings, arms=("a", "b", "c"), features=2, every=3)
    chances = []
    for _ in range(6):
        decision = bandit.decide([0.3, 0.1])
        chances.append(round(decision.probability, 6))
        bandit.reward(decision.id, 0.0)
    assert chances == [round(1 / 3, 6)] * 3 + [1.0] * 3


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"schedule": "inverse-squared"},
            "unknown schedule 'inverse-squared'. Did you mean 'inverse-sqrt'",
        ),
        ({"schedule": "0.1,much"}, "unknown schedule '0.1,much'"),
        ({"schedule": "0.1,nan"}, "finite numbers"),
        ({"schedule": []}, "unknown schedule ''"),
        ({"schedule": "0.1,0"}, "deployment 2: beta must be a finite number above 0, got 0"),
        ({"schedule": "2", "policy": "epsilon-greedy"}, "deployment 1: epsilon must be"),
        ({"schedule": "inverse", "policy": "greedy"}, "greedy has none"),
        ({"schedule": "falcon"}, "is that of policy falcon, got policy softmax"),
        ({"schedule": "nowhere_at_all:f"}, "nowhere_at_all"),
    ],
)
def test_bad_schedules(given: dict[str, Any], message: str) -> None:
    with pytest.raises(Exception, match=message):
        posse.FedContextual(**given)


def test_a_function_is_given_by_its_place() -> None:
    with pytest.raises(
        ConfigError,
        match=r"got a function\. Put it into a file and name it, such as schedule='mine",
    ):
        posse.FedContextual(schedule=lambda number: 0.4 / number)
    settings = posse.FedContextual()
    with pytest.raises(
        ConfigError, match=r"got schedule\. It is a setting: give FedContextual\(schedule=\.\.\.\)"
    ):
        posse.run(settings, schedule=lambda number: 0.4 / number)
    with pytest.raises(ConfigError, match=r"beside its settings, got frist\. Remove it"):
        posse.run(settings, frist=lambda name: True)
