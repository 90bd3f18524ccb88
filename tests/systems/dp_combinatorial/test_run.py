"""From settings to a record: what it holds, and what is refused before anything starts."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from posse.core.errors import ConfigError, DataError
from posse.problems.markets.instances import market_instance
from posse.results import Store, identical
from posse.results.joining import joining
from posse.results.record import Interrupted
from posse.systems.dp_combinatorial.federation import warm_up
from posse.systems.dp_combinatorial.learning import ACCEPT, POOL
from posse.systems.dp_combinatorial.settings import DpCombinatorial
from posse.systems.dp_combinatorial.terms import Terms
from posse.systems.dp_combinatorial.twin import run_once, truth_of
from posse.systems.registry import run

SMALL = {"agents": 3, "producers": 8, "rounds": 900, "runs": 2, "start": 100}


@pytest.fixture(scope="module")
def records():
    made = {}
    for method in ("p-fcb", "fcb", "alone", "placebo"):
        settings = DpCombinatorial(**SMALL).instead(policy=method)
        made[method] = (run(settings), run(settings.model_copy(update={"path": "compiled"})))
    return made


@pytest.mark.parametrize("method", ["p-fcb", "fcb", "alone", "placebo"])
def test_real_agents_and_simulation_give_the_same_record(records, method):
    real, simulated = records[method]
    assert identical(real, simulated)
    for name in ("reward", "regret", "party_total", "party_regret", "pulls"):
        assert getattr(real, name).tobytes() == getattr(simulated, name).tobytes(), name
    assert real.privacy == simulated.privacy
    assert real.summary["missed"] == simulated.summary["missed"]


def test_a_schedule_of_ones_own_is_the_same_in_agents_and_simulation():
    """The schedule as printed: reports after 1, 2, 4, ... rounds, each of which is paid for."""
    printed = tuple(2**z for z in range(8))
    settings = DpCombinatorial(agents=3, producers=8, rounds=300, reports=printed, noise="paper")
    real, simulated = run(settings), run(settings.model_copy(update={"path": "compiled"}))
    assert identical(real, simulated)
    assert real.privacy == simulated.privacy
    assert real.messages == 6 + 6 * len(printed)
    assert "start" not in real.config
    assert list(real.config["reports"]) == list(printed)
    doubled = DpCombinatorial(
        agents=3, producers=8, rounds=300, reports=(100, 200), path="compiled"
    )
    usual = DpCombinatorial(agents=3, producers=8, rounds=300, start=100, stop=300, path="compiled")
    assert run(doubled).total == run(usual).total


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"reports": (4, 4)}, "increasing rounds from 1 to 900"),
        ({"reports": ()}, "at least one"),
        ({"reports": (1, 901)}, "increasing rounds from 1 to 900"),
        ({"reports": (1, 2), "start": 5}, "start has no meaning with reports"),
        ({"reports": (1, 2), "policy": "fcb"}, "reports has no meaning with method 'fcb'"),
    ],
)
def test_reports_that_cannot_be(given, says):
    with pytest.raises(ConfigError, match=says):
        DpCombinatorial(agents=3, producers=8, rounds=900, **given)


def test_a_record_adds_up(records):
    record, _ = records["p-fcb"]
    assert record.parties == ("agent-1", "agent-2", "agent-3")
    assert record.total == pytest.approx(record.party_total.sum(axis=1))
    assert record.regret[:, -1] == pytest.approx(record.party_regret.sum(axis=1))
    assert record.steps[-1] == 900
    assert (np.diff(record.regret, axis=1) >= -1e-9).all()
    assert record.messages == 2 * (
        6 + 6 * 4
    )  # two runs: greetings, and reports after 100, 200, 400, 800
    assert "privacy" not in record.config
    assert record.words.arm == "producer"


def test_every_agent_has_its_ledger(records):
    record, _ = records["p-fcb"]
    whole = [entry for entry in record.privacy if "composition" in entry]
    single = [entry for entry in record.privacy if "composition" not in entry]
    assert [entry["party"] for entry in whole] == list(record.parties)
    assert len(single) == 3 * 4
    for entry in whole:
        assert 0.99 < entry["epsilon"] <= 1
        assert entry["delta"] == 0.01
        assert entry["unit"] == "entry"
        assert entry["not_covered"]
    assert not records["alone"][0].privacy
    assert not records["fcb"][0].privacy


def test_levels_say_what_they_are(records):
    assert [records[method][0].level for method in ("p-fcb", "fcb", "alone", "placebo")] == [
        "tight",
        "plain",
        "alone",
        "placebo",
    ]
    assert run(DpCombinatorial(**SMALL, noise="none", path="compiled")).level == "plain"
    assert "no noise" in " ".join(records["fcb"][0].leaks)


def test_joining_is_told_by_agent(records):
    (joined,) = joining([records["alone"][0], records["fcb"][0]])
    assert [share.party for share in joined.shares] == list(records["alone"][0].parties)
    assert joined.ratio is not None
    assert joined.ratio.estimate < 1


def test_a_record_survives_the_store(records, tmp_path):
    with Store(tmp_path / "runs.sqlite") as store:
        store.save(records["p-fcb"][0])
        assert store.get("last") == records["p-fcb"][0]


def interrupted(at, **settings):
    def stop(progress):
        if progress.fraction > at:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted) as caught:
        run(DpCombinatorial(**{**SMALL, **settings}), watch=stop)
    return caught.value.record


def test_an_interrupted_run_keeps_what_was_done():
    first, second = interrupted(0.2), interrupted(0.6)
    assert first.status == second.status == "interrupted"
    assert 0 < first.steps.size < 200  # the one run that was going on
    assert first.runs == 1
    assert first.summary["steps_done"] == pytest.approx(360, abs=5)
    assert second.runs == 1  # whole runs only, where there is one
    assert second.steps[-1] == second.summary["steps_done"] == 900


def test_an_interrupted_simulation_keeps_every_run_as_far_as_it_came_and_stops_soon():
    settings = {"runs": 4, "path": "compiled", "rounds": 200_000}
    record, whole = interrupted(0.3, **settings), run(DpCombinatorial(**{**SMALL, **settings}))
    assert record.status == "interrupted"
    assert record.seeds == whole.seeds == (1, 2, 3, 4)
    reached = len(record.steps)
    assert 0.3 * 200_000 <= record.steps[-1] < 200_000
    for name in ("reward", "regret"):
        assert getattr(record, name).tobytes() == getattr(whole, name)[:, :reached].tobytes()


def test_exact_oracle_runs_in_agents():
    settings = DpCombinatorial(
        agents=2, producers=5, rounds=60, start=20, instance_seed=5, alpha=0.3, oracle="exact"
    )
    record = run(settings)
    greedy = run(settings.model_copy(update={"oracle": "greedy"}))
    assert record.total_mean == pytest.approx(greedy.total_mean, rel=0.05)


def test_memory_does_not_grow_with_the_rounds():
    market = market_instance(1, agents=3, producers=8)
    truth = truth_of(market)
    warm_up()

    def peak(rounds):
        tracemalloc.start()
        run_once(
            market, Terms(market.agents, market.producers, rounds, "fcb"), 1, truth=truth, points=50
        )
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    peak(100)
    assert peak(100_000) < 1.2 * peak(2_000) + 20_000


@pytest.mark.parametrize(
    ("values", "what"),
    [
        ({"epsilon": 0}, "epsilon must be"),
        ({"epsilon": -1}, "epsilon must be"),
        ({"delta": "1"}, "delta must be"),
        ({"delta": "2"}, "delta must be"),
        ({"delta": "half"}, "delta must be a number, 1/n or 1/T, got 'half'"),
        ({"delta": "1/0"}, "delta must be a number"),
        ({"delta": "0.2"}, "at most 1/n = 0.1 for 10 agents"),
        ({"start": 500, "stop": 100}, "stop 100 before start 500"),
        ({"rounds": 100}, "nobody would talk"),
        ({"start": 0}, "start must be at least 1"),
        ({"alpha": 1.2}, "alpha must be"),
        ({"alpha": 0.9999}, "out of reach: the best quality on offer is 0.9"),
        ({"agents": 1}, "at least 2 agents"),
        ({"agents": 0}, "agents must be"),
        ({"producers": 0}, "producers must be"),
        ({"rounds": 0, "method": "alone"}, "horizon must be at least 1"),
        ({"width": -1}, "width must be"),
        ({"weight": 0}, "weight must be"),
        ({"margin": -0.1}, "margin must be"),
        ({"coefficient": -1}, "coefficient must be"),
        ({"oracle": "exact", "path": "compiled"}, "exact oracle runs in agents"),
        (
            {"oracle": "exact", "horizon": 20_001},
            "path 'agents' and 20,001 rounds. Use the greedy oracle",
        ),
        ({"noise": "paper", "unit": "round"}, "schedule paper proves"),
        ({"epsilom": 1}, "unknown setting 'epsilom'. Did you mean 'epsilon'"),
        ({"unit": "year"}, "unit must be 'entry', 'round' or 'history'"),
        ({"runs": 0}, "runs must be"),
        ({"seed": -1}, "seed must be"),
    ],
)
def test_refuses_in_one_line(values, what):
    with pytest.raises((ConfigError, DataError)) as caught:
        DpCombinatorial.make(values).load()
    assert what in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_is_sent_after_every_round_is_pooled_whatever_the_rule():
    rules = [
        Terms(("ada", "bob"), ("north",), 6, method, (), (), "accept").learning_rule
        for method in ("fcb", "alone")
    ]
    assert rules == [POOL, ACCEPT]


def test_the_exact_oracle_runs_for_as_many_rounds_as_are_said():
    assert DpCombinatorial(oracle="exact", horizon=20_000).horizon == 20_000


def test_delta_can_be_told_by_agents_or_rounds():
    settings = DpCombinatorial(agents=4, rounds=1000, delta="1/T")
    assert settings.load().plan.delta == 1e-3
    assert settings.model_copy(update={"delta": "1/n"}).load().plan.delta == 0.25
    assert settings.model_copy(update={"delta": "1/50"}).load().plan.delta == 0.02
    own, _ = settings.but(delta="1/n").plan_and_terms(("a", "b", "c", "d", "e"), ("p", "q"))
    assert own.delta == 0.2  # of agents with offers of their own as many as there are


def test_fewer_producers_a_agent_need_less_noise_for_a_round():
    wide = DpCombinatorial(unit="round").load().plan.multipliers[0]
    narrow = DpCombinatorial(unit="round", overlap=0.2, alpha=0.2).load().plan.multipliers[0]
    assert wide / narrow == pytest.approx(np.sqrt(30 / 6), rel=1e-3)
