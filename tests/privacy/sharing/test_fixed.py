"""Real numbers as words: exact where they fit, refused where they do not."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from posse.core.errors import ConfigError, DataError
from posse.privacy.sharing.fixed import LIMIT, MOST_BITS, FixedPoint
from tests.privacy.sharing.engine import signed, some

bits = st.integers(1, MOST_BITS)


def nearest(x: float, bits: int) -> int:
    """Round x 2^bits to the nearest integer, halves to the even one, by exact fractions."""
    return round(Fraction(x) * 2**bits)


@some
@given(bits, st.lists(st.floats(-1, 1), min_size=1, max_size=50))
@example(
    20,
    [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0**-20, -(2.0**-20), 2.0**-21, -(2.0**-21), 1 - 2.0**-53],
)
@example(
    31, [1.0, -1.0, math.nextafter(1, 0), -math.nextafter(1, 0), 5e-324, 2.0**-32, 3 * 2.0**-32]
)
def test_numbers_are_rounded_to_the_nearest_unit(bits: int, values: list[float]) -> None:
    found = FixedPoint(bits, most=1.0).encode(values)
    assert found.dtype == np.uint64
    assert signed(found).tolist() == [nearest(x, bits) for x in values]


@some
@given(bits, st.data())
def test_the_whole_declared_range_is_below_the_limit(bits: int, data: st.DataObject) -> None:
    most = math.nextafter(2.0 ** (LIMIT - bits), 0)
    unit = FixedPoint(bits, most=most)
    values = [most, -most, 0.0, *data.draw(st.lists(st.floats(-most, most), max_size=20))]
    numbers = signed(unit.encode(values)).tolist()
    assert numbers == [nearest(x, bits) for x in values]
    assert max(map(abs, numbers)) < 2**LIMIT


@some
@given(bits, st.lists(st.integers(-(2**52), 2**52), min_size=1, max_size=20))
def test_decoding_undoes_encoding(bits: int, units: list[int]) -> None:
    values = [one / 2**bits for one in units]
    unit = FixedPoint(bits, most=2.0 ** (53 - bits))
    assert unit.decode(unit.encode(values)).tolist() == values
    assert unit.encode(np.reshape(values, (1, -1, 1))).shape == (1, len(values), 1)


OVER = [math.nan, math.inf, -math.inf, math.nextafter(1.0, 2), -math.nextafter(1.0, 2), 1e300, -1.5]


@pytest.mark.parametrize("wrong", OVER)
def test_what_is_outside_the_range_is_refused(wrong: float) -> None:
    unit = FixedPoint(20, most=1.0)
    for values in (wrong, [0.0, wrong], [[1.0], [wrong]]):
        with pytest.raises(DataError, match="at most 1 in magnitude") as refused:
            unit.encode(values)
        assert f"got {wrong:g}" in str(refused.value)


@pytest.mark.parametrize(
    ("bits", "most"), [(20, 2.0**42), (31, 2.0**31), (1, 2.0**61), (20, 0.0), (20, -1.0)]
)
def test_a_range_that_does_not_fit_is_refused(bits: int, most: float) -> None:
    with pytest.raises(DataError, match="Take fewer bits"):
        FixedPoint(bits, most=most)
    for wrong in (math.nan, math.inf):
        with pytest.raises(DataError):
            FixedPoint(bits, most=wrong)


@pytest.mark.parametrize("bits", [0, -1, MOST_BITS + 1])
def test_fraction_bits_are_those_of_one_truncation(bits: int) -> None:
    with pytest.raises(ConfigError, match="bits"):
        FixedPoint(bits, most=1.0)
