"""The sampled Gaussian: published figures, adjacency, noise for a budget, adaptive clipping
accounted or refused.
"""

from __future__ import annotations

import json
import math

import pytest

from posse.core.errors import BudgetError, ConfigError
from posse.privacy.dp.gaussian import epsilon_of
from posse.privacy.dp.guarantee import Budget
from posse.privacy.dp.ledger import Ledger
from posse.privacy.dp.sampled import (
    CLOSE,
    SampledGaussian,
    Training,
    largest,
    least,
    noise_for,
    update_noise,
)

MANY = SampledGaussian(342_477, 64, 0.7)
SMALL = SampledGaussian(2_000, 40, 2.0)

VECTORS = [
    (SampledGaussian(342_477, 64, 0.3), 1600, 15.82, 12.86),
    (MANY, 1600, 1.491, 0.192),
    (SampledGaussian(340_000, 6_400, 1.0), 800, 4.133, 3.742),
]


@pytest.mark.parametrize(
    ("made", "rounds", "rdp", "pld"), VECTORS, ids=lambda value: str(value)[:60]
)
def test_vectors(made: SampledGaussian, rounds: int, rdp: float, pld: float) -> None:
    assert made.epsilon(rounds, 1e-6, "rdp") == pytest.approx(rdp, rel=0.01)
    assert made.epsilon(rounds, 1e-6, "pld") == pytest.approx(pld, rel=0.02)


def test_everyone_in_every_round_is_the_plain_gaussian() -> None:
    # mu = sqrt(rounds) / z; add or remove.
    made = SampledGaussian(100, 100, 3.0)
    exact = epsilon_of(math.sqrt(9) / 3.0, 1e-5)
    assert made.epsilon(9, 1e-5, "pld") == pytest.approx(exact, rel=1e-3)
    assert made.epsilon(9, 1e-5, "pld") >= exact
    assert exact < made.epsilon(9, 1e-5, "rdp") < 1.15 * exact


def test_fixed_cohorts_are_accounted_under_replacing() -> None:
    everyone = SampledGaussian(100, 100, 6.0, sampling="fixed")
    # Replacing moves the sum by 2 C: mu = 2 sqrt(rounds) / z, and RDP is above the exact figure.
    assert everyone.epsilon(9, 1e-5, "rdp") == pytest.approx(
        SampledGaussian(100, 100, 3.0).epsilon(9, 1e-5, "rdp")
    )
    fixed = SampledGaussian(342_477, 64, 0.7, sampling="fixed")
    assert fixed.epsilon(1600, 1e-6, "rdp") == pytest.approx(12.82, rel=0.01)
    assert fixed.epsilon(1600, 1e-6, "rdp") > MANY.epsilon(1600, 1e-6, "rdp")
    with pytest.raises(
        ConfigError, match="cohorts of fixed size have a figure by RDP alone, got accountant 'pld'"
    ):
        fixed.epsilon(10, 1e-6)
    told = fixed.guarantee(10, 1e-6, "rdp")
    assert told.adjacency.startswith("replace:")
    assert told.sampling == "64 of 342477 without replacement"


def test_figures_move_the_right_way() -> None:
    for accountant in ("rdp", "pld"):
        figures = [SMALL.epsilon(rounds, 1e-5, accountant) for rounds in (0, 10, 100, 400)]  # type: ignore[arg-type]
        assert figures == sorted(figures)
        assert figures[0] == 0
    assert SampledGaussian(2_000, 40, 3.0).epsilon(100, 1e-5, "rdp") < SMALL.epsilon(
        100, 1e-5, "rdp"
    )
    assert SampledGaussian(2_000, 80, 2.0).epsilon(100, 1e-5, "rdp") > SMALL.epsilon(
        100, 1e-5, "rdp"
    )


