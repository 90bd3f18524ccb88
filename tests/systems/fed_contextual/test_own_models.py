"""Custom models learn as the built-in linear one does, in a simulation and on a device."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import posse
from posse.core.errors import ConfigError
from posse.systems.fed_contextual.computing.models import leaves_of, size_of
from posse.systems.fed_contextual.computing.own_models import adapted, named
from posse.systems.fed_contextual.computing.tasks import Draws
from posse.systems.fed_contextual.flower import device
from posse.systems.fed_contextual.flower.settings import DeviceSettings
from posse.systems.fed_contextual.settings import FedContextual
from tests.systems.fed_contextual.toys import population

SOURCE = """
import importlib
import jax.numpy as jnp

def pair(shape, arms):
    size = 1
    for one in shape:
        size *= one
    def init(key):
        return {"w": jnp.zeros((size, arms)), "b": jnp.zeros(arms)}
    return init, lambda params, x: x.reshape(x.shape[0], -1) @ params["w"] + params["b"]

def torch(shape, arms):
    nn = importlib.import_module("torch.nn")
    made = nn.Linear(shape[0], arms)
    nn.init.zeros_(made.weight)
    nn.init.zeros_(made.bias)
    return made

def batches_torch(shape, arms):
    nn = importlib.import_module("torch.nn")
    return nn.Sequential(nn.BatchNorm1d(shape[0]), nn.Linear(shape[0], arms))

def wrong(shape, arms):
    return "a model"
"""
KINDS = ("pair", "torch")


def needed(kind: str) -> None:
    if kind == "torch":
        pytest.importorskip("torch", reason="torch is not installed: make test-models")


@pytest.fixture
def where(tmp_path: Path) -> str:
    path = tmp_path / "own_models_of_a_test.py"
    path.write_text(SOURCE)
    sys.modules.pop(path.stem, None)
    return str(path)


@pytest.mark.parametrize("kind", KINDS)
def test_a_simulation_learns_with_a_custom_model(kind: str, where: str) -> None:
    """The same linear model as the built-in one: the same choices in every round, and the same
    reward.
    """
    needed(kind)
    usual = {
        "scale": "none",
        "rounds": 6,
        "cohort": 4,
        "deploy_every": 2,
        "batch": 4,
        "client_rate": 0.1,
        "server_rate": 0.05,
    }
    ours = posse.run(FedContextual(**usual, model=f"{where}:{kind}"), population=population())
    theirs = posse.run(FedContextual(**usual, model="linear"), population=population())
    assert ours.config["model"] == "own"
    np.testing.assert_array_equal(ours.pulls, theirs.pulls)
    assert ours.total == theirs.total


@pytest.mark.parametrize("kind", KINDS)
def test_a_device_learns_with_it_and_clips_alike(kind: str, where: str) -> None:
    needed(kind)
    made = population()
    cohort = made.gather([0], 16)
    updates = []
    for model in (f"{where}:{kind}", "linear"):
        settings = DeviceSettings(
            model=model, features=5, arms=3, samples=16, client_rate=0.3, server_rate=0.1
        )
        task, rates, draws = (
            device.task_of(settings),
            device.rates_of(settings),
            Draws(jnp.uint32(3), 2, 0),
        )
        params = task.model.init(jax.random.key(0))
        log = device.acted(
            task, rates, params, cohort.x[0], cohort.y[0], jnp.float32(cohort.mask[0]), draws
        )
        given = device.learnt(task, rates, params, log, jnp.float32(0.05), draws)
        assert float(given.within) == 0  # it is clipped
        updates.append(sorted(leaves_of(given.update), key=np.ndim))
    (bias, weights), (their_bias, their_weights) = updates
    np.testing.assert_allclose(bias, their_bias, atol=1e-6)
    np.testing.assert_allclose(
        weights if weights.shape == (5, 3) else weights.T, their_weights, atol=1e-6
    )


WRONG = {
    "arms": ("nn.Linear(5, 7)", r"scores of shape \(3, 4\), contexts x arms, got \(3, 7\)"),
    "shape": ("nn.Linear(6, 4)", r"fails on contexts of shape \(3, 5\): RuntimeError"),
    "unused": ("Unused()", "got other.weight, other.bias without use"),
    "pair": ("Pair()", r"fails on contexts of shape \(3, 5\)"),
}
PARTS = """
from torch import nn

class Unused(nn.Module):
    def __init__(self):
        super().__init__()
        self.used, self.other = nn.Linear(5, 4), nn.Linear(5, 4)
    def forward(self, x):
        return self.used(x)

class Pair(Unused):
    def forward(self, x):
        return self.used(x), self.other(x)

def made(shape, arms):
    return {}
"""


@pytest.mark.parametrize("kind", WRONG)
def test_a_torch_module_that_does_not_fit_is_refused_in_one_line_before_anything_starts(
    kind: str, tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    code, what = WRONG[kind]
    (tmp_path / "wrong.py").write_text(PARTS.replace("{}", code))
    with pytest.raises(ConfigError, match=what) as caught:
        named(f"{tmp_path / 'wrong.py'}:made", (5,), 4)
    assert "\n" not in str(caught.value)


def test_statistics_of_batches_are_refused_with_the_reason(where: str) -> None:
    needed("torch")
    with pytest.raises(
        ConfigError, match=r"keep statistics of batches \(BatchNorm\).*GroupNorm or LayerNorm"
    ):
        named(f"{where}:batches_torch", (5,), 3)


def test_a_device_imports_only_what_its_own_configuration_names(where: str) -> None:
    run = DeviceSettings(model=f"{where}:pair", features=5, arms=3)
    with pytest.raises(ConfigError, match="set own-model to take part"):
        device.check_own(run, {})
    device.check_own(run, {"own-model": f"{where}:pair"})
    device.check_own(DeviceSettings(), {})


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ("a model", r"\(init, apply\) or a module of PyTorch, got str\. .*examples/flax_model\.py"),
        ((lambda key: {}, lambda params, x: x), "scores of shape"),
        (
            (lambda key: {"w": jnp.zeros(3, int)}, lambda params, x: jnp.zeros((3, 4))),
            "float32, got int",
        ),
        ((lambda key: {}, lambda params, x: x @ "a"), "the model fails on contexts of shape"),
    ],
)
def test_what_is_no_model(given: Any, what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        adapted(given, (5,), 4)


def test_names_of_models_are_checked(where: str) -> None:
    with pytest.raises(ConfigError, match="unknown model 'lineal'"):
        FedContextual(model="lineal")
    with pytest.raises(ConfigError, match="unknown model"):
        DeviceSettings(model="lineal").checked()
    with pytest.raises(posse.PosseError, match="has no 'none'"):
        named(f"{where}:none", (5,), 3)
    with pytest.raises(ConfigError, match="got str"):
        named(f"{where}:wrong", (5,), 3)
    with pytest.raises(
        ConfigError, match=r"must be a function of \(shape, arms\) that returns a model"
    ):
        named(f"{where}:__name__", (5,), 3)


def test_a_fleet_has_the_widths_of_the_network() -> None:
    small = DeviceSettings(model="cnn", features=64, hidden=8, channels="2,3").checked()
    assert size_of(device.model_of(small)) == 9 * 2 + 2 + 18 * 3 + 3 + 12 * 8 + 8 + 8 * 10 + 10
    with pytest.raises(ConfigError, match="channels must be two numbers"):
        DeviceSettings(channels="8").checked()
