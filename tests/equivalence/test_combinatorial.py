"""Agents that exchange messages and the compiled market give the same run, bit for bit, with noise
and without.
"""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from posse.problems.markets.instances import market_instance
from posse.problems.markets.market import make_market
from posse.runtime.memory import MemoryRun
from posse.systems.dp_combinatorial.federation import SimulatedMarket, agents_of, federation
from posse.systems.dp_combinatorial.terms import Terms
from posse.systems.dp_combinatorial.twin import run_once, truth_of

ROUNDS = 400
REPORTS = (25, 50, 100, 200, 400)

TALK = {
    "alone": {"method": "alone"},
    "fcb": {"method": "fcb"},
    "noisy": {"reports": REPORTS, "multipliers": (3.0, 2.0, 1.0, 0.5, 0.5)},
    "noiseless": {"reports": REPORTS, "multipliers": (0.0,) * 5},
    "fused": {"reports": REPORTS, "multipliers": (1.0,) * 5, "rule": "fuse"},
    "placebo": {"method": "placebo", "reports": REPORTS, "multipliers": (2.0,) * 5},
    "naive": {"method": "naive", "multipliers": (2.5,)},
    "exploring": {"reports": REPORTS, "multipliers": (1.0,) * 5, "explore": 60},
}


def markets():
    rng = np.random.default_rng(3)
    records = [rng.random(int(rng.integers(3, 40))) for _ in range(6)]
    return {
        "uniform": market_instance(1, agents=4, producers=7, alpha=0.3),
        "normal": market_instance(2, agents=3, producers=9, distribution="normal"),
        "overlap": market_instance(3, agents=4, producers=8, overlap=0.5, alpha=0.2),
        "drift": market_instance(
            4, agents=3, producers=5, drift=0.1, every=37, horizon=ROUNDS, alpha=0.2
        ),
        "binding": make_market(
            [0.3, 0.35, 0.9, 0.95], [[0.0, 0.05, 0.85, 0.9]] * 3, [[30, 20, 7, 9]] * 3, alpha=0.5
        ),
        "replayed": make_market(
            None, rng.random((3, 6)), rng.integers(0, 90, (3, 6)), alpha=0.3, records=records
        ),
        "large": make_market([0.4, 0.9], [[0.1, 0.5]] * 2, [[3000, 10**6]] * 2, alpha=0.5),
    }


MARKETS = markets()


def both(market, terms, seed, **how):
    """Run both ways and return what each gave."""
    truth = truth_of(market)
    known, curves = run_once(market, terms, seed, truth=truth, trace=True, **how)
    world = SimulatedMarket(market, seed, terms.rounds, truth=truth, opening=terms.opening)
    roles = federation(market, terms, seed=seed, **how)
    run = MemoryRun(roles, Recorder(world, market, terms.rounds))
    run.finish()
    return (known, curves), (agents_of(roles), world, run)


class Recorder:
    """A market that keeps every purchase."""

    def __init__(self, world, market, rounds):
        self.world = world
        self.trace = np.zeros((rounds, *market.cost.shape))
        self._number = {name: j for j, name in enumerate(market.agents)}

    def __call__(self, buy):
        self.trace[buy.round - 1, self._number[buy.party]] = buy.units
        return self.world(buy)


@pytest.mark.parametrize("talk", TALK)
@pytest.mark.parametrize("name", MARKETS)
@pytest.mark.parametrize("seed", [1, 2])
def test_agents_and_simulation_are_the_same_run(name, talk, seed):
    market = MARKETS[name]
    terms = Terms(market.agents, market.producers, ROUNDS, **TALK[talk])
    (known, curves), (agents, world, run) = both(market, terms, seed)
    assert (run.world.trace == curves.trace).all()  # every purchase of every agent in every round
    for j, agent in enumerate(agents):
        for field in known._fields:
            assert (
                getattr(agent.knowledge, field).tobytes() == getattr(known, field)[j].tobytes()
            ), field
    for field in ("revenue", "regret", "earned", "lost", "missed", "below", "first"):
        assert getattr(world.curves, field).tobytes() == getattr(curves, field).tobytes(), field
    assert [agent.taken for agent in agents] == curves.taken.tolist()
    if talk in ("fcb", "fused", "noiseless", "naive"):
        assert curves.taken.sum() > 0  # else learning was not tried
    dealt = np.minimum(market.capacity, 1)
    assert ((curves.trace[: terms.explore] == dealt).all(axis=(1, 2))).sum() == terms.explore
    assert (curves.below[-1] == curves.missed).all()


def test_exploring_is_one_unit_of_each_producer_for_so_many_rounds_whatever_the_method():
    market = MARKETS["overlap"]
    plain = Terms(market.agents, market.producers, ROUNDS, method="fcb")
    _, curves = run_once(market, plain, 3, trace=True)
    explored = msgspec.structs.replace(plain, explore=30)
    assert explored.digest != plain.digest
    _, other = run_once(market, explored, 3, trace=True)
    assert (other.trace[:30] == np.minimum(market.capacity, 1)).all()
    assert (other.trace[30] != np.minimum(market.capacity, 1)).any()
    assert (curves.trace[0] != other.trace[0]).any()
    # Algorithm 1 pools what is explored: after the phase everyone has one unit a round of every
    # agent that deals.
    short = msgspec.structs.replace(plain, rounds=30, explore=30)
    pooled = run_once(market, short, 3)[0]
    assert (
        pooled.units + pooled.told_units == 30 * np.minimum(market.capacity, 1).sum(axis=0)
    ).all()


