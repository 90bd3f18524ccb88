"""The app without processes: its model is the simulator's, and what goes wrong at devices does not
end a run.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'posse-bandits[flower]'")
pytest.importorskip(
    "sklearn", reason="scikit-learn is not installed: pip install 'posse-bandits[data]'"
)

from flwr.app import Array, ArrayRecord, Error, Message

from posse.core.errors import ConfigError, ProtocolError
from posse.results.section import Section
from posse.systems.fed_contextual.computing.rounds import host
from posse.systems.fed_contextual.flower import fleet, server_app, trial
from posse.systems.fed_contextual.flower.samples import DATA, samples_of
from posse.systems.fed_contextual.flower.settings import (
    BEGUN,
    PROGRESS,
    RESULT,
    STATE,
    DeviceSettings,
    TrialSettings,
    check_begun,
    note_begun,
)

from .grids import FakeGrid, leaves
from .simulator import SIZES, population_of, simulated, uneven


def settings(folder: Path, **values: Any) -> DeviceSettings:
    values = {
        "rounds": 3,
        "cohort": 3,
        "seed": 5,
        "samples": 64,
        "timeout": 0.2,
        "out": str(folder / "out"),
        **values,
    }
    return DeviceSettings.of(values)


def play(made: DeviceSettings, folder: Path, nodes: int = 4, **more: Any) -> FakeGrid:
    grid = FakeGrid(made, nodes, folder, **more)
    server_app.run(grid, made, "1")
    return grid


def rounds_told(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "out" / PROGRESS).read_text().splitlines()]


@pytest.mark.parametrize(
    ("values", "apart"),
    [
        ({"quantile": 0.5, "clip": 0.05}, 1e-7),
        (
            {
                "policy": "falcon",
                "explore": 10.0,
                "deploy_every": 2,
                "optimiser": "sgd",
                "server_rate": 1.0,
            },
            1e-7,
        ),
        ({"policy": "epsilon-greedy", "loss": "importance", "levels": 1000}, 1e-3),
        ({"keep_log": True, "deploy_every": 3, "rounds": 5}, 1e-7),
    ],
    ids=["adaptive clipping", "falcon, deployed every 2", "importance, whole numbers", "logs kept"],
)
def test_model_is_the_simulators(tmp_path: Path, values: dict[str, Any], apart: float) -> None:
    """To rounding: compiled alone or in a loop over clients, a sum may differ in its last bit."""
    made = settings(tmp_path, **values)
    play(made, tmp_path)
    for ours, theirs in zip(leaves(tmp_path / "out"), simulated(made, 4), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=apart)
        assert np.abs(ours).max() > 10 * apart


def test_devices_take_the_simulators_samples_and_model_whatever_their_size(tmp_path: Path) -> None:
    """Clients larger and smaller than the cap, one that dies, one that is late once; inputs are
    equal bit for bit.
    """
    made = settings(tmp_path, data=uneven(tmp_path), cohort=4, rounds=4, samples=64)
    source = host(population_of(made, 5), 64, 64)
    for at in range(len(SIZES)):
        theirs = source(np.array([at], np.int32), np.ones(1, np.float32), 0)  # type: ignore[operator]
        for one, other in zip(
            samples_of(made, {"client": at, "data": made.data}, 0), theirs, strict=False
        ):
            np.testing.assert_array_equal(one, np.asarray(other)[0])
    labels = {
        at: np.unique(samples_of(made, {"client": at, "data": made.data}, 0).labels)
        for at in (0, 3)
    }
    assert all(len(one) > 1 for one in labels.values()), (
        "not the first ones, which are of one label"
    )
    asked: list[int] = []

    def meddle(node: int, sent: Message, reply: Message | None) -> Message | None:
        asked.append(node)
        return None if node == 0 or (node == 4 and asked.count(4) == 1) else reply

    play(made, tmp_path, nodes=5, meddle=meddle)
    cohorts = [line["clients"] for line in rounds_told(tmp_path)]
    assert [len(one) for one in cohorts] != [4] * 4
    for ours, theirs in zip(
        leaves(tmp_path / "out"), simulated(made, 5, cohorts, rounds_told(tmp_path)), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-7)


def test_a_server_names_no_file_on_a_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the device's own configuration does, or the environment of simulated ones; a run names
    the digits.
    """
    made = settings(tmp_path, data=uneven(tmp_path))
    with pytest.raises(ConfigError, match="no server chooses what a device reads"):
        samples_of(made, {"client": 0}, 0)
    monkeypatch.setenv(DATA, made.data)
    assert samples_of(made, {"client": 0}, 0).mask.sum() == min(SIZES[0], 64)
    monkeypatch.delenv(DATA)
    assert samples_of(made.but(data="digits"), {"client": 0}, 0).mask.any()


