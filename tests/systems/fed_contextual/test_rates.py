"""Default rates follow from how large contexts are, and a run that learns nothing says so."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import posse
from posse.policies.contextual.explorations import EpsilonGreedy
from posse.problems.populations.population import Population
from posse.problems.populations.prepared import save
from posse.systems.fed_contextual.flower.settings import DeviceSettings, TrialSettings
from posse.systems.fed_contextual.levels import not_covered
from posse.systems.fed_contextual.remarks import input_size
from posse.systems.fed_contextual.settings import FedContextual
from tests.systems.fed_contextual.toys import population, questions


def scaled(times: float) -> Population:
    """The toy population, every number of its contexts multiplied."""
    made = population()
    return Population(
        made.name, made.arms, made.offsets, np.asarray(made.inputs) * np.float32(times), made.labels
    )


def reward(made: Population, **values: Any) -> float:
    usual = {"scale": "none", "rounds": 40, "cohort": 8, "deploy_every": 2, "batch": 4}
    asked = FedContextual(**{**usual, **values})
    return float(posse.run(asked, population=made).summary["average_reward_last_tenth"])


@pytest.mark.parametrize("times", [0.1, 1.0, 100.0])
def test_defaults_learn_whatever_the_scale(times: float) -> None:
    """One rate for all, 0.02, earns about as much as chance where contexts are large."""
    assert reward(scaled(times)) > 0.9
    if times == 100.0:
        assert reward(scaled(times), server_rate=0.02) < 0.6


def test_the_record_says_which_rate_was_used_and_by_which_size() -> None:
    asked = FedContextual(rounds=1, cohort=4, scale="none")
    found = asked.check(population=scaled(1.0))
    config = posse.run(asked, population=scaled(1.0)).config
    assert (config["server_rate"], config["input_size"]) == (found.server_rate, found.input_size)
    assert found.server_rate == pytest.approx(0.6 / input_size(scaled(1.0), "linear"), rel=0.02)
    declared = FedContextual(cohort=4, input_size=50.0).check(population=scaled(1.0))
    assert (declared.server_rate, declared.client_rate) == (0.012, 0.01)
    assert FedContextual(cohort=4, optimiser="sgd").check(population=scaled(1.0)).server_rate == 1.0


def test_bags_count_their_weights() -> None:
    made = questions()
    cohort = made.gather(np.arange(made.clients), made.largest)
    sums = cohort.x.weights[cohort.mask].sum(axis=1)  # type: ignore[union-attr]
    assert input_size(made, "bag") == pytest.approx(7.5 * sums.mean(), rel=0.05)


@pytest.mark.parametrize(
    ("values", "rates"),
    [
        ({}, (0.031, 0.037)),
        ({"features": 784}, (0.0026, 0.0031)),
        ({"features": 784, "input_size": 60.0}, (0.0083, 0.01)),
        ({"model": "bag", "features": 9000}, (0.1, 0.012)),
        ({"model": "cnn", "features": 784}, (0.1, 0.002)),
        ({"optimiser": "sgd", "client_rate": 0.3}, (0.3, 1.0)),
        ({"server_rate": 0.5}, (0.031, 0.5)),
    ],
)
def test_a_fleet_goes_by_what_is_declared(
    values: dict[str, Any], rates: tuple[float, float]
) -> None:
    assert DeviceSettings(**values).rates == pytest.approx(rates, rel=0.02)


def test_a_trial_measures_the_file_that_its_operator_holds_but_not_under_noise(
    tmp_path: Any,
) -> None:
    data = str(save(scaled(1.0), tmp_path / "toy.npz"))
    assert TrialSettings(data=data, nodes=12).of_the_fleet().input_size == input_size(
        scaled(1.0), "linear"
    )
    assert TrialSettings(data=data, nodes=12, noise=1.0).of_the_fleet().input_size == 0


@pytest.mark.parametrize("values", [{"quantile": 0.0}, {"noise": 1.0, "clip": 0.5, "delta": 1e-3}])
def test_divergence_is_said_with_fixed_clips_and_noise(values: dict[str, Any]) -> None:
    asked = FedContextual(rounds=30, cohort=10, deploy_every=2, **values)
    wrong = posse.run(asked.but(server_rate=10.0)).summary
    assert str(wrong["not_learnt"]).startswith("nothing was learnt: devices earn 0.")
    assert "or server_rate (10), scale the features" in str(wrong["not_learnt"])
    assert "not_learnt" not in posse.run(asked.but(noise=0.0, quantile=0.0)).summary


def test_privacy_of_data_that_are_not_scaled_names_no_measured_mean() -> None:
    record = posse.run(FedContextual(rounds=1, cohort=4, noise=1.0, delta=1e-3))
    assert record.privacy
    for entry in record.privacy:
        assert "standard deviation" not in " ".join(entry["not_covered"])  # type: ignore[arg-type]


def test_figures_of_privacy_do_not_cover_measured_rates() -> None:
    asked = FedContextual(rounds=1, cohort=4, noise=1.0, delta=1e-3, scale="none")
    measured, declared = (
        posse.run(one, population=scaled(1.0)) for one in (asked, asked.but(input_size=5.0))
    )
    assert any("rates that were left out" in text for text in measured.privacy[0]["not_covered"])
    assert not any(
        "rates that were left out" in text for text in declared.privacy[0]["not_covered"]
    )
    assert ["other runs" in " ".join(not_covered({"runs": runs})) for runs in (1, 2)] == [
        False,
        True,
    ]
    # One rate that was left out is measured, whatever the other is; and that of pre-training under
    # noise.
    some: list[dict[str, Any]] = [
        {"server_rate": 0.1},
        {"server_rate": 0.1, "client_rate": 0.1},
        {"input_size": 5.0},
        {"input_size": 5.0, "pretraining_privacy": "noised"},
    ]
    assert ["rates that were left out" in " ".join(not_covered(one)) for one in some] == [
        True,
        False,
        False,
        True,
    ]
    # What a record shows beside the model, and no noise was added to.
    assert "updates within the clip, which carry no noise" in " ".join(not_covered({}))
    assert "supervised model" in " ".join(not_covered({"supervised": True}))


def test_a_policy_to_evaluate_has_its_own_parameters_alone() -> None:
    asked = FedContextual(policy="softmax", beta=0.3, evaluate="epsilon-greedy", epsilon=0.4)
    assert asked.other() == EpsilonGreedy(0.4)
