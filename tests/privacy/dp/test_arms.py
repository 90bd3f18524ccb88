"""What an arm of epsilon-greedy shows: the figure of one round and of many, against every output
counted.
"""

from __future__ import annotations

import json
import math
import sys
from fractions import Fraction
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from posse.core.errors import BudgetError, ConfigError, MissingExtraError
from posse.privacy.dp import arms
from posse.privacy.dp.accountant import accountant_name
from posse.privacy.dp.arms import (
    BASIC,
    CLOSED,
    HOEFFDING,
    LARGEST_WALK,
    LATER_ROUNDS,
    NEVER_COVERED,
    ArmChoice,
    Arms,
)
from posse.privacy.dp.guarantee import Budget
from posse.privacy.dp.ledger import Ledger

Floats = NDArray[np.float64]
PAPER = ArmChoice(10, 0.1)
EXPLORED = st.floats(0.01, 0.99)
ARMS = st.integers(2, 50)
DELTAS = st.sampled_from([1e-2, 1e-5, 1e-8])


def pulled(arms: int, exploration: Fraction) -> set[tuple[Fraction, ...]]:
    """Probability of every arm, for all orders of the scores: any arm if it explores, else one of
    those that tie.
    """
    orders = product(range(arms), repeat=arms)
    best = {tuple(score == max(scores) for score in scores) for scores in orders}
    return {
        tuple(exploration / arms + (1 - exploration) * Fraction(top, sum(tops)) for top in tops)
        for tops in best
    }


def divergence(p: Floats, q: Floats, epsilon: float) -> float:
    """delta of two distributions at an epsilon: the sum of (p - e^epsilon q) where it is
    positive.
    """
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


def delta_at(epsilon: float, chances: Floats, losses: Floats) -> float:
    """delta of a distribution of losses at an epsilon."""
    above = losses > epsilon
    return float((chances[above] * -np.expm1(epsilon - losses[above])).sum())


def walk(made: ArmChoice, rounds: int) -> tuple[Floats, Floats]:
    """Probability and privacy loss of N_best - N_other, summed over the multinomial
    distribution.
    """
    chances = np.zeros(2 * rounds + 1)
    for best in range(rounds + 1):
        for other in range(rounds + 1 - best):
            rest = rounds - best - other
            ways = math.comb(rounds, best) * math.comb(rounds - best, other)
            third = ((made.arms - 2) * made.other) ** rest
            chances[rounds + best - other] += ways * made.best**best * made.other**other * third
    return chances, made.epsilon * np.arange(-rounds, rounds + 1.0)


@pytest.mark.parametrize("arms", range(2, 7))
@pytest.mark.parametrize(
    "exploration", [Fraction(1, 100), Fraction(1, 10), Fraction(1, 2), Fraction(1)]
)
def test_the_figure_of_one_arm_is_the_largest_ratio_over_all_scores(
    arms: int, exploration: Fraction
) -> None:
    """All orders of the scores, ties included, against all others; every arm. The published figure
    lies above.
    """
    shown = pulled(arms, exploration)
    assert len(shown) == (2**arms - 1 if exploration < 1 else 1)
    largest = max(p[arm] / q[arm] for p in shown for q in shown for arm in range(arms))
    made = ArmChoice(arms, float(exploration))
    assert made.epsilon == pytest.approx(math.log(largest), rel=1e-12)
    assert made.epsilon <= made.published_epsilon == pytest.approx(math.log(arms / exploration))


@pytest.mark.parametrize("arms", range(2, 7))
def test_two_different_best_arms_are_the_worst_scores(arms: int) -> None:
    """No pair of score orders, ties included, is further apart at any epsilon than two different
    best arms.
    """
    made = ArmChoice(arms, 0.2)
    shown = [np.array(p, float) for p in pulled(arms, Fraction(1, 5))]
    first, second = np.full((2, arms), made.other)
    first[0] = second[1] = made.best
    for epsilon in np.linspace(-made.epsilon, made.epsilon, 9):
        assert (
            max(divergence(p, q, epsilon) for p in shown for q in shown)
            <= divergence(first, second, epsilon) + 1e-12
        )


