"""A first model from a file: of an earlier run, or of the simulator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'posse-bandits[flower]'")
pytest.importorskip(
    "sklearn", reason="scikit-learn is not installed: pip install 'posse-bandits[data]'"
)

from posse.core.errors import DataError
from posse.systems.fed_contextual.flower import server_app
from posse.systems.fed_contextual.flower.device import first_model
from posse.systems.fed_contextual.flower.settings import DeviceSettings
from posse.systems.fed_contextual.settings import FedContextual
from posse.systems.registry import run as run_fed

from .grids import FakeGrid, leaves
from .simulator import simulated


def settings(folder: Path, **values: Any) -> DeviceSettings:
    usual = {
        "rounds": 1,
        "cohort": 2,
        "seed": 5,
        "samples": 64,
        "timeout": 5.0,
        "out": str(folder / "out"),
    }
    return DeviceSettings.of({**usual, **values})


def play(made: DeviceSettings, folder: Path) -> None:
    server_app.run(FakeGrid(made, 2, folder), made, "1")


def test_run_begins_from_the_model_of_another(tmp_path: Path) -> None:
    play(settings(tmp_path / "one", rounds=2), tmp_path / "one")
    made = settings(tmp_path / "two", start=str(tmp_path / "one/out/model.npz"))
    play(made, tmp_path / "two")
    before, after = leaves(tmp_path / "one/out"), leaves(tmp_path / "two/out")
    for one, other, theirs in zip(before, after, simulated(made, 2), strict=True):
        assert not np.array_equal(one, other)
        np.testing.assert_allclose(other, theirs, rtol=1e-5, atol=1e-7)


def test_run_begins_from_a_state_of_the_simulator(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    run_fed(FedContextual(clients=4, rounds=2, cohort=2, deploy_every=2, keep=kept, seed=3))
    first = first_model(settings(tmp_path, start=str(kept / "seed-3.npz")))
    assert [np.shape(leaf) for leaf in jax.tree.leaves(first)] == [(10,), (64, 10)]
    assert all(np.abs(leaf).max() > 0 for leaf in jax.tree.leaves(first))


def test_wrong_model_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "text.npz").write_text("no model")
    np.savez(
        tmp_path / "other.npz", leaf0=np.zeros(3, np.float32), leaf1=np.zeros((7, 3), np.float32)
    )
    np.savez(
        tmp_path / "nan.npz",
        leaf0=np.zeros(10, np.float32),
        leaf1=np.full((64, 10), np.nan, np.float32),
    )
    np.savez(tmp_path / "foreign.npz", weights=np.zeros(3))
    np.save(tmp_path / "array.npy", np.zeros(3))
    for name, words in {
        "nowhere.npz": "there is no first model",
        "text.npz": "cannot be read",
        "foreign.npz": "cannot be read",
        "array.npy": "cannot be read",
        "other.npz": r"has \(10,\), \(64, 10\)",
        "nan.npz": "finite numbers",
    }.items():
        with pytest.raises(DataError, match=words) as caught:
            first_model(settings(tmp_path, start=str(tmp_path / name)))
        assert "\n" not in str(caught.value), name
