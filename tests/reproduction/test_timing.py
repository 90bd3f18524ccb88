"""Lines through measured runs, and which points of a figure may be called measured."""

from __future__ import annotations

import math

import pytest

from posse.core.errors import DataError
from posse.experiments.samba import times
from posse.experiments.samba.times import Measured, fit


def run(budget: int, step: float, *, arms: int = 10) -> Measured:
    return Measured(arms, budget, 0.5, step * (budget - arms), 1.5, {})


def test_a_line_by_hand() -> None:
    line = fit([run(110, 0.02), run(210, 0.03)])
    assert line.fixed == pytest.approx(2.0)
    assert line.step == pytest.approx((2.0 + 6.0) / 300)
    # Costs .02 and .03: sd .01 / sqrt 2, standard error that over sqrt 2.
    assert line.step_error == pytest.approx(0.005)
    assert line.seconds(310) == pytest.approx(2.0 + 8.0)
    assert line.error(310) == pytest.approx(1.5)


@pytest.mark.parametrize("runs", [[run(110, 0.02)], [run(110, 0.02), run(110, 0.02, arms=20)]])
def test_a_line_needs_two_runs_of_one_size(runs: list[Measured]) -> None:
    with pytest.raises(DataError, match="at least two runs"):
        fit(runs)


def slow_at_full_size(arms: object, policy: object, budget: int, seed: int = 1, form: str = "paper") -> Measured:
    """A machine that is twice as slow in long runs: a line through short ones is wrong by half there."""
    return run(budget, 0.02 if budget > 10_000 else 0.01)


def test_only_runs_of_that_very_size_are_called_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(times, "measure_secure", slow_at_full_size)
    monkeypatch.setattr(times, "measure_plain", lambda *_: 0.25)
    one = times.series(
        "jester", "ucb", 10, budgets=(50_000, 60_000, 100_000), ladder=(1_000, 2_000, 3_000), real=(100_000,)
    )
    secure = {point.budget: point for point in one.points if point.form == "paper"}
    assert {budget: point.how for budget, point in secure.items()} == {
        50_000: "extrapolated",
        60_000: "extrapolated",
        100_000: "measured",
    }
    assert secure[50_000].seconds == pytest.approx(2.0 + 0.01 * 49_990)
    assert secure[100_000].seconds == pytest.approx(2.0 + 0.02 * 99_990)
    assert secure[50_000].error is not None
    assert secure[100_000].error is None
    table = times.time_table([one])
    marks = {(row[3], row[4]): row[5] for row in table.rows}
    assert marks["50000", "paper"] == "extrapolated"
    assert marks["100000", "paper"] == "measured"
    assert all(how == "measured" for (_, form), how in marks.items() if form == "plain")
    # The full-size run took no part in the line, and shows that it is wrong.
    assert math.isclose(one.line.step, 0.01)
    assert float(times.held_out([one]).rows[0][-1].rstrip(" %")) == pytest.approx(-50, abs=1)
    notes = times.time_notes([one])
    assert "1 of 3 secure points are measured" in notes[0]
    assert "in 1 of them by more than three" in notes[1]
    assert "Take 50 % as the error" in notes[1]
