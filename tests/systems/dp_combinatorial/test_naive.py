"""Noise in every round, the exploration phase, and what a record says of the threshold and of
noise.
"""

from __future__ import annotations

import math

import pytest

import posse
from posse.core.errors import BudgetError, ConfigError
from posse.privacy.dp.accountant import advanced
from posse.privacy.dp.gaussian import epsilon_of
from posse.privacy.dp.guarantee import Budget
from posse.privacy.dp.ledger import Ledger
from posse.privacy.dp.rounds import every_round, noise_every_round
from posse.systems.dp_combinatorial.settings import DpCombinatorial
from posse.systems.registry import system_of

MARKET = {"agents": 3, "producers": 8, "horizon": 150, "seed": 4, "alpha": 0.3}


def test_agents_and_the_twin_give_one_record_and_its_plain_twin_is_fcb() -> None:
    settings = DpCombinatorial(policy="naive", explore=20, **MARKET)
    agents, twin = posse.run(settings), posse.run(settings.but(path="compiled"))
    assert agents.total == twin.total
    assert agents.regret is not None
    assert twin.regret is not None
    assert agents.regret.tobytes() == twin.regret.tobytes()
    assert [dict(one) for one in agents.privacy] == [dict(one) for one in twin.privacy]
    assert agents.show["sections"] == twin.show["sections"]
    assert agents.config["explore"] == 20
    plain = system_of(settings).twin(settings)
    assert (plain.policy, plain.explore, plain.path) == ("fcb", 20, "compiled")
    assert settings.level == "tight"


def test_a_record_says_what_rounds_add_up_to_and_warns() -> None:
    record = posse.run(DpCombinatorial(policy="naive", path="compiled", **MARKET))
    tables = {table["title"]: table for table in record.show["sections"]}
    rows = tables["What noise in every round adds up to"]["rows"]
    assert [row[2] for row in rows] == ["no", "yes", "yes", "yes", "yes", "yes"]
    assert rows[-1][1] == "(1, 0.01)"
    guarantee, release = dict(record.privacy[0]), dict(record.privacy[-1])
    assert (guarantee["releases"], guarantee["delta"], guarantee["unit"]) == (150, 0.01, "entry")
    assert (release["release"], release["message"], release["delta"]) == (150, "every round", 0.01)
    assert len(record.privacy) == 2 * MARKET["agents"]
    assert "Noise of the first report (round 1)" in record.show["warnings"][0]


def test_a_record_says_how_often_the_threshold_was_missed_beside_the_bound() -> None:
    record = posse.run(DpCombinatorial(policy="fcb", path="compiled", explore=10, **MARKET))
    table = next(
        table for table in record.show["sections"] if table["title"] == "Rounds below the threshold"
    )
    assert table["rows"][-1][0] == "150"
    missed, made = record.summary["missed"], 150 * MARKET["agents"]
    assert table["rows"][-1][1] == f"{100 * missed / made:.3g} %"
    assert "separated from 0.3 by" in table["notes"][0]
    assert "10 rounds" in table["notes"][0]
    assert "n = 3" in table["notes"][1]
    assert record.show["warnings"] == []


@pytest.mark.parametrize(("start", "warned"), [(2, True), (100, False)])
def test_a_first_report_of_mostly_noise_is_remarked(start: int, warned: bool) -> None:
    record = posse.run(DpCombinatorial(path="compiled", start=start, **MARKET))
    assert bool(record.show["warnings"]) == warned
    assert not posse.run(
        DpCombinatorial(path="compiled", start=start, noise="none", **MARKET)
    ).show["warnings"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"explore": -1}, "explore must be from 0 to the 150 rounds"),
        ({"explore": 151}, "explore must be from 0 to the 150 rounds"),
        ({"policy": "naive", "noise": "none"}, "naive is fcb with noise"),
        ({"policy": "naive", "start": 20}, "start has no meaning with method 'naive'"),
        ({"policy": "naive", "reports": (1, 2)}, "reports has no meaning with method 'naive'"),
        ({"policy": "naive", "weight": 2.0}, "weight has no meaning with method 'naive'"),
        ({"policy": "naive", "noise": "paper", "unit": "history"}, "schedule paper proves"),
        ({"policy": "naive", "delta": "0.9"}, "delta must be at most 1/n"),
    ],
)
def test_bad_values_are_refused(given: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words.replace("(", r"\(")):
        DpCombinatorial.make({**MARKET, **given}).load()


@pytest.mark.parametrize(
    ("unit", "schedule"), [("entry", "tight"), ("entry", "equal"), ("history", "tight")]
)
def test_every_round_proves_what_was_asked(unit: str, schedule: str) -> None:
    plan = every_round(Budget(1, 0.01), unit, schedule, rounds=500, producers=6)
    assert 0.999 < plan.guarantee().epsilon <= 1
    mu = 1 / plan.noise_multiplier(0)
    sequence = plan.composition() != "parallel over disjoint windows"
    assert epsilon_of(mu * math.sqrt(500 if sequence else 1), 0.01) == pytest.approx(1, rel=1e-3)
    ledger = Ledger(plan, "agent-1")
    ledger.spend(times=499)
    restored = Ledger.restored(plan, ledger.state())
    assert restored.spend() == 500
    with pytest.raises(BudgetError, match="has sent its 500 messages"):
        restored.spend()
    with pytest.raises(ConfigError, match="all releases are alike"):
        ledger.spend(3)


def test_ways_of_adding_up() -> None:
    plan = every_round(Budget(0.01, 0.01), "entry", "paper", rounds=10**6, producers=1)
    added, basic, further, rdp, gaussian, one = plan.claims()
    assert added.epsilon == pytest.approx(10**4)
    assert not added.proved
    assert one.epsilon < gaussian.epsilon < rdp.epsilon < further.epsilon < basic.epsilon
    assert advanced(0.1, 100, 1e-5) == pytest.approx(
        math.sqrt(200 * math.log(1e5)) * 0.1 + 10 * math.expm1(0.1)
    )
    assert noise_every_round(2.66, rounds=5, producers=3).guarantee().delta == 1e-5
