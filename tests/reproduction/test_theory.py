"""Section 6 of the paper on federated contextual bandits: bounds, a world that has what it assumes,
and verdicts.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from posse.policies.contextual.explorations import EpsilonGreedy, Falcon
from reproduction.claims import FAILS, HOLDS, UNKNOWN
from reproduction.fed_contextual import realizable, theory
from reproduction.fed_contextual.realizable import (
    ARMS,
    CLASS,
    CONSTANTS,
    SMALL,
    bound8,
    bound9,
    bound10,
    bound_falcon,
    central,
    federated,
    world_of,
)
from tests.reproduction.small_form import column, run, table_of


@pytest.mark.long
def test_the_small_form(tmp_path: Path) -> None:
    analysis, rows = run("fed-contextual", "theory", tmp_path)
    assert len(rows) == 3 * len(SMALL.clients) * len(SMALL.seeds) * SMALL.periods
    table = table_of(analysis, "Regret a decision")
    assert column(table, "clients") == ["1", "40"]
    assert column(table, "(8)") == [f"{bound8(50 * k, SMALL.periods):.3f}" for k in (1, 40)]
    assert float(column(table, "FedAvg, ε-Greedy")[0].split()[0]) >= 0
    many = [
        float(r["regret"])
        for r in rows
        if (r["policy"], r["clients"], r["period"]) == ("epsilon-greedy", "40", "8")
    ]
    assert float(column(table, "ε-Greedy")[1].split()[0]) == pytest.approx(np.mean(many), abs=6e-5)
    # With 2,000 samples a period the truth is found; what is left is exploring, epsilon times an
    # even draw's regret.
    assert max(many) < 0.05 * 0.2
    verdicts = {one.claim: one.verdict for one in analysis.findings}
    assert (verdicts["epsilon-greedy"], verdicts["falcon"]) == (HOLDS, HOLDS)


def test_bounds_as_printed() -> None:
    k, f, e, d = ARMS, CLASS, 0.05, 0.05
    assert bound8(300, 7) == pytest.approx((2 * k / e * math.log(f * 7 / d) / (300 * 7)) ** 0.5)
    terms = [(2 * k / e * 50 * math.log(f * 3 / d) / (i - 1)) ** 0.5 for i in (2, 3)]
    assert bound9(50, 3) == pytest.approx(e * 150 + 50 + sum(terms))
    assert bound9(50, 1) == pytest.approx(e * 50 + 50)
    steps = [(2 * k / e * math.log(f * 4 / d) / (j - 1)) ** 0.5 for j in (2, 3, 4)]
    assert bound10(4) == pytest.approx(e * 4 + 1 + sum(steps))
    assert bound_falcon(50, 4) == pytest.approx((k * math.log(f * 4 / d) / 200) ** 0.5)


def test_the_world_holds_the_truth_and_counts_are_all_that_least_squares_needs() -> None:
    world = world_of(3, 5)
    assert world.contexts.sum() == pytest.approx(1)
    assert world.regret(np.full((realizable.CONTEXTS, ARMS), 1 / ARMS)) == pytest.approx(
        float(world.contexts @ (world.truth.max(axis=1) - world.truth.mean(axis=1)))
    )
    assert sum(np.array_equal(table, world.truth) for table in world.tables) == 1
    assert not np.array_equal(world.tables[world.first], world.truth)
    size = replace(SMALL, decisions=100_000, periods=3)
    for policy in (EpsilonGreedy(0.05), Falcon(gamma=1.0)):
        found = federated(3, 5, size, policy)
        assert found[1, 0] > 0.02
        assert found[1, 1:].tolist() == [
            0.0,
            0.0,
        ]  # half a million samples of a class that holds the truth
        assert (found[0] > 0).all()


def test_a_model_after_every_decision_is_a_period_of_one_decision() -> None:
    """The two simulations draw differently: their mean regrets agree within five standard errors of
    the difference.
    """
    seeds, steps = tuple(range(1, 31)), 150
    at_once = central(seeds, steps)[0].sum(axis=1)
    late = np.array(
        [
            federated(s, 1, replace(SMALL, decisions=1, periods=steps), EpsilonGreedy(0.05))[
                0
            ].sum()
            for s in seeds
        ]
    )
    assert at_once.mean() > 5
    gap = at_once - late  # both in the worlds of the seeds
    assert abs(gap.mean()) < 5 * gap.std(ddof=1) / math.sqrt(len(seeds))


def made(
    regret: float = 0.01, falls: float = -0.5, own: float = -0.5, late: float = 1.5
) -> theory.Found:
    """Curves by formula: regret of the greedy arm, how that of a model a decision falls, and how
    FALCON's does.
    """
    size = replace(
        SMALL, clients=(1, 4, 16), seeds=(1, 2, 3), periods=10, decisions=50, alone=(50, 500)
    )
    jitter = np.array([0.99, 1.0, 1.01])
    curve = np.stack([np.full(10, regret + 0.005), np.full(10, regret)])
    steps = np.arange(1, 501)
    once_ = regret * steps**falls * (1 + falls)
    bound = {k: bound_falcon(k * 50, 10) for k in size.clients}
    falcons = {
        c: {
            k: np.stack([np.full((2, 10), bound[1] * k**own * x) for x in jitter])
            for k in size.clients
        }
        for c in CONSTANTS
    }
    lines = {k: np.stack([curve * x for x in jitter]) for k in size.clients}
    growing = np.linspace(late, 1, 500) * (regret + 0.005)
    alone = np.stack([[growing * x for x in jitter], [once_ * x for x in jitter]])
    return theory.Found(size, lines, falcons, alone, {})


@pytest.mark.parametrize(
    ("given", "claim", "verdict"),
    [
        ({}, "epsilon-greedy", HOLDS),
        ({"regret": 9.0}, "epsilon-greedy", FAILS),
        (
            {"late": 0.2},
            "late",
            HOLDS,
        ),  # at once costs a fifth early, and nearly the same at the end
        ({"late": 3.0}, "late", FAILS),
        ({"regret": 9.0, "late": 0.2}, "late", FAILS),
        ({}, "one-period", HOLDS),
        ({"falls": 0.0}, "one-period", FAILS),
        ({}, "falcon", HOLDS),
        ({"own": 0.5}, "falcon", FAILS),
        ({}, "floor", HOLDS),
        ({"own": 0.0}, "floor", FAILS),
    ],
)
def test_verdicts_follow_curves(
    given: dict[str, float], claim: str, verdict: str, tmp_path: Path
) -> None:
    judges = {
        "epsilon-greedy": theory._epsilon,
        "late": theory._late,
        "one-period": theory._single,
        "falcon": theory._falcon,
        "floor": theory._floor,
    }
    found = judges[claim](made(**given))
    assert (found.claim, found.verdict) == (claim, verdict), found
    assert found.verdict != UNKNOWN
