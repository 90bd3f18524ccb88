"""Random markets: the stated distributions, and a larger instance holds the smaller one.

Statistical tests have a false-alarm rate of .001 each; their seeds are fixed.
"""

from __future__ import annotations

import hashlib
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from posse.problems.markets import instances
from posse.problems.markets.instances import INSTANCES, binds, market_instance
from posse.problems.markets.market import FOREVER, Market, make_market
from tests.kit.rules import refused
from tests.kit.statistics import KS_LIMIT, SIGMAS, chi_square, chi_square_limit, ks

KINDS = {
    "uniform": {},
    "normal": {"distribution": "normal", "alpha": 0.5},
    "overlapping": {"overlap": 0.3},
    "homogeneous": {"homogeneous": True},
    "drifting": {"drift": 0.05, "every": 100, "horizon": 1000},
}


def same(a: np.ndarray, b: np.ndarray) -> bool:
    return a.tobytes() == b.tobytes()


@pytest.mark.parametrize("kind", KINDS)
def test_an_instance_is_a_function_of_its_seed(kind: str) -> None:
    first, again, other = (market_instance(seed, **KINDS[kind]) for seed in (5, 5, 6))
    for part in ("quality", "cost", "capacity"):
        assert same(getattr(first, part), getattr(again, part))
        assert not same(getattr(first, part), getattr(other, part))
    assert first.source == again.source != other.source


@pytest.mark.parametrize("kind", KINDS)
def test_agents_have_the_same_offers_however_many_there_are(kind: str) -> None:
    few, many = (market_instance(5, agents=agents, **KINDS[kind]) for agents in (3, 25))
    assert same(few.quality, many.quality)
    assert same(few.cost, many.cost[:3])
    assert same(few.capacity, many.capacity[:3])


@pytest.mark.parametrize("kind", ["uniform", "normal", "homogeneous", "drifting"])
def test_producers_are_the_same_however_many_there_are(kind: str) -> None:
    few, many = (market_instance(5, producers=producers, **KINDS[kind]) for producers in (4, 40))
    assert same(few.quality, many.quality[:, :4].copy())
    assert same(few.cost, many.cost[:, :4].copy())


def test_uniform_instances_are_uniform() -> None:
    """Power above .99 against u^1.05 (distance .018 at n = 40 000: sqrt(n) D = 3.6, limit 1.95)."""
    market = market_instance(3, agents=40, producers=1000)
    costs = market.cost.ravel()
    assert ks(costs.tolist(), lambda u: u) < KS_LIMIT
    assert ks((costs**1.05).tolist(), lambda u: u) > KS_LIMIT
    assert ks(market.quality[0].tolist(), lambda u: u) < KS_LIMIT
    counts = np.bincount(market.capacity.ravel(), minlength=51)
    assert counts[0] == 0
    assert len(counts) == 51
    assert chi_square(counts[1:]) < chi_square_limit(49)


def test_normal_instances_are_normal_around_alpha() -> None:
    """Five sd from the walls; power above .99 against a mean off by .06 sd (sqrt(n) D = 4.8)."""
    market = market_instance(3, agents=40, producers=1000, distribution="normal", alpha=0.5, sd=0.1)

    def phi(x: float) -> float:
        return 0.5 * math.erfc(-x / math.sqrt(2))

    costs = (market.cost.ravel() - 0.5) / 0.1
    assert ks(costs.tolist(), phi) < KS_LIMIT
    assert ks((costs + 0.06).tolist(), phi) > KS_LIMIT
    assert ks(((market.quality[0] - 0.5) / 0.1).tolist(), phi) < KS_LIMIT


def test_normal_instances_are_clipped() -> None:
    """N(.2, .4): below 0 with probability .3085, above 1 with .0228; 40 000 costs."""
    market = market_instance(3, agents=40, producers=1000, distribution="normal", alpha=0.2, sd=0.4)
    assert market.cost.min() == 0.0
    assert market.cost.max() == 1.0
    assert (market.cost == 0).mean() == pytest.approx(0.3085, abs=SIGMAS * 0.0023)
    assert (market.cost == 1).mean() == pytest.approx(0.0228, abs=SIGMAS * 0.00075)
    still = market_instance(3, distribution="normal", sd=0.0)
    assert set(still.quality.ravel()) | set(still.cost.ravel()) == {0.4}


def test_parts_of_an_instance_are_independent() -> None:
    """Power above .99 against a correlation of .05 (n = 10 000)."""
    market = market_instance(3, agents=2, producers=10_000)
    rows = [market.quality[0], *market.cost, *market.capacity.astype(float)]
    for i, a in enumerate(rows):
        assert abs(np.corrcoef(a[:-1], a[1:])[0, 1]) * 100 < SIGMAS
        assert all(abs(np.corrcoef(a, b)[0, 1]) * 100 < SIGMAS for b in rows[:i])


