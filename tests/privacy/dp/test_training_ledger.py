"""The ledger of training: pays before, stops in time, and comes back from its state."""

from __future__ import annotations

import json

import pytest

from posse.core.errors import BudgetError, ConfigError
from posse.privacy.dp.budget import Budget
from posse.privacy.dp.sampled import SampledGaussian
from posse.privacy.dp.training_ledger import TrainingLedger

MADE = SampledGaussian(2_000, 40, 2.0)
BUDGET = Budget(1.0, 1e-5)


def ledger() -> TrainingLedger:
    return TrainingLedger(MADE, BUDGET, accountant="rdp")


def test_training_stops_when_the_budget_is_spent() -> None:
    spent = ledger()
    rounds = 0
    while spent.left:
        rounds = spent.spend()
    assert rounds == spent.most == MADE.most_rounds(BUDGET, "rdp")
    before = (spent.state(), spent.guarantee())
    with pytest.raises(BudgetError, match=rf"^\[P600\] round {rounds + 1} cannot be trained: .* of \(1, 1e-05\)"):
        spent.spend()
    assert (spent.state(), spent.guarantee()) == before
    assert spent.epsilon <= 1


def test_a_round_composes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    bound, free = ledger(), TrainingLedger(MADE)

    def refuse(*_: object) -> float:
        raise AssertionError("a round must not be composed")

    monkeypatch.setattr(SampledGaussian, "epsilon", refuse)
    for spent in (bound, free):
        for _ in range(100):
            spent.spend()
    assert (bound.rounds, free.rounds, free.left) == (100, 100, None)


def test_guarantee_is_the_mechanisms() -> None:
    spent = ledger()
    assert (spent.epsilon, spent.guarantee().releases) == (0.0, 0)
    spent.spend(10)
    assert spent.guarantee() == MADE.guarantee(10, 1e-5, "rdp")
    fixed = TrainingLedger(SampledGaussian(2_000, 40, 4.0, sampling="fixed"))
    assert (fixed.accountant, TrainingLedger(MADE).accountant) == ("rdp", "pld")


def test_state_goes_through_json() -> None:
    spent = ledger()
    spent.spend(7)
    state = json.loads(json.dumps(spent.state()))
    again = TrainingLedger.restored(MADE, BUDGET, state, accountant="rdp")
    assert (again.rounds, again.left) == (spent.rounds, spent.left)
    with pytest.raises(ConfigError, match="the ledger was kept for"):
        TrainingLedger.restored(SampledGaussian(2_000, 40, 3.0), BUDGET, state, accountant="rdp")
    assert TrainingLedger.restored(MADE, BUDGET, ledger().state(), accountant="rdp").rounds == 0


def test_bad_spending() -> None:
    spent = ledger()
    with pytest.raises(ConfigError, match="rounds must be at least 1, got 0"):
        spent.spend(0)
    with pytest.raises(BudgetError):
        spent.spend(10**6)
    assert spent.rounds == 0
