"""When agents talk, and the noise of the published schedule."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posse.core.errors import ConfigError
from posse.privacy.dp.guarantee import Budget
from posse.privacy.dp.schedules import (
    UNITS,
    communication_rounds,
    paper_multipliers,
    paper_split,
    unit_named,
    windows,
)


def test_the_default_rounds() -> None:
    rounds = communication_rounds(200, 40_000, 100_000)
    assert rounds == (200, 400, 800, 1600, 3200, 6400, 12800, 25600)
    assert windows(rounds) == (200, 200, 400, 800, 1600, 3200, 6400, 12800)


@given(st.integers(1, 1000), st.integers(0, 100_000), st.integers(0, 100_000))
def test_rounds_double_up_to_the_limit(start: int, more: int, after: int) -> None:
    stop, horizon = start + more, start + after
    rounds = communication_rounds(start, stop, horizon)
    assert rounds[0] == start
    assert all(b == 2 * a for a, b in pairwise(rounds))
    assert rounds[-1] <= min(stop, horizon) < 2 * rounds[-1]
    assert sum(windows(rounds)) == rounds[-1]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((0, 10, 10), "start must be at least 1"),
        ((200, 100, 1000), "stop 100 before start 200"),
        ((200, 400, 199), "nobody would talk"),
    ],
)
def test_mistakes(arguments: tuple[int, int, int], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        communication_rounds(*arguments)


@pytest.mark.parametrize("rounds", [(), (0, 1), (5, 5), (5, 4)])
def test_rounds_rise(rounds: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match="round"):
        windows(rounds)


def test_the_published_split() -> None:
    assert sum(paper_split(1, 100_000, 8)) == pytest.approx(0.845, abs=5e-4)
    assert sum(paper_split(1, 100_000, 16)) == pytest.approx(1.195, abs=5e-4)
    made = paper_multipliers(Budget(1, 0.01), 100_000, 8)
    assert made[0] == pytest.approx(10.59, abs=5e-3)
    assert made[-1] == pytest.approx(68.47, abs=5e-3)
    with pytest.raises(ConfigError, match="horizon must be at least 2"):
        paper_split(1, 1, 3)


M, ROUNDS = 3, 5


def message(bought: np.ndarray) -> np.ndarray:
    """Units bought and good units in a window, all good, in units of the capacity."""
    return np.concatenate([bought.sum(axis=1), bought.sum(axis=1)])


@pytest.mark.parametrize("name", UNITS)
def test_the_sensitivity_is_that_of_the_worst_pair(name: str) -> None:
    nothing = np.zeros((M, ROUNDS))
    other = nothing.copy()
    changed = {"entry": np.s_[0, 0], "round": np.s_[:, 0], "history": np.s_[:, :]}[name]
    other[changed] = 1.0
    distance = np.linalg.norm(message(other) - message(nothing))
    assert UNITS[name].sensitivity(M, ROUNDS) == pytest.approx(distance)


def test_nothing_random_is_further_apart() -> None:
    rng = np.random.default_rng(1)
    for _ in range(200):
        first, second = rng.uniform(0, 1, (2, M, ROUNDS))
        good = rng.uniform(0, 1, (2, M, ROUNDS)) * (first, second)
        gap = np.concatenate([(first - second).sum(axis=1), (good[0] - good[1]).sum(axis=1)])
        assert np.linalg.norm(gap) <= UNITS["history"].sensitivity(M, ROUNDS)


def test_what_is_not_covered_is_said() -> None:
    for unit in UNITS.values():
        said = " ".join(unit.not_covered)
        assert ("later choices" in said) == unit.disjoint
        assert "what producers see" in said
        assert "capacities" in said
        assert "seed" not in said  # which is of a simulation alone
    assert "several entries" in UNITS["entry"].not_covered[0]
    assert "several rounds" in UNITS["round"].not_covered[0]
    assert [unit.disjoint for unit in UNITS.values()] == [True, True, False]


def test_mistakes_in_units() -> None:
    with pytest.raises(ConfigError, match=r"unknown unit 'entri'. Did you mean 'entry'"):
        unit_named("entri")
    with pytest.raises(ConfigError, match="producers must be at least 1"):
        UNITS["round"].sensitivity(0, 1)
    assert UNITS["round"].sensitivity(30, 1) == math.sqrt(60)
