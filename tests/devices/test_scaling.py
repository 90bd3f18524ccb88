"""Devices scale contexts by constants of a file, which all of a fleet must have alike."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import posse
from posse.core.errors import ConfigError, DataError
from posse.problems.populations.population import Scaling, standardised
from posse.problems.populations.prepared import save
from posse.systems.fed_contextual.export import Read
from posse.systems.fed_contextual.flower.deployment import read_version, version_of, write_version
from posse.systems.fed_contextual.flower.device import first_model
from posse.systems.fed_contextual.flower.project import write_project
from posse.systems.fed_contextual.flower.samples import (
    SCALING,
    log_of,
    read_scaling,
    samples_of,
    scaling_of,
)
from posse.systems.fed_contextual.flower.settings import DeviceSettings, TrialSettings
from posse.systems.fed_contextual.on_device import OnDevice
from posse.systems.fed_contextual.record import learnt_in

SCALES = Scaling((60_000.0, 0.0), (9_000.0, 1.0))
ROWS = np.array([[61_000, 1], [42_000, 0], [88_000, 1]], np.float64)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    draw = np.random.default_rng(1)
    lines = [f"{i % 8},{draw.normal(60_000, 9_000):.0f},{i % 2},{'ab'[i % 2]}" for i in range(160)]
    path = tmp_path_factory.mktemp("table") / "table.csv"
    path.write_text("client,salary,member,label\n" + "\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def model(table: Path) -> Path:
    """A model of a table that is standardised, as it is by default."""
    out = table.parent / "model.npz"
    posse.run(posse.FedContextual(data=table, horizon=20, cohort=4, model_out=out))
    return out


def settings(model: Path, **more: Any) -> DeviceSettings:
    fingerprint = read_scaling(model).fingerprint
    given = {"model": "linear", "features": 2, "arms": 2, "scaling": fingerprint, **more}
    return DeviceSettings(**given).checked()


def test_a_fleet_begins_with_a_model_of_scaled_contexts_if_it_scales_alike(model: Path) -> None:
    begun = first_model(settings(model, start=str(model)))
    with np.load(model) as file:
        assert np.array_equal(begun["w"] if isinstance(begun, dict) else begun[1], file["leaf1"])
    fingerprint = read_scaling(model).fingerprint
    for other in ("", SCALES.fingerprint):
        with pytest.raises(DataError, match=f'set scaling = "{fingerprint}" of the run'):
            first_model(settings(model, start=str(model), scaling=other))


def test_a_device_takes_part_with_the_constants_of_the_run_alone(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = settings(model)
    assert scaling_of(run, {"scaling": str(model)}) == read_scaling(model)
    assert scaling_of(DeviceSettings(), {}) is None
    with pytest.raises(ConfigError, match="this node's configuration names no file"):
        scaling_of(run, {})
    for other in (SCALES.fingerprint, ""):
        with pytest.raises(ConfigError, match="Set both to the same"):
            scaling_of(run.but(scaling=other), {"scaling": str(model)})
    with pytest.raises(ConfigError, match="scales 2 features, and the run has 3"):
        scaling_of(run.but(features=3), {"scaling": str(model)})
    monkeypatch.setenv(SCALING, str(model))
    assert scaling_of(run, {}) == read_scaling(model)


def test_samples_and_logs_are_scaled_where_a_device_learns(
    table: Path, model: Path, tmp_path: Path
) -> None:
    run, scaling = settings(model, samples=32, batch=16), read_scaling(model)
    population = posse.FedContextual(data=table).population()
    node = {"data": str(save(population, tmp_path / "p.npz")), "client": 3}
    plain = samples_of(run.but(scaling=""), node, 0)
    scaled = samples_of(run, {**node, "scaling": str(model)}, 0)
    real = plain.mask > 0
    assert scaled.contexts[real] == pytest.approx(scaling(plain.contexts[real]), abs=1e-5)
    assert not scaled.contexts[~real].any()
    log = tmp_path / "log.npz"
    ones = np.ones(3)
    np.savez(log, contexts=ROWS, arms=np.array([0, 1, 0]), rewards=ones, probabilities=ones)
    contexts, *_ = log_of(run, log, scaling)
    assert contexts[:3] == pytest.approx(scaling(ROWS), abs=1e-5)
    assert not contexts[3:].any()


def test_a_deployed_model_scales_contexts_where_its_application_decides(
    model: Path, tmp_path: Path
) -> None:
    run, scaling = settings(model), read_scaling(model)
    with np.load(model) as file:
        leaves = [file["leaf0"], file["leaf1"]]
    version = version_of(run, "trial", 3, leaves)
    write_version(tmp_path / "device.npz", version, scaling)
    assert read_version(tmp_path / "device.npz").about() == version.about()
    app = OnDevice(tmp_path / "device.npz", tmp_path / "log.npz")
    wanted = learnt_in(model).scores(ROWS)
    assert np.array([app.scores(row) for row in ROWS]) == pytest.approx(wanted, abs=1e-5)
    # The server has no constants: its copy is not used on contexts as they are.
    write_version(tmp_path / "server.npz", version)
    for read in (Read, learnt_in):
        with pytest.raises(DataError, match="does not hold them"):
            read(tmp_path / "server.npz")


def test_a_fleet_that_scales_learns_what_it_learns_from_data_scaled_before(
    table: Path, model: Path, tmp_path: Path
) -> None:
    pytest.importorskip("flwr", reason="Flower is not installed")
    from posse.systems.fed_contextual.flower import server_app

    from .grids import FakeGrid, leaves

    plain = posse.FedContextual(data=table).population()
    scaled = replace(standardised(plain), scaling=None)
    fingerprint, results = read_scaling(model).fingerprint, []
    for name, population in (("plain", plain), ("scaled", scaled)):
        folder = tmp_path / name
        folder.mkdir()
        made = DeviceSettings.of(
            {
                "features": 2,
                "arms": 2,
                "rounds": 3,
                "cohort": 3,
                "seed": 5,
                "input_size": 2.0,
                "timeout": 0.2,
                "data": str(save(population, folder / "p.npz")),
                "scaling": fingerprint if name == "plain" else "",
                "out": str(folder / "out"),
            }
        )
        config = {"model": str(folder / "device.npz")}
        if name == "plain":
            config["scaling"] = str(model)
        server_app.run(FakeGrid(made, 4, folder, **config), made, "1")
        results.append(leaves(folder / "out"))
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)
        assert np.abs(ours).max() > 1e-4
    assert Read(tmp_path / "plain" / "device.npz").shift is not None
    assert Read(tmp_path / "scaled" / "device.npz").shift is None


def test_a_trial_takes_the_file_and_an_app_without_scaling_does_not_name_it(
    table: Path, model: Path, tmp_path: Path
) -> None:
    data = save(posse.FedContextual(data=table).population(), tmp_path / "p.npz")
    trial = TrialSettings(folder=tmp_path, data=str(data), scaling_file=model, nodes=4)
    made = trial.of_the_fleet()
    assert made.scaling == read_scaling(model).fingerprint
    assert made.rates == DeviceSettings(features=2, input_size=2.0).rates
    for name, app in (("plain", DeviceSettings()), ("scaled", made)):
        folder = write_project(tmp_path / name, app)
        assert ("scaling =" in (folder / "pyproject.toml").read_text()) == (name == "scaled")
    with pytest.raises(ConfigError, match="scaling is for a linear model of contexts of numbers"):
        settings(model, contexts="bytes")


def test_a_file_without_constants_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "plain.npz", leaf0=np.zeros(2), scale=np.ones(()))
    with pytest.raises(DataError, match="does not say how each feature is scaled"):
        read_scaling(tmp_path / "plain.npz")
    with pytest.raises(DataError, match="there is no file"):
        read_scaling(tmp_path / "absent.npz")
