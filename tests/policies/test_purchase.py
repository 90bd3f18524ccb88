"""The oracles: always feasible, close to the best whole purchase, deterministic where there are
ties.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posse.policies.purchase.oracle import exact, greedy, meets


def bought(quality, cost, capacity, alpha, rho=1.0):
    out, work = np.full(len(quality), np.nan), np.zeros(len(quality))
    arrays = [np.asarray(values, np.float64) for values in (quality, cost, capacity)]
    greedy(*arrays, alpha, rho, out, work)
    return out


def random_instance(rng, number):
    """A purchase problem of one of six kinds; `number` chooses the kind."""
    m = int(rng.integers(1, 16))
    quality, cost, capacity = rng.random(m), rng.random(m), rng.integers(0, 51, m).astype(float)
    alpha, rho = rng.random(), rng.choice([0.5, 1.0, 3.0])
    kind = ("any", "binding", "zero capacity", "all bad", "one producer", "ties")[number % 6]
    if kind == "binding":  # cheap and bad beside dear and good: revenue and quality pull apart
        quality, cost, rho = rng.random(m), rng.random(m) * 0.3, 3.0
        alpha = rng.uniform(0.5, 0.95)
    if kind == "zero capacity":
        capacity[rng.random(m) < 0.7] = 0
    if kind == "all bad":
        quality = rng.random(m) * alpha
    if kind == "one producer":
        quality, cost, capacity = quality[:1], cost[:1], capacity[:1]
    if kind == "ties":
        quality, cost, alpha = np.round(quality, 1), np.round(cost, 1), round(alpha, 1)
    return kind, (quality, cost, capacity, alpha, rho)


def compare(count, seed):
    """Compare both oracles on `count` random instances; return how many had a binding threshold,
    and the worst gap.
    """
    rng = np.random.default_rng(seed)
    bound, worst = 0, 0.0
    for number in range(count):
        kind, (quality, cost, capacity, alpha, rho) = random_instance(rng, number)
        taken = bought(quality, cost, capacity, alpha, rho)
        assert (taken == np.floor(taken)).all(), kind
        assert ((taken >= 0) & (taken <= capacity)).all(), kind
        assert meets(float(taken @ (quality - alpha)), float(taken.sum())), kind
        revenue = rho * quality - cost
        best = exact(quality, cost, capacity, alpha, rho)
        gap, most = float((best - taken) @ revenue), float(np.abs(revenue).max())
        assert gap >= -1e-6 * max(1.0, capacity.sum()), (kind, number)
        assert gap <= most + 1e-9, (kind, number, gap, most)
        everything = np.where(revenue > 0, capacity, 0.0)
        bound += not meets(float(everything @ (quality - alpha)), float(everything.sum()))
        worst = max(worst, gap / most if most else 0.0)
    return bound, worst


@pytest.mark.parametrize(
    ("instances", "rounded"), [(1_500, 0.3), pytest.param(10_000, 0.5, marks=pytest.mark.long)]
)
def test_close_to_the_best_on_many_instances(instances, rounded):
    bound, worst = compare(instances, seed=1)
    assert bound > instances / 5  # else the threshold was not tried
    assert rounded < worst <= 1  # and rounding was


def test_takes_all_that_pays_where_that_is_good_enough():
    assert bought([0.9, 0.8, 0.7], [0.1, 0.9, 0.2], [5, 5, 5], 0.5).tolist() == [5, 0, 5]


def test_buys_quality_that_does_not_pay_to_sell_revenue_that_is_not_good_enough():
    # Ten bad units pay 0.2 each; one good unit costs 0.1 and makes room for several of them.
    taken = bought([0.3, 1.0], [0.1, 1.1], [10, 10], 0.5)
    assert taken[1] > 0
    assert taken[0] == 10


def test_nothing_is_bought_where_nothing_is_good_enough():
    assert bought([0.2, 0.3], [0.0, 0.0], [9, 9], 0.5).tolist() == [0, 0]


def test_a_threshold_met_exactly_is_met():
    assert bought([0.5, 0.5], [0.1, 0.1], [7, 7], 0.5).tolist() == [7, 7]


def test_of_equal_prices_the_first_producer_gives_way():
    taken = bought([0.9, 0.3, 0.3], [0.1, 0.0, 0.0], [10, 30, 30], 0.4)
    assert taken.tolist() == [10, 20, 30]


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_feasible_always(seed):
    rng = np.random.default_rng(seed)
    _, (quality, cost, capacity, alpha, rho) = random_instance(rng, int(rng.integers(6)))
    taken = bought(quality, cost, capacity, alpha, rho)
    assert ((taken >= 0) & (taken <= capacity) & (taken == np.floor(taken))).all()
    assert meets(float(taken @ (quality - alpha)), float(taken.sum()))
    assert (taken == bought(quality, cost, capacity, alpha, rho)).all()


def test_the_exact_oracle_is_exact_on_small_problems():
    rng = np.random.default_rng(4)
    grid = np.stack(np.meshgrid(*[np.arange(5.0)] * 3, indexing="ij"), -1).reshape(-1, 3)
    for _ in range(60):
        quality, cost, alpha = rng.random(3), rng.random(3), rng.random()
        feasible = grid[grid @ (quality - alpha) >= -1e-9 * grid.sum(axis=1)]
        best = float((feasible @ (quality - cost)).max())
        taken = exact(quality, cost, np.full(3, 4.0), alpha, 1.0)
        assert taken @ (quality - cost) == pytest.approx(best, abs=1e-6)
