"""The ledger of arms: counts cheaply, tells both figures, refuses beyond the budget, forgets nothing."""

from __future__ import annotations

import json
import math
import sys

import pytest

from posse.core.errors import BudgetError, ConfigError, MissingExtraError
from posse.privacy.dp import ArmChoice, ArmLedger, Budget, choice
from posse.privacy.dp.arm_ledger import LATER_ROUNDS, NEVER_COVERED

BUDGET = Budget(100, 1e-5)


def test_before_any_round_nothing_is_spent() -> None:
    ledger = ArmLedger(10, 0.1)
    assert [(made.epsilon, made.releases) for made in ledger.guarantees()] == [(0.0, 0), (0.0, 0)]
    assert {claim.epsilon for claim in ledger.claims()} == {0.0}


def test_both_figures_are_told() -> None:
    ledger = ArmLedger(10, 0.1)
    ledger.spend(60_000)
    score, context = ledger.guarantees()
    assert (score.unit, score.figure, score.releases) == ("score", "(4.511, 0)", 60_000)
    assert (context.unit, context.figure, context.releases) == ("context", "(245200, 1e-05)", 60_000)
    assert score.not_covered == (LATER_ROUNDS, *NEVER_COVERED)
    assert context.not_covered == NEVER_COVERED
    for made in (score, context):
        assert json.loads(json.dumps(made.entry(), allow_nan=False))["unit"] == made.unit


def test_the_published_figure_stands_beside_the_proved_ones() -> None:
    ledger = ArmLedger(10, 0.1)
    ledger.spend(60_000)
    assert [claim.figure for claim in ledger.claims()] == [
        "(4.606, 0)",
        "(4.511, 0)",
        "(276400, 0)",
        "(270700, 0)",
        "(245200, 1e-05)",
    ]
    assert all(claim.proved for claim in ledger.claims())


def test_a_round_beyond_the_budget_is_refused_and_nothing_changes() -> None:
    ledger = ArmLedger(10, 0.1, BUDGET)
    most = ArmChoice(10, 0.1).most_rounds(BUDGET)
    assert most is not None
    assert [ledger.spend() for _ in range(most)] == list(range(1, most + 1))
    before = (ledger.state(), ledger.guarantees())
    assert (ledger.left, ledger.total().epsilon <= 100) == (0, True)
    refusal = rf"^\[P600\] the arm of round {most + 1} cannot be opened: .* of \(100, 1e-05\)\."
    with pytest.raises(BudgetError, match=refusal):
        ledger.spend()
    assert (ledger.state(), ledger.guarantees()) == before


def test_without_exploration_no_budget_allows_a_round() -> None:
    with pytest.raises(BudgetError, match="no finite epsilon"):
        ArmLedger(10, 0.0, BUDGET).spend()


def test_without_exploration_and_budget_rounds_are_counted_and_prove_nothing() -> None:
    ledger = ArmLedger(10, 0.0)
    ledger.spend()
    assert [made.epsilon for made in ledger.guarantees()] == [math.inf, math.inf]
    assert [made.entry()["epsilon"] for made in ledger.guarantees()] == [None, None]


def test_nothing_but_exploration_is_free() -> None:
    ledger = ArmLedger(10, 1.0, BUDGET)
    ledger.spend(10**9)
    assert ledger.left is None
    assert [made.epsilon for made in ledger.guarantees()] == [0.0, 0.0]


def test_a_round_composes_nothing() -> None:
    ledger = ArmLedger(10, 0.9, BUDGET)
    before = choice._walk.cache_info()
    for _ in range(100):
        ledger.spend()
    assert choice._walk.cache_info() == before


def test_a_ledger_is_restored_and_goes_on_refusing() -> None:
    ledger = ArmLedger(10, 0.1, BUDGET)
    ledger.spend(5)
    again = ArmLedger.restored(10, 0.1, BUDGET, json.loads(json.dumps(ledger.state())))
    assert (again.state(), again.guarantees(), again.left) == (ledger.state(), ledger.guarantees(), ledger.left)
    fresh = ArmLedger(10, 0.1, BUDGET)
    assert ArmLedger.restored(10, 0.1, BUDGET, fresh.state()).rounds == 0
    with pytest.raises(BudgetError):
        again.spend(10**6)


@pytest.mark.parametrize(
    ("arms", "exploration", "budget"),
    [(9, 0.1, BUDGET), (10, 0.2, BUDGET), (10, 0.1, None), (10, 0.1, Budget(99, 1e-5))],
)
def test_a_ledger_is_not_restored_for_other_arms(arms: int, exploration: float, budget: Budget | None) -> None:
    state = ArmLedger(10, 0.1, BUDGET).state()
    with pytest.raises(ConfigError, match="the ledger was kept for"):
        ArmLedger.restored(arms, exploration, budget, state)


@pytest.mark.parametrize("rounds", [0, -1])
def test_rounds_that_are_none(rounds: int) -> None:
    with pytest.raises(ConfigError, match="rounds must be at least 1"):
        ArmLedger(10, 0.1, BUDGET).spend(rounds)


def test_the_missing_extra_is_told_before_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'posse-bandits\[dp\]'"):
        ArmLedger(10, 0.1)