def test_homogeneous_agents_have_the_terms_of_the_first() -> None:
    alike, unlike = market_instance(5, homogeneous=True), market_instance(5)
    assert (alike.cost == unlike.cost[0]).all()
    assert (alike.capacity == unlike.capacity[0]).all()
    assert not (unlike.cost == unlike.cost[0]).all()
    part = market_instance(5, homogeneous=True, overlap=0.5)
    assert set(np.unique(part.capacity - alike.capacity * (part.capacity > 0))) == {0}
    assert len(np.unique(part.capacity > 0, axis=0)) > 1


@pytest.mark.parametrize(
    ("overlap", "producers", "deals"),
    [(1.0, 30, 30), (0.5, 30, 15), (0.01, 30, 1), (0.34, 3, 1), (0.9, 1, 1)],
)
def test_each_agent_deals_with_its_share_of_producers(
    overlap: float, producers: int, deals: int
) -> None:
    market = market_instance(5, agents=20, producers=producers, overlap=overlap, alpha=0.0)
    assert set((market.capacity > 0).sum(axis=1)) == {deals}


def test_a_larger_overlap_only_adds_producers() -> None:
    whole = market_instance(5)
    before = np.zeros_like(whole.capacity, bool)
    for overlap in (0.1, 0.3, 0.6, 0.9):
        market = market_instance(5, overlap=overlap)
        deals = market.capacity > 0
        assert (deals >= before).all()
        assert (market.capacity[deals] == whole.capacity[deals]).all()
        assert same(market.cost, whole.cost)
        before = deals


def test_who_deals_with_whom_is_uniform() -> None:
    """Three of ten producers each, 4000 agents. False alarms are rarer than .001: an agent's three
    differ.

    Power above .99 against shares from .27 to .33 (noncentrality above 40).
    """
    deals = market_instance(5, agents=4000, producers=10, overlap=0.3).capacity > 0
    assert chi_square(deals.sum(axis=0)) < chi_square_limit(9)
    assert chi_square(deals.sum(axis=0) * np.linspace(0.9, 1.1, 10)) > chi_square_limit(9)


def test_drift_takes_normal_steps() -> None:
    """Far from the walls; power above .99 against steps 6 % too long (distance .014, n above 40
    000: 2.9).
    """
    market = market_instance(5, producers=500, drift=0.001, every=10, horizon=1000)
    assert market.quality.shape == (100, 500)
    assert market.supply.every == 10
    inside = (market.quality[:-1] > 0.02) & (market.quality[:-1] < 0.98)
    steps = (np.diff(market.quality, axis=0)[inside] / 0.001).tolist()

    def phi(x: float) -> float:
        return 0.5 * math.erfc(-x / math.sqrt(2))

    assert len(steps) > 40_000
    assert ks(steps, phi) < KS_LIMIT
    assert ks([step * 1.06 for step in steps], phi) > KS_LIMIT


def test_drift_is_reflected_and_stays_uniform() -> None:
    """Reflected steps keep the uniform distribution: after 50 of them, 5000 qualities are still
    uniform.
    """
    market = market_instance(5, agents=1, producers=5000, drift=0.3, every=1, horizon=51)
    assert market.quality.min() >= 0.0
    assert market.quality.max() <= 1.0
    assert ks(market.quality[-1].tolist(), lambda u: u) < KS_LIMIT


@settings(deadline=None, max_examples=200)
@given(st.floats(-50, 50))
def test_reflection_is_that_of_a_ball_between_walls(x: float) -> None:
    by_hand = x
    while not 0 <= by_hand <= 1:
        by_hand = -by_hand if by_hand < 0 else 2 - by_hand
    assert instances._reflected(x) == pytest.approx(by_hand, abs=1e-13)
    assert instances._reflected(x) == instances._reflected.py_func(x)
    assert 0 <= instances._reflected(x) <= 1


@pytest.mark.parametrize(("horizon", "epochs"), [(1, 1), (100, 1), (101, 2), (1000, 10), (999, 10)])
def test_drift_has_an_epoch_for_every_round(horizon: int, epochs: int) -> None:
    short = market_instance(5, drift=0.1, every=100, horizon=horizon)
    long = market_instance(5, drift=0.1, every=100, horizon=5000)
    assert short.quality.shape == (epochs, 30)
    assert same(short.quality, long.quality[:epochs])
    assert same(short.quality[0], market_instance(5).quality[0])


def test_without_drift_there_is_one_epoch() -> None:
    market = market_instance(5, every=10, horizon=100_000)
    assert (market.supply.every, len(market.quality)) == (FOREVER, 1)


