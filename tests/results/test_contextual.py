"""Records of a contextual bandit on shares: their names, their two privacy figures, and what a step
costs.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from posse.results import Store, compare, export, render_report
from posse.results.document import twins_of
from posse.results.guarantees import HOLLOW, guarantees, not_covered
from posse.results.words import rounded_up
from tests.kit.pages import Page
from tests.kit.records import example_contextual_record, example_record

SHARED = example_contextual_record(latency=20.0)
FIXED = example_contextual_record(path="fixed")
FLOATS = example_contextual_record(path="float")


def test_twins_of_one_level_have_names_of_their_own() -> None:
    assert [record.protection for record in (SHARED, FIXED, FLOATS)] == [
        "shared",
        "plain, fixed-point twin of shared",
        "plain, float twin of shared",
    ]
    assert (
        example_record(level="plain", summary={"twin_of": "paper"}).protection
        == "plain, twin of paper"
    )
    assert not FLOATS.protected


def test_parties_that_do_not_earn_are_still_named() -> None:
    assert (SHARED.parties, SHARED.party_names) == ((), ("clinic", "lab"))
    assert example_record().party_names == ()
    assert example_record(problem={"name": "n", "parties": 3}).party_names == ()


def test_both_figures_are_told_each_with_its_delta_and_unit() -> None:
    once, total = guarantees([SHARED])
    assert once.sentence("party").startswith(
        "epsilon-greedy (shared), puller: ε = 3.332 at δ = 0 for the scores of one"
    )
    assert total.figure == "ε = 912.4 at δ = 1e-05"
    assert once.hollow == ""
    assert f"above {HOLLOW:g} promises nothing" in total.sentence("party")
    assert not_covered([SHARED]) == ["later rounds", "rewards, which carry no noise"]


def test_without_exploration_it_says_that_there_is_no_promise() -> None:
    entries = [{**entry, "epsilon": None} for entry in SHARED.privacy]
    none = example_contextual_record(privacy=tuple(entries))
    for guarantee in guarantees([none]):
        assert guarantee.figure.startswith("no finite ε at δ = ")
        assert guarantee.hollow == "This is no promise at all."


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (0.0, "0"),
        (7550.28, "7551"),
        (9999.5, "10,000"),
        (245132.7, "245,200"),
        (1e-5, "1e-05"),
        (1e20, "1e+20"),
    ],
)
def test_a_large_epsilon_is_written_out_and_never_rounded_down(value: float, written: str) -> None:
    assert rounded_up(value) == written
    assert float(written.replace(",", "")) >= value


def test_the_report_has_all_of_it() -> None:
    text = render_report([SHARED, FIXED, FLOATS])
    page = Page(text)
    for wanted in (
        "Privacy spent",
        "ε = 3.332 at δ = 0",
        "ε = 912.4 at δ = 1e-05",
        "promises nothing alone",
        "not covered",
        "later rounds",
        "estimated time at 20 ms one way",
        "puller",
        "payee",
        "dealer",
        "the best arm of every context",
        "plain, float twin of shared: no protection",
        *SHARED.leaks,
    ):
        assert wanted in page.text, wanted
    assert page.tags.count("svg") == 3  # equal runs are drawn as one
    assert page.open == []


def test_it_is_drawn_against_the_twin_that_must_be_the_same() -> None:
    assert twins_of([SHARED, FIXED, FLOATS]) == (SHARED, FIXED)


def test_store_comparison_and_export(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs.sqlite")
    for record in (FLOATS, FIXED, SHARED):
        store.save(record)
    assert store.get(SHARED.id) == SHARED
    assert [row.identical for row in compare([SHARED, FIXED, FLOATS]).rows] == [True, True, True]
    with export([SHARED, FLOATS], tmp_path / "curves.csv").open() as file:
        labels = {row["label"] for row in csv.DictReader(file)}
    assert labels == {SHARED.label, FLOATS.label}
    body = json.loads(export(SHARED, tmp_path / "run.json").read_text())["records"][0]
    assert [entry["unit"] for entry in body["privacy"]] == ["score", "context"]
    assert export(SHARED, tmp_path / "curves.parquet").stat().st_size > 0
