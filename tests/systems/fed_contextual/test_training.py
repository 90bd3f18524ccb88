from __future__ import annotations

from pathlib import Path

import jax
import numpy as np
import pytest

import posse
from posse.problems.populations.worlds import Availability
from posse.systems.fed_contextual.computing import rounds, training
from posse.systems.fed_contextual.computing.cohorts import Schedule, cohort_of
from posse.systems.fed_contextual.computing.models import cnn, linear
from posse.systems.fed_contextual.computing.rounds import Data, Source
from posse.systems.fed_contextual.computing.server import Measured, State, adam, begin, sgd
from posse.systems.fed_contextual.computing.tasks import Task
from posse.systems.fed_contextual.computing.training import (
    Plan,
    average_reward,
    joined,
    load,
    save,
    train,
)
from tests.systems.fed_contextual.toys import RATES, TASK, close, differs, population, same

ADAM = TASK._replace(optimiser=adam())
SCHEDULE = Schedule(rounds=12, clients=12, cohort=4, deploy_every=5, samples=12)
PLAN = Plan(ADAM, RATES, SCHEDULE)


@pytest.fixture(scope="module")
def data() -> Data:
    return rounds.resident(population(), 256)


def all_of(
    source: Source, schedule: Schedule = SCHEDULE, together: int = 4
) -> tuple[list[State], Measured]:
    states, seen = zip(
        *train(Plan(ADAM, RATES, schedule), begin(ADAM, 0), source, 7, together=together),
        strict=True,
    )
    return list(states), joined(list(seen))


def test_a_model_is_deployed_after_every_so_many_rounds() -> None:
    states = [begin(ADAM, 0), *all_of(rounds.host(population(), 12, 256), together=1)[0]]
    assert [int(state.round) for state in states] == list(range(13))
    for at, state in enumerate(states):
        same(state.deployed, states[at - at % 5].params)
    assert differs(states[5].deployed, states[4].deployed)


def test_the_host_gives_the_same_run_as_the_device(data: Data) -> None:
    on_device, on_host = all_of(data), all_of(rounds.host(population(), 12, 256))
    for one, other in zip(on_device[0], on_host[0], strict=True):
        close(one.params, other.params, 1e-5)
        close(one.deployed, other.deployed, 1e-5)
    close(on_device[1].samples, on_host[1].samples)


