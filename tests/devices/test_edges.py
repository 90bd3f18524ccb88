"""Around a run: stops at the worst moments, files that are damaged, versions that are not there,
two in one folder.
"""

from __future__ import annotations

import itertools
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'posse-bandits[flower]'")
pytest.importorskip(
    "sklearn", reason="scikit-learn is not installed: pip install 'posse-bandits[data]'"
)

from posse.core.errors import ConfigError, DataError
from posse.problems.populations.prepared import save
from posse.problems.populations.splits import read_population
from posse.systems.fed_contextual.export import Read
from posse.systems.fed_contextual.flower import client_app, deployment, server_app, trial
from posse.systems.fed_contextual.flower.deployment import Version, Versions, Wanted
from posse.systems.fed_contextual.flower.samples import log_of
from posse.systems.fed_contextual.flower.settings import (
    BEGUN,
    EVALUATIONS,
    HELD,
    PROGRESS,
    RESULT,
    STATE,
    VERSIONS,
    WANTED,
    DeploySettings,
    DeviceSettings,
    StatusSettings,
    TrialSettings,
    alone,
    lines_of,
)
from posse.systems.fed_contextual.on_device import OnDevice

from .grids import FakeGrid, leaves
from .test_commands import posse


def settings(folder: Path, **values: Any) -> DeviceSettings:
    usual = {
        "rounds": 2,
        "cohort": 2,
        "seed": 5,
        "samples": 32,
        "timeout": 0.2,
        "out": str(folder / "out"),
    }
    return DeviceSettings.of({**usual, **values})


def play(made: DeviceSettings, folder: Path, grid: FakeGrid | None = None) -> FakeGrid:
    grid = grid or FakeGrid(made, 3, folder)
    server_app.run(grid, made, "1")
    return grid


@pytest.mark.parametrize("where", ["save", "keep", "spread", "_finish"])
def test_a_run_that_is_stopped_in_its_last_round_has_every_round_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """Before its state is saved, while its version is evaluated, while it is deployed, and before
    the result.
    """
    evaluated = where == "keep"  # of three devices no lower bound is known, and no version passes
    made = settings(tmp_path, evaluate="snips" if evaluated else "")

    def stop(*given: Any, **more: Any) -> Any:
        if len(lines_of(tmp_path / "out")) < made.rounds:
            return usual(*given, **more)
        raise KeyboardInterrupt

    place: Any = server_app.Fleet if where == "spread" else server_app
    name = "evaluate" if where == "keep" else where
    usual = getattr(place, name)
    with monkeypatch.context() as patched:
        patched.setattr(place, name, stop)
        with pytest.raises(KeyboardInterrupt):
            play(made, tmp_path)
    for name in (PROGRESS, EVALUATIONS):
        with (tmp_path / "out" / name).open("a") as file:
            file.write('{"round": 3, "half of a li')
    play(made, tmp_path)
    assert [line["round"] for line in lines_of(tmp_path / "out")] == [1, 2]
    assert [line["version"] for line in lines_of(tmp_path / "out", EVALUATIONS)] == [
        1,
        2,
    ] * evaluated
    assert json.loads((tmp_path / "out" / RESULT).read_text())["rounds"] == 2
    assert [one["version"] for one in held(tmp_path)] == [0 if evaluated else 2] * 3
    whole = tmp_path / "whole"
    whole.mkdir()
    play(made.but(out=str(whole / "out")), whole)
    for one, other in zip(leaves(tmp_path / "out"), leaves(whole / "out"), strict=True):
        np.testing.assert_array_equal(one, other)


def held(folder: Path) -> list[dict[str, Any]]:
    return list(Versions(folder / "out").held.values())


