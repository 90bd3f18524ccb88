"""A federated contextual bandit in use: the rounds of a simulation, with decisions that its devices
make one by one.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import posse
from posse.core.errors import ConfigError
from posse.systems.fed_contextual.computing.cohorts import cohort_of
from posse.systems.fed_contextual.computing.models import read_model
from posse.systems.fed_contextual.serving import FedServing
from posse.systems.live import Bandit

ROUNDS = 4
ARMS = ("stay", "left", "right")


def serving(bandit: Bandit) -> FedServing:
    found = bandit._serving
    assert isinstance(found, FedServing)
    return found


@pytest.mark.parametrize(
    "changes",
    [{"policy": "falcon"}, {"levels": 65536, "policy": "softmax"}, {"noise": 1.0, "delta": 1e-3}],
)
def test_the_same_contexts_give_the_rounds_of_the_simulation(changes: dict[str, Any]) -> None:
    values = {
        "data": "digits",
        "clients": 12,
        "cohort": 3,
        "deploy_every": 2,
        "seed": 3,
        "cap": 12,
        **changes,
    }
    given = posse.FedContextual(horizon=ROUNDS, **values)
    run: Any = posse.start(given)
    run.finish()
    bandit = posse.live(given, rewards="fold", every=10**9)
    own = serving(bandit)
    table, population, pad = (
        np.asarray(own._plan.rates.pays[0]),
        own._setup.population,
        own._samples,
    )
    for round_ in range(ROUNDS):
        numbers, present = cohort_of(own._plan.schedule, given.seed, round_)
        found = population.gather(numbers, pad, cap=min(given.cap, pad), seed=0)
        made = {}
        for device, row in zip(*np.nonzero(found.mask & (present > 0)[:, None]), strict=True):
            one = bandit.decide(found.x[device, row], client=int(numbers[device]))
            assert one.probability is not None
            assert 0 < one.probability <= 1
            made[one.id] = float(table[found.y[device, row], one.arm])
        bandit.reward_many(
            dict(sorted(made.items(), reverse=True))
        )  # in another order than they were decided
        bandit.learn()
    expected, record = run.record(), bandit.record()
    assert record.pulls.tolist() == expected.pulls.tolist()
    assert record.total == pytest.approx(expected.total)
    assert record.privacy == expected.privacy
    for one, other in zip(
        jax.tree.leaves(run._begun[0].state), jax.tree.leaves(own._state), strict=True
    ):
        np.testing.assert_array_equal(one, other)


def make(**changes: Any) -> Bandit:
    values = {
        "clients": 4,
        "cohort": 2,
        "deploy_every": 1,
        "cap": 16,
        "policy": "softmax",
        "seed": 5,
        **changes,
    }
    return posse.live(posse.FedContextual(**values), arms=ARMS, features=2, rewards="fold", every=3)


EVENTS = st.lists(
    st.tuples(st.sampled_from("dddrrxgs"), st.integers(0, 7), st.floats(0, 1, width=32)),
    max_size=30,
)


def torment(bandit: Bandit, events: list[tuple[str, int, float]], *, restart: bool) -> list[Any]:
    happened: list[Any] = []
    for what, place, value in events:
        waiting = bandit.pending
        if what == "d":
            made = bandit.decide([value, place / 7], client=place % 4)
            happened.append((made.arm, made.probability))
        elif what == "g" and bandit.decisions:
            old = place % bandit.decisions
            happened.append(old not in waiting and bandit.reward(old, value))
        elif what == "s" and restart:
            with TemporaryDirectory() as folder:
                bandit.save(Path(folder) / "bandit")
                bandit = make().load(Path(folder) / "bandit")
        elif what in "rx" and waiting:
            id = waiting[place % len(waiting)]
            happened.append(bandit.reward(id, value) if what == "r" else bandit.drop(id))
    record = bandit.finish()
    return [
        *happened,
        record.total,
        record.pulls.tolist(),
        [leaf.tolist() for leaf in jax.tree.leaves(serving(bandit)._state)],
    ]


@settings(max_examples=8, deadline=None)
@given(events=EVENTS)
def test_restarts_change_nothing_whatever_happens_to_rewards(
    events: list[tuple[str, int, float]],
) -> None:
    assert torment(make(), events, restart=True) == torment(make(), events, restart=False)


def test_it_learns_which_arm_a_context_is_for(tmp_path: Path) -> None:
    given = posse.FedContextual(
        clients=8,
        cohort=8,
        deploy_every=1,
        cap=32,
        epsilon=0.2,
        policy="epsilon-greedy",
        server_rate=0.1,
        model_out=tmp_path / "model.npz",
    )
    bandit, earned = posse.live(given, arms=ARMS, features=2, every=64), []
    for step in range(1600):
        context = (1.0, 0.0) if step % 3 else (0.0, 1.0)
        made = bandit.decide(context)
        earned.append(float(made.name == ("left" if context[0] else "right")))
        bandit.reward(made.id, earned[-1])
    assert np.mean(earned[-400:]) > 0.75  # by chance a third
    record = bandit.finish()
    assert record.arm_names == ARMS
    assert {leaf.shape for leaf in read_model(tmp_path / "model.npz", 2)} == {(2, 3), (3,)}


def test_a_spent_privacy_budget_ends_learning_and_not_deciding() -> None:
    bandit = make(clients=200, cohort=20, noise=1.0, limit=2.0, delta=1e-4)
    most = serving(bandit)._ledger.most  # type: ignore[union-attr]
    assert most
    for _ in range(most + 3):
        bandit.learn()
    bandit.decide([0, 1])
    assert bandit.record().summary["rounds_done"] == most
    assert bandit.record().privacy[0]["epsilon"] <= 2.0  # type: ignore[operator]


def test_mistakes_are_one_line() -> None:
    bandit = make(levels=1024)
    for context, rule in (
        (None, "needs a context"),
        ([1, 2, 3], "shape"),
        ("tea", "numbers"),
        ([1, None], "numbers"),
    ):
        with pytest.raises(ConfigError, match=rule):
            bandit.decide(context)
    with pytest.raises(ConfigError, match="device's number from 0 to 3, got 4"):
        bandit.decide([1, 2], client=4)
    with pytest.raises(ConfigError, match="from -1 to 1"):
        bandit.reward(bandit.decide([1, 2]).id, 3)
    with pytest.raises(ConfigError, match="centralised is a setting of simulations"):
        posse.live(posse.FedContextual(centralised=True))
    with pytest.raises(ConfigError, match="go together"):
        posse.live(posse.FedContextual(), arms=ARMS)
    with pytest.raises(ConfigError, match="decides without context, got features 2"):
        posse.live(posse.Samba(), features=2)