@pytest.mark.parametrize("where", ["device", "host"])
@pytest.mark.parametrize(
    ("task", "schedule"),
    [
        (ADAM, SCHEDULE._replace(rounds=3, cohort=7)),
        (ADAM._replace(levels=1000), SCHEDULE._replace(rounds=3, cohort=3, sampling="poisson")),
        (ADAM, SCHEDULE._replace(rounds=2, supervised=True)),
    ],
    ids=["floats", "whole numbers, drawn by coins", "supervised"],
)
def test_any_number_of_cores_gives_the_same_bits(
    where: str, task: Task, schedule: Schedule, data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of the round in one piece too where sums are of whole numbers, else to rounding."""
    source: Source = data if where == "device" else rounds.host(population(), 12, 256)
    plan = Plan(task, RATES, schedule)
    (whole, told) = list(train(plan, begin(task, 0), source, 7, together=3, cores=2))[-1]
    monkeypatch.setattr(training, "WORK", 1)
    monkeypatch.setattr(training, "PARTS", 3)
    found = [
        list(train(plan, begin(task, 0), source, 7, together=3, cores=cores))[-1]
        for cores in (1, 2, 3)
    ]
    for state, seen in found:
        same((state, seen), found[0])
        (same if task.levels else close)(state.params, whole.params)
        close(jax.tree.map(np.ravel, seen), jax.tree.map(np.ravel, told))
    assert differs(whole.params, begin(task, 0).params)


def test_a_run_takes_the_cores_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that there are, or a number of them: the same record; and the one of a round in one
    piece, to rounding.
    """
    monkeypatch.setattr(training, "WORK", 1)
    usual = {
        "scale": "none",
        "rounds": 4,
        "cohort": 5,
        "deploy_every": 2,
        "batch": 4,
        "client_rate": 0.1,
        "server_rate": 0.05,
    }
    made = [
        posse.run(posse.FedContextual(**usual, cores=cores), population=population())
        for cores in (None, 0, 1, 2)
    ]
    assert len({(one.total, tuple(one.pulls.ravel().tolist())) for one in made}) == 1
    monkeypatch.setattr(
        training, "_on_cores", lambda *given: pytest.fail(f"it was divided over {given[-1]} cores")
    )
    posse.run(posse.FedContextual(**usual), population=population())
    with pytest.raises(pytest.fail.Exception, match="over 3 cores"):
        posse.run(posse.FedContextual(**usual, cores=3), population=population())


def test_rounds_are_divided_by_their_work_alone() -> None:
    small, large = linear(64, 10), cnn(62)
    assert training.divided(TASK._replace(model=small), 20, 96) == 1
    assert [
        training.divided(TASK._replace(model=large), count, 208) for count in (1, 7, 20, 64, 128)
    ] == [
        1,
        7,
        7,
        8,
        8,
    ]
    assert training.divided(TASK._replace(model=large, centralised=True), 64, 208) == 1


@pytest.mark.parametrize("where", ["device", "host"])
def test_a_run_taken_up_again_is_the_same_bit_for_bit(
    where: str, data: Data, tmp_path: Path
) -> None:
    source: Source = data if where == "device" else rounds.host(population(), 12, 256)
    states, whole = all_of(source)
    running = train(PLAN, begin(ADAM, 0), source, 7, together=4)
    state, first = next(running)
    save(tmp_path / "state.npz", state, first)
    again, kept = load(tmp_path / "state.npz", begin(ADAM, 0))
    assert int(again.round) == 4
    *_, (last, _) = resumed = list(train(PLAN, again, source, 7, together=4))
    same(last, states[-1])
    same(joined([kept, *(seen for _, seen in resumed)]), whole)
    assert whole.pulls is not None
    assert whole.pulls.sum() == whole.samples.sum()
    assert [path.name for path in tmp_path.iterdir()] == ["state.npz"]


def test_a_state_of_another_task_is_refused(tmp_path: Path) -> None:
    zero = Measured(*np.zeros((7, 3), np.float32))
    save(tmp_path / "state.npz", begin(TASK, 0), zero)
    with pytest.raises(ValueError, match="kept by another model or optimiser"):
        load(tmp_path / "state.npz", begin(ADAM, 0))
    load(tmp_path / "state.npz", begin(TASK._replace(optimiser=sgd()), 0))


def test_a_state_from_before_pulls_were_counted_goes_on(data: Data, tmp_path: Path) -> None:
    state, first = next(train(PLAN, begin(ADAM, 0), data, 7, together=4))
    save(tmp_path / "state.npz", state, first._replace(pulls=None, best=None))
    again, kept = load(tmp_path / "state.npz", begin(ADAM, 0))
    same(again, state)
    assert joined([kept, first]).pulls is None  # how often is not known of all rounds
    same(joined([kept, first]).reward[4:], first.reward)


def test_a_seed_outside_32_bits_is_refused(data: Data) -> None:
    with pytest.raises(ValueError, match=r"in \[0, 2\^32\), got -1"):
        next(train(PLAN, begin(ADAM, 0), data, -1))


def test_clients_can_be_some_of_the_population_and_not_all_answer() -> None:
    some = SCHEDULE._replace(clients=5, among=(1, 3, 5, 7, 9), cohort=3)
    numbers, present = cohort_of(some, 0, 0)
    assert set(numbers.tolist()) <= {1, 3, 5, 7, 9}
    assert present.all()
    away = some._replace(answers=Availability(missing=0.5))
    here = np.concatenate([cohort_of(away, 0, at)[1] for at in range(100)])
    assert 0.3 < here.mean() < 0.7


def test_the_average_reward_runs() -> None:
    zeros = np.zeros(3)
    seen = Measured(np.array([2.0, 0, 4]), np.array([4.0, 4, 0]), zeros, zeros, zeros, zeros, zeros)
    assert average_reward(seen).tolist() == [0.5, 0.25, 0.75]
    same(
        joined(
            [jax.tree.map(lambda leaf: leaf[:1], seen), jax.tree.map(lambda leaf: leaf[1:], seen)]
        ),
        seen,
    )