def test_secure_sums_give_the_same_model_as_plain_whole_numbers(tmp_path: Path) -> None:
    plain, secure = (
        settings(tmp_path / "plain", levels=1 << 16),
        settings(tmp_path / "secure", secure=True),
    )
    play(plain, tmp_path / "plain")
    grid = play(secure, tmp_path / "secure")
    for ours, theirs in zip(
        leaves(tmp_path / "secure/out"), leaves(tmp_path / "plain/out"), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)
    for one, other in zip(
        rounds_told(tmp_path / "secure"), rounds_told(tmp_path / "plain"), strict=True
    ):
        assert one["reward"] == pytest.approx(other["reward"], abs=1e-6)
        assert one["probability"] == pytest.approx(other["probability"], abs=1e-4)
        assert one["within"] == other["within"]
    assert {message.metadata.message_type for message in grid.sent} == {"train.secure"}


def test_secure_answers_hold_nothing_but_one_message(tmp_path: Path) -> None:
    seen: list[Message] = []

    def watch(node: int, sent: Message, reply: Message | None) -> Message | None:
        assert reply is not None
        seen.append(reply)
        return reply

    play(settings(tmp_path, secure=True, rounds=1), tmp_path, nodes=3, meddle=watch)
    assert len(seen) == 3 * 5
    for reply in seen:
        assert list(reply.content) == ["stage"]
        assert list(reply.content["stage"]) == ["message"]


def test_secure_round_survives_a_lost_device(tmp_path: Path) -> None:
    """One of four is gone after it shared its secrets; the sum is that of the other three."""
    stages: dict[int, int] = {}

    def lose(node: int, sent: Message, reply: Message | None) -> Message | None:
        stages[node] = stages.get(node, 0) + 1
        return None if node == 2 and stages[node] >= 3 else reply

    made = settings(tmp_path, secure=True, rounds=1, cohort=4, dropout=0.25, corrupt=0.0)
    play(made, tmp_path, meddle=lose, corrupt=0.0)
    assert len(rounds_told(tmp_path)[0]["clients"]) == 3


def test_secure_round_with_too_few_left_is_done_again(tmp_path: Path) -> None:
    asked = []

    def lose(node: int, sent: Message, reply: Message | None) -> Message | None:
        asked.append(node)
        return None if len(asked) == 1 else reply

    made = settings(tmp_path, secure=True, rounds=1, corrupt=0.0, dropout=0.0)
    play(made, tmp_path, nodes=3, meddle=lose, corrupt=0.0)
    assert len(asked) == 3 + 5 * 3


def test_device_refuses_strangers_and_weak_plans(tmp_path: Path) -> None:
    (tmp_path / "empty").write_bytes(b"")
    made = settings(tmp_path, secure=True, rounds=1)
    with pytest.raises(ProtocolError, match="too few answers"):
        play(made, tmp_path, nodes=3, roster=str(tmp_path / "empty"))
    with pytest.raises(ProtocolError, match="too few answers"):
        play(made, tmp_path, nodes=3, **{"least-honest": 3})


def test_lost_failing_and_lying_devices_are_left_out(tmp_path: Path) -> None:
    def meddle(node: int, sent: Message, reply: Message | None) -> Message | None:
        assert reply is not None
        if node == 0:
            return None
        if node == 1:
            return Message(Error(code=0, reason="no battery"), reply_to=sent)
        if node == 2:
            reply.content["update"] = ArrayRecord({"0": Array(np.zeros(3))})
        return reply

    play(settings(tmp_path, rounds=1, cohort=5), tmp_path, nodes=5, meddle=meddle)
    assert sorted(rounds_told(tmp_path)[0]["clients"]) == [3, 4]


@pytest.mark.parametrize(
    "lie", [np.nan, np.inf, 1e6, 0.2], ids=["nan", "inf", "huge", "beyond the norm"]
)
@pytest.mark.parametrize("levels", [0, 1000])
def test_update_beyond_the_norm_is_not_added(tmp_path: Path, lie: float, levels: int) -> None:
    def meddle(node: int, sent: Message, reply: Message | None) -> Message | None:
        assert reply is not None
        if node == 1:
            record = reply.content["update"]
            big = np.full(record["1"].numpy().shape, lie * max(1, levels))
            record["1"] = Array(
                big.astype(np.float32)
                if not np.isfinite(lie)
                else big.astype(record["1"].numpy().dtype)
            )
        return reply

    play(settings(tmp_path, rounds=1, levels=levels), tmp_path, nodes=3, meddle=meddle)
    assert sorted(rounds_told(tmp_path)[0]["clients"]) == [0, 2]
    assert all(np.isfinite(leaf).all() for leaf in leaves(tmp_path / "out"))


