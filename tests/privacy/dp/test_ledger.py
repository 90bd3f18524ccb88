"""The ledger: pays before, refuses beyond, forgets nothing."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import pytest

from posse.core.errors import BudgetError, ConfigError, MissingExtraError
from posse.privacy.dp.accountant import composed_epsilon, gaussian_event
from posse.privacy.dp.guarantee import Budget
from posse.privacy.dp.ledger import Ledger
from posse.privacy.dp.plans import Plan, plan, plan_of_noise

ROUNDS = (200, 400, 800)


def tight() -> Plan:
    return plan(Budget(1, 0.01), rounds=ROUNDS, producers=30)


def spent(ledger: Ledger[Plan], message: int) -> float:
    ledger.spend(message)
    return ledger.epsilon


def test_disjoint_windows_spend_once() -> None:
    ledger = Ledger(tight(), "agent-1")
    figures = [spent(ledger, z) for z in range(3)]
    assert figures == [ledger.epsilon] * 3
    assert ledger.guarantee() == ledger.mechanism.guarantee()


def test_a_missing_accountant_is_known_before_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    made = plan_of_noise(1.0, rounds=[5], producers=2)
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(MissingExtraError, match=r"pip install .*\[dp\]"):
        Ledger(made)


def test_before_any_release_nothing_is_spent() -> None:
    guarantee = Ledger(tight(), "agent-1").guarantee()
    assert (guarantee.epsilon, guarantee.releases) == (0.0, 0)


def test_the_same_window_again_is_refused_and_nothing_changes() -> None:
    ledger = Ledger(tight(), "agent-1")
    ledger.spend(1)
    before = (ledger.state(), ledger.entries(), ledger.guarantee())
    with pytest.raises(
        BudgetError, match=r"^\[P600\] agent-1 cannot send message 2 \(round 400\) once more"
    ) as caught:
        ledger.spend(1)
    assert caught.value.exit_code == 2
    assert (ledger.state(), ledger.entries(), ledger.guarantee()) == before
    ledger.spend(2)


def test_the_same_window_again_is_composed_where_the_budget_allows_it() -> None:
    paper = plan(Budget(1, 0.01), "entry", "paper", rounds=ROUNDS, producers=30, horizon=100_000)
    ledger = Ledger(paper, "agent-1")
    event = gaussian_event(paper.noise_multiplier(0))
    assert [spent(ledger, 0), spent(ledger, 0)] == [
        composed_epsilon([event] * count, 0.01) for count in (1, 2)
    ]
    assert ledger.guarantee().releases == 2


def test_sequential_releases_add_up() -> None:
    equal = plan(Budget(1, 0.01), schedule="equal", rounds=ROUNDS, producers=30)
    ledger = Ledger(equal, "agent-1")
    figures = [spent(ledger, z) for z in (2, 0, 1)]
    assert figures == sorted(figures)
    assert figures[0] < figures[1] < figures[2] <= 1
    with pytest.raises(BudgetError):
        ledger.spend(0)


def test_without_a_budget_it_counts_and_never_refuses() -> None:
    ledger = Ledger(plan_of_noise(0.5, rounds=ROUNDS, producers=30), "agent-1")
    figures = [spent(ledger, 0) for _ in range(4)]
    assert figures == sorted(set(figures))
    assert figures[-1] > 10


def test_the_rows_of_the_report() -> None:
    ledger = Ledger(tight(), "agent-1")
    ledger.spend(2)
    ledger.spend(0)
    rows = json.loads(json.dumps(ledger.entries(), allow_nan=False))
    assert [
        (row["party"], row["release"], row["message"], row["round"], row["window"]) for row in rows
    ] == [
        ("agent-1", 1, 3, 800, 400),
        ("agent-1", 2, 1, 200, 200),
    ]
    assert rows[0]["multiplier"] == ledger.mechanism.multipliers[2]
    assert (rows[1]["epsilon"], rows[1]["delta"], rows[1]["unit"]) == (
        ledger.epsilon,
        0.01,
        "entry",
    )


def test_a_ledger_is_restored_and_goes_on_refusing() -> None:
    ledger = Ledger(tight(), "agent-1")
    ledger.spend(0)
    again = Ledger.restored(tight(), json.loads(json.dumps(ledger.state())))
    assert (again.state(), again.entries(), again.guarantee()) == (
        ledger.state(),
        ledger.entries(),
        ledger.guarantee(),
    )
    with pytest.raises(BudgetError):
        again.spend(0)


def test_a_ledger_is_not_restored_under_another_plan() -> None:
    state = Ledger(tight(), "agent-1").state()
    with pytest.raises(ConfigError, match=r"kept for budget \[1, 0.01\], got \[2, 0.01\]"):
        Ledger.restored(replace(tight(), budget=Budget(2, 0.01)), state)


@pytest.mark.parametrize("z", [-1, 3])
def test_messages_that_are_not_planned(z: int) -> None:
    with pytest.raises(ConfigError, match="the plan has 3 messages"):
        Ledger(tight(), "agent-1").spend(z)


def test_a_state_lists_messages_and_how_often_each_was_paid_for_in_a_row() -> None:
    free = plan_of_noise(0.5, rounds=ROUNDS, producers=30)
    ledger = Ledger(free, "agent-1")
    for message in (0, 2, 2, 1):
        ledger.spend(message)
    assert ledger.state()["released"] == [0, [2, 2], 1]
    each = {**ledger.state(), "released": [0, 2, 2, 1]}
    assert (
        Ledger.restored(free, each).state()
        == Ledger.restored(free, ledger.state()).state()
        == ledger.state()
    )


def test_a_state_of_another_kind_of_mechanism_is_refused() -> None:
    state = Ledger(tight(), "agent-1").state()
    with pytest.raises(ConfigError, match="kept for budget"):
        Ledger.restored(tight(), {**state, "plan": state["plan"][:-1]})
    with pytest.raises(ConfigError, match="the ledger was kept for"):
        Ledger.restored(tight(), {**state, "plan": [*state["plan"], 7]})