def test_ctrl_c_in_a_deployment_leaves_nobody_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One device has the last model and its answer was not read: it is asked again, and so are the
    others.
    """
    made = settings(tmp_path)
    grid = FakeGrid(made, 3, tmp_path)
    usual = grid.push_messages

    def push(messages: Any) -> list[str]:
        sent = list(messages)
        if (
            sent[0].metadata.message_type == "query.deploy"
            and len(lines_of(tmp_path / "out")) == made.rounds
        ):
            usual(sent[:1])
            raise KeyboardInterrupt
        return usual(sent)

    with monkeypatch.context() as patched:
        patched.setattr(grid, "push_messages", push)
        with pytest.raises(KeyboardInterrupt):
            play(made, tmp_path, grid)
    assert not (tmp_path / "out" / RESULT).exists()
    before = len(grid.deployments)
    play(made, tmp_path, grid)
    assert [one["version"] for one in held(tmp_path)] == [2, 2, 2]
    assert grid.deployments[before:] == [0, 1, 2]


@pytest.mark.parametrize("damage", [b"", b"PK\x03\x04 and no more", b"{", b"\xff\xfe"])
def test_what_is_damaged_is_named_in_one_line(tmp_path: Path, damage: bytes) -> None:
    made, out = settings(tmp_path, rounds=1), tmp_path / "out"
    play(made, tmp_path)
    state = (out / STATE).read_bytes()
    (out / STATE).write_bytes(damage)
    with pytest.raises(DataError, match=r"state\.npz is damaged .* another folder"):
        play(made, tmp_path)
    (out / STATE).write_bytes(state)
    (out / PROGRESS).write_bytes(damage + b"\n")
    code, _, said = posse("status", str(out))
    assert (code, said.count("\n")) == (2, 1)
    assert "progress.jsonl is damaged" in said
    (out / PROGRESS).unlink()
    (out / HELD).write_bytes(damage)
    (out / VERSIONS / "copy of 3.npz").write_bytes(damage)
    assert posse("status", str(out))[0] == 0
    (out / WANTED).write_bytes(damage)
    code, _, said = posse("status", str(out))
    assert (code, said.count("\n")) == (2, 1)
    assert "does not say which version is wanted" in said
    with pytest.raises(DataError, match="posse devices deploy --version"):
        play(made, tmp_path)
    assert posse("deploy", str(out), "--version", "1")[0] == 0
    assert Versions(out).wanted == Wanted(1, pinned=True)
    (out / VERSIONS / "000001.npz").write_bytes(damage)
    code, _, said = posse("deploy", str(out), "--version", "1")
    assert (code, said.count("\n")) == (2, 1)
    assert "cannot be read as a deployed model" in said


def test_a_damaged_version_ends_no_training(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Devices that wait for it get the next one."""
    made = settings(tmp_path, rounds=1)
    play(made, tmp_path)
    (tmp_path / "out" / VERSIONS / "000001.npz").write_bytes(b"no model")
    (tmp_path / "out" / HELD).unlink()
    said: list[str] = []
    more = made.but(rounds=2)
    fleet = server_app.Fleet(FakeGrid(more, 3, tmp_path), more, said.append)
    fleet.spread(Versions(tmp_path / "out"))
    assert said == [fleet.last]
    assert "version 1 is not deployed: " in fleet.last
    play(more, tmp_path)
    assert [one["version"] for one in held(tmp_path)] == [2, 2, 2]


def test_versions_that_are_not_there_are_not_wanted(tmp_path: Path) -> None:
    play(settings(tmp_path), tmp_path)
    before = Versions(tmp_path / "out").wanted
    lines = "".join(json.dumps({"version": at, "passed": False}) + "\n" for at in range(3))
    (tmp_path / "out" / EVALUATIONS).write_text(lines)
    for flags, words in (
        (("--version", "7"), "there is no version 7. Name one of 0, 1, 2"),
        (("--version=-1",), "there is no version -1. Name one of"),
        (("--version=-3",), "there is no version -3. Name one of"),
        ((), "no version passed its gate. Name one of 0, 1, 2"),
    ):
        code, _, said = posse("deploy", str(tmp_path / "out"), *flags)
        assert code == 2
        assert words in " ".join(said.split())
    assert Versions(tmp_path / "out").wanted == before


def test_up_after_the_end_deploys_what_is_wanted_by_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags: dict[str, Any] = {"folder": tmp_path, "nodes": 3, "rounds": 2, "samples": 32}
    made = trial.Trial(tmp_path, TrialSettings(**flags).of_the_fleet(), 3)
    grid = FakeGrid(made.settings, 3, tmp_path)
    server_app.run(grid, made.settings, "1")
    assert posse("deploy", str(tmp_path), "--version", "1")[0] == 0
    monkeypatch.setattr(trial.Trial, "start", lambda self: self._clear())
    monkeypatch.setattr(
        trial.Trial, "submit", lambda self: server_app.run(grid, made.settings, "2")
    )
    told = [str(one) for one in trial.up(TrialSettings(**flags))]
    assert "nothing is trained; 3 devices shall have another version" in told[0]
    assert [one["version"] for one in Versions(made.out).held.values()] == [1, 1, 1]
    again, _ = trial.up(TrialSettings(**flags))
    assert "for another one pass --folder" in str(again)
    (made.out / RESULT).write_text("{")
    with pytest.raises(DataError, match=r"result\.json is damaged"):
        list(trial.up(TrialSettings(**flags)))


