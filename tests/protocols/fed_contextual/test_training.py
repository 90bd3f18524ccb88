from __future__ import annotations

from pathlib import Path

import jax
import numpy as np
import pytest

from posse.problems.populations.worlds import Availability
from posse.protocols.fed_contextual import rounds
from posse.protocols.fed_contextual.cohorts import Schedule, cohort_of
from posse.protocols.fed_contextual.rounds import Data, Source
from posse.protocols.fed_contextual.server import Measured, State, adam, begin, sgd
from posse.protocols.fed_contextual.training import Plan, average_reward, joined, load, save, train
from tests.protocols.fed_contextual.toys import RATES, TASK, close, differs, population, same

ADAM = TASK._replace(optimiser=adam())
SCHEDULE = Schedule(rounds=12, clients=12, cohort=4, deploy_every=5, samples=12)
PLAN = Plan(ADAM, RATES, SCHEDULE)


@pytest.fixture(scope="module")
def data() -> Data:
    return rounds.resident(population(), 256)


def all_of(source: Source, schedule: Schedule = SCHEDULE, together: int = 4) -> tuple[list[State], Measured]:
    states, seen = zip(*train(Plan(ADAM, RATES, schedule), begin(ADAM, 0), source, 7, together=together), strict=True)
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
def test_a_run_taken_up_again_is_the_same_bit_for_bit(where: str, data: Data, tmp_path: Path) -> None:
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
    save(tmp_path / "state.npz", state, first._replace(pulls=None))
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
    same(joined([jax.tree.map(lambda leaf: leaf[:1], seen), jax.tree.map(lambda leaf: leaf[1:], seen)]), seen)
