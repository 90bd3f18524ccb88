"""Features of a table on scales of their own: scaled on request, and a model keeps how, wherever it
decides.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import posse
from posse.core.errors import ConfigError, DataError
from posse.policies.contextual.explorations import Greedy
from posse.problems.populations.prepared import save
from posse.systems.fed_contextual.export import ExportSettings, Read, export, graph_of
from posse.systems.fed_contextual.flower.device import first_model
from posse.systems.fed_contextual.flower.settings import DeviceSettings
from posse.systems.fed_contextual.on_device import OnDevice
from posse.systems.fed_contextual.record import learnt_in

TOWNS = ("Basel", "Bern", "Genf")


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Salaries of about 60,000, and towns from which the label follows."""
    draw = np.random.default_rng(1)
    towns, salaries = draw.integers(0, 3, 600), draw.normal(60_000, 9_000, 600)
    rows = [
        f"{i % 20},{salary:.0f},{TOWNS[town]},{'abc'[town]}"
        for i, (town, salary) in enumerate(zip(towns, salaries, strict=True))
    ]
    path = tmp_path_factory.mktemp("table") / "sal.csv"
    path.write_text("client,salary,town,label\n" + "\n".join(rows) + "\n")
    return path


def ran(table: Path, **changes: Any) -> posse.Record:
    return posse.run(posse.FedContextual(data=table, horizon=40, cohort=10, **changes))


@pytest.fixture(scope="module")
def scaled(table: Path) -> tuple[posse.Record, Path]:
    out = table.parent / "model.npz"
    return ran(table, scale="standard", model_out=out), out


CONTEXTS = np.array([[61_000, 1, 0, 0], [42_000, 0, 1, 0], [88_000, 0, 0, 1]], np.float64)


def test_a_scaled_table_is_learnt_and_the_same_table_as_it_is_is_not(
    table: Path, scaled: tuple[posse.Record, Path]
) -> None:
    plain, record = ran(table, scale="none"), scaled[0]
    assert float(plain.summary["average_reward_last_tenth"]) < 0.5
    assert float(record.summary["average_reward_last_tenth"]) > 0.7
    assert record.config["scale"] == "standard"
    assert [record.policy.decide(row).name for row in CONTEXTS] == ["a", "b", "c"]
    assert any("--scale standard" in text for text in plain.warnings)
    assert any("mean squared norm" in text for text in plain.warnings)
    assert not any("scale" in text.lower() for text in record.warnings)


def test_a_table_is_scaled_unless_told_otherwise(
    table: Path, scaled: tuple[posse.Record, Path], tmp_path: Path
) -> None:
    default = ran(table, model_out=tmp_path / "default.npz")
    plain = ran(table, scale="none", model_out=tmp_path / "plain.npz")
    assert default.total == scaled[0].total
    assert (default.config["scale"], plain.config["scale"]) == ("standard", "none")
    with np.load(tmp_path / "default.npz") as found, np.load(scaled[1]) as wanted:
        assert np.array_equal(found["shift"], wanted["shift"])
        assert np.array_equal(found["scale"], wanted["scale"])
    with np.load(tmp_path / "plain.npz") as found:
        assert "shift" not in found.files
        assert float(found["scale"]) == 1.0


def test_contexts_that_functions_or_images_need_as_they_are_are_not_scaled(table: Path) -> None:
    def scale_of(settings: posse.FedContextual, **parts: Any) -> object:
        return posse.start(settings.but(horizon=2, cohort=4), **parts).record().config["scale"]

    rows = posse.FedContextual(data=table)
    devices = rows.population()
    image = replace(devices, inputs=np.zeros((600, 2, 2), np.uint8), features=())
    own = posse.FedContextual()
    assert scale_of(own, population=devices) == "standard"
    assert scale_of(own, population=image) == "none"
    assert scale_of(own) == "none"
    assert scale_of(own, population=devices, pay=lambda x, y, arm: 0.5 * (y == arm)) == "none"
    assert scale_of(rows.but(scale="standard"), population=devices) == "standard"
    assert scale_of(own.but(scale="none"), population=devices) == "none"
    standard = posse.FedContextual(scale="standard")
    assert scale_of(standard, population=devices) == "standard"
    assert scale_of(standard, population=devices, pay=lambda x, y, arm: y == arm) == "standard"
    with pytest.raises(ConfigError, match="needs one row of numbers per sample") as caught:
        scale_of(standard, population=image)
    assert caught.value.rule == "fed_contextual.scale.not-rows"