def test_two_at_once_in_one_folder_are_refused(tmp_path: Path) -> None:
    made = settings(tmp_path, rounds=1)
    (tmp_path / "out").mkdir()
    with (
        alone(tmp_path / "out"),
        pytest.raises(ConfigError, match=r"in use by another process \(\d+\)"),
    ):
        play(made, tmp_path)
    fleet = trial.up(TrialSettings(folder=tmp_path / "fleet", nodes=3))
    with (
        alone(tmp_path / "fleet"),
        pytest.raises(ConfigError, match="Stop it, or name another folder"),
    ):
        list(fleet)
    play(made, tmp_path)
    with pytest.raises(DataError, match="cannot write in"), alone(tmp_path / "out" / STATE):
        pass


@pytest.mark.parametrize("seed", [-1, 5])
@pytest.mark.parametrize("log", ["missing", "earned nothing"])
def test_a_secure_run_goes_on_where_a_round_does_not_move_the_model(
    tmp_path: Path, log: str, seed: int
) -> None:
    made = settings(tmp_path, cohort=3, seed=seed, secure=True, rounds=3, timeout=20.0, grace=5.0)
    path = tmp_path / "log.npz"
    if log == "earned nothing":
        np.savez(
            path,
            contexts=np.ones((4, 64), np.float32),
            arms=np.arange(4),
            rewards=np.zeros(4),
            probabilities=np.ones(4),
        )
    grid = FakeGrid(made, 3, tmp_path, log=str(path))
    server_app.run(grid, made.but(rounds=2), "1")
    server_app.run(grid, made, "1")  # also where it is stopped and goes on
    lines = lines_of(tmp_path / "out")
    assert [(len(line["clients"]), line["masked"]) for line in lines] == [(3, True)] * 3
    models = [Versions(tmp_path / "out").read(at).leaves for at in range(4)]
    for one, other in itertools.pairwise(models):
        assert any(not np.array_equal(a, b) for a, b in zip(one, other, strict=True)), (
            "another model for every sum"
        )


def test_a_program_that_fails_is_not_taken_for_data_that_cannot_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made = settings(tmp_path, cohort=3, secure=True, rounds=1, timeout=20.0)

    def fail(*given: Any) -> Any:
        raise TypeError("a fault")

    monkeypatch.setattr(client_app, "_learnt", fail)
    play(made, tmp_path)
    said = [record for record in caplog.records if "sends zeros" in record.message]
    assert {record.levelname for record in said} == {"ERROR"}
    assert all(
        "its program failed: TypeError: a fault" in record.message and record.exc_info
        for record in said
    )
    assert any("no device had a sample" in record.message for record in caplog.records)


