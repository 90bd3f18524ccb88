"""A budget is a pair, and each half has a rule."""

from __future__ import annotations

import math

import pytest

from posse.core.errors import ConfigError
from posse.privacy.dp import Budget


@pytest.mark.parametrize("epsilon", [0, -1, math.inf, math.nan])
def test_epsilon_is_finite_and_above_zero(epsilon: float) -> None:
    with pytest.raises(ConfigError, match="epsilon must be a"):
        Budget(epsilon, 0.01)


@pytest.mark.parametrize("delta", [0, -0.1, 1, 1.5, math.nan, math.inf])
def test_delta_is_between_zero_and_one(delta: float) -> None:
    with pytest.raises(ConfigError, match="delta must be above 0 and below 1"):
        Budget(1, delta)


def test_both_are_always_said() -> None:
    assert f"{Budget(0.5, 1e-5)}" == "(0.5, 1e-05)"