def test_a_kept_run_without_scaling_goes_on_without_it(table: Path, tmp_path: Path) -> None:
    kept = {"data": table, "cohort": 4, "keep": tmp_path / "kept"}
    posse.run(posse.FedContextual(**kept, scale="none", horizon=2))
    header = tmp_path / "kept" / "run.json"
    of_0_1 = json.loads(header.read_text())
    assert of_0_1["settings"].pop("scale") == "none"
    header.write_text(json.dumps(of_0_1))
    record = posse.run(posse.FedContextual(**kept, horizon=3))
    assert record.config["scale"] == "none"
    with pytest.raises(ConfigError, match="holds a run with scale 'none', got 'standard'"):
        posse.run(posse.FedContextual(**kept, scale="standard", horizon=4))


def test_a_model_says_how_it_scales_wherever_it_decides(
    scaled: tuple[posse.Record, Path], tmp_path: Path
) -> None:
    record, path = scaled
    assert record.policy.learnt is not None
    wanted = record.policy.learnt.scores(CONTEXTS)
    assert wanted.max() < 3  # rewards are 0 or 1: unscaled salaries would give thousands
    assert learnt_in(path).scores(CONTEXTS) == pytest.approx(wanted)
    app = OnDevice(path, tmp_path / "log.npz", policy="greedy")
    assert np.array([app.scores(row) for row in CONTEXTS]) == pytest.approx(wanted, abs=1e-5)
    with pytest.raises(ConfigError, match="says how each of its features is scaled, got scale 2"):
        Read(path, scale=2.0)


def test_scaling_is_a_part_of_the_graph(scaled: tuple[posse.Record, Path], tmp_path: Path) -> None:
    pytest.importorskip("onnx", reason="onnx is not installed: make test-models")
    from onnx.reference import ReferenceEvaluator

    record, path = scaled
    assert record.policy.learnt is not None
    wanted = record.policy.learnt.scores(CONTEXTS)
    made = graph_of(Read(path), Greedy())
    feeds = {"contexts": CONTEXTS.astype(np.float32), "u": np.full(3, 0.5, np.float32)}
    arms, _, scores, _ = ReferenceEvaluator(made).run(None, feeds)
    assert scores == pytest.approx(wanted, abs=1e-4)
    assert arms.tolist() == [0, 1, 2]
    (section,) = export(ExportSettings(model=path, out=tmp_path / "m.onnx", policy="greedy"))
    assert "scales as the table was" in section.notes[0]


def test_a_model_whose_scaling_is_not_whole_is_refused(
    scaled: tuple[posse.Record, Path], tmp_path: Path
) -> None:
    with np.load(scaled[1]) as found:
        parts = {name: found[name] for name in found.files}
    np.savez(tmp_path / "cut.npz", allow_pickle=False, **{**parts, "shift": parts["shift"][:2]})
    with pytest.raises(DataError, match="scales 2 features and has 4"):
        learnt_in(tmp_path / "cut.npz")
    with pytest.raises(DataError, match="does not say how each of its features is scaled"):
        Read(tmp_path / "cut.npz")


def test_a_bandit_in_use_scales_contexts_as_its_table(table: Path, tmp_path: Path) -> None:
    settings = posse.FedContextual(data=table, scale="standard", cohort=4)
    bandit = posse.live(settings, rewards="fold", every=40)
    draw = np.random.default_rng(2)
    for _ in range(400):
        row = CONTEXTS[draw.integers(3)] + [draw.normal(0, 9_000), 0, 0, 0]
        made = bandit.decide(row)
        bandit.reward(made.id, float(row[1 + made.arm]))
    bandit.save(tmp_path / "b.json")
    again = posse.live(settings, rewards="fold", every=40).load(tmp_path / "b.json")
    assert [again.decide(row, client=1).arm for row in CONTEXTS] == [
        bandit.decide(row, client=1).arm for row in CONTEXTS
    ]
    assert [bandit.finish().policy.decide(row).name for row in CONTEXTS] == ["a", "b", "c"]