@pytest.mark.parametrize(
    ("arms", "exploration", "rounds"), [(2, 0.3, 6), (3, 0.5, 5), (4, 0.8, 4), (6, 0.9, 3)]
)
@pytest.mark.parametrize("delta", [0.2, 0.01, 1e-4])
def test_few_rounds_against_every_sequence_of_arms(
    arms: int, exploration: float, rounds: int, delta: float
) -> None:
    made = ArmChoice(arms, exploration)
    once = np.full((2, arms), made.other)
    once[0, 0] = once[1, 1] = made.best
    p, q = (np.array([math.prod(one) for one in product(row, repeat=rounds)]) for row in once)
    total = made.total(rounds, delta)
    assert divergence(p, q, total.epsilon) <= delta
    assert total.epsilon == 0 or divergence(p, q, total.epsilon * (1 - 1e-6)) > delta


@pytest.mark.parametrize(
    ("arms", "exploration"), [(2, 0.1), (2, 0.95), (5, 0.5), (10, 0.1), (10, 0.99)]
)
@pytest.mark.parametrize("rounds", [1, 7, 60])
@pytest.mark.parametrize("delta", [0.1, 1e-5, 1e-9])
def test_the_composed_figure_is_exact(
    arms: int, exploration: float, rounds: int, delta: float
) -> None:
    made = ArmChoice(arms, exploration)
    chances, losses = walk(made, rounds)
    assert chances.sum() == pytest.approx(1, abs=1e-12)
    epsilon = made.total(rounds, delta).epsilon
    assert delta_at(epsilon, chances, losses) <= delta
    assert epsilon == 0 or delta_at(epsilon * (1 - 1e-4), chances, losses) > delta


