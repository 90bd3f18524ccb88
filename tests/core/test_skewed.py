"""Student's interval with its correction for skewness, and the share's interval."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posse.core.statistics import (
    Interval,
    mean_interval,
    simultaneous_level,
    skewed_interval,
    standard_error,
    student,
    t_quantile,
    wilson,
)

values = st.lists(st.integers(-1000, 1000), min_size=3, max_size=25)
tighten = st.sampled_from([0.0, 0.5, 1.0])


def interval_of(x: np.ndarray, tighten: float = 0.0) -> Interval:
    error = standard_error(x)
    assert error is not None
    return skewed_interval(float(x.mean()), error, x - x.mean(), tighten=tighten)


@given(values, st.sampled_from([-2.0, 0.5, 3.0]), st.integers(-100, 100), tighten)
def test_it_moves_scales_and_mirrors_with_the_data(
    numbers: list[int], scale: float, shift: int, share: float
) -> None:
    x = np.array(numbers, float)
    before, after = interval_of(x, share), interval_of(x * scale + shift, share)
    ends = sorted((before.low * scale + shift, before.high * scale + shift))
    assert [after.low, after.high] == pytest.approx(ends, rel=1e-6, abs=1e-6)


@given(values)
def test_without_tightening_it_holds_students(numbers: list[int]) -> None:
    x = np.array(numbers, float)
    corrected, plain = interval_of(x), mean_interval(x)
    close = 1e-9 * max(1.0, float(np.abs(x).max()))
    assert corrected.low <= plain.low + close
    assert corrected.high >= plain.high - close
    assert corrected.low == pytest.approx(plain.low) or corrected.high == pytest.approx(plain.high)


@given(values)
def test_symmetric_values_have_students(numbers: list[int]) -> None:
    x = np.array([*numbers, *(-number for number in numbers)], float)
    for share in (0.0, 1.0):
        corrected, plain = interval_of(x, share), mean_interval(x)
        assert [corrected.low, corrected.high] == pytest.approx([plain.low, plain.high], abs=1e-6)


def test_the_ends_are_those_of_halls_transformation() -> None:
    x = np.random.default_rng(1).exponential(size=30)
    n, error, residuals = x.size, x.std(ddof=1) / math.sqrt(x.size), x - x.mean()
    skewness = (residuals**3).mean() / (residuals**2).mean() ** 1.5
    found = interval_of(x, 1.0)
    for end, wanted in (
        (found.low, t_quantile(0.95, n - 1)),
        (found.high, -t_quantile(0.95, n - 1)),
    ):
        t = (x.mean() - end) / error / math.sqrt(n)
        hall = t + skewness * t**2 / 3 + skewness**2 * t**3 / 27 + skewness / (6 * n)
        assert math.sqrt(n) * hall == pytest.approx(wanted)


def test_too_few_numbers_have_no_interval() -> None:
    assert not mean_interval([1.0]).known
    assert not student(1.0, None, 5).known
    assert not skewed_interval(1.0, 0.0, np.zeros(1)).known
    assert not student(1.0, 0.5, 0).excludes_zero
    assert student(1.0, 0.1, 5).excludes_zero


# A simulated coverage strays from the true one by 4 standard errors once in 15,000 times.


@pytest.mark.parametrize("n", [10, 20, 50])
def test_it_covers_the_mean_of_a_skewed_distribution_better_than_students(n: int) -> None:
    sets = 4000
    data = np.random.default_rng(n).exponential(size=(sets, n))
    plain = np.mean([one.low <= 1 <= one.high for one in map(mean_interval, data)])
    for share, least in ((0.0, 0.935), (0.5, 0.93)):
        covered = np.mean(
            [one.low <= 1 <= one.high for one in (interval_of(x, share) for x in data)]
        )
        assert covered > max(plain, least - 4 * math.sqrt(0.07 * 0.93 / sets))


@pytest.mark.parametrize("n", [5, 10, 50])
@pytest.mark.parametrize("share", [0.0, 0.5])
def test_it_covers_the_mean_of_a_normal_distribution(n: int, share: float) -> None:
    sets = 4000
    data = np.random.default_rng(n).normal(size=(sets, n))
    covered = np.mean([one.low <= 0 <= one.high for one in (interval_of(x, share) for x in data)])
    assert 0.945 - 4 * math.sqrt(0.05 * 0.95 / sets) < covered < 0.985


def test_wilsons_interval_solves_its_equation() -> None:
    # The ends are the shares p at which |hits / n - p| is 1.96 standard deviations of p.
    for hits, tries in ((0, 10), (3, 10), (81, 263), (10, 10)):
        for p in wilson(hits, tries):
            distance = 1.959964 * math.sqrt(max(0.0, p * (1 - p)) / tries)
            assert abs(hits / tries - p) == pytest.approx(distance, abs=1e-6)


def test_simultaneous_levels_add_up() -> None:
    assert simultaneous_level(0.95, 1) == pytest.approx(0.95)
    assert 4 * (1 - simultaneous_level(0.9, 4)) == pytest.approx(0.1)