def test_first_round_waits_for_the_fleet(tmp_path: Path) -> None:
    made = settings(tmp_path, rounds=1, cohort=2, start_with=4, timeout=5.0)
    asked: list[None] = []
    looks: list[int] = []

    def meddle(node: int, sent: Message, reply: Message | None) -> Message | None:
        looks.append(len(asked))
        return reply

    grid = FakeGrid(made, 4, tmp_path, meddle)
    whole = grid.nodes

    def come_one_by_one() -> list[Any]:
        asked.append(None)
        return whole[: len(asked)]

    grid.get_nodes = come_one_by_one  # type: ignore[method-assign]
    server_app.run(grid, made, "1")
    assert looks[0] == 4


def test_silent_device_is_left_out_of_the_next_rounds(tmp_path: Path) -> None:
    asked: list[int] = []

    def meddle(node: int, sent: Message, reply: Message | None) -> Message | None:
        asked.append(node)
        return None if node == 1 else reply

    play(settings(tmp_path, rounds=3, cohort=3), tmp_path, nodes=3, meddle=meddle)
    assert asked.count(1) == 1
    assert len(rounds_told(tmp_path)) == 3


def test_run_without_answers_ends_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, "LOOK", 0.01)
    with pytest.raises(ProtocolError, match="round 1 had too few answers 5 times"):
        play(settings(tmp_path, timeout=0.02), tmp_path, meddle=lambda node, sent, reply: None)
    with pytest.raises(ProtocolError, match="a round needs 1 nodes, got 0"):
        play(settings(tmp_path, timeout=0.02), tmp_path, nodes=0)


def test_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    whole = settings(tmp_path / "whole", rounds=4, deploy_every=2)
    play(whole, tmp_path / "whole")
    for rounds in (3, 4):
        play(settings(tmp_path / "parts", rounds=rounds, deploy_every=2), tmp_path / "parts")
    for one, other in zip(
        leaves(tmp_path / "whole/out"), leaves(tmp_path / "parts/out"), strict=True
    ):
        np.testing.assert_array_equal(one, other)
    assert [line["round"] for line in rounds_told(tmp_path / "parts")] == [1, 2, 3, 4]
    with pytest.raises(ConfigError, match=r'began with optimiser = "adam" \(now "sgd"\)'):
        play(
            settings(tmp_path / "parts", rounds=5, deploy_every=2, optimiser="sgd"),
            tmp_path / "parts",
        )


OTHER = {
    "model": "cnn",
    "policy": "falcon",
    "explore": 0.2,
    "rounds": 1,
    "cohort": 2,
    "least": 2,
    "deploy_every": 2,
    "keep_log": True,
    "samples": 32,
    "client_rate": 0.1,
    "server_rate": 0.1,
    "quantile": 0.5,
    "data": "nowhere.npz",
    "secure": True,
    "levels": 9,
    "corrupt": 0.2,
    "dropout": 0.2,
    "loss": "importance",
    "optimiser": "sgd",
    "clip": 0.5,
    "batch": 8,
    "seed": 6,
    "low": -1.0,
    "high": 1.0,
    "evaluate": "snips",
    "evaluation_clip": 5.0,
    "most_weight": 5.0,
    "input_size": 9.0,
    "contexts": "numbers",
    "hidden": 8,
    "channels": "2,3",
}
APART = {
    "features": {"features": 81},
    "arms": {"arms": 9},
    "noise": {"noise": 1.0, "devices": 3, "delta": 1e-3},
    "devices": {"noise": 1.0, "devices": 3, "delta": 1e-3},
    "delta": {"noise": 1.0, "devices": 3, "delta": 1e-3},
    "start": {"start": "model.npz"},
    "scaling": {"scaling": "0123456789ab", "contexts": "numbers"},
}


def test_a_run_goes_on_with_the_settings_it_began_with(tmp_path: Path) -> None:
    """Every setting but places, patience and how much may be spent; what differs is named."""
    play(settings(tmp_path, rounds=2), tmp_path)
    result = (tmp_path / "out" / RESULT).read_bytes()
    changes = {**{name: {name: value} for name, value in OTHER.items()}, **APART}
    free = {"out", "timeout", "grace", "start_with", "limit", "gate"}
    assert set(changes) == set(DeviceSettings.model_fields) - free
    for name, values in changes.items():
        made = settings(tmp_path, **{"rounds": 2, **values})
        with pytest.raises(
            ConfigError, match=rf"began with .*\b{name} = .* \(now .*another folder"
        ):
            server_app.run(FakeGrid(made, 3, tmp_path), made, "1")
    assert (tmp_path / "out" / RESULT).read_bytes() == result
    play(settings(tmp_path, rounds=2, timeout=0.3, start_with=2), tmp_path)


