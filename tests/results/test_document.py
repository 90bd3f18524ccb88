"""The document of records: the answer, its picture, costs, protection and details, as values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from posse.core.statistics import mean_interval, wilson
from posse.results import Record, render_report
from posse.results.document import (
    averages_of,
    document,
    origin,
    sameness,
)
from posse.results.record import yardsticks
from posse.results.render import render_json, render_markdown
from tests.kit.pages import Page
from tests.kit.records import example_contextual_record, example_market_record, example_record

MEANS = yardsticks([0.3, 0.5, 0.7], ["clinic-a", "clinic-b", "clinic-c"])


def learnt(**changes: Any) -> Record:
    """An example of a bandit that learnt an arm, in a simulation with known means."""
    record = example_record(**changes)
    return replace(record, show={**record.show, "learnt": {}}, summary={**record.summary, **MEANS})


def column(shown: Any, name: str) -> list[str]:
    """The cells of a column of the cost table."""
    at = shown.table.columns.index(name)
    return [row[at] for row in shown.table.rows]


def test_one_run_has_the_arm_that_was_pulled_most_with_its_interval() -> None:
    record = learnt()
    shares = 100 * record.pulls[:, 2] / record.pulls.sum(axis=1)
    mean = mean_interval(shares)
    shown = document(record)
    assert shown.headline.startswith("clinic-c ")
    assert f"{mean.estimate:.0f} [{mean.low:.0f}, {mean.high:.0f}] % of 200 pulls" in shown.headline
    other = replace(record, pulls=record.pulls[:, ::-1])
    (truth, *_) = document(other).sentences
    assert "clinic-c, which pays 0.7" in truth
    assert "clinic-a pays 0.3" in truth


def test_the_picture_compares_with_an_even_split_and_the_best_fixed_arm() -> None:
    record = learnt()
    picture = document(record).picture
    assert picture is not None
    assert picture.reference == "an even split"
    run, best, even = picture.bars
    assert run.value == pytest.approx(float(np.mean(record.total)) / 200)
    assert (best.value, best.gain, best.yardstick) == (0.7, "+40 %", True)
    assert (even.value, even.gain, even.yardstick) == (pytest.approx(0.5), "", True)
    assert run.text.count("[") == 1  # its interval


def test_an_arm_with_three_ratings_is_named_with_its_interval() -> None:
    record = learnt()
    record = replace(record, show={**record.show, "ratings": [400, 90, 3]})
    (truth, *_) = document(record).sentences
    low, high = wilson(2.1, 3)
    assert high - low > 0.5
    assert "(3 ratings)" in truth
    assert truth.count("[") == 1
    picture = document(record).picture
    assert picture is not None
    assert "[" in picture.bars[1].text
    assert origin(record) == "Simulated from 493 ratings."


def test_the_origin_of_a_simulation_is_stated_and_a_deployment_has_none() -> None:
    assert "1,797" in origin(replace(learnt(), problem={"name": "digits", "samples": 1797}))
    assert origin(learnt()).startswith("Simulated")
    assert origin(replace(learnt(), seeds=())) == ""


def test_costs_are_numbers_however_short_a_run_is() -> None:
    secure = learnt()
    plain = replace(learnt(level="plain"), seconds=1.0)
    shown = document([replace(secure, seconds=205.0), plain])
    assert column(shown, "times plain") == ["205×", "1×"]
    assert column(shown, "difference") == ["–", "identical"]
    assert column(shown, "traffic per run")[1] == "–"
    short = document([replace(secure, seconds=0.002), replace(plain, seconds=0.000001)])
    # A ratio to a few microseconds would say nothing: the cost is the CPU time of a run.
    assert "times plain" not in short.table.columns
    assert column(short, "CPU time per run")[0] == "500 µs"
    assert any("too short" in note for note in short.table.notes)


def test_times_plain_needs_a_plain_run_that_was_compared() -> None:
    secure = learnt()
    for others in ([], [learnt(policy="thompson", level="plain")], [learnt(policy="thompson")]):
        assert "times plain" not in document([secure, *others]).table.columns


def test_the_table_explains_its_errors_and_intervals_in_one_line() -> None:
    (several,) = document(learnt()).table.notes
    assert "standard error" in several
    assert "interval" in several
    assert "4 runs" in several
    (one,) = document(learnt(runs=1)).table.notes
    assert "--runs" in one


def test_the_twin_is_not_a_rival() -> None:
    shown = document([learnt(horizon=2000), learnt(level="plain", horizon=2000)])
    assert shown.headline.startswith("clinic-c ")
    assert any("bit for bit" in sentence for sentence in shown.sentences)
    assert shown.picture is not None
    assert len(shown.picture.bars) == 3


def test_gains_of_several_runs_are_percentages_with_their_errors() -> None:
    ucb = learnt(level="plain")
    total = tuple(x + 60 for x in ucb.total)
    config = {**ucb.config, "policy": "thompson"}
    better = replace(ucb, id="0better", config=config, total=total)
    shown = document([ucb, better])
    averages = averages_of(better)
    assert averages is not None
    amount = str(mean_interval(averages))
    assert shown.headline == f"thompson (plain) earned most: {amount} per step"
    gain = 100 * 60 / float(np.mean(ucb.total))
    assert column(shown, "difference") == ["–", f"+{gain:.0f} ± 0 %"]
    lead, best, *_ = shown.sentences
    assert lead.startswith("60 [60, 60] more than ucb (plain)")
    assert "clinic-c" in best
    chance = replace(
        better, total=tuple(x + sign for x, sign in zip(ucb.total, (5, -5, 5, -4), strict=True))
    )
    assert "may be chance" in document([ucb, chance]).sentences[0]


def test_other_problems_have_no_winner_and_other_horizons_are_compared_per_step() -> None:
    ucb = learnt(level="plain")
    config = {**ucb.config, "policy": "thompson"}
    total = tuple(x + 60 for x in ucb.total)
    problem = {**ucb.problem, "name": "elsewhere"}
    other = replace(ucb, id="0o", config=config, total=total, problem=problem)
    shown = document([ucb, other])
    assert "2 problems" in shown.headline
    assert shown.picture is None
    longer = replace(ucb, id="0l", total=total, config={**config, "horizon": 400})
    assert "horizons differ" in document([ucb, longer]).sentences[0]


def test_an_interrupted_run_is_compared_per_step_and_counts_its_pulls() -> None:
    ucb = learnt(level="plain", policy="ucb", runs=1)
    cut = replace(
        ucb,
        id="0cut",
        config={**ucb.config, "policy": "thompson"},
        status="interrupted",
        pulls=[[5, 0, 45]],
        total=(49.0,),
        steps=[50],
        reward=[[49.0]],
        regret=None,
    )
    shown = document([ucb, cut])
    assert shown.headline == "thompson (plain) earned most: 0.98 per step"
    assert "90 % of 50 pulls" in document(cut).headline
    two = learnt(runs=2, status="interrupted", pulls=[[0, 0, 200], [30, 0, 30]])
    assert "260 pulls in 2 runs" in document(two).headline
    # The headline names averages, so averages decide.
    more = replace(ucb, id="0more", total=(ucb.total[0] + 1,), pulls=2 * ucb.pulls)
    assert document([ucb, more]).headline.startswith(f"ucb (plain) · {ucb.id} earned most: ")


def test_a_learning_system_is_measured_against_an_even_split() -> None:
    means = yardsticks(np.eye(3), ["wait", "treat", "refer"])
    record = example_contextual_record(summary={"steps_done": 600, **means})
    shown = document(record)
    averages = averages_of(record)
    assert averages is not None
    assert shown.headline.endswith("% against an even split")
    assert shown.picture is not None
    assert shown.picture.bars[-1].value == pytest.approx(1 / 3)
    assert shown.plots[0].kind == "reward_rates"


def test_a_market_is_compared_with_the_parties_alone() -> None:
    alone, joined = (example_market_record(level=level) for level in ("alone", "tight"))
    cards = {**joined.show, "cards": [["3 of 4,000", "purchases below the threshold"]]}
    joined = replace(joined, show=cards)
    shown = document([joined, alone])
    assert "EUR" in shown.headline
    assert "%" in shown.headline
    assert "Purchases below the threshold: 3 of 4,000." in shown.sentences
    assert any("isles" in sentence for sentence in shown.sentences)
    assert shown.picture is not None
    assert [bar.gain for bar in shown.picture.bars][1] == ""
    worth = next(part for part in shown.details if part.title == "What joining is worth")
    assert [row[:2] for row in worth.rows][3] == ("loses", "isles")
    one = document([example_market_record(runs=1), example_market_record(runs=1, level="alone")])
    assert one.headline.startswith("In this one run ")


def test_a_party_reads_only_what_it_may_know() -> None:
    customer = Record(
        kind="clinics",
        level="standard",
        config={"policy": "ucb", "horizon": 500},
        problem={"name": "x"},
        party="buyer",
        total=(9.0,),
    )
    server = replace(customer, party="comp", total=())
    problem = {"name": "x", "names": ["clinic-a"]}
    owner = replace(server, party="clinic-a", problem=problem, pulls=[[41]])
    earning = replace(owner, total=(12.0,))
    parties = (customer, server, owner, earning)
    assert [document(each).headline for each in parties] == [
        "buyer: a total of 9",
        "comp: x",
        "clinic-a: 41 pulls of clinic-a",
        "clinic-a: 41 pulls in 500 steps, reward 12",
    ]
    for each in parties:
        assert document(each).picture is None
        assert "best" not in Page(render_report(each)).text


SUMMARY = {
    "against": "each server",
    "broken_by": "two: any two servers",
    "attacks": ["tracker"],
    "command": "",
}


def test_protection_is_three_lines_by_level() -> None:
    record = example_record(level="strict", show={"protection_summary": SUMMARY})
    (protection,) = document([record, example_record(level="plain")]).protection
    assert [name for name, _ in protection.lines] == ["against", "broken by", "tested by"]
    texts = dict(protection.lines)
    assert texts["against"] == "each server"
    assert "tracker" in texts["tested by"]
    other = {**SUMMARY, "command": "posse run x"}
    weak = example_record(level="weak", show={"protection_summary": other})
    (protection,) = document(weak).protection
    assert protection.lines[-1] == ("stronger", "posse run x")


def test_records_without_a_summary_state_what_they_know() -> None:
    (old,) = document(example_record()).protection
    assert "2 sentences" in old.broken_by
    (plain,) = document(example_record(level="plain")).protection
    assert plain.against.startswith("nobody")
    (silent,) = document(example_record(leaks=())).protection
    assert "do not take that for nobody" in silent.broken_by


def test_what_is_off_is_a_warning() -> None:
    config = {"policy": {"name": "ucb"}, "horizon": 200, "mask": False}
    off = example_record(level="paper", config=config, show={"off": ["mask"]})
    (protection,) = document(off).protection
    assert "OFF: mask" in protection.warning
    assert document(example_record()).protection[0].warning == ""


def test_an_epsilon_is_shown_with_its_delta_and_unit() -> None:
    (protection,) = document(example_market_record()).protection
    assert "ε = 1 at δ = 1e-05 (unit entry)" in protection.privacy
    titles = [part.title for part in document(example_market_record()).details]
    assert "Privacy spent" in titles
    assert "Ledger: 24 entries" in titles
    assert "Privacy spent: not covered" in titles


def test_details_name_what_is_protected_and_what_is_not() -> None:
    leaks = tuple(f"Leak number {i}." for i in range(9))
    show = {"protects": ["Rewards, by masks."], "learns": ["Comp learns little."]}
    parts = {part.title: part for part in document(example_record(leaks=leaks, show=show)).details}
    assert parts["What is not protected"].items == leaks
    assert parts["What is protected"].items == ("Rewards, by masks.",)
    assert parts["What each role learns"].items == ("Comp learns little.",)


def test_sameness_names_a_defect() -> None:
    secure = learnt()
    assert sameness(secure, learnt(level="plain")).startswith("Identical")
    assert sameness(secure, learnt(policy="other", level="plain")).startswith("NOT identical")
    unfinished = replace(secure, status="interrupted")
    assert "cannot be compared" in sameness(unfinished, secure)


def test_no_figure_is_drawn_twice() -> None:
    plots = document([learnt(), learnt(level="plain")]).plots
    assert [plot.kind for plot in plots] == [
        "secure_against_plain",
        "regret_curves",
        "pulls_per_arm",
    ]


def test_a_document_is_also_json_and_markdown() -> None:
    shown = document([learnt(), learnt(level="plain")])
    values = render_json(shown)
    assert values["headline"] == shown.headline
    assert len(values["details"]) == len(shown.details)  # type: ignore[arg-type]
    text = render_markdown(shown)
    assert text.startswith(f"# {shown.headline}\n")
    assert text.count("\n## ") == len(shown.details) + 2
    assert "<script" not in render_markdown(document(example_record(leaks=("<script>",))))