def test_guarantees_say_everything() -> None:
    told = MANY.guarantee(1600, 1e-6, "rdp")
    assert (told.unit, told.releases, told.composition) == ("client", 1600, "sequential")
    assert told.adjacency.startswith("add or remove: one client")
    assert told.sampling == "Poisson, rate 0.000187 (64 expected of 342477)"
    assert told.accountant.endswith(", RDP")
    assert "the server" in told.sentence()
    assert SMALL.guarantee(1, 1e-5).accountant.endswith(", PLD")
    counted = SampledGaussian(2_000, 40, 2.0, adaptive=True, clip_noise=2.0).guarantee(
        1, 1e-5, "rdp"
    )
    assert "a count under noise 2" in counted.covers


# --- budgets --------------------------------------------------------------------------------------


@pytest.mark.parametrize("accountant", ["rdp", "pld"])
def test_the_most_rounds_are_the_most(accountant: str) -> None:
    budget = Budget(1.0, 1e-5)
    most = SMALL.most_rounds(budget, accountant)  # type: ignore[arg-type]
    assert SMALL.epsilon(most, 1e-5, accountant) <= 1 < SMALL.epsilon(most + 1, 1e-5, accountant)  # type: ignore[arg-type]
    assert SampledGaussian(20, 10, 0.3).most_rounds(Budget(0.01, 1e-5), accountant) == 0  # type: ignore[arg-type]


def test_pld_allows_more_rounds() -> None:
    budget = Budget(1.0, 1e-5)
    assert SMALL.most_rounds(budget, "pld") > SMALL.most_rounds(budget, "rdp") > 100


@pytest.mark.parametrize("sampling", ["poisson", pytest.param("fixed", marks=pytest.mark.long)])
def test_noise_for_a_budget(sampling: str) -> None:
    budget = Budget(2.0, 1e-5)
    noise = noise_for(budget, 2_000, 40, 200, sampling, "rdp")  # type: ignore[arg-type]

    def spent(z: float) -> float:
        return SampledGaussian(2_000, 40, z, sampling).epsilon(200, 1e-5, "rdp")  # type: ignore[arg-type]

    assert spent(noise) <= 2 < spent(noise / (1 + 2 * CLOSE))
    with pytest.raises(ConfigError, match="rounds must be at least 1, got 0"):
        noise_for(budget, 2_000, 40, 0)


@pytest.mark.long
def test_noise_by_pld_is_less() -> None:
    noise = noise_for(Budget(2.0, 1e-5), 2_000, 40, 200)
    assert SampledGaussian(2_000, 40, noise).epsilon(200, 1e-5) <= 2
    assert noise < noise_for(Budget(2.0, 1e-5), 2_000, 40, 200, accountant="rdp")


def test_searches() -> None:
    asked: list[int] = []

    def root(n: int) -> float:
        asked.append(n)
        return math.sqrt(n)

    assert largest(root, 1, 1 << 20, 100.0) == 10_000
    assert len(asked) < 60
    assert 2.0 <= least(lambda z: 8 / z**2, 0.1, 64.0, 2.0) <= 2.0 * (1 + CLOSE)


def test_hardly_any_noise_proves_nothing() -> None:
    for noise in (0.0, 0.01):
        made = SampledGaussian(3_400, 64, noise, adaptive=noise == 0)
        assert math.isinf(made.epsilon(1, 1e-5))
        assert made.update_noise == noise
        assert "no finite epsilon" in made.guarantee(10, 1e-5, "rdp").sentence()
        assert made.most_rounds(Budget(100.0, 1e-5)) == 0


# --- adaptive clipping ----------------------------------------------------------------------------