def test_a_model_of_your_own_is_tried_before_a_fleet_starts(tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text(
        "def made(shape, arms):\n    return (lambda key: {}, lambda params, x: x[:, :7])\n"
    )
    given = TrialSettings(folder=tmp_path / "fleet", model=f"{tmp_path / 'wrong.py'}:made")
    with pytest.raises(
        ConfigError, match=r"scores of shape \(3, 10\), contexts x arms, got \(3, 7\)"
    ):
        list(trial.up(given))
    assert not (tmp_path / "fleet").exists()


def test_default_rates_follow_declared_bounds() -> None:
    client, server = DeviceSettings(features=784).rates
    assert DeviceSettings(features=784, low=0, high=1).rates == (client, server)
    assert DeviceSettings(features=784, low=0, high=255, contexts="bytes").rates == (client, server)
    large = DeviceSettings(features=784, low=0, high=255).rates
    np.testing.assert_allclose(large, (client / 255**2, server / 255), rtol=0.1)
    centred = DeviceSettings(features=784, low=-1, high=1).rates
    assert centred[0] == client, "their squares are the same"
    assert centred[1] < server / 4, "they have nothing in common"
    assert DeviceSettings(features=784, low=0, high=255, input_size=196).rates == (client, server)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"low": 5, "high": 3}, "high must be above low = 5, got 3"),
        ({"low": 5}, "high must be above low = 5, got 0"),
        ({"gate": 0.9}, "gate goes with evaluate, got gate 0.9"),
    ],
)
def test_settings_without_effect_are_refused(values: dict[str, float], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        DeviceSettings.of(values)


def test_a_model_of_bytes_says_what_contexts_are_divided_by(tmp_path: Path) -> None:
    made = settings(tmp_path, contexts="bytes", rounds=1)
    grid = FakeGrid(made, 3, tmp_path, model=str(tmp_path / "model.npz"))
    play(made, tmp_path, grid)
    rows = np.full(64, 200, np.uint8)
    app = OnDevice(tmp_path / "model.npz", tmp_path / "log.npz")
    model = Read(tmp_path / "out" / "model.npz")
    assert (model.scale, app.model.scale) == (255.0, 255.0)
    bias, weights = leaves(tmp_path / "out")
    np.testing.assert_allclose(
        app.scores(rows), (rows / np.float32(255)) @ weights + bias, rtol=1e-5
    )
    app.log(app.decide(rows), 1.0)
    with pytest.raises(
        DataError, match="declares contexts of numbers, got uint8, which count as bytes"
    ):
        log_of(made.but(contexts="numbers"), tmp_path / "log.npz")
    assert TrialSettings(folder=tmp_path).of_the_fleet().divisor == 255.0
    assert Version("run", 1, "softmax", 0.0, "linear", 2, 3, None, []).about().count("divisor") == 0


@pytest.mark.parametrize(
    ("contexts", "words"),
    [
        (np.full((2, 64), 1e39), "must be finite numbers, of 32 bits, got others in action 1"),
        (np.zeros((0, 64), np.float32), ""),
        (np.array([]), ""),
    ],
)
def test_logs_without_rows_and_with_numbers_too_large(
    tmp_path: Path, contexts: Any, words: str
) -> None:
    path, count = tmp_path / "log.npz", len(contexts)
    np.savez(
        path,
        contexts=contexts,
        arms=np.zeros(count, int),
        rewards=np.ones(count),
        probabilities=np.ones(count),
    )
    if words:
        with pytest.raises(DataError, match=words):
            log_of(settings(tmp_path), path)
    else:
        assert log_of(settings(tmp_path), path)[-1].sum() == 0


@pytest.mark.parametrize("name", ["norm.csv", "nowhere"])
def test_what_a_fleet_does_not_take_is_answered_with_what_it_takes(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / "norm.csv").write_text("client,x,label\na,1,yes\nb,2,no\n")
    why = "is none of these" if name == "norm.csv" else "is not there"
    with pytest.raises(DataError, match=f"digits, images .* or a prepared population .* {why}"):
        TrialSettings(folder=tmp_path / "fleet", data=str(tmp_path / name)).of_the_fleet()
    save(read_population(tmp_path / "norm.csv"), tmp_path / "norm.npz")
    made = TrialSettings(
        folder=tmp_path / "fleet", data=str(tmp_path / "norm.npz"), nodes=2
    ).of_the_fleet()
    assert (made.features, made.arms, made.contexts) == (1, 2, "numbers")


@pytest.mark.parametrize(
    "text",
    [
        '{"node-0001": 3}',
        '{"node-0001": {"version": "a"}}',
        '{"node-0001": {"version": 1, "at": "x"}}',
        "[1]",
    ],
)
def test_what_devices_said_and_cannot_be_read_is_asked_again(tmp_path: Path, text: str) -> None:
    play(settings(tmp_path), tmp_path)
    versions = Versions(tmp_path / "out")
    (tmp_path / "out" / HELD).write_text(text)
    assert versions.held == {}
    assert versions.missing(["node-0001"]) == {"node-0001": 2}
    assert posse("status", str(tmp_path / "out"))[0] == 0
    play(settings(tmp_path, rounds=3), tmp_path)
    assert {has["version"] for has in versions.held.values()} == {3}


@pytest.mark.parametrize("text", ['{"version": 1, "canary": "x"}', '{"version": "a"}', "3", "{}"])
def test_what_is_wanted_and_cannot_be_read_is_named(tmp_path: Path, text: str) -> None:
    play(settings(tmp_path), tmp_path)
    (tmp_path / "out" / WANTED).write_text(text)
    with pytest.raises(
        DataError, match=r"does not say which version is wanted .* Name one: posse devices deploy"
    ):
        Versions(tmp_path / "out").missing(["node-0001"])


def test_versions_without_a_file_and_under_another_number_are_named(tmp_path: Path) -> None:
    play(settings(tmp_path, rounds=3), tmp_path)
    versions = Versions(tmp_path / "out")
    versions.want(Wanted(77))
    shown = next(deployment.status(StatusSettings(folder=tmp_path / "out")))
    assert any("there is no file of version 77" in note for note in shown.notes)
    shutil.copy(versions.path(3), versions.path(2))
    with pytest.raises(DataError, match=r"000002\.npz holds version 3\. Put the file of 2 back"):
        next(deployment.deploy(DeploySettings(folder=tmp_path / "out", version=2)))


def test_a_run_that_began_without_saying_what_contexts_are_goes_on(tmp_path: Path) -> None:
    play(settings(tmp_path), tmp_path)
    before = json.loads((tmp_path / "out" / BEGUN).read_text())
    del before["contexts"]
    (tmp_path / "out" / BEGUN).write_text(json.dumps(before))
    play(settings(tmp_path, rounds=3), tmp_path)
    assert len(lines_of(tmp_path / "out")) == 3