@pytest.mark.parametrize("rounds", [3, 40])
def test_two_arms_reach_the_optimal_composition_of_pure_privacy(rounds: int) -> None:
    """Kairouz, Oh, Viswanath 2015, theorem 3.3: delta_i at epsilon (T - 2i) eta, which randomised
    response attains.
    """
    made = ArmChoice(2, 0.6)
    eta = made.epsilon
    for i in range(1, rounds // 2):
        ways = (
            math.comb(rounds, j)
            * (math.exp((rounds - j) * eta) - math.exp((rounds - 2 * i + j) * eta))
            for j in range(i)
        )
        delta = sum(ways) / (1 + math.exp(eta)) ** rounds
        if delta > 1e-9:
            assert made.total(rounds, delta).epsilon == pytest.approx(
                (rounds - 2 * i) * eta, rel=1e-4
            )


@pytest.mark.parametrize(("arms", "rounds"), [(2, 6), (3, 4)])
def test_scores_that_follow_from_earlier_arms_stay_within_the_total(arms: int, rounds: int) -> None:
    """A learner: the best arm of a round is any function of the row and of all arms before."""
    made, rng = ArmChoice(arms, 0.6), np.random.default_rng(3)

    def once_more(had: Floats) -> Floats:
        best = rng.integers(arms, size=(had.size, 1))
        arm: Floats = np.where(best == np.arange(arms), made.best, made.other)
        return (had[:, None] * arm).ravel()

    for _ in range(50):
        p, q = np.ones(1), np.ones(1)
        for _ in range(rounds):
            p, q = once_more(p), once_more(q)
        assert p.sum() == pytest.approx(1)
        for delta in (0.1, 1e-3):
            assert divergence(p, q, made.total(rounds, delta).epsilon) <= delta


def kept(lowest: int, chances: Floats) -> tuple[int, Floats]:
    """Leave out the ends of a distribution that are below 1e-60."""
    held = np.flatnonzero(chances > 1e-60)
    return lowest + int(held[0]), chances[held[0] : held[-1] + 1]


def long_walk(made: ArmChoice, rounds: int) -> tuple[Floats, Floats]:
    """As `walk`, by squaring: sums of positive numbers, each right to 1e-11 of itself, which no
    transform is.
    """
    lowest, chances = 0, np.ones(1)
    for binary in f"{rounds:b}":
        lowest, chances = kept(2 * lowest, np.convolve(chances, chances))
        if binary == "1":
            once = np.array([made.other, (made.arms - 2) * made.other, made.best])
            lowest, chances = kept(lowest - 1, np.convolve(chances, once))
    return chances, made.epsilon * np.arange(lowest, lowest + len(chances), dtype=np.float64)


@pytest.mark.parametrize(("arms", "exploration"), [(10, 0.1), (2, 0.9)])
def test_the_rounding_of_many_rounds_is_paid_for(arms: int, exploration: float) -> None:
    made = ArmChoice(arms, exploration)
    chances, losses = long_walk(made, 60_000)
    epsilon = made.total(60_000, 1e-9).epsilon
    assert (
        delta_at(epsilon, chances, losses) <= 1e-9 < delta_at(epsilon * (1 - 1e-3), chances, losses)
    )


def test_the_published_setting() -> None:
    """Ten arms, exploration .1, 60,000 rounds: 270,652 by addition, and no figure that protects by
    any composition.
    """
    total = PAPER.total(60_000, 1e-5)
    assert PAPER.epsilon == pytest.approx(math.log(91))
    assert 60_000 * PAPER.epsilon == pytest.approx(270_651.57, abs=0.01)
    assert total.epsilon == pytest.approx(245_133, abs=1)
    assert total.accountant == accountant_name()


def test_tiny_deltas_and_many_rounds_are_bounded_without_the_walk() -> None:
    assert PAPER.total(60_000, 1e-12).accountant == HOEFFDING
    assert PAPER.total(3, 1e-15).accountant == BASIC
    beyond, walked = (ArmChoice(10, 0.9).total(LARGEST_WALK + more, 1e-5) for more in (1, 0))
    assert (beyond.accountant, walked.accountant) == (HOEFFDING, accountant_name())
    assert walked.epsilon < beyond.epsilon < 1.05 * walked.epsilon


@settings(deadline=None)
@given(ARMS, EXPLORED, st.integers(1, 5000), DELTAS)
def test_a_total_is_never_above_the_closed_forms(
    arms: int, exploration: float, rounds: int, delta: float
) -> None:
    made = ArmChoice(arms, exploration)
    total = made.total(rounds, delta)
    assert 0 <= total.epsilon <= rounds * made.epsilon
    assert total.epsilon <= made._closed(rounds, delta).epsilon


@settings(deadline=None)
@given(ARMS, EXPLORED, st.integers(1, 5000), st.integers(1, 5000), DELTAS)
def test_more_rounds_cost_more(
    arms: int, exploration: float, rounds: int, more: int, delta: float
) -> None:
    made = ArmChoice(arms, exploration)
    assert made.total(rounds, delta).epsilon <= made.total(rounds + more, delta).epsilon * (
        1 + 1e-9
    )


@settings(deadline=None)
@given(ARMS, EXPLORED, EXPLORED, st.integers(1, 2000), DELTAS)
def test_more_exploration_costs_less(
    arms: int, one: float, two: float, rounds: int, delta: float
) -> None:
    less, more = ArmChoice(arms, min(one, two)), ArmChoice(arms, max(one, two))
    assert more.epsilon <= less.epsilon
    assert more.total(rounds, delta).epsilon <= less.total(rounds, delta).epsilon * (1 + 1e-9)


@given(ARMS, EXPLORED)
def test_more_arms_cost_more(arms: int, exploration: float) -> None:
    assert ArmChoice(arms, exploration).epsilon < ArmChoice(arms + 1, exploration).epsilon


def test_no_exploration_proves_nothing_and_nothing_else_shows_nothing() -> None:
    assert ArmChoice(10, 0).epsilon == ArmChoice(10, 0).published_epsilon == math.inf
    assert ArmChoice(10, 0).total(1, 0.1).epsilon == math.inf
    assert ArmChoice(10, 1).epsilon == 0
    assert ArmChoice(10, 1).total(10**9, 0.1).epsilon == 0
    for exploration in (0, 0.1, 1):
        assert ArmChoice(10, exploration).total(0, 0.1) == arms.Total(0.0, 0.1, CLOSED)


def test_losses_at_the_edge_of_floating_point() -> None:
    """e^-705 is subnormal: 161 rounds of epsilon 4.43 lie there."""
    figures = [ArmChoice(2, 0.0234375).total(rounds, 0.01).epsilon for rounds in range(150, 180)]
    assert all(0 < b - a < 4.5 for a, b in pairwise(figures))


def test_delta_alone_may_cover_a_round() -> None:
    assert ArmChoice(2, 0.999).total(1, 0.01).epsilon == 0


@pytest.mark.parametrize(
    ("exploration", "epsilon"), [(0.1, 3.0), (0.1, 100.0), (0.9, 10.0), (0.999, 1.0)]
)
def test_the_most_rounds_are_the_last_within(exploration: float, epsilon: float) -> None:
    made = ArmChoice(10, exploration)
    most = made.most_rounds(Budget(epsilon, 1e-5))
    assert most is not None
    assert made.total(most, 1e-5).epsilon <= epsilon < made.total(most + 1, 1e-5).epsilon


def test_rounds_without_an_end_and_without_a_beginning() -> None:
    assert ArmChoice(10, 1).most_rounds(Budget(1, 1e-5)) is None
    assert ArmChoice(10, 0).most_rounds(Budget(1, 1e-5)) == 0
    far = ArmChoice(2, 1 - 1e-12).most_rounds(Budget(1, 1e-5))
    assert far is not None
    assert far > 10**20


def test_what_is_composed_is_composed_once() -> None:
    PAPER.total(123, 1e-3)
    before = arms._walk.cache_info().misses
    PAPER.total(123, 1e-3)
    assert arms._walk.cache_info().misses == before


@pytest.mark.parametrize(
    ("arms", "exploration", "rule"),
    [
        (1, 0.1, "arms must be at least 2"),
        (10, -0.1, "exploration must be in"),
        (10, 1.1, "exploration must be in"),
        (10, math.nan, "exploration must be a number"),
    ],
)
def test_choices_that_are_none(arms: int, exploration: float, rule: str) -> None:
    with pytest.raises(ConfigError, match=rule):
        ArmChoice(arms, exploration)


def test_bad_rounds_and_deltas() -> None:
    with pytest.raises(ConfigError, match="rounds must be at least 0"):
        PAPER.total(-1, 0.1)
    with pytest.raises(ConfigError, match="delta"):
        PAPER.total(1, 0.0)


def test_without_the_extra_the_command_that_installs_it_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "dp_accounting.pld.pld_pmf", None)
    arms._walk.cache_clear()
    with pytest.raises(MissingExtraError, match=r"pip install .*\[dp\]'"):
        PAPER.total(10, 1e-5)


