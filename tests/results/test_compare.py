from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from posse.core.errors import DataError
from posse.core.statistics import TIGHTEN, skewed_interval, student
from posse.results import Record, compare, identical
from posse.results.compare import SHORT_TIMES, difference
from tests.kit.records import example_record
from tests.kit.rules import Broken, check_broken, rules


def test_a_protected_run_is_identical_to_its_plain_twin() -> None:
    table = compare([example_record(level="plain", horizon=2000), example_record(horizon=2000)])
    assert table.rows[1].identical
    assert (table.rows[1].difference, table.rows[1].difference_error) == (0.0, 0.0)
    assert table.rows[1].ratio == pytest.approx(4.1 / 0.02)
    assert table.rows[1].bytes > table.rows[0].bytes == 0
    assert (table.rows[0].difference, table.rows[0].paired) == (None, False)


def test_one_bit_or_one_pull_is_not_identical() -> None:
    a = example_record()
    total = (np.nextafter(a.total[0], 1e9), *a.total[1:])
    pulls = a.pulls.copy()
    pulls[0] += (1, -1, 0)
    assert identical(a, example_record())
    assert not identical(a, example_record(total=total))
    assert not identical(a, example_record(pulls=pulls))
    assert not identical(a, example_record(seeds=(9, 1, 2, 3)))


def test_same_seeds_are_paired_whatever_their_order() -> None:
    a = example_record(total=(1.0, 2.0, 3.0, 4.0), seeds=(0, 1, 2, 3))
    b = example_record(total=(4.5, 3.5, 2.5, 1.5), seeds=(3, 2, 1, 0))
    row = compare([a, b]).rows[1]
    assert row.paired
    assert (row.difference, row.difference_error) == (0.5, 0.0)


def test_other_seeds_are_not_paired() -> None:
    a = example_record(total=(1.0, 2.0, 3.0, 4.0))
    b = example_record(total=(4.5, 3.5, 2.5, 1.5), seeds=(5, 6, 7, 8))
    table = compare([a, b])
    error = np.std([1, 2, 3, 4], ddof=1) / 2
    assert not table.rows[1].paired
    assert table.rows[1].difference_error == pytest.approx(np.sqrt(2) * error)
    assert not any("paired" in note for note in table.notes)
    repeated = compare([a, example_record(seeds=(0, 0, 1, 2))]).rows[1]
    assert not repeated.paired


def test_differences_in_what_was_asked_are_noted_or_refused() -> None:
    a, b = (
        example_record(),
        example_record(horizon=100, problem={"name": "other"}, version="9.9", status="interrupted"),
    )
    notes = " ".join(compare([a, b]).notes)
    for part in ("200, 100 steps", "three clinics, other", "9.9", "interrupted"):
        assert part in notes
    with pytest.raises(DataError, match="horizons differ"):
        compare([a, b], strict=True)
    with pytest.raises(DataError, match="problems differ"):
        compare([a, example_record(problem={**a.problem, "means": [0.1, 0.2, 0.3]})], strict=True)
    assert (
        compare([a, example_record(policy="thompson")], strict=True).rows[1].label
        == "thompson (standard)"
    )


def test_one_run_has_no_error_and_none_has_no_mean() -> None:
    empty = example_record(
        status="failed", seeds=(), steps=[], reward=[], regret=None, total=(), pulls=[]
    )
    table = compare([example_record(runs=1), empty])
    assert table.rows[0].error is None
    assert (table.rows[1].mean, table.rows[1].difference, table.rows[1].identical) == (
        None,
        None,
        False,
    )
    ids = ", ".join(row.id for row in table.rows)
    assert f"Fewer than two runs have no standard error: {ids}." in table.notes


def test_one_record_is_not_a_comparison() -> None:
    with pytest.raises(DataError, match="at least 2 records, got 1"):
        compare([example_record()])


def test_twins_of_different_levels_are_told_apart() -> None:
    twins = [
        example_record(level="plain", summary={"twin_of": level}) for level in ("standard", "paper")
    ]
    table = compare(twins)
    assert [row.label for row in table.rows] == [
        "ucb (plain, twin of standard)",
        "ucb (plain, twin of paper)",
    ]
    assert (
        "Plain twins of different levels (standard, paper): each draws as its own level does."
        in table.notes
    )
    assert not any("Plain twins" in note for note in compare([twins[1], twins[1]]).notes)


