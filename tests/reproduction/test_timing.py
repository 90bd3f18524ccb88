"""Lines through measured runs, and which points of a figure may be called measured."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

from posse.core.errors import DataError
from posse.core.roles import Note
from posse.policies import EpsilonGreedy
from posse.problems.datasets.published import embedded_arms
from reproduction.samba import times
from reproduction.samba.agreement import Comparison, Estimate
from reproduction.samba.fig8c import best_of, loop_of
from reproduction.samba.times import Measured, fit


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


def slow_at_full_size(
    arms: object, policy: object, budget: int, seed: int = 1, form: str = "paper"
) -> Measured:
    """A machine that is twice as slow in long runs: a line through short ones is wrong by half
    there.
    """
    return run(budget, 0.02 if budget > 10_000 else 0.01)


def test_only_runs_of_that_very_size_are_called_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(times, "measure_secure", slow_at_full_size)
    monkeypatch.setattr(times, "measure_plain", lambda *_: 0.25)
    one = times.series(
        "jester",
        "ucb",
        10,
        budgets=(50_000, 60_000, 100_000),
        ladder=(1_000, 2_000, 3_000),
        real=(100_000,),
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


def test_verdicts_on_growth_and_on_the_best_follow_their_rules() -> None:
    """Linear: the mean exponent's interval lies inside .9 to 1.1. Best: never clearly beaten, and
    first everywhere.
    """
    assert times.linear([0.99, 1.0, 1.02], "N").verdict == "holds"
    assert times.linear([1.3, 1.31, 1.29], "N").verdict == "does not hold"
    assert (
        times.linear([0.7, 1.3], "N").verdict
        == times.linear([0.89, 0.9, 0.91], "N").verdict
        == "cannot be told"
    )
    assert best_of("a", "", 1, True).verdict == "does not hold"
    assert best_of("a", "", 0, True).verdict == "holds"
    told = best_of("a", "", 0, False, 40)
    assert told.verdict == "cannot be told"
    assert told.because.endswith("about 40 runs would decide")


class Played:
    """A run whose every step takes a second, and whose last one takes a hundred more."""

    def __init__(self, *_: object) -> None:
        self.seconds = {"owner": 0.0}

    def __iter__(self) -> Iterator[Note]:
        for step in range(11, 31):
            self.seconds["owner"] += 1.0 + (100.0 if step == 30 else 0.0)
            yield Note("controller", "step", step)


def test_what_owners_do_in_the_last_step_is_no_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """At level paper owners encrypt their sums when the last reply comes."""
    played = Played()
    monkeypatch.setattr(times, "MemoryRun", lambda *_: played)
    monkeypatch.setattr(times, "federation", lambda *_, **options: [])
    monkeypatch.setattr(times, "_warm", lambda *_: None)
    monkeypatch.setattr(times.time, "process_time", lambda: played.seconds["owner"])
    made = times.measure_secure(
        embedded_arms("movielens", 10), EpsilonGreedy(0.1), 30, form="strict"
    )
    assert (made.setup, made.steps, made.sum) == (0.0, 20.0, 100.0)
    assert made.roles_at(1030) == {"owner": 1120.0}


def test_few_replayed_runs_that_differ_cannot_tell() -> None:
    def cell(mean: float, runs: int) -> Comparison:
        ours = Estimate(mean, 1.0, runs)
        return Comparison(
            "rewards", "jester", "thompson", 100, 50_000, ours, ours, Estimate(100.0, 1.0, 50)
        )

    same = [cell(100.0, 10)] * 20
    assert loop_of(same).verdict == "holds"
    assert loop_of([*same, *[cell(110.0, 10)] * 9]).verdict == "cannot be told"
    assert loop_of([*same, *[cell(110.0, 50)] * 9]).verdict == "does not hold"
