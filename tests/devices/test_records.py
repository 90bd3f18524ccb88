"""A run on devices ends in a record of what the server may know; what was protected is read from
what happened.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'posse-bandits[flower]'")
pytest.importorskip(
    "sklearn", reason="scikit-learn is not installed: pip install 'posse-bandits[data]'"
)

from flwr.app import Message

from posse.core.errors import ProtocolError
from posse.results.record import Record
from posse.results.store import Store
from posse.systems.fed_contextual.flower import fleet, server_app
from posse.systems.fed_contextual.flower.recording import keep_interrupted
from posse.systems.fed_contextual.flower.settings import PROGRESS, RESULT, DeviceSettings

from .grids import FakeGrid


def settings(folder: Path, **values: Any) -> DeviceSettings:
    values = {
        "rounds": 2,
        "cohort": 3,
        "seed": 5,
        "samples": 64,
        "timeout": 0.2,
        "out": str(folder / "out"),
        **values,
    }
    return DeviceSettings.of(values)


def play(made: DeviceSettings, folder: Path, nodes: int = 3, **more: Any) -> Record:
    server_app.run(FakeGrid(made, nodes, folder, **more), made, "1")
    return Store().get("last")


def test_it_holds_what_the_server_measured_and_names_its_party(tmp_path: Path) -> None:
    record = play(settings(tmp_path), tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "out" / PROGRESS).read_text().splitlines()]
    assert (record.kind, record.party, record.status, record.level) == (
        "fed-contextual",
        "server",
        "finished",
        "plain",
    )
    assert record.id == json.loads((tmp_path / "out" / RESULT).read_text())["record"]
    assert record.steps.tolist() == [1, 2]
    assert record.total[0] == pytest.approx(sum(line["reward"] * line["samples"] for line in lines))
    assert (record.arms, record.horizon, record.seeds) == (0, 2, (5,))
    assert record.problem["clients"] == 3
    assert [(hop.hop, hop.messages) for hop in record.traffic] == [
        ("server -> device", 6),
        ("device -> server", 6),
    ]
    assert all(hop.bytes > 6 * 4 * 650 for hop in record.traffic)
    assert any("Updates reach the server as they are" in one for one in record.leaks)
    assert any("drawn from a seed" in one for one in record.leaks)


def test_masks_and_noise_are_levels_because_they_were_there(tmp_path: Path) -> None:
    secure = play(settings(tmp_path / "secure", secure=True, seed=-1), tmp_path / "secure")
    assert secure.level == "secure-sums"
    assert not any("reach the server as they are" in one or "seed" in one for one in secure.leaks)
    assert secure.seeds == ()
    noisy = play(settings(tmp_path / "noise", noise=1.0, devices=3, delta=1e-3), tmp_path / "noise")
    assert noisy.level == "noise"
    assert [entry["releases"] for entry in noisy.privacy] == [2, 2]


def test_rounds_that_were_not_under_masks_are_not_called_secure(tmp_path: Path) -> None:
    """Whatever the settings say: what was protected is read from the rounds themselves."""
    made = settings(tmp_path, rounds=1, secure=True)
    first = play(made, tmp_path)
    progress = tmp_path / "out" / PROGRESS
    progress.write_text(progress.read_text().replace('"masked": true', '"masked": false'))
    mixed = play(settings(tmp_path, rounds=3, secure=True), tmp_path)
    assert (first.id, first.level) == (mixed.id, "secure-sums")  # one record a run, which goes on
    assert (mixed.level, mixed.summary["rounds_done"]) == ("plain", 3)
    assert any("1 of 3 rounds were not under masks" in one for one in mixed.leaks)
    assert [row.id for row in Store().list()] == [mixed.id]
    assert json.loads((tmp_path / "out" / RESULT).read_text())["secure"] is False


def test_nodes_without_keys_are_said_to_protect_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = settings(tmp_path)
    grid = FakeGrid(made, 3, tmp_path)
    for node in grid.nodes:
        node.public_key = b""
    server_app.run(grid, made, "1")
    assert any("Nodes had no registered keys" in one for one in Store().get("last").leaks)


def test_a_run_that_ends_badly_is_recorded_as_far_as_it_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, "LOOK", 0.01)
    rounds: list[str] = []

    def lose(node: int, sent: Message, reply: Message | None) -> Message | None:
        rounds.append(sent.metadata.group_id)
        return reply if sent.metadata.group_id == "1" else None

    made = settings(tmp_path, rounds=3, timeout=0.02)
    with pytest.raises(ProtocolError, match="round 2 had too few answers"):
        play(made, tmp_path, meddle=lose)
    record = Store().get("last")
    assert (record.status, record.summary["rounds_done"], record.reward.shape) == (
        "failed",
        1,
        (1, 1),
    )
    keep_interrupted(made, tmp_path / "out")
    assert [(row.id, row.status) for row in Store().list()] == [(record.id, "interrupted")]
    assert np.array_equal(Store().get("last").reward, record.reward)


def test_a_store_that_cannot_be_written_stops_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("POSSE_HOME", str(tmp_path / "file" / "home"))
    made = settings(tmp_path, rounds=1)
    assert int(server_app.run(FakeGrid(made, 3, tmp_path), made, "1").round) == 1