def bound_by_hand(market: Market) -> bool:
    for quality in market.quality:
        for cost, capacity in zip(market.cost, market.capacity, strict=True):
            wanted = [
                i for i, q in enumerate(quality) if market.rho * q > cost[i] and capacity[i] > 0
            ]
            units = sum(int(capacity[i]) for i in wanted)
            if (
                units
                and sum(int(capacity[i]) * quality[i] for i in wanted) < market.alpha * units - 1e-9
            ):
                return True
    return False


@settings(deadline=None, max_examples=80)
@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 6), st.floats(0, 1), st.booleans())
def test_binds_is_the_unconstrained_purchase_below_alpha(
    seed: int, agents: int, producers: int, alpha: float, drifts: bool
) -> None:
    drift: dict[str, Any] = {"drift": 0.2, "every": 10, "horizon": 50} if drifts else {}
    within_reach = (
        market_instance(seed, agents=agents, producers=producers, alpha=0.0, **drift).quality.max()
        >= alpha
    )
    assume(within_reach)
    market = market_instance(seed, agents=agents, producers=producers, alpha=alpha, **drift)
    assert binds(market) == bound_by_hand(market)


def test_binds_looks_at_every_epoch_and_at_capacities() -> None:
    late = make_market([[0.9, 0.9], [0.9, 0.2]], [[0.1, 0.1]], [[1, 9]], alpha=0.5, every=10)
    assert binds(late)
    assert not binds(make_market([0.9, 0.2], [[0.1, 0.1]], [[1, 0]], alpha=0.5))
    assert not binds(
        make_market([0.9, 0.2], [[0.1, 0.3]], [[1, 9]], alpha=0.5)
    )  # too dear to be wanted
    assert binds(make_market([0.9, 0.2], [[0.1, 0.3]], [[1, 9]], alpha=0.5, rho=2.0))
    assert not binds(
        make_market([0.9, 0.2], [[1.0, 1.0]], [[1, 9]], alpha=0.5)
    )  # the empty purchase is allowed


def test_instances_are_those_of_every_other_machine() -> None:
    digest = hashlib.sha256()
    for seed in (0, 1, 2**63 - 1):
        for values in KINDS.values():
            market = market_instance(seed, **values)
            for array in (market.quality, market.cost, market.capacity):
                digest.update(array.astype(array.dtype.newbyteorder("<")).tobytes())
    assert digest.hexdigest() == "08f79fd587ed4eb061f9ec796f70394f4ad7ffffbdd5bae598fd01491fc5f6a4"


def test_the_source_tells_what_was_drawn() -> None:
    assert market_instance(5).source == "uniform instance 5"
    told = market_instance(
        5, distribution="normal", homogeneous=True, overlap=0.5, drift=0.01, every=50, horizon=100
    ).source
    assert told == "normal instance 5, homogeneous agents, overlap 0.5, drift 0.01 every 50 rounds"
    assert set(INSTANCES) == {"uniform", "normal"}


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"agents": 10**6}, "problems.agents.out-of-range"),
        ({"agents": 0}, "problems.agents.out-of-range"),
        ({"producers": 0}, "problems.producers.out-of-range"),
        ({"producers": 2_000_000}, "problems.producers.out-of-range"),
        ({"distribution": "norml"}, "problems.distribution.unknown"),
        ({"overlap": 0}, "problems.overlap.out-of-range"),
        ({"overlap": 1.5}, "problems.overlap.out-of-range"),
        ({"alpha": -0.1}, "problems.alpha.out-of-range"),
        ({"alpha": math.nan}, "problems.alpha.not-a-number"),
        ({"rho": 0.0}, "problems.rho.not-positive"),
        ({"sd": -1}, "problems.sd.too-small"),
        ({"sd": math.inf}, "problems.sd.too-small"),
        ({"largest_capacity": 0}, "problems.largest_capacity.out-of-range"),
        ({"drift": -0.1}, "problems.drift.too-small"),
        ({"drift": 0.1, "every": 0}, "problems.drift_every.too-small"),
        ({"drift": 0.1, "horizon": 0}, "problems.horizon.too-small"),
        ({"drift": 0.1, "every": 1, "horizon": 10**6}, "problems.drift.too-many-epochs"),
        ({"producers": 1, "alpha": 1.0}, "problems.alpha.out-of-reach"),
    ],
)
def test_wrong_instances_are_refused_in_one_line(values: dict[str, Any], says: str) -> None:
    with refused(says) as caught:
        market_instance(1, **values)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("seed", [-1, 2**63])
def test_seeds_have_a_range(seed: int) -> None:
    with refused("problems.instance_seed.out-of-range"):
        market_instance(seed)
