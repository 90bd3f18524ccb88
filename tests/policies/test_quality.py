"""The quality bound against its formula."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from posse.policies.purchase.oracle import quality_bounds, rate

counts = st.floats(0, 1e6)


@settings(deadline=None)
@given(
    st.integers(1, 10**6),
    st.floats(0, 3),
    counts,
    st.floats(0, 1),
    st.floats(-100, 1e6),
    st.floats(-0.5, 1.5),
)
def test_is_the_formula(t, coefficient, units, share, told, told_share):
    good, told_good = units * share, told * told_share
    assume(not 0 < units + told < 1e-6)  # units are counted, not measured
    out = np.empty(1)
    quality_bounds(
        rate(t, coefficient),
        np.array([good]),
        np.array([units]),
        np.array([told_good]),
        np.array([told]),
        out,
    )
    seen = units + told
    if seen <= 0:
        assert out[0] == 1.0
        return
    formula = (good + told_good) / seen + coefficient * math.sqrt(3 * math.log(t) / (2 * seen))
    assert out[0] == pytest.approx(min(1.0, max(0.0, formula)), rel=1e-9, abs=1e-9)


def test_more_units_and_less_optimism_bring_it_down():
    good, units, none = np.array([50.0, 500.0]), np.array([100.0, 1000.0]), np.zeros(2)
    wide, narrow = np.empty(2), np.empty(2)
    quality_bounds(rate(1000, 1.0), good, units, none, none, wide)
    quality_bounds(rate(1000, 0.5), good, units, none, none, narrow)
    assert 0.5 < wide[1] < wide[0] < 1
    assert (narrow < wide).all()