def test_adaptive_clipping_is_accounted() -> None:
    made = SampledGaussian(2_000, 40, 1.0, adaptive=True, clip_noise=2.0)
    # Updates under z_delta and bits b - 1/2 (sensitivity 1/2) under sigma_b: mu^2 adds up to that
    # of z.
    assert made.update_noise**-2 + (0.5 / 2.0) ** 2 == pytest.approx(1.0)
    assert made.update_noise > 1
    assert made.epsilon(10, 1e-5, "rdp") == SampledGaussian(2_000, 40, 1.0).epsilon(10, 1e-5, "rdp")
    assert SampledGaussian(2_000, 40, 1.0).update_noise == 1.0
    assert update_noise(1.0, 3.2) == pytest.approx((1 - 6.4**-2) ** -0.5)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"adaptive": True},
            "adaptive clipping under noise also releases a count, got no clip_noise",
        ),
        (
            {"adaptive": True, "clip_noise": 0.5},
            "clip_noise must be above noise / 2 = 0.5, got 0.5",
        ),
        ({"clip_noise": 5.0}, "clip_noise is for adaptive clipping, got 5.0 for a fixed clip"),
        ({"cohort": 0}, r"cohort must be in \[1, 2000\], the number of clients, got 0"),
        ({"cohort": 2_001}, r"cohort must be in \[1, 2000\]"),
        ({"noise": -1.0}, "noise must be in"),
        ({"noise": math.nan}, "noise must be a number, got NaN"),
        ({"sampling": "poison"}, "unknown sampling 'poison'. Did you mean 'poisson'"),
    ],
)
def test_bad_mechanisms(given: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SampledGaussian(**({"clients": 2_000, "cohort": 40, "noise": 1.0} | given))  # type: ignore[arg-type]


MADE = SampledGaussian(2_000, 40, 2.0)
BUDGET = Budget(1.0, 1e-5)


def ledger() -> Ledger[Training]:
    return Ledger(Training(MADE, BUDGET, accountant="rdp"))


def test_training_stops_when_the_budget_is_spent() -> None:
    spent = ledger()
    rounds = 0
    while spent.left:
        rounds = spent.spend()
    assert rounds == spent.most == MADE.most_rounds(BUDGET, "rdp")
    before = (spent.state(), spent.guarantee())
    with pytest.raises(
        BudgetError, match=rf"^\[P600\] round {rounds + 1} cannot be trained: .* of \(1, 1e-05\)"
    ):
        spent.spend()
    assert (spent.state(), spent.guarantee()) == before
    assert spent.epsilon <= 1


def test_a_round_composes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    bound, free = ledger(), Ledger(Training(MADE))

    def refuse(*_: object) -> float:
        raise AssertionError("a round must not be composed")

    monkeypatch.setattr(SampledGaussian, "epsilon", refuse)
    for spent in (bound, free):
        for _ in range(100):
            spent.spend()
    assert (bound.releases, free.releases, free.left) == (100, 100, None)


def test_guarantee_is_the_mechanisms() -> None:
    spent = ledger()
    assert (spent.epsilon, spent.guarantee().releases) == (0.0, 0)
    spent.spend(times=10)
    assert spent.guarantee() == MADE.guarantee(10, 1e-5, "rdp")
    fixed = Training(SampledGaussian(2_000, 40, 4.0, sampling="fixed"))
    assert (fixed.counted_by, Training(MADE).counted_by) == ("rdp", "pld")


def test_state_goes_through_json() -> None:
    spent = ledger()
    spent.spend(times=7)
    state = json.loads(json.dumps(spent.state()))
    again = Ledger.restored(Training(MADE, BUDGET, accountant="rdp"), state)
    assert (again.releases, again.left) == (spent.releases, spent.left)
    with pytest.raises(ConfigError, match=r"the ledger was kept for noise 2\.0, got 3\.0"):
        Ledger.restored(Training(SampledGaussian(2_000, 40, 3.0), BUDGET, accountant="rdp"), state)
    assert Ledger.restored(Training(MADE, BUDGET, accountant="rdp"), ledger().state()).releases == 0


def test_bad_spending() -> None:
    spent = ledger()
    with pytest.raises(ConfigError, match="times must be at least 1, got 0"):
        spent.spend(times=0)
    with pytest.raises(BudgetError):
        spent.spend(times=10**6)
    assert spent.releases == 0
