"""A run that goes forward by rounds: it can be read, saved and taken back at any moment, side by
side too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import posse
from posse.core.errors import ConfigError
from posse.systems.fed_contextual import simulation, study
from posse.systems.fed_contextual.run import COHORT, SERVER, Answers, FedRun, Order, Update
from posse.systems.fed_contextual.settings import FedContextual

SMALL: dict[str, Any] = {"clients": 20, "horizon": 6, "cohort": 5, "deploy_every": 2, "points": 6}


def begun(**changes: Any) -> FedRun:
    run = posse.start(FedContextual(**{**SMALL, **changes}))
    assert isinstance(run, FedRun)
    return run


@pytest.fixture
def side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "SIDE", {"cpu": 2})
    monkeypatch.setattr(simulation, "TOGETHER", {"cpu": 3})


@pytest.mark.usefixtures("side_by_side")
def test_seeds_side_by_side_go_forward_and_back_together() -> None:
    settings = FedContextual(**SMALL, runs=3, noise=1.0, delta=1e-3)
    whole, run = posse.run(settings), posse.start(settings)
    run.advance(4)
    assert (run.time, run.seeds_at_once, run.progress.run) == (8, 2, 0)
    saved, middle = run.save(), run.record()
    assert (middle.seeds, middle.steps[-1], middle.privacy[0]["releases"]) == ((0, 1), 4, 4)
    for _ in range(2):
        run.load(saved)
        assert run.record().reward.tobytes() == middle.reward.tobytes()
        run.finish()
        assert run.record().reward.tobytes() == whole.reward.tobytes()
        assert run.record().privacy == whole.privacy


def test_steps_of_any_length_are_the_same_run() -> None:
    whole, run = posse.run(FedContextual(**SMALL)), begun()
    for n in (1, 3, 9):
        run.advance(n)
    assert run.done
    assert run.record().reward.tobytes() == whole.reward.tobytes()
    assert run.record().pulls.tolist() == whole.pulls.tolist()


def test_seeds_given_are_the_seeds_run() -> None:
    both = posse.run(FedContextual(**SMALL, runs=2, seed=4))
    run = posse.start(FedContextual(**SMALL, seed=4), seeds=[5])
    run.finish()
    assert run.record().seeds == (5,)
    assert run.record().total == both.total[1:]  # the split is that of the settings' seed
    with pytest.raises(ConfigError, match=r"in \[0, 2\^32\), got -1"):
        posse.start(FedContextual(**SMALL), seeds=[-1])


def test_a_view_has_two_entries_a_round_with_the_bytes_of_a_fleet_and_the_last_updates() -> None:
    run = begun(deploy_every=2)
    assert run.view(SERVER).entries == ()
    run.advance(3)
    view = run.view(SERVER)
    orders, answers, updates = view.entries[:6:2], view.entries[1:6:2], view.entries[6:]
    assert [type(one.message) for one in updates] == [Update] * 5  # of the last round
    assert [type(one.message) for one in view.entries[:2]] == [Order, Answers]
    parameters = 650 * 4
    assert [one.size for one in orders] == [
        5 * parameters,
        10 * parameters,
        5 * parameters,
    ]  # with the deployed model
    assert [one.size for one in answers] == [5 * parameters, 5 * parameters, 5 * 12]
    assert {one.size for one in updates} == {parameters}
    assert sum(one.message.reward for one in answers) == run.record().total[0]  # type: ignore[attr-defined]
    model = view.secrets[SERVER]["params"]
    assert [one["shape"] for one in model] == [[10], [64, 10]]
    assert "optimiser" not in run.view(COHORT).secrets[COHORT]
    assert view.public["cohort"] == 5


def test_states_are_of_the_round_that_was_done() -> None:
    run = begun(noise=1.0, delta=1e-3, cohort=10)
    assert run.state(SERVER) == {"round": 0, "rounds": 6}
    run.advance(3)
    server, cohort = run.state(SERVER), run.state(COHORT)
    assert (server["round"], server["deployed"], server["rounds_paid"], server["clip"]) == (
        3,
        2,
        3,
        1.0,
    )
    assert len(cohort["last_devices"]) == cohort["last_clients"]
    assert sum(cohort["pulls"]) == run.record().pulls.sum()


def test_what_was_done_is_kept_where_it_stops(tmp_path: Path) -> None:
    whole = posse.run(FedContextual(**SMALL))
    run = begun(keep=tmp_path)

    def stop(progress: object) -> None:
        if run.time == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run.finish(stop)
    again = begun(keep=tmp_path)
    again.step()
    assert again.time == 3
    again.finish()
    assert again.record().reward.tobytes() == whole.reward.tobytes()
    assert again.record().show["resume"] == f"kept 6 rounds in {tmp_path}; the same command goes on"


def warm(scores: Any, beta: float = 0.05, xp: Any = np) -> Any:
    """Softmax, as a user writes it."""
    raised = xp.exp((scores - xp.max(scores, axis=-1, keepdims=True)) / beta)
    return raised / xp.sum(raised, axis=-1, keepdims=True)


def test_a_function_of_a_users_own_is_a_policy() -> None:
    softmax = posse.run(FedContextual(**SMALL))
    own = posse.run(FedContextual(**SMALL, policy=warm))
    assert own.reward.tobytes() == softmax.reward.tobytes()
    policy = own.config["policy"]
    assert isinstance(policy, dict)
    assert (policy["name"], policy["parameters"], len(str(policy["digest"]))) == (
        "warm",
        {"beta": 0.05},
        64,
    )
    named = posse.run(FedContextual(**SMALL, policy={"name": f"{__name__}:warm", "beta": 0.5}))
    assert named.config["policy"]["parameters"] == {"beta": 0.5}  # type: ignore[index, call-overload]
    assert named.total != softmax.total


def test_a_twin_has_the_same_cohorts_and_stops_where_the_budget_did() -> None:
    settings = FedContextual(**{**SMALL, "horizon": 40}, noise=1.0, delta=1e-3, limit=3.0)
    record, plain = posse.run(settings), posse.run(settings.plain())
    assert plain.level == "plain"
    assert plain.config["horizon"] == record.config["horizon"] < 40  # type: ignore[operator]
    assert plain.summary["samples"] == record.summary["samples"]
    assert "spent after" in str(record.show["stopped"])
