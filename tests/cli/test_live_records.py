"""Records of bandits in use: what was learnt can be taken out, and screen and report say what is
known, no more.
"""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

import posse as library
from posse.core.errors import ConfigError
from posse.results.plots import reward_curves
from posse.systems.live import Bandit
from tests.kit.commands import Call


@pytest.fixture(scope="module")
def used() -> library.Record:
    """What devices learnt that are paid for telling which of two numbers is larger."""
    bandit = library.live(library.FedContextual(clients=5, cohort=4), arms=("a", "b"), features=2)
    draw = random.Random(1)
    for i in range(200):
        x = [draw.random(), draw.random()]
        made = bandit.decide(x, client=i % 5)
        bandit.reward(made.id, float(made.arm == (x[0] > x[1])))
    return bandit.finish()


def test_what_devices_learnt_in_use_decides(used: library.Record) -> None:
    assert used.policy.decide([0.95, 0.05]).name == "b"
    assert used.policy.decide([0.05, 0.95]).name == "a"


def test_a_record_of_devices_in_use_says_how_many_and_what_they_earned(
    used: library.Record, posse: Call, tmp_path: Path
) -> None:
    library.Store().save(used)
    shown = " ".join(posse("runs", "show", "last").out.split())
    earned = f"earned {used.total[0]:.0f} in 200 decisions"
    assert earned in shown
    assert "5 devices" in shown
    assert "2 arms" in shown
    assert "2 parties" not in shown
    assert "200 rounds" not in shown
    assert "0 ms" not in shown
    assert "CPU time" not in shown
    library.report([used], tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text()
    assert earned in page.split("<h2", 1)[0]
    assert "0 ms" not in page


def bandit(**more: object) -> Bandit:
    return library.live(library.Samba(policy="ucb", path="plain"), arms=("red", "blue"), **more)  # type: ignore[arg-type]


def test_an_open_record_names_no_winner_and_is_in_use(posse: Call) -> None:
    made = bandit(rewards="fold")
    made.decide_many(4)
    made.reward(0, 1)
    record = made.record()
    library.Store().save(record)
    shown = " ".join(posse("runs", "show", "last").out.split())
    assert "won" not in shown
    assert "earned 1 in 4 decisions, 3 of them without a reward yet" in shown
    assert "4 of 4" not in shown
    assert "It is in use" in shown
    assert record.state == "running: 4 decisions so far"
    (line,) = reward_curves(record).axes[0].lines
    assert line.get_marker() == "o"  # one point is no line
    assert made.finish().state == "finished"


def test_numbers_of_numpy_are_taken() -> None:
    made = bandit(rewards="fold", horizon=np.int64(20))
    assert len(made.decide_many(np.int64(6))) == 6  # type: ignore[arg-type]
    for id, value in enumerate((np.int64(1), np.float32(1), np.bool_(True), np.float64(0.5), 0)):
        assert made.reward(np.int64(id), value)  # type: ignore[arg-type]
    assert made.total == 3.5
    assert made.drop(np.int32(5))  # type: ignore[arg-type]
    assert not made.pending


@pytest.mark.parametrize("value", ["1", None, np.float64("nan"), np.array([1.0]), 1j])
def test_what_is_no_reward_is_refused(value: object) -> None:
    made = bandit()
    made.decide()
    with pytest.raises(ConfigError) as error:
        made.reward(0, value)  # type: ignore[arg-type]
    assert error.value.rule == "systems.reward.not-finite"


@pytest.mark.parametrize("contexts", [2.5, -1, True, "two", None])
def test_what_is_no_batch_is_refused(contexts: object) -> None:
    with pytest.raises(ConfigError) as error:
        bandit(rewards="fold").decide_many(contexts)  # type: ignore[arg-type]
    assert error.value.rule == "systems.contexts.not-a-batch"


@pytest.mark.parametrize("arms", [3, "red", ("red",), ("red", "red"), ("red", 2), None.__class__])
def test_arms_that_are_no_names_are_refused(arms: object) -> None:
    with pytest.raises(ConfigError) as error:
        library.live(library.Samba(path="plain"), arms=arms)  # type: ignore[arg-type]
    assert error.value.rule == "systems.arms.not-names"


@pytest.mark.parametrize("settings", ["samba", None, library.Samba, 3])
def test_what_is_no_settings_is_refused(settings: object) -> None:
    with pytest.raises(ConfigError) as error:
        library.live(settings, arms=("red", "blue"))  # type: ignore[arg-type]
    assert error.value.rule == "systems.settings.wrong-type"