def test_naive_is_fcb_with_noise_and_without_it_fcb():
    market = MARKETS["uniform"]
    noisy, none, fcb = (
        run_once(market, Terms(market.agents, market.producers, ROUNDS, **talk), 4, trace=True)[
            1
        ].trace
        for talk in (
            {"method": "naive", "multipliers": (2.5,)},
            {"method": "naive", "multipliers": (0.0,)},
            TALK["fcb"],
        )
    )
    assert (none == fcb).all()
    assert (noisy != fcb).any()


def test_optimism_and_margin_are_followed_by_both():
    market = MARKETS["binding"]
    terms = Terms(market.agents, market.producers, ROUNDS, **TALK["noisy"])
    (_, curves), (_, world, _) = both(market, terms, 5, coefficient=0.5, margin=0.02)
    assert world.curves.earned.tobytes() == curves.earned.tobytes()
    assert (curves.trace != both(market, terms, 5)[0][1].trace).any()


def test_noise_changes_a_run_and_its_absence_does_not():
    """P-FCB at zero noise is its plain twin: the same reports in the clear, learnt from by the same
    rule.
    """
    market = MARKETS["uniform"]
    zero = Terms(market.agents, market.producers, ROUNDS, **TALK["noiseless"])
    noisy = Terms(market.agents, market.producers, ROUNDS, **TALK["noisy"])
    (_, curves), (_, world, _) = both(market, zero, 9)
    assert by_hand(market, zero, 9) == pytest.approx(curves.lost.tolist(), rel=1e-12)
    assert world.curves.lost.tobytes() == curves.lost.tobytes()
    assert (both(market, noisy, 9)[0][1].trace != curves.trace).any()


def by_hand(market, terms, seed):
    """The twin in plain Python, written from the paper and not from the kernels; regret of every
    agent.
    """
    n, m = market.cost.shape
    total, good = np.zeros((n, m)), np.zeros((n, m))
    fresh, fresh_good = np.zeros((n, m)), np.zeros((n, m))
    lost, truth = [0.0] * n, truth_of(market)
    for t in range(1, terms.rounds + 1):
        for j in range(n):
            bound = np.ones(m)
            seen = total[j] > 0
            estimate = good[j][seen] / total[j][seen] + np.sqrt(
                3 * np.log(t) / (2 * total[j][seen])
            )
            bound[seen] = np.clip(estimate, 0, 1)
            buy = np.where(market.rho * bound - market.cost[j] > 0, market.capacity[j], 0)
            assert (
                buy * (bound - market.alpha)
            ).sum() >= 0  # this market's threshold does not bind
            got = np.array([market.good(seed, j, i, t, 0, int(x)) for i, x in enumerate(buy)])
            for array, more in ((total, buy), (good, got), (fresh, buy), (fresh_good, got)):
                array[j] += more
            meets = (buy * (market.quality[0] - market.alpha)).sum() >= -1e-9 * buy.sum()
            revenue = (buy * (market.rho * market.quality[0] - market.cost[j])).sum()
            lost[j] += truth.best[0, j] - revenue if meets else truth.worst[0, j]
        if t in terms.reports:
            sent, sent_good = fresh.copy(), fresh_good.copy()
            fresh[:], fresh_good[:] = 0, 0
            for j in range(n):
                for other in range(n):
                    for i in range(m):
                        if other == j or sent[other, i] <= 0:
                            continue
                        width = terms.width * np.sqrt(3 * np.log(t) / (2 * total[j, i]))
                        if (
                            abs(sent_good[other, i] / sent[other, i] - good[j, i] / total[j, i])
                            <= width
                        ):
                            total[j, i] += terms.weight * sent[other, i]
                            good[j, i] += terms.weight * sent_good[other, i]
    return lost


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10, 30))
def test_agents_and_simulation_are_the_same_run_at_length(seed):
    market = market_instance(
        seed, agents=5, producers=30, distribution=("uniform", "normal")[seed % 2]
    )
    reports = tuple(200 * 2**z for z in range(6))
    for talk in ({"reports": reports, "multipliers": (2.66,) * 6}, {"method": "alone"}):
        terms = Terms(market.agents, market.producers, 10_000, **talk)
        truth = truth_of(market)
        _, curves = run_once(market, terms, seed, truth=truth)
        world = SimulatedMarket(market, seed, terms.rounds, truth=truth)
        MemoryRun(federation(market, terms, seed=seed), world).finish()
        assert world.curves.revenue.tobytes() == curves.revenue.tobytes()
        assert world.curves.regret.tobytes() == curves.regret.tobytes()
