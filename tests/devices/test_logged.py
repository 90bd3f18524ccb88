"""Logs and models that do not fit are refused in one line, before anything is learnt from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import posse
from posse.core.errors import ConfigError, DataError
from posse.systems.fed_contextual.flower.device import first_model
from posse.systems.fed_contextual.flower.samples import log_of
from posse.systems.fed_contextual.flower.settings import DeviceSettings
from posse.systems.fed_contextual.record import learnt_in


def logged(**changes: Any) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    parts = {
        "contexts": rng.random((5, 64), np.float32),
        "arms": np.arange(5),
        "rewards": np.ones(5),
    }
    return {**parts, "probabilities": np.full(5, 0.1), **changes}


NAN = np.where(np.arange(5)[:, None] == 3, np.nan, np.zeros((5, 64)))


@pytest.mark.parametrize(
    ("changes", "run", "what"),
    [
        ({"arms": np.arange(5) + 0.5}, {}, "arms must be whole numbers, got float64"),
        (
            {"contexts": NAN},
            {},
            "contexts must be finite numbers, of 32 bits, got others in action 4",
        ),
        ({"contexts": np.zeros((5, 63))}, {}, "contexts must be 64 numbers each, got 63"),
        ({"contexts": np.full((5, 64), "a")}, {}, "contexts must be numbers"),
        ({}, {"model": "bag", "features": 9}, "a model of bags of words"),
    ],
)
def test_logs_that_do_not_fit(
    tmp_path: Path, changes: dict[str, Any], run: dict[str, Any], what: str
) -> None:
    path = tmp_path / "log.npz"
    np.savez(path, **logged())
    assert log_of(DeviceSettings(), path)[4].sum() == 5
    np.savez(path, **logged(**changes))
    with pytest.raises(DataError, match=what):
        log_of(DeviceSettings(**run), path)


@pytest.mark.parametrize(
    ("leaves", "what"),
    [
        (
            {"leaf0": np.zeros(10), "leaf1": np.zeros((63, 10))},
            r"\(63, 10\), and a linear model of 64 features",
        ),
        ({"leaf0": np.zeros(10)}, "holds arrays of shapes"),
        ({"leaf0": np.zeros(10), "leaf1": np.full((64, 10), np.nan)}, "finite numbers"),
        ({"leaf0": np.zeros(10, int), "leaf1": np.zeros((64, 10), int)}, "finite numbers"),
        ({"weights": np.zeros(3)}, "cannot be read"),
    ],
)
def test_first_models_that_do_not_fit(tmp_path: Path, leaves: dict[str, Any], what: str) -> None:
    path = tmp_path / "model.npz"
    np.savez(path, **leaves)
    with pytest.raises(DataError, match=what):
        first_model(DeviceSettings(start=str(path)))


def test_models_with_numbers_that_are_none_do_not_decide(tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    np.savez(path, leaf0=np.zeros(3), leaf1=np.full((2, 3), np.inf))
    with pytest.raises(DataError, match="finite numbers"):
        learnt_in(path)
    np.savez(path, leaf0=np.zeros(3), leaf1=np.zeros((2, 3)), arms=np.array(["a", "b"]))
    with pytest.raises(DataError, match="names 2 arms and has 3"):
        learnt_in(path)


def test_contexts_of_bytes_are_bytes() -> None:
    bandit = posse.live(posse.FedContextual(clients=20, cohort=5), rewards="fold")
    image = np.zeros((8, 8))
    bandit.decide(image)
    for value in (0.5, -1, 256, np.nan):
        image[3, 3] = value
        with pytest.raises(ConfigError, match="a context"):
            bandit.decide(image)
