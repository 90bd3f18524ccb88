"""A small form of `benchmarks/coverage.py`, and all of it among the long tests."""

import math

import pytest

from benchmarks import coverage

LEAST = 0.94
"""Coverage that every cell of the published table has."""
CLEAR = 0.06
"""How often settings that earn the same may be called clearly different."""


def tolerance(share: float, count: int) -> float:
    """4 standard errors of a simulated share."""
    return 4 * math.sqrt(share * (1 - share) / count)


@pytest.mark.parametrize(("rows", "clients"), [(100, 10), (500, 10), (500, 50)])
def test_estimates_hold_the_truth(rows: int, clients: int) -> None:
    # The normal interval covers 89 to 92 % of 10 clients.
    count = 400
    for cell in coverage.measure(None, rows, clients, count):
        assert cell.covered > LEAST - tolerance(LEAST, count), cell
        assert cell.width < 1.4, cell
        assert cell.known == 1


def test_few_effective_rows_have_no_interval() -> None:
    assert {cell.known for cell in coverage.measure(coverage.ARMS - 1, 100, 20, 50)} == {0}


def test_the_interval_of_the_arm_that_looks_best_allows_for_the_choice() -> None:
    count = 400
    own, together = coverage.best_of_arms(500, 50, count)
    assert together > LEAST - tolerance(LEAST, count)
    assert own < together


@pytest.mark.parametrize("problem", coverage.PROBLEMS)
def test_settings_that_earn_the_same_are_not_called_clear(problem: str) -> None:
    count = 300
    first, same = (coverage.pool(problem, tau, 1000) for tau in coverage.TEMPERATURES[:2])
    for runs in coverage.RUNS:
        _, now = coverage.clear_share(first, same, runs, count)
        assert now < CLEAR + tolerance(CLEAR, count)


def test_a_real_difference_is_clear_though_its_runs_are_skewed() -> None:
    count = 300
    first, worse = (coverage.pool("two arms", tau, 1000) for tau in (0.1, 0.03))
    assert coverage.clear_share(first, worse, 50, count)[1] > 0.8 - tolerance(0.8, count)


@pytest.mark.long
@pytest.mark.parametrize("arm", [None, coverage.ARMS - 1])
def test_every_cell_of_the_published_table(arm: int | None) -> None:
    for cell in coverage.cells(arm):
        if cell.known:
            print(cell)
            assert cell.covered >= LEAST, cell
            assert cell.width <= 1.3, cell


@pytest.mark.long
@pytest.mark.parametrize("problem", coverage.PROBLEMS)
def test_the_published_comparisons(problem: str) -> None:
    first, same, worse = (coverage.pool(problem, tau) for tau in coverage.TEMPERATURES)
    for runs in coverage.RUNS:
        assert coverage.clear_share(first, same, runs)[1] <= CLEAR
    if problem == "two arms":
        assert coverage.clear_share(first, worse, 50)[1] >= 0.8