def test_a_ratio_of_short_times_is_a_number_with_a_note() -> None:
    table = compare([example_record(level="plain", seconds=0.002), example_record()])
    assert table.rows[1].ratio == pytest.approx(4.1 / 0.002)
    assert SHORT_TIMES in table.notes
    unmeasured = compare([example_record(level="plain", seconds=0.0), example_record()])
    assert unmeasured.rows[1].ratio is None


def pair_of(*gains: float, **changes: object) -> tuple[Record, Record]:
    """A record of totals 100, and one that earned so much more in each run."""
    runs = len(gains)
    base = example_record(runs=runs, total=(100.0,) * runs, **changes)  # type: ignore[arg-type]
    return replace(base, total=tuple(100.0 + gain for gain in gains)), base


def test_a_difference_that_one_failed_run_would_undo_is_not_clear() -> None:
    # 200 pulls at random earn 40: a failed run of the better setting is 60 behind.
    for gains, clear in (((9.0, 10.0, 11.0), False), ((90.0, 91.0, 89.0), True)):
        better, base = pair_of(*gains, summary={"chance_reward": 0.2})
        found = difference(better, base)
        assert found.interval.excludes_zero
        assert (found.paired, found.clear) == (True, clear)
        turned = difference(base, better)
        assert (turned.interval.low, turned.clear) == (pytest.approx(-found.interval.high), clear)


def test_without_chance_a_failed_run_is_the_worst_of_all() -> None:
    better, base = pair_of(9.0, 10.0, 11.0)
    assert difference(better, base).clear
    lucky = replace(base, total=(20.0, 100.0, 180.0))
    assert not difference(replace(lucky, total=(29.0, 110.0, 191.0)), lucky).clear


def test_the_interval_of_a_paired_difference_is_corrected_for_skewness() -> None:
    gains = np.array([0.0, 0.0, 1.0, 0.0, 1.0, 12.0])
    row = compare(pair_of(*gains)[::-1]).rows[1]
    assert row.difference_error is not None
    wanted = skewed_interval(
        2.0 + 1 / 3, row.difference_error, gains - gains.mean(), tighten=TIGHTEN
    )
    assert (row.difference_low, row.difference_high) == pytest.approx((wanted.low, wanted.high))
    assert not row.clear
    assert row.difference_high - 7 / 3 > 7 / 3 - row.difference_low  # type: ignore[operator]


def test_other_seeds_have_students_interval() -> None:
    a = example_record(total=(1.0, 2.0, 3.0, 4.0))
    b = replace(a, total=(101.0, 102.0, 103.0, 104.0), seeds=(5, 6, 7, 8))
    row = compare([a, b]).rows[1]
    assert row.difference_error is not None
    wanted = student(100.0, row.difference_error, 3)
    assert (row.difference_low, row.difference_high) == (wanted.low, wanted.high)
    assert row.clear
    few = [replace(record, summary={"chance_reward": -10.0}) for record in (a, b)]
    assert not compare(few).rows[1].clear  # a failed run would earn -2,000
    assert not compare([a, replace(b, total=(2.0, 3.0, 4.0, 5.0))]).rows[1].clear


def test_one_run_has_no_interval() -> None:
    row = compare(pair_of(9.0)[::-1]).rows[1]
    assert (row.difference, row.difference_low, row.clear) == (9.0, None, False)


RULES = {
    "results.records.too-few": Broken("P200", "records", lambda _: compare([example_record()])),
    "results.records.conflict": Broken(
        "P200",
        "records",
        lambda _: compare([example_record(), example_record(horizon=9)], strict=True),
    ),
}


@pytest.mark.parametrize("rule", RULES)
def test_a_mistake_breaks_its_rule(rule: str, tmp_path: Path) -> None:
    check_broken(rule, RULES[rule], tmp_path)


def test_every_rule_of_comparisons_is_broken() -> None:
    assert rules("results/compare.py") == set(RULES)