def test_a_bandit_that_was_saved_without_scaling_goes_on_without_it(
    table: Path, tmp_path: Path
) -> None:
    saved = posse.live(posse.FedContextual(data=table, scale="none", cohort=4))
    decision = saved.decide(CONTEXTS[0])
    saved.reward(decision.id, 1.0)
    saved.save(tmp_path / "b.json")
    settings = posse.FedContextual(data=table, cohort=4)
    assert posse.live(settings).record().config["scale"] == "standard"
    again = posse.live(settings).load(tmp_path / "b.json")
    assert again.record().config["scale"] == "none"
    assert again.decide(CONTEXTS[1]).arm == saved.decide(CONTEXTS[1]).arm
    with pytest.raises(ConfigError, match="was saved with scale 'none', got 'standard'"):
        posse.live(settings.but(scale="standard")).load(tmp_path / "b.json")


def grown(table: Path, folder: Path) -> Path:
    """A copy of the table, of which other salaries come with the next call."""
    path = folder / "grown.csv"
    head, *rows = table.read_text().splitlines()
    cells = [row.split(",") for row in rows]
    factor = 3 if path.exists() else 1
    path.write_text(
        "\n".join([head, *(f"{a},{factor * int(b)},{c},{d}" for a, b, c, d in cells)]) + "\n"
    )
    return path


def test_a_bandit_does_not_go_on_where_its_table_scales_otherwise(
    table: Path, tmp_path: Path
) -> None:
    settings = posse.FedContextual(data=grown(table, tmp_path), scale="standard", cohort=4)
    posse.live(settings).save(tmp_path / "b.json")
    posse.live(settings).load(tmp_path / "b.json")
    grown(table, tmp_path)
    with pytest.raises(ConfigError, match="the table has changed since"):
        posse.live(
            posse.FedContextual(data=tmp_path / "grown.csv", scale="standard", cohort=4)
        ).load(tmp_path / "b.json")


def test_a_kept_run_does_not_go_on_where_its_table_scales_otherwise_and_no_fleet_begins_from_it(
    table: Path, scaled: tuple[posse.Record, Path], tmp_path: Path
) -> None:
    kept = tmp_path / "kept"
    data = grown(table, tmp_path)
    posse.run(posse.FedContextual(data=data, scale="standard", horizon=2, cohort=4, keep=kept))
    posse.run(posse.FedContextual(data=data, scale="standard", horizon=3, cohort=4, keep=kept))
    grown(table, tmp_path)
    with pytest.raises(ConfigError, match="scaling"):
        posse.run(posse.FedContextual(data=data, scale="standard", horizon=4, cohort=4, keep=kept))
    for start in (scaled[1], next(kept.glob("seed-*.npz"))):
        with pytest.raises(DataError, match="scaled by feature: set scaling"):
            first_model(DeviceSettings(start=str(start), model="linear", features=4, arms=3))


def test_scaling_without_a_table_is_refused_with_the_reason(table: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="scale applies to own, got standard for digits"):
        posse.FedContextual(data="digits", scale="standard")
    with pytest.raises(ConfigError, match="scale applies to own, got standard for digits"):
        posse.run(posse.FedContextual(scale="standard", horizon=2))
    with pytest.raises(ConfigError, match="contexts of all devices, and a server sees none"):
        DeviceSettings(scale="standard")  # type: ignore[call-arg]
    settings = posse.FedContextual(data=table, scale="standard", cohort=2)
    with pytest.raises(ConfigError, match="scale measures the features of a table in data"):
        posse.live(settings, arms=("a", "b"), features=2)
    with pytest.raises(ConfigError, match="written with its features as they are"):
        save(settings.population(), tmp_path / "p.npz")


def test_what_is_measured_without_noise_is_not_covered(table: Path) -> None:
    record = ran(table, scale="standard", noise=1.0, delta=1e-3, input_size=2.0)
    (entry, *_) = record.privacy
    assert any(
        "mean and standard deviation of every feature" in text for text in entry["not_covered"]
    )  # type: ignore[union-attr]
