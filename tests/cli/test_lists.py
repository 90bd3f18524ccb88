"""What there is: policies and problems."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import posse.policies.arms.checks
from posse.policies import POLICIES
from posse.policies.arms.checks import CheckResult, Report
from tests.kit.commands import Call, one_line

MINE = """
from dataclasses import dataclass
from posse.policies.arms.shipped import UCB

@dataclass(frozen=True)
class Mine(UCB):
    coefficient: float = 0.5

class Needs:
    pass
"""
ROUGH = """
import math
from posse.policies import Policy

def score(t, turn, total, pulls, memory, key, parameters):
    return total / pulls + math.sqrt(math.log(t) / pulls)

class Rough(Policy):
    score = staticmethod(score)
"""


def test_policies(posse: Call) -> None:
    out = posse("policies").out
    for name, policy in POLICIES.items():
        assert name in out
        assert policy.reference.split()[0] in out
    facts = json.loads(posse("policies", "--json").out)["samba"]["policies"]
    assert {fact["name"] for fact in facts} == set(POLICIES)
    assert facts[0]["parameters"] == {"epsilon": 0.1}


def test_a_policy_of_ones_own_is_checked(posse: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("mine.py").write_text(MINE)
    outcome = posse("policies", "--check", "mine.py:Mine")
    assert outcome.code == 0
    assert "may run in a federation" in outcome.out

    Path("rough.py").write_text(ROUGH)
    outcome = posse("policies", "--check", "rough.py:Rough")
    assert outcome.code == 0
    warning = "score uses math.log, whose last bit differs between machines."
    assert f"Warning: {warning}" in " ".join(outcome.out.split())
    (shown,) = json.loads(posse("policies", "--check", "rough.py:Rough", "--json").out)["warnings"]
    assert shown.startswith(warning)

    refused = Report("mine", (CheckResult("purity", False, "score gives two values"),))
    monkeypatch.setattr(posse_checks, "check", lambda policy: refused)
    outcome = posse("policies", "--check", "mine:Mine")
    assert outcome.code == 1
    assert "FAILED: score gives two values" in " ".join(outcome.out.split())
    assert json.loads(posse("policies", "--check", "mine:Mine", "--json").out)["passed"] is False


posse_checks = posse.policies.arms.checks


@pytest.mark.parametrize(
    ("where", "text", "says"),
    [
        ("mine", "", "Your own is module:Class"),
        ("gone.py:Mine", "", "there is no file gone.py"),
        ("no_such_module:Mine", "", "there is no module 'no_such_module'"),
        ("own.py:Mnie", MINE, "Did you mean 'Mine'"),
        ("own.py:Needs", MINE, "must be a subclass of posse.policies.Policy"),
        ("own.py:Mine", "class Mine(:", "SyntaxError"),
        ("own.py:Mine", "x = 1\nimport gone_module", "'gone_module' (own.py, line 2)"),
        (
            "own.py:Mine",
            "x = undefined",
            "NameError: name 'undefined' is not defined (own.py, line 1)",
        ),
    ],
)
def test_a_policy_that_cannot_be_loaded(posse: Call, where: str, text: str, says: str) -> None:
    Path("own.py").write_text(text)
    assert says in one_line(posse("policies", "--check", where))


def test_problems(posse: Call) -> None:
    outcome = posse("problems")
    assert outcome.code == 0
    assert "embedded:movielens" in outcome.out
    assert "POSSE_DATA" in outcome.out
    for words in (
        "uniform",
        "normal",
        "agent,supplier,cost,capacity",
        "supplier,quality",
        "mnist-writers",
        "clusters",
    ):
        assert words in outcome.out
    listed = {
        name: one["data"] for name, one in json.loads(posse("problems", "--json").out).items()
    }
    assert {one["name"] for one in listed["fed-contextual"]} >= {
        "digits",
        "mnist-writers",
        "own",
    }
    assert {one["name"] for one in listed["dp-combinatorial"]} >= {"uniform", "normal"}
    ready = {one["name"]: one["ready"] for one in (*listed["samba"], *listed["mpc-contextual"])}
    assert ready["embedded:jester"]
    assert ready["digits"]
    assert not ready["steam-hours"]
    assert not ready["mnist"]


def test_problems_with_files(posse: Call, data_dir: Path) -> None:
    found = json.loads(posse("problems", "--json", "--data-dir", str(data_dir)).out)
    assert next(one for one in found["samba"]["data"] if one["name"] == "movielens")["ready"]


def test_show_a_problem(posse: Call) -> None:
    out = posse("problems", "show", "embedded:jester", "--owners", "3").out
    assert "joke 3" in out
    assert "joke 4" not in out
    assert "there is no data file" in one_line(posse("problems", "show", "nothing"))


@pytest.mark.parametrize("words", [(), ("--list",), ("samba/fig8a", "--small", "--out", "x")])
def test_reproduce_names_where_it_is(posse: Call, words: tuple[str, ...]) -> None:
    outcome = posse("reproduce", *words)
    assert outcome.code == 2
    assert "python -m reproduction list" in one_line(outcome)
