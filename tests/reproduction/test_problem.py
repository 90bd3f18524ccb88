"""The problem of figure 8 against what was published of it."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from posse.problems.datasets.published import embedded_arms, embedded_means
from reproduction.samba.problem import (
    BUDGETS,
    DATASETS,
    POLICY_NAMES,
    PUBLISHED_NAMES,
    cells,
    policy,
)
from reproduction.samba.published import published_results

ARMS = (10, 20, 40, 60, 80, 100)
"""Numbers of arms that were published."""


def test_every_published_cell_is_in_the_sweep_once() -> None:
    found = [
        cell
        for dataset in DATASETS
        for name in POLICY_NAMES
        for arms in ARMS
        for cell in cells(dataset, name, arms, BUDGETS)
    ]
    assert len(found) == len(published_results()) == 264
    assert set(found) == set(published_results())


def test_names_of_the_authors() -> None:
    assert set(PUBLISHED_NAMES) == set(POLICY_NAMES)
    assert set(PUBLISHED_NAMES.values()) == {one.algorithm for one in published_results()}


@pytest.mark.parametrize("dataset", DATASETS)
def test_arms_are_the_largest(dataset: str) -> None:
    means = embedded_arms(dataset, 10).means
    assert (means[:-1] >= means[1:]).all()
    assert means[0] == embedded_means(dataset).max()
    # No policy can earn more than the best arm pays, but for luck: with the first ten means of the
    # list, all would.
    earned = max(
        cell.plain_reward.mean
        for name in POLICY_NAMES
        for cell in cells(dataset, name, 10, BUDGETS[-1:])
    )
    assert means[0] * BUDGETS[-1] == pytest.approx(earned, rel=0.02)


def test_parameters_differ_between_the_data() -> None:
    assert policy("softmax", "movielens").parameters() is not None
    assert policy("softmax", "movielens") != policy("softmax", "jester")
    assert policy("pursuit", "movielens") != policy("pursuit", "jester")
    assert policy("epsilon-greedy", "movielens") == policy("epsilon-greedy", "jester")


def test_published_results() -> None:
    rows = published_results()
    assert len(rows) == 264
    assert {row.dataset for row in rows} == {"movielens", "jester"}
    assert {row.runs for row in rows if row.kind == "benchmarks"} == {50}
    last = rows[-1]
    assert (last.algorithm, last.budget, last.arms, last.runs) == ("ucb", 100_000, 100, 150)
    assert (last.plain_reward.mean, last.plain_reward.sd) == (41649.9267, 178.4215)
    assert last.secure_time is None
    for row in rows:
        if row.kind == "benchmarks":
            # Their own runs show the same reward with and without protection.
            assert row.secure_reward == row.plain_reward
            assert row.secure_time is not None
            assert row.owners_time is not None
            assert row.owners_time.mean < row.secure_time.mean


def test_published_results_are_the_published_file(data_dir: Path) -> None:
    file = data_dir / "samba-arms" / "published-results.csv"
    if not file.exists():
        pytest.skip(f"no {file}; see the README of the data folder")
    with file.open(newline="") as stream:
        theirs = list(csv.DictReader(stream))
    ours = published_results()
    assert [(r.budget, r.arms, r.plain_time.mean) for r in ours] == [
        (int(t["N"]), int(t["K"]), float(t["std_time_mean"])) for t in theirs
    ]
