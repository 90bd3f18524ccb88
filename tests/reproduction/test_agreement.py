"""Differences in standard errors, against numbers worked out by hand."""

from __future__ import annotations

import math

import pytest

from reproduction.samba.agreement import (
    BEYOND,
    Comparison,
    Estimate,
    estimate,
    verdict,
    world_sd,
    z_score,
)
from reproduction.samba.fig8c import headline, reward_table, verdict_table


def cell(ours: float, replayed: float, *, arms: int = 100, policy: str = "ucb") -> Comparison:
    """A cell with errors 3 (ours, 100 runs of sd 30), 4 (replayed, 25 of 20) and 4 (theirs, 25 of
    20).
    """
    return Comparison(
        "rewards",
        "jester",
        policy,
        arms,
        50_000,
        ours=Estimate(ours, 30.0, 100),
        replayed=Estimate(replayed, 20.0, 25),
        theirs=Estimate(1000.0, 20.0, 25),
    )


def test_z_by_hand() -> None:
    # Errors 3 and 4 make 5; a difference of 10 is two of them.
    assert z_score(Estimate(110.0, 30.0, 100), Estimate(100.0, 20.0, 25)) == pytest.approx(2.0)
    # A shared luck of sd 12 makes it 13.
    assert z_score(
        Estimate(113.0, 30.0, 100), Estimate(100.0, 20.0, 25), world=12.0
    ) == pytest.approx(1.0)


def test_estimate_by_hand() -> None:
    one = estimate([1.0, 2.0, 3.0, 6.0])
    assert (one.mean, one.runs) == (3.0, 4)
    assert one.sd == pytest.approx(math.sqrt((4 + 1 + 0 + 9) / 3))
    assert one.error == pytest.approx(one.sd / 2)


def test_the_luck_of_a_world_is_binomial() -> None:
    assert world_sd(Estimate(40_000.0, 1.0, 50), 50_000) == pytest.approx(
        math.sqrt(50_000 * 0.8 * 0.2)
    )


def test_the_three_differences_of_a_cell() -> None:
    one = cell(ours=1010.0, replayed=1000.0 + 4.0 * math.sqrt(2.0))
    assert one.z == pytest.approx(2.0)
    # 1,000 of 50,000 pulls pay: luck of variance 980, beside 25 of the errors.
    assert one.z_world == pytest.approx(10.0 / math.sqrt(25.0 + 980.0))
    assert one.z_replay == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("z", "word"), [(2.99, "agrees"), (-2.99, "agrees"), (3.0, "differs"), (-7.0, "differs")]
)
def test_the_limit_is_three(z: float, word: str) -> None:
    assert verdict(z) == word


def test_chance_beyond_the_limit() -> None:
    assert pytest.approx(0.0026998, abs=1e-6) == BEYOND


def test_words_follow_the_numbers() -> None:
    cells = [
        cell(1010.0, 1001.0),
        cell(1020.0, 1200.0),
        cell(1001.0, 999.0, arms=10),
        cell(2000.0, 1500.0, arms=10),
    ]
    table = verdict_table(cells)
    assert [row[2:6] for row in table.rows] == [
        ("10", "1 of 2", "1 of 2", "1 of 2"),
        ("20 to 100", "1 of 2", "2 of 2", "1 of 2"),
    ]
    assert [row[-1] for row in reward_table(cells).rows] == [
        "agrees",
        "differs",
        "agrees",
        "differs",
    ]
    assert "in 2 of 4 cells without Thompson and 0 of 0 with it" in headline(cells)
    assert "in independent worlds in 3 of 4" in headline(cells)
