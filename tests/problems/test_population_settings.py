"""Settings of populations: one model for all sources, and one line for each mistake."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from posse.problems.populations.prepared import save
from posse.problems.populations.settings import POPULATIONS, PopulationSettings
from posse.problems.populations.worlds import LabelDrift, ValueDrift
from tests.kit.rules import refused


def test_digits_by_default() -> None:
    whole = PopulationSettings().population()
    assert (whole.name, whole.clients, whole.samples) == ("digits", 60, 1797)
    other = PopulationSettings(seed=1).population()
    assert np.asarray(whole.labels).tolist() != np.asarray(other.labels).tolist()


def test_every_population_is_described() -> None:
    said = PopulationSettings.model_fields["data"].description or ""
    assert all(name in said for name in POPULATIONS)


def test_own_and_prepared(tmp_path: Path) -> None:
    file = tmp_path / "own.csv"
    file.write_text("client,x,label\nann,1,a\nbob,2,b\nbob,3,a\n")
    own = PopulationSettings(data="own", file=file).population()
    assert own.sizes().tolist() == [1, 2]
    assert PopulationSettings(data="own", file=file, clients=1).population().clients == 1
    drawn = PopulationSettings(
        data="own", file=file, client_column=None, label_column="label", clients=3
    )
    with refused("problems.features.text"):
        drawn.population()
    folder = save(own, tmp_path / "folder")
    assert (
        PopulationSettings(data="prepared", file=folder).population().describe() == own.describe()
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"data": "own"}, "problems.file.needed"),
        ({"data": "prepared"}, "problems.file.needed"),
        (
            {"data": "mnist-writers", "alpha": 0.1},
            "problems.alpha.no-effect",
        ),
        ({"words": 10}, "problems.words.not-a-setting"),
        ({"data": "mnist-writers", "file": "x"}, "problems.file.no-effect"),
        ({"clients": 5000}, "problems.clients.more-than-samples"),
    ],
)
def test_mistakes(given: dict[str, object], message: str) -> None:
    with refused(message) as caught:
        PopulationSettings(**given).population()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["emnist", "femnist", "stackexchange", "stackoverflow"])
def test_data_of_the_figures_alone_are_prepared(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).mkdir()  # the files as they are distributed, which nothing here reads
    with refused("problems.data.moved"):
        PopulationSettings(data=name)
    (tmp_path / name).rmdir()
    save(PopulationSettings().population(), name)
    assert PopulationSettings(data=name).population().clients == 60


def test_unknown_settings() -> None:
    with refused("problems.settings.unknown"):
        PopulationSettings(aplha=1)


def test_worlds() -> None:
    made = PopulationSettings(missing=0.1, late=0.2, delay=3, drift="labels", drift_every=7, seed=5)
    assert made.availability().missing == 0.1
    assert made.drifting(10) == LabelDrift(10, 7, 0.5, 5)
    assert PopulationSettings(drift="values").drifting(4) == ValueDrift(4, 100, 0.5, 0)
    assert PopulationSettings().drifting(4) is None
