import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posse.core.statistics import t_p_value, t_quantile

stats = pytest.importorskip("scipy.stats")


@given(st.floats(-1e4, 1e4), st.integers(1, 400))
def test_p_values_are_those_of_scipy(t: float, df: int) -> None:
    assert t_p_value(t, df) == pytest.approx(2 * stats.t.sf(abs(t), df), rel=1e-6, abs=1e-13)


@pytest.mark.parametrize("df", [*range(1, 31), 99, 1000])
@pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.99, 0.9975])
def test_quantiles_are_those_of_scipy(df: int, level: float) -> None:
    assert t_quantile(level, df) == pytest.approx(stats.t.ppf((1 + level) / 2, df), rel=1e-9)


def test_ends() -> None:
    assert t_p_value(math.inf, 3) == pytest.approx(0.0, abs=1e-15)
    assert t_p_value(0.0, 1) == t_p_value(0.0, 2) == 1.0
    assert t_quantile(0.0, 5) == pytest.approx(0.0, abs=1e-12)
