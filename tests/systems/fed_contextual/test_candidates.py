from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from posse.core.errors import ConfigError, DataError
from posse.policies.evaluation.offline import Log, evaluate
from posse.systems.fed_contextual.computing.candidates import rank
from posse.systems.fed_contextual.learning import RateSettings
from tests.kit.commands import call

CLIENTS, ROWS = 80, 12
BEST = np.array([[2.0, 0, 0], [0, 2.0, 0], [0, 0, 2.0], [0.0, 0, 0]])
RATES: dict[str, Any] = {"client_rates": (0.1,), "server_rates": (1e-6, 1e-5, 0.1), "rounds": 40}
"""Of three pairs one learns: the others stay near the model of zeros, and Softmax then takes any
arm.
"""


def log_of(seed: int, clients: int = CLIENTS) -> list[dict[str, Any]]:
    """Decisions of an even policy on contexts that tell the best of three arms, which pays 0.8, the
    others 0.2.
    """
    draws = np.random.default_rng(seed)
    x = draws.normal(size=(clients * ROWS, 4))
    arms = draws.integers(0, 3, len(x))
    paid = draws.random(len(x)) < np.where((x @ BEST).argmax(axis=1) == arms, 0.8, 0.2)
    return [
        {
            "client": f"c{at // ROWS}",
            **{f"x{k}": float(v) for k, v in enumerate(x[at])},
            "arm": f"arm-{arms[at]}",
            "reward": int(paid[at]),
            "probability": 1 / 3,
        }
        for at in range(len(x))
    ]


def settings(**more: Any) -> RateSettings:
    return RateSettings(**{"logs": Path("log.csv"), **RATES, **more})


@pytest.mark.parametrize("seed", range(6))
def test_the_pair_that_learns_is_first(seed: int) -> None:
    """It earns about 0.7 and the rest 0.4, and an error is below 0.04: a wrong order is some seven
    errors away.
    """
    found = rank(settings(seed=seed), log_of(seed))
    first, *rest = found.candidates
    assert (first.client, first.server) == (0.1, 0.1)
    assert (found.trained, found.held_out) == (40, 40)
    assert first.estimate is not None
    assert first.low > 0.5 > found.earned
    assert all(one.low < first.low - 0.1 for one in rest)
    assert (
        abs(first.estimate.value - 0.72) < 6 * first.estimate.error
    )  # 0.8 where it is right, 0.2 where it is not
    assert all(
        one.estimate is not None and abs(one.estimate.value - 0.4) < 6 * one.estimate.error
        for one in rest
    )


def test_the_bound_is_that_of_a_doubly_robust_estimate_for_all_pairs_together() -> None:
    """A model that stays at zero always takes the first arm: its estimate is made anew here, from
    the rows.
    """
    rows = log_of(3)
    found = rank(
        settings(policy="greedy", rounds=1, server_rates=(1e-44, 2e-44), optimiser="sgd"), rows
    )
    names = sorted({row["client"] for row in rows})
    (one, other), level = found.candidates, 1 - 2 * 0.05 / 2
    assert one.estimate is not None
    assert one.estimate == other.estimate  # both are that model
    assert one.estimate.level == pytest.approx(level)
    log = found.logged.log
    assert log.clients is not None
    drawn = np.random.Generator(np.random.Philox(0)).permutation(np.unique(log.clients))[
        : len(names) // 2
    ]
    rest = np.isin(log.clients, drawn)
    assert found.earned == pytest.approx(log.rewards[rest].mean())
    x = np.array([[row[f"x{k}"] for k in range(4)] for row in rows])
    z = np.concatenate([np.ones((len(x), 1)), (x - x.mean(axis=0)) / x.std(axis=0)], axis=1)
    shrink = np.diag([1e-9, 1, 1, 1, 1])
    predicted = np.zeros((int(rest.sum()), 3))
    for arm in range(3):
        own = ~rest & (log.arms == arm)
        predicted[:, arm] = (
            z[rest] @ np.linalg.inv(z[own].T @ z[own] + shrink) @ z[own].T @ log.rewards[own]
        )
    always = np.tile([1.0, 0, 0], (int(rest.sum()), 1))
    part = Log(log.arms[rest], log.rewards[rest], log.probabilities[rest], None, log.clients[rest])
    wanted = evaluate(part, always, "dr", predictions=predicted, level=level)
    assert one.estimate.value == pytest.approx(wanted.value)
    assert one.low == pytest.approx(wanted.low)


def test_models_that_diverge_are_last_and_named() -> None:
    found = rank(settings(server_rates=(3e38, 0.1), rounds=5), log_of(0))
    assert [one.server for one in found.candidates] == [0.1, 3e38]
    assert found.candidates[1].refused == "its model diverged: lower these rates"


def written(path: Path, rows: list[dict[str, Any]]) -> Path:
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def test_the_command(tmp_path: Path) -> None:
    log = written(tmp_path / "log.csv", log_of(1))
    shown = call(
        "evaluate",
        "rates",
        str(log),
        "--rounds",
        "40",
        "--client-rates",
        "0.1",
        "--server-rates",
        "0.000001,0.1",
    ).out
    assert "lower bound" in shown
    assert "First: --client-rate 0.1 --server-rate 0.1" in shown
    told = json.loads(call("evaluate", "rates", str(log), "--rounds", "2", "--json").out)
    assert len(told["candidates"]) == 16  # four multiples of each default
    lows = [one["dr"]["low"] for one in told["candidates"]]
    assert lows == sorted(lows, reverse=True)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            [{k: v for k, v in row.items() if k != "client"} for row in log_of(0, 20)],
            "must have a column 'client'",
        ),
        (
            [
                {k: row[k] for k in ("client", "arm", "reward", "probability")}
                for row in log_of(0, 20)
            ],
            "a context",
        ),
        (
            log_of(0, 15),
            "both parts of a log need 10 clients, got 7 to train and 8 held out of 15 clients",
        ),
    ],
)
def test_logs_that_do_not_do(rows: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(DataError, match=message):
        rank(settings(), rows)


def test_logs_without_exploration_are_refused_for_a_policy_that_leaves_them() -> None:
    rows = [
        {**row, "arm": "arm-0" if number % 97 else "arm-1", "probability": 1.0}
        for number, row in enumerate(log_of(0))
    ]
    found = rank(settings(policy="softmax"), rows)
    assert all(
        "the logs must support the policy's choices" in one.refused for one in found.candidates
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"client_rates": (0.1, 0.1)}, "client_rates must be different numbers"),
        ({"server_rates": (0.0,)}, "server_rates must be different numbers above 0"),
        ({"held_out": 1.0}, "held_out must be below 1"),
        ({"seed": -1}, r"seed must be in \[0, 2\^32\)"),
        ({"policy": "greedy", "beta": 0.1}, "no parameter 'beta'"),
    ],
)
def test_bad_settings(given: dict[str, Any], message: str) -> None:
    with pytest.raises((ConfigError, ValueError), match=message):
        settings(**given)


def test_a_level_holds_for_one_pair_too() -> None:
    pair = {"client_rates": (0.1,), "server_rates": (0.1,), "rounds": 1}
    (one,) = rank(settings(**pair, level=0.75), log_of(1)).candidates
    assert one.estimate is not None
    assert one.estimate.level == 0.5
    for level in (0.7, 0.9999):
        with pytest.raises(ConfigError, match=f"level .*got {level}"):
            settings(**pair, level=level)
