"""Devices that lag or keep logs, and arms that come and go, beside a plain loop over devices that
store all this.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from numpy.typing import NDArray

import posse
from posse.core.errors import ConfigError
from posse.policies.contextual.explorations import EpsilonGreedy, Falcon, Greedy, Softmax, among
from posse.problems.populations.population import LAG, uniforms
from posse.systems.fed_contextual.computing import rounds, training
from posse.systems.fed_contextual.computing.cohorts import (
    Schedule,
    cohort_of,
    logs_of,
    past,
    versions,
)
from posse.systems.fed_contextual.computing.server import begin
from posse.systems.fed_contextual.computing.tasks import ACT, SHUFFLE, key_of
from posse.systems.fed_contextual.computing.training import Plan, joined, train
from tests.systems.fed_contextual.toys import ARMS, RATES, TASK, close, differs, population

PLAIN: dict[str, Any] = {
    "scale": "none",
    "rounds": 14,
    "cohort": 5,
    "deploy_every": 3,
    "batch": 4,
    "client_rate": 0.1,
    "server_rate": 1.0,
    "seed": 3,
    "optimiser": "sgd",
    "clip": 0.3,
    "quantile": 0.0,
    "beta": 0.2,
    "model": "linear",
    "points": 14,
}
SCHEDULE = Schedule(rounds=60, clients=12, cohort=5, deploy_every=4, samples=12)


class Device:
    """A device that has a model, deployments on their way to it, and the logs that it made."""

    def __init__(self, number: int, model: tuple[NDArray[np.float64], NDArray[np.float64]]) -> None:
        found = population().gather([number], 12, cap=12, seed=0)
        self.number, self.model, self.version = number, model, 0
        self.x, self.y, self.mask = np.asarray(found.x[0], np.float64), found.y[0], found.mask[0]
        self.coming: list[tuple[int, int, Any]] = []
        self.logs: dict[int, Any] = {}

    def wake(self, now: int) -> None:
        """Take the newest deployment that has come."""
        here = [one for one in self.coming if one[0] <= now]
        if here:
            _, self.version, self.model = max(here, key=lambda one: one[1])

    def act(
        self, settings: posse.FedContextual, now: int, table: NDArray[np.float64], there: list[int]
    ) -> Any:
        """Choose an arm that is there for every sample, and log it."""
        drawn = np.asarray(jax.random.uniform(key_of(settings.seed, ACT, now, self.number), (12,)))
        weights, bias = self.model
        listed = (
            [0.2]
            if settings.schedule == "constant"
            else [float(one) for one in settings.schedule.split(",")]
        )
        beta = listed[min(self.version, len(listed) - 1)]
        arms, rewards, chances = np.zeros(12, int), np.zeros(12), np.ones(12)
        for at in np.flatnonzero(self.mask):
            raised = np.exp((self.x[at] @ weights[:, there] + bias[there]) / beta)
            chance = raised / raised.sum()
            place = int((chance.cumsum() <= drawn[at]).sum())
            arms[at], chances[at] = there[place], chance[place]
            rewards[at] = table[self.y[at], arms[at]]
        return arms, rewards, chances

    def learn(self, settings: posse.FedContextual, now: int, logs: list[Any], start: Any) -> Any:
        """Go once through the logs in a random order, and clip what was learnt."""
        (weights, bias), real = start, np.flatnonzero(self.mask)
        drawn = np.asarray(
            jax.random.uniform(key_of(settings.seed, SHUFFLE, now, self.number), (12 * len(logs),))
        )
        found = [
            (drawn[12 * k + at], self.x[at], log[0][at], log[1][at], 1 / log[2][at])
            for k, log in enumerate(logs)
            if log is not None
            for at in real
        ]
        largest, rows = max(row[4] for row in found), sorted(found, key=lambda row: row[0])
        for low in range(0, len(rows), 4):
            batch, step_w, step_b = rows[low : low + 4], np.zeros_like(weights), np.zeros_like(bias)
            for _, x, arm, reward, inverse in batch:
                weight = inverse / largest if settings.loss == "importance" else 1.0
                slope = 2 * weight * (x @ weights[:, arm] + bias[arm] - reward) / len(batch)
                step_w[:, arm] += slope * x
                step_b[arm] += slope
            weights, bias = weights - 0.1 * step_w, bias - 0.1 * step_b
        moved = weights - start[0], bias - start[1]
        size = np.sqrt(sum((part**2).sum() for part in moved))
        return tuple(part * 0.3 / max(0.3, size) for part in moved)


def plain(
    settings: posse.FedContextual, coming: dict[str, Any]
) -> tuple[list[float], list[int], Any, float]:
    """Play the rounds: what each earned, how often each arm was chosen, the last model, what best
    arms would earn.
    """
    model = np.zeros((5, 3)), np.zeros(3)
    devices, every = [Device(number, model) for number in range(12)], settings.deploy_every
    drawn = settings.sampling or "fixed"
    schedule = Schedule(
        settings.horizon, 12, settings.cohort, every, 12, drawn, answers=settings.answers()
    )
    drift = settings.drifting(3)
    earned, pulls, best = [], np.zeros(3, int), 0.0
    for now in range(settings.horizon):
        if now and now % every == 0:
            for device in devices:
                lag = int(
                    uniforms(settings.seed, LAG, device.number, now // every)[0]
                    * (settings.stale + 1)
                )
                device.coming.append((now + lag, now // every, model))
        table, updates, total = np.eye(3) if drift is None else drift.table(now), [], 0.0
        numbers, present = cohort_of(schedule, settings.seed, now)
        periods = [coming.get(arm, (1, 99)) for arm in ARMS]
        there = [at for at, (first, last) in enumerate(periods) if first <= now + 1 <= last]
        for device in devices:
            device.wake(now)
        for device in (devices[number] for number in numbers[present > 0]):
            if device.version not in device.logs or not settings.keep_log:
                arms, rewards, _ = device.logs[device.version] = device.act(
                    settings, now, table, there
                )
                pulls += np.bincount(arms[device.mask], minlength=3)
                total += rewards.sum()
                best += sum(table[label, there].max() for label in device.y[device.mask])
            kept = [device.logs.get(device.version - k) for k in range(max(1, settings.keep_log))]
            updates.append(device.learn(settings, now, kept, model))
        earned.append(total)
        if updates:
            count = len(updates) if drawn == "fixed" else settings.cohort
            model = tuple(
                part + sum(one[at] for one in updates) / count for at, part in enumerate(model)
            )
    return earned, pulls.tolist(), model, best


COMING = {"A": (1, 6), "a": (4, 99)}


@pytest.mark.parametrize(
    "changes",
    [
        {"stale": 5},
        {"stale": 2, "deploy_every": 4, "loss": "importance"},
        {"keep_log": 1},
        {"keep_log": 3, "stale": 4, "missing": 0.2, "sampling": "poisson"},
        {"keep_log": 2, "stale": 3, "schedule": "0.2,0.5,0.1", "policy": "softmax"},
        {"keep_log": 2, "drift": "labels", "drift_every": 4, "loss": "importance"},
        {"available": COMING},
        {"available": "A:1-6,a:4-", "keep_log": 2, "stale": 3, "loss": "importance"},
    ],
    ids=lambda changes: "-".join(map(str, changes)),
)
def test_a_run_is_the_plain_loop_over_devices(changes: dict[str, Any]) -> None:
    settings = posse.FedContextual(**{**PLAIN, **changes})
    run: Any = posse.start(settings, population=population())
    run.finish()
    record = run.record()
    earned, pulls, model, best = plain(settings, COMING if settings.available else {})
    assert record.reward[0].tolist() == np.cumsum(earned).tolist()
    assert record.pulls[0].tolist() == pulls
    assert record.summary["average_regret"] == pytest.approx(
        (best - sum(earned)) / sum(pulls), abs=1e-6
    )
    leaves = run.view("server").secrets["server"]["params"]
    bias, weights = (
        np.frombuffer(one["data"], one["type"]).reshape(one["shape"]) for one in leaves
    )
    assert np.abs(weights - model[0]).max() < 1e-5
    assert np.abs(bias - model[1]).max() < 1e-5


def test_a_deployment_reaches_every_device_in_time_and_none_goes_back() -> None:
    late, clients = SCHEDULE._replace(stale=10), np.arange(12, dtype=np.int32)
    assert (late.behind, late.older, late.window) == (3, 3, 1)
    held = np.stack([versions(late, 7, now, clients) for now in range(60)])
    assert (np.diff(held, axis=0) >= 0).all()
    newest = np.arange(60)[:, None] // 4
    assert (held <= newest).all()
    assert (held >= (np.arange(60)[:, None] - 10) // 4).all()
    assert set(np.unique(newest - held)) == {0, 1, 2, 3}
    assert (versions(SCHEDULE, 7, 59, clients) == 14).all()
    assert logs_of(SCHEDULE, 7, 59, clients) is None
    assert any((versions(late, 8, now, clients) != held[now]).any() for now in range(60))


def test_a_log_is_made_once_for_a_deployment_and_given_up_after_so_many() -> None:
    kept = SCHEDULE._replace(keep_log=2)
    assert (kept.older, kept.window) == (1, 8)
    made: dict[tuple[int, int], int] = {}
    for now in range(30):
        numbers, _ = cohort_of(kept, 1, now)
        found = logs_of(kept, 1, now, numbers)
        assert found is not None
        for number, (first, second) in zip(numbers.tolist(), found.made, strict=True):
            assert now - first == made.setdefault((number, now // 4), now)
            assert (now - second if second >= 0 else None) == made.get((number, now // 4 - 1))
        assert (found.age == [0, 1]).all()
    uses: dict[tuple[int, int], int] = {}
    for now in range(30):
        for number in cohort_of(kept, 1, now)[0].tolist():
            for key in ((number, now // 4), (number, now // 4 - 1)):
                uses[key] = uses.get(key, 0) + (key in made and made[key] <= now)
    assert past(kept, 1, 30) == (150, 0, 0, max(uses.values()))


def test_nobody_lags_before_a_second_deployment_and_no_lag_is_the_run_as_it_was() -> None:
    same = {"rounds": 3, "points": 3}
    usual, late = (
        posse.run(posse.FedContextual(**{**PLAIN, **same, **more}), population=population())
        for more in ({}, {"stale": 2})
    )
    assert (usual.total, usual.pulls.tolist()) == (late.total, late.pulls.tolist())
    assert late.summary["behind"] == 0
    assert "behind" not in usual.summary
    longer = [
        posse.run(posse.FedContextual(**{**PLAIN, "stale": lag}), population=population())
        for lag in (0, 9)
    ]
    assert longer[0].pulls.tolist() != longer[1].pulls.tolist()
    assert 0.2 < float(longer[1].summary["behind"]) < 1
    assert longer[1].summary["most_behind"] == 3


def test_device_host_cores_lanes_and_runs_side_by_side_agree() -> None:
    schedule = Schedule(
        rounds=9, clients=12, cohort=4, deploy_every=2, samples=12, stale=3, keep_log=2
    )
    task = TASK._replace(older=schedule.older)
    plan = Plan(task, RATES, schedule, here=lambda at: np.array([True, at % 3 > 0, at < 5]))
    data, first = rounds.resident(population(), 256), begin(task, 0)
    *_, (last, _) = one = list(train(plan, first, data, 7, together=9))
    *_, (hosted, _) = other = list(
        train(plan, first, rounds.host(population(), 12, 256), 7, together=4)
    )
    close(last, hosted)
    close(joined([seen for _, seen in one]).reward, joined([seen for _, seen in other]).reward)
    runs = [training.Run(0.1, 1.0, seed, begin(task, 0)) for seed in (7, 8)]
    *_, (first_run, second) = training.train_many(plan, runs, data, side=2, together=3)
    close(first_run[0], last)
    assert differs(second[0].params, last.params)
    *_, (beside, _) = train(plan._replace(task=task._replace(lanes=4)), first, data, 7, together=9)
    close(beside, last)
    drawn = training._drawn(schedule, 7, 0)
    state, _ = training._on_cores(plan._replace(rates=plan.at(0)), first, data, drawn, 7, 3, 1)
    *_, (after, _) = train(plan._replace(schedule=schedule._replace(rounds=1)), first, data, 7)
    close(state.params, after.params)


def test_a_kept_run_goes_on_with_the_older_models(tmp_path: Path) -> None:
    settings = posse.FedContextual(**{**PLAIN, "stale": 6, "keep_log": 2})
    whole = posse.run(settings, population=population())
    posse.run(settings.but(rounds=8, keep=tmp_path), population=population())
    again = posse.run(settings.but(keep=tmp_path), population=population())
    assert again.reward.tolist() == whole.reward.tolist()
    with pytest.raises(ConfigError, match="holds a run with stale 6, got 5"):
        posse.run(settings.but(keep=tmp_path, stale=5), population=population())


def test_an_estimate_and_the_last_round_know_which_model_a_device_has() -> None:
    settings = posse.FedContextual(
        **{**PLAIN, "stale": 6, "keep_log": 1, "evaluate": "softmax", "supervised": True}
    )
    run: Any = posse.start(settings, population=population())
    run.finish()
    told, last = run.record().summary, run.observe()
    assert 0 < float(told["estimated_reward"]) <= 1
    assert float(told["supervised_reward"]) > 0
    reached = np.concatenate(
        [leaf.reshape(len(last.devices), -1) for leaf in last.updates], axis=1
    ).mean(axis=0)
    assert np.linalg.norm(reached) == pytest.approx(
        float(run.state("server")["last_moved"]), rel=1e-5
    )


def test_figures_are_of_a_device_with_all_its_logs() -> None:
    noisy = {**PLAIN, "noise": 1.0, "delta": 1e-3}
    usual, kept = (
        posse.run(posse.FedContextual(**{**noisy, "keep_log": keep}), population=population())
        for keep in (0, 2)
    )
    assert usual.privacy[0]["epsilon"] == kept.privacy[0]["epsilon"]
    used = kept.summary["log_used"]
    assert f"a log was learnt from in up to {used} rounds, each counted in full" in str(
        kept.privacy[0]["sentence"]
    )
    assert usual.privacy[0]["composition"] == "sequential"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"stale": -1}, "stale must be at least 0, got -1"),
        ({"stale": 15}, "stale must be at most 14, the rounds of the run, got 15"),
        ({"keep_log": 6}, "keep_log must be at most 5, the deployments of the run, got 6"),
        ({"keep_log": -1}, "keep_log"),
        ({"stale": 2, "centralised": True}, "stale is about devices, got 2 for a centralised run"),
        ({"keep_log": 1, "centralised": True}, "keep_log is about devices"),
        (
            {"keep_log": 1, "noise": 1.0, "sampling": "fixed"},
            "keep_log with noise cannot have sampling fixed",
        ),
        ({"available": "A"}, "first and last round, such as a:20-,b:1-99, got 'A'"),
        ({"available": "A:x-9"}, "first and last round"),
        ({"available": "A:1-" + 400 * "9"}, "first and last round"),
        ({"available": "A:9-4"}, "first to last, got 9 to 4 for arm 'A'"),
        ({"available": "A:0-4"}, "got 0 to 4"),
        ({"available": {"A": 3}}, "the first and last round of arm 'A'"),
    ],
)
def test_lags_and_logs_that_cannot_be_are_refused(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        posse.FedContextual(**{**PLAIN, **changes})


def test_of_several_runs_one_may_have_no_decision() -> None:
    changes = {"rounds": 1, "runs": 8, "cohort": 1, "deploy_every": 1, "missing": 0.5, "seed": 0}
    record = posse.run(posse.FedContextual(**{**PLAIN, **changes}), population=population())
    assert 0 < int(record.summary["samples"]) < 8 * 12
    assert record.summary["average_reward_last_tenth"] == record.summary["average_reward"]


def test_a_limit_that_ends_the_run_before_the_lag_is_refused() -> None:
    short = posse.FedContextual(**{**PLAIN, "stale": 14, "noise": 1.0, "delta": 1e-3, "limit": 3.0})
    with pytest.raises(ConfigError, match=r"stale must be at most \d, the rounds of the run"):
        posse.run(short, population=population())


@pytest.mark.parametrize(
    ("available", "why"),
    [
        ("B:3-", "available has the arm 'B', which is not an arm of the data"),
        ("0:3-,A:-5,a:5-8", r"available leaves none in round 9\."),
        ("0:3-,A:2-,a:4-", r"available leaves none in round 1\. Change"),
    ],
)
def test_arms_that_are_unknown_or_leave_a_round_without_any_are_refused(
    available: str, why: str
) -> None:
    settings = posse.FedContextual(
        **{**PLAIN, "available": available.replace("0:3-,A:-5", "0:1-3,A:-5")}
    )
    with pytest.raises(ConfigError, match=why):
        posse.run(settings, population=population())


def test_an_arm_that_is_not_there_is_never_chosen_and_the_record_says_when_it_was(
    tmp_path: Path,
) -> None:
    falcon = {"policy": "falcon", "beta": None, "evaluate": "epsilon-greedy", "supervised": True}
    settings = posse.FedContextual(
        **{**PLAIN, **falcon, "rounds": 6, "stale": 2, "available": {"A": (5, None)}}
    )
    run: Any = posse.start(settings, population=population())
    run.step()
    assert run.state("cohort")["absent_arms"] == ["A"]
    run.advance(3)
    assert run.record().pulls[0][1] == 0
    run.finish()
    record = run.record()
    assert record.pulls[0][1] > 0
    assert run.state("cohort")["absent_arms"] == []
    assert record.config["available"] == "A:5-"
    (section,) = [one for one in record.show["sections"] if one["title"] == "Arms that come and go"]
    assert section["rows"] == [["A", "5 on", str(record.pulls[0][1])]]
    assert 0 < float(record.summary["chance_reward"]) < 0.5
    posse.report([record], tmp_path / "run.html")
    assert "Arms that come and go" in (tmp_path / "run.html").read_text()


def test_chances_are_those_of_the_arms_that_are_there() -> None:
    scores, here = (
        np.random.default_rng(1).normal(size=(50, 6)),
        np.array([True, False, True, True, False, True]),
    )
    softmax = among(Softmax(0.3).probabilities, scores, here)
    raised = np.exp(scores[:, here] / 0.3)
    assert np.allclose(softmax[:, here], raised / raised.sum(axis=1, keepdims=True))
    for policy in (Greedy(), EpsilonGreedy(0.4), Falcon(mu=0.1, gamma=0.0), Falcon(gamma=5.0)):
        for there in (here, np.arange(6) == 4):
            chances = among(policy.probabilities, scores, there)
            assert (chances[:, ~there] == 0).all()
            assert np.allclose(chances.sum(axis=1), 1)
            best = np.where(there, scores, -np.inf).argmax(axis=1)
            assert isinstance(policy, Falcon) or (chances.argmax(axis=1) == best).all()
    all_here = among(Falcon(gamma=5.0).probabilities, scores, np.ones(6, bool))
    assert np.allclose(all_here, Falcon(gamma=5.0).probabilities(scores))