def test_figures_rise_with_the_rounds() -> None:
    figures = [PAPER.total(rounds, 1e-5).epsilon for rounds in (1, 10, 100, 1000, 10_000, 100_000)]
    assert all(5 < b / a < 11 for a, b in pairwise(figures))


BUDGET = Budget(100, 1e-5)


def test_before_any_round_nothing_is_spent() -> None:
    ledger = Ledger(Arms(ArmChoice(10, 0.1)))
    assert [(made.epsilon, made.releases) for made in ledger.guarantees()] == [(0.0, 0), (0.0, 0)]
    assert {claim.epsilon for claim in ledger.mechanism.claims(ledger.releases)} == {0.0}


def test_both_figures_are_told() -> None:
    ledger = Ledger(Arms(ArmChoice(10, 0.1)))
    ledger.spend(times=60_000)
    score, context = ledger.guarantees()
    assert (score.unit, score.figure, score.releases) == ("score", "(4.511, 0)", 60_000)
    assert (context.unit, context.figure, context.releases) == (
        "context",
        "(245200, 1e-05)",
        60_000,
    )
    assert score.not_covered == (LATER_ROUNDS, *NEVER_COVERED)
    assert context.not_covered == NEVER_COVERED
    for made in (score, context):
        assert json.loads(json.dumps(made.entry(), allow_nan=False))["unit"] == made.unit


def test_the_published_figure_stands_beside_the_proved_ones() -> None:
    ledger = Ledger(Arms(ArmChoice(10, 0.1)))
    ledger.spend(times=60_000)
    assert [claim.figure for claim in ledger.mechanism.claims(ledger.releases)] == [
        "(4.606, 0)",
        "(4.511, 0)",
        "(276400, 0)",
        "(270700, 0)",
        "(245200, 1e-05)",
    ]
    assert all(claim.proved for claim in ledger.mechanism.claims(ledger.releases))


