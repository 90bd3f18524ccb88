"""`posse budget`: from epsilon to noise and back, all that goes with a figure, one line for a
mistake.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from posse.cli.flags import help_of
from posse.privacy.dp.plans import BudgetSettings
from posse.systems.mpc_contextual.settings import ArmSettings
from tests.kit.commands import Call, one_line


def test_a_line_a_message_and_all_that_goes_with_the_figure(posse: Call) -> None:
    out = posse("budget", "--epsilon", "1", "--delta", "0.01", COLUMNS="120").out
    lines = out.splitlines()
    for round_ in ("200", "400", "800", "1,600", "3,200", "6,400", "12,800", "25,600"):
        assert any(line.split()[:1] == [round_] and "2.656" in line for line in lines)
    assert "Proved: (1, 0.01) for unit entry" in out
    for part in (
        "adjacency: replace",
        "8 releases",
        "parallel over disjoint windows",
        "dp-accounting",
        "sampling none",
    ):
        assert part in out
    assert "(10.32, 0.01)" in out
    assert "later choices" in out


def test_the_published_schedule_shows_its_claims(posse: Call) -> None:
    out = posse("budget", "--schedule", "paper", COLUMNS="120").out
    for figure in (
        "(0.8455, 0.01)",
        "(1.195, 0.01)",
        "(1.691, 0.16)",
        "(0.2109, 0.01)",
        "(0.1459, 0.01)",
    ):
        assert figure in out


def test_noise_to_epsilon(posse: Call) -> None:
    one = json.loads(posse("budget", "--noise", "2.66", "--json").out)
    each = json.loads(posse("budget", "--noise", ",".join(["2.66"] * 8), "--json").out)
    assert one["guarantee"] == each["guarantee"]
    assert one["guarantee"]["epsilon"] == pytest.approx(0.998, abs=5e-4)
    assert one["claims"] == []


def test_one_json_document(posse: Call) -> None:
    shown = json.loads(posse("budget", "--schedule", "paper", "--json").out)
    assert [one["round"] for one in shown["messages"]][:2] == [200, 400]
    assert shown["guarantee"]["unit"] == "entry"
    assert [one["unit"] for one in shown["other_units"]] == ["round", "history"]
    assert shown["other_units"][1]["epsilon"] is None
    assert len(shown["claims"]) == 6
    used = shown["settings"]
    assert (used["producers"], used["epsilon"], used["schedule"]) == (30, 1, "paper")


def test_no_noise_is_said(posse: Call) -> None:
    assert "no finite epsilon at delta 0.01" in posse("budget", "--noise", "0", COLUMNS="80").out


@pytest.mark.parametrize("columns", [50, 80])
def test_it_fits_the_terminal(posse: Call, columns: int) -> None:
    out = posse("budget", "--schedule", "paper", COLUMNS=str(columns)).out
    assert max(len(line) for line in out.splitlines()) <= columns


@pytest.mark.parametrize("name", list(BudgetSettings.model_fields))
def test_every_setting_is_a_flag_with_help(posse: Call, name: str) -> None:
    assert help_of(BudgetSettings, name)
    assert f"--{name}" in posse("budget", "--help", "--all", COLUMNS="200").out


def test_settings_from_a_file(posse: Call) -> None:
    Path("budget.toml").write_text('epsilon = 2\nunit = "round"\nproducers = 5\n')
    shown = json.loads(posse("budget", "--config", "budget.toml", "--producers", "6", "--json").out)
    assert (shown["settings"]["unit"], shown["settings"]["producers"]) == ("round", 6)
    assert 1.99 < shown["guarantee"]["epsilon"] <= 2


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--epsilon 1 --noise 2", "give epsilon or noise, not both"),
        ("--epsilon 0", "epsilon must be a finite number above 0"),
        ("--epsilon -1", "epsilon must be a finite number above 0"),
        ("--delta 1", "delta must be above 0 and below 1"),
        ("--stop 100", "stop 100 before start 200"),
        ("--unit day", "unit must be 'entry', 'round' or 'history'"),
        ("--schedule best", "schedule must be 'paper', 'equal' or 'tight'"),
        ("--rounds 100", "nobody would talk"),
        ("--unit round --schedule paper", "proves (1.526, 0.01) for unit round"),
        ("--noise 1,2", "one for each of 8 messages"),
        ("--noise much", "valid number"),
        ("--delta 1e-17", "cannot be accounted for"),
    ],
)
def test_mistakes_are_one_line(posse: Call, flags: str, said: str) -> None:
    assert said in one_line(posse("budget", *flags.split()))


ARMS = ("budget", "arms", "--arms", "10", "--epsilon", "0.1")


def test_what_arms_give_away_in_one_step_and_in_all(posse: Call) -> None:
    out = posse(*ARMS, "--steps", "60000", COLUMNS="120").out
    for wanted in (
        "(4.606, 0)",
        "as published: log(K/e)",
        "(4.511, 0)",
        "(270700, 0)",
        "basic composition over 60000 rounds",
        "(245200, 1e-05)",
        "One step: (4.511, 0) for unit score",
        "All 60,000 steps: (245200, 1e-05) for unit context",
        "adjacency: replace",
        "60000 releases",
        "dp-accounting",
        "promises nothing alone",
        "Not covered",
        "later rounds: a context moves",
    ):
        assert wanted in out, wanted


def test_arms_as_one_json_document(posse: Call) -> None:
    found = json.loads(posse(*ARMS, "--steps", "3", "--limit", "10", "--json").out)
    assert [one["unit"] for one in found["guarantees"]] == ["score", "context"]
    assert found["guarantees"][0]["epsilon"] == pytest.approx(4.5109, abs=1e-4)
    assert found["guarantees"][1]["epsilon"] <= 3 * found["guarantees"][0]["epsilon"]
    assert len(found["figures"]) == 5
    assert found["most_steps"] == 2
    none = json.loads(posse("budget", "arms", "--epsilon", "0", "--json").out)
    assert [one["epsilon"] for one in none["figures"]] == [None] * 5


def test_how_many_steps_a_limit_allows(posse: Call) -> None:
    assert (
        "A limit of (10, 1e-05) for one context allows 2 steps"
        in posse(*ARMS, "--limit", "10", COLUMNS="120").out
    )
    every = posse("budget", "arms", "--epsilon", "1", "--limit", "1", COLUMNS="120").out
    assert "allows any number of steps" in every
    assert "One step: (0, 0)" in every


def test_no_exploration_has_no_figure(posse: Call) -> None:
    out = posse("budget", "arms", "--epsilon", "0", COLUMNS="100").out
    assert "One step: no finite epsilon at delta 0 for unit score" in out
    assert "This is no promise at all." in out


@pytest.mark.parametrize("columns", [50, 80])
def test_arms_fit_the_terminal(posse: Call, columns: int) -> None:
    out = posse(*ARMS, "--steps", "60000", "--limit", "10", COLUMNS=str(columns)).out
    assert max(len(line) for line in out.splitlines()) <= columns


@pytest.mark.parametrize("name", list(ArmSettings.model_fields))
def test_every_setting_of_arms_is_a_flag_with_help(posse: Call, name: str) -> None:
    assert help_of(ArmSettings, name)
    assert f"--{name}" in posse("budget", "arms", "--help", "--all", COLUMNS="200").out


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("arms --arms 1", "arms must be at least 2"),
        ("arms --epsilon 2", "epsilon must be in [0, 1]"),
        ("arms --epsilon 0.1234567", "denominator of at most 4096"),
        ("arms --steps 0", "steps must be at least 1"),
        ("arms --delta 1", "delta must be above 0 and below 1"),
        ("arms --limit 0", "epsilon must be a finite number above 0"),
        ("--epsilon 1 arms", "unexpected extra argument (arms)"),
        ("legs", "No such command 'legs'"),
    ],
)
def test_mistakes_about_arms_are_one_line(posse: Call, flags: str, said: str) -> None:
    assert said in one_line(posse("budget", *flags.split()))


def test_mistakes_are_refused_as_json_too(posse: Call) -> None:
    outcome = posse("budget", "arms", "--arms", "1", "--json")
    assert outcome.code == 2
    assert json.loads(outcome.out)["error"]["field"] == "arms"
