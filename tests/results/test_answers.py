"""The top of a page and of a screen answers: who won, by how much, beside chance and the best fixed
arm.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from posse.results.reports.answers import answer, averages, spread, yardsticks

from posse.results import Record, render_report
from tests.kit.pages import Page
from tests.kit.records import example_contextual_record, example_market_record, example_record

MEANS = yardsticks([0.3, 0.5, 0.7], ["clinic-a", "clinic-b", "clinic-c"])


def learnt(**changes: Any) -> Record:
    """An example of a bandit that came to an arm, in a simulation that knows what arms pay."""
    record = example_record(**changes)
    return replace(record, show={**record.show, "learnt": {}}, summary={**record.summary, **MEANS})


def test_one_run_names_the_arm_that_won_with_its_interval_and_the_best_arm() -> None:
    record = learnt()
    shares = 100 * record.pulls[:, 2] / record.pulls.sum(axis=1)
    mean, low, high = spread(shares)
    said = answer([record])
    assert said.headline == f"clinic-c won: {mean:.0f} [{low:.0f}, {high:.0f}] % of 200 pulls"
    assert said.sentences[0] == "It is the best arm: it pays 0.7 on average."
    assert [(bar.label, bar.yardstick) for bar in said.bars] == [
        ("ucb (standard)", False),
        ("best fixed arm (clinic-c)", True),
        ("chance", True),
    ]
    assert said.bars[0].value == pytest.approx(float(np.mean(record.total)) / 200)
    assert [bar.value for bar in said.bars[1:]] == [0.7, pytest.approx(0.5)]
    other = replace(record, pulls=record.pulls[:, ::-1])
    assert (
        answer([other]).sentences[0]
        == "The best arm is clinic-c, which pays 0.7 on average; clinic-a pays 0.3."
    )


def test_the_twin_is_no_rival_and_is_said_to_be_the_same() -> None:
    said = answer([learnt(horizon=2000), learnt(level="plain", horizon=2000)])
    assert said.headline.startswith("clinic-c won: ")
    assert said.sentences[-1] == "Same pulls and same reward, bit for bit: ucb (plain)."
    assert len(said.bars) == 3
    assert [card.below for card in said.cards] == [
        "CPU time, 4 runs, 205× the plain one",
        "10,001 messages",
        "protection",
    ]
    short = answer([learnt(), learnt(level="plain")])
    assert short.cards[0].below == "CPU time, 4 runs"  # the plain one may have been interpreted


def test_of_several_the_winner_has_its_interval_and_what_it_is_ahead() -> None:
    ucb = learnt(level="plain")
    better = replace(
        ucb,
        id="0better",
        config={**ucb.config, "policy": "thompson"},
        total=tuple(x + 9 for x in ucb.total),
    )
    said = answer([ucb, better])
    mean, low, high = spread(better.total)
    assert (
        said.headline
        == f"thompson (plain) earned most: {mean:.0f} [{low:.0f}, {high:.0f}] over 200 steps"
    )
    assert said.sentences[0] == "9 [9, 9] more than the next, ucb (plain), paired by world seed."
    assert "The best arm is clinic-c: thompson (plain) pulled it in " in said.sentences[1]
    chance = replace(
        better, total=tuple(x + sign for x, sign in zip(ucb.total, (5, -5, 5, -4), strict=True))
    )
    assert (
        answer([ucb, chance])
        .sentences[0]
        .startswith("Not clearly more than ucb (plain): the difference is 0 [")
    )
    other = replace(better, problem={**better.problem, "name": "elsewhere"})
    assert answer([ucb, other]).headline == "2 runs on 2 problems: no one winner"
    longer = replace(better, config={**better.config, "horizon": 400})
    assert answer([ucb, longer]).headline.endswith(" a step")


def test_an_interrupted_run_is_compared_by_the_step_and_counts_the_pulls_made() -> None:
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
    assert ucb.total[0] > 49
    said = answer([ucb, cut])
    assert said.headline == "thompson (plain), interrupted earned most: 0.98 a step"
    assert (
        said.sentences[0] == "On three clinics, by what a step earned: not all runs were finished."
    )
    assert answer([cut]).headline == "clinic-c won: 90 % of 50 pulls"
    two = learnt(runs=2, status="interrupted", pulls=[[0, 0, 200], [30, 0, 30]])
    assert answer([two]).headline.endswith(" % of 260 pulls in 2 runs")
    # Where a step has several pulls the headline states totals, so totals say who won.
    more = replace(ucb, id="0more", total=(ucb.total[0] + 1,), pulls=2 * ucb.pulls)
    assert answer([ucb, more], ["one", "more"]).headline.startswith("more earned most: ")


def test_a_learning_system_is_measured_against_chance_and_drawn_by_the_step() -> None:
    record = example_contextual_record(
        summary={"steps_done": 600, **yardsticks(np.eye(3), ["wait", "treat", "refer"])}
    )
    said = answer([record])
    each = averages(record)
    assert each is not None
    assert re.fullmatch(
        r"epsilon-greedy \(shared\) earned [\d. ,\[\]-]+ a step, [\d.]+× as much as chance",
        said.headline,
    )
    assert said.bars[-1].value == pytest.approx(1 / 3)
    page = Page(render_report(record))
    assert "reward a step" in page.text
    assert "cumulative reward" not in page.text


def test_a_market_says_money_first() -> None:
    alone, joined = (example_market_record(level=level) for level in ("alone", "tight"))
    joined = replace(
        joined, show={**joined.show, "cards": [["3 of 4,000", "purchases below the threshold"]]}
    )
    said = answer([joined, alone])
    assert re.match(
        r"(Joining earned|Whether joining pays cannot be told:) .* EUR (more|less) revenue than "
        r"alone",
        said.headline,
    )
    assert said.sentences[1].startswith("It cost ")
    assert (said.cards[0].value, said.cards[0].below) == (
        "3 of 4,000",
        "purchases below the threshold",
    )
    assert said.bars == ()
    one = answer([example_market_record(level=level, runs=1) for level in ("tight", "alone")])
    assert one.headline.startswith("In this one run joining earned ")


def test_a_party_is_told_only_what_it_may_know() -> None:
    config = {"policy": "ucb", "horizon": 500}
    customer = Record(
        kind="clinics",
        level="standard",
        config=config,
        problem={"name": "x"},
        party="buyer",
        total=(9.0,),
    )
    server = replace(customer, party="comp", total=())
    owner = replace(
        server, party="clinic-a", problem={"name": "x", "names": ["clinic-a"]}, pulls=[[41]]
    )
    assert [answer([one]).headline for one in (customer, server, owner)] == [
        "buyer: a total of 9",
        "comp: x",
        "clinic-a: 41 pulls of clinic-a",
    ]
    for one in (customer, server, owner):
        assert answer([one]).bars == ()
        text = Page(render_report(one)).text
        assert "best" not in text
        assert "won" not in text


def test_what_is_protected_stands_beside_what_is_not_and_long_lists_are_folded() -> None:
    leaks = tuple(f"Leak number {i}." for i in range(9))
    record = example_record(
        leaks=leaks, show={"protects": ["Rewards, by masks."], "learns": ["Comp learns little."]}
    )
    text = render_report(record)
    page = Page(text)
    assert (
        text.index("What is protected")
        < text.index("Rewards, by masks.")
        < text.index("What is not protected")
    )
    assert "5 more" in page.text
    assert all(leak in page.text for leak in leaks)
    assert text.index("<summary>5 more") > text.index("Leak number 3.")
    assert text.index("<summary>5 more") < text.index("Leak number 4.")


def test_no_figure_is_drawn_twice() -> None:
    one = Page(render_report([learnt(), learnt(level="plain")]))
    captions = one.tags.count("figcaption")
    assert captions == one.tags.count("svg") == 3
    assert one.text.count("(sum of rewards)") == 1