def test_a_round_beyond_the_budget_is_refused_and_nothing_changes() -> None:
    ledger = Ledger(Arms(ArmChoice(10, 0.1), BUDGET))
    most = ArmChoice(10, 0.1).most_rounds(BUDGET)
    assert most is not None
    assert [ledger.spend() for _ in range(most)] == list(range(1, most + 1))
    before = (ledger.state(), ledger.guarantees())
    assert (ledger.left, ledger.epsilon <= 100) == (0, True)
    refusal = rf"^\[P600\] the arm of round {most + 1} cannot be opened: .* of \(100, 1e-05\)\."
    with pytest.raises(BudgetError, match=refusal):
        ledger.spend()
    assert (ledger.state(), ledger.guarantees()) == before


def test_without_exploration_no_budget_allows_a_round() -> None:
    with pytest.raises(BudgetError, match="no finite epsilon"):
        Ledger(Arms(ArmChoice(10, 0.0), BUDGET)).spend()


def test_without_exploration_and_budget_rounds_are_counted_and_prove_nothing() -> None:
    ledger = Ledger(Arms(ArmChoice(10, 0.0)))
    ledger.spend()
    assert [made.epsilon for made in ledger.guarantees()] == [math.inf, math.inf]
    assert [made.entry()["epsilon"] for made in ledger.guarantees()] == [None, None]


def test_nothing_but_exploration_is_free() -> None:
    ledger = Ledger(Arms(ArmChoice(10, 1.0), BUDGET))
    ledger.spend(times=10**9)
    assert ledger.left is None
    assert [made.epsilon for made in ledger.guarantees()] == [0.0, 0.0]


def test_a_round_composes_nothing() -> None:
    ledger = Ledger(Arms(ArmChoice(10, 0.9), BUDGET))
    before = arms._walk.cache_info()
    for _ in range(100):
        ledger.spend()
    assert arms._walk.cache_info() == before


def test_a_ledger_is_restored_and_goes_on_refusing() -> None:
    ledger = Ledger(Arms(ArmChoice(10, 0.1), BUDGET))
    ledger.spend(times=5)
    again = Ledger.restored(
        Arms(ArmChoice(10, 0.1), BUDGET), json.loads(json.dumps(ledger.state()))
    )
    assert (again.state(), again.guarantees(), again.left) == (
        ledger.state(),
        ledger.guarantees(),
        ledger.left,
    )
    fresh = Ledger(Arms(ArmChoice(10, 0.1), BUDGET))
    assert Ledger.restored(Arms(ArmChoice(10, 0.1), BUDGET), fresh.state()).releases == 0
    with pytest.raises(BudgetError):
        again.spend(times=10**6)


@pytest.mark.parametrize(
    ("count", "exploration", "budget"),
    [(9, 0.1, BUDGET), (10, 0.2, BUDGET), (10, 0.1, None), (10, 0.1, Budget(99, 1e-5))],
)
def test_a_ledger_is_not_restored_for_other_arms(
    count: int, exploration: float, budget: Budget | None
) -> None:
    state = Ledger(Arms(ArmChoice(10, 0.1), BUDGET)).state()
    with pytest.raises(ConfigError, match="the ledger was kept for"):
        Ledger.restored(Arms(ArmChoice(count, exploration), budget), state)


@pytest.mark.parametrize("times", [0, -1])
def test_rounds_that_are_none(times: int) -> None:
    with pytest.raises(ConfigError, match="times must be at least 1"):
        Ledger(Arms(ArmChoice(10, 0.1), BUDGET)).spend(times=times)


def test_the_missing_extra_is_told_before_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(MissingExtraError, match=r"pip install .*\[dp\]'"):
        Ledger(Arms(ArmChoice(10, 0.1)))


def test_a_release_has_no_number() -> None:
    with pytest.raises(ConfigError, match="all releases are alike"):
        Ledger(Arms(ArmChoice(10, 0.1))).spend(3)
