from __future__ import annotations

import math

import numpy as np
import pytest

from posse.systems.fed_contextual.computing import cohorts
from posse.systems.fed_contextual.computing.cohorts import OverflowingCohort, draw, room


def test_fixed_cohorts_have_their_size_and_no_client_twice() -> None:
    for round_ in range(200):
        numbers, present = draw(3, round_, 100, 64, "fixed")
        assert len(set(numbers.tolist())) == 64
        assert present.all()
        assert 0 <= numbers.min() <= numbers.max() < 100


def test_poisson_cohorts_have_the_sizes_of_coins() -> None:
    sizes, hits = [], np.zeros(1000)
    for round_ in range(4000):
        numbers, present = draw(5, round_, 1000, 64, "poisson")
        here = numbers[present > 0]
        assert len(set(here.tolist())) == len(here)
        sizes.append(len(here))
        hits[here] += 1
    variance = 64 * (1 - 0.064)
    # 5 standard errors of mean and variance: a cohort of fixed size, or one clients are drawn into
    # twice, fails at once
    assert abs(np.mean(sizes) - 64) < 5 * math.sqrt(variance / 4000)
    assert abs(np.var(sizes) / variance - 1) < 5 * math.sqrt(2 / 4000)
    spread = 4000 * 0.064 * (1 - 0.064)
    assert abs(((hits - 256) ** 2 / spread).mean() - 1) < 5 * math.sqrt(
        2 / 1000
    )  # every client alike


@pytest.mark.parametrize(
    ("clients", "expected"), [(342_477, 64), (342_477, 6400), (340_000, 16), (1000, 64)]
)
def test_a_poisson_cohort_overflows_once_in_a_billion_rounds(clients: int, expected: int) -> None:
    p, above = expected / clients, room(expected, "poisson") + 1
    log_chance = (
        math.lgamma(clients + 1)
        - math.lgamma(above + 1)
        - math.lgamma(clients - above + 1)
        + above * math.log(p)
        + (clients - above) * math.log1p(-p)
    )
    ratio = (clients - above) / (above + 1) * p / (1 - p)  # successive terms fall at least so fast
    assert math.exp(log_chance) / (1 - ratio) < 1e-9


def test_a_cohort_that_does_not_fit_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cohorts, "room", lambda expected, sampling: expected)
    with pytest.raises(
        OverflowingCohort, match=r"were drawn for round \d+ where there is room for 64"
    ):
        [draw(0, round_, 1000, 64, "poisson") for round_ in range(50)]


def test_cohorts_are_a_function_of_seed_and_round() -> None:
    one = draw(7, 11, 500, 20, "fixed")[0]
    draw(8, 3, 100, 10, "poisson")
    assert np.array_equal(draw(7, 11, 500, 20, "fixed")[0], one)
    for other in (draw(8, 11, 500, 20, "fixed"), draw(7, 12, 500, 20, "fixed")):
        assert not np.array_equal(other[0], one)
    assert not np.array_equal(draw(7, 11, 500, 20, "fixed", supervised=True)[0], one)


@pytest.mark.parametrize("sampling", ["fixed", "poisson"])
def test_more_than_there_are_is_refused(sampling: str) -> None:
    with pytest.raises(ValueError, match="a cohort of 64 needs as many clients, got 10"):
        draw(0, 0, 10, 64, sampling)
    with pytest.raises(ValueError, match="fixed, poisson"):
        draw(0, 0, 10, 4, "coins")
