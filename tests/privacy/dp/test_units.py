"""Sensitivities, against the worst pair of adjacent histories; and what is never covered."""

from __future__ import annotations

import math

import numpy as np
import pytest

from posse.core.errors import ConfigError
from posse.privacy.dp import UNITS
from posse.privacy.dp.units import unit_named

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
        assert "world seed" in said
    assert "several entries" in UNITS["entry"].not_covered[0]
    assert "several rounds" in UNITS["round"].not_covered[0]
    assert [unit.disjoint for unit in UNITS.values()] == [True, True, False]


def test_mistakes() -> None:
    with pytest.raises(ConfigError, match=r"unknown unit 'entri'. Did you mean 'entry'"):
        unit_named("entri")
    with pytest.raises(ConfigError, match="producers must be at least 1"):
        UNITS["round"].sensitivity(0, 1)
    assert UNITS["round"].sensitivity(30, 1) == math.sqrt(60)