def test_up_again_in_one_folder_says_what_was_and_refuses_what_was_not(tmp_path: Path) -> None:
    """No fleet is started: the run is over, and other flags are refused before."""
    flags: dict[str, Any] = {"folder": tmp_path, "nodes": 3, "rounds": 2, "samples": 64}
    made = trial.Trial(tmp_path, TrialSettings(**flags).of_the_fleet(), 3)
    server_app.run(FakeGrid(made.settings, 3, tmp_path), made.settings, "1")
    over, section = trial.up(TrialSettings(**flags))
    assert "this run is over and nothing is trained" in str(over)
    assert isinstance(section, Section)
    assert "the server saw every device's update; --secure hides them in sums" in section.notes
    assert section.data["secure"] is False
    for other, name in (
        ({"secure": True}, "secure = false"),
        ({"policy": "falcon"}, 'policy = "softmax"'),
        ({"rounds": 3}, "rounds = 2"),
        ({"nodes": 4}, "nodes = 3"),
        ({"seed": 2}, "seed = 1"),
    ):
        with pytest.raises(ConfigError, match=re.escape(f"{name} (now ")):
            next(trial.up(TrialSettings(**{**flags, **other})))


def test_samples_that_changed_in_their_file_are_another_data_set(tmp_path: Path) -> None:
    made = settings(tmp_path, data=str(tmp_path / "samples.npz"))
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / STATE).write_bytes(b"")
    (tmp_path / "samples.npz").write_bytes(b"one")
    note_begun(made, tmp_path / "out")
    check_begun(made, tmp_path / "out")
    (tmp_path / "samples.npz").write_bytes(b"two")
    with pytest.raises(ConfigError, match="other samples in the file of data"):
        check_begun(made, tmp_path / "out")


def test_a_folder_that_does_not_say_what_it_began_with_is_refused(tmp_path: Path) -> None:
    play(settings(tmp_path, rounds=1), tmp_path)
    (tmp_path / "out" / BEGUN).unlink()
    with pytest.raises(ConfigError, match="does not say what its run began with"):
        play(settings(tmp_path, rounds=1), tmp_path)


def test_log_stays_in_the_devices_state(tmp_path: Path) -> None:
    grid = play(settings(tmp_path, cohort=2, deploy_every=2, keep_log=True), tmp_path, nodes=2)
    for context in grid.contexts.values():
        log = context.state["log"]
        assert log["arms"].numpy().shape == (64,)
        assert int(log["deployment"].numpy()) == 2
    told = rounds_told(tmp_path)
    assert told[0]["reward"] == told[1]["reward"], "one log for both rounds of a deployment"


def test_device_learns_from_an_applications_own_log(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    np.savez(
        tmp_path / "log.npz",
        contexts=rng.random((20, 64), np.float32),
        arms=rng.integers(0, 10, 20),
        rewards=np.ones(20),
        probabilities=np.full(20, 0.1),
    )
    own = {"log": str(tmp_path / "log.npz"), "model": str(tmp_path / "deployed.npz")}
    play(settings(tmp_path, rounds=2, cohort=1), tmp_path, nodes=1, **own)
    assert rounds_told(tmp_path)[0]["samples"] == 20
    assert rounds_told(tmp_path)[0]["reward"] == 1.0
    with np.load(tmp_path / "deployed.npz") as found:
        assert int(found["deployment"]) == 2
        assert np.abs(found["leaf1"]).max() > 0


def test_without_a_seed_runs_differ(tmp_path: Path) -> None:
    for name in ("one", "two"):
        play(settings(tmp_path / name, rounds=1, seed=-1), tmp_path / name)
        assert json.loads((tmp_path / name / "out" / RESULT).read_text())["reproducible"] is False
    assert not np.array_equal(leaves(tmp_path / "one/out")[1], leaves(tmp_path / "two/out")[1])


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"model": "cnnn"}, "unknown model 'cnnn'. Did you mean 'cnn'"),
        ({"samples": 100}, "multiple of batch = 16"),
        ({"least": 4}, "least must be at most cohort"),
        ({"secure": True, "cohort": 2}, "cohort of at least 3"),
        ({"secure": True, "cohort": 10_000}, "below 2\\^31"),
        ({"model": "cnn", "features": 65}, "square number"),
        ({"rate": 1}, "unknown setting 'rate'"),
        ({"policy": "epsilon-greedy", "explore": 2.0}, "must be at most 1"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(
    tmp_path: Path, values: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        settings(tmp_path, **values)
