"""Running: secure beside plain, simulations, comparisons, the demo."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from posse.cli import demo
from posse.policies import UCB, EpsilonGreedy
from posse.results import Store
from posse.systems.registry import run, system
from posse.systems.samba.levels import Switches, leaks
from posse.systems.samba.settings import Samba
from tests.kit.commands import SMALL, Call, one_line


def strict(text: str) -> dict[str, Any]:
    """Read JSON that must not hold NaN or Infinity."""

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    document: dict[str, Any] = json.loads(text, parse_constant=refuse)
    return document


def test_samba_says_that_both_are_the_same_and_what_leaks(posse: Call) -> None:
    outcome = posse("run", "samba", *SMALL, "--label", "first try", "--full")
    assert outcome.code == 0
    for word in (
        "reward per step",
        "Identical",
        "Protection: strict",
        "What is not protected",
        "honest but",
        "bytes",
    ):
        assert word in outcome.out
    store = Store()
    assert [row.level for row in store.list()] == ["strict", "plain"]
    assert store.get("last").summary["label"] == "first try"
    assert store.get("last").id in outcome.out


def test_json_is_one_strict_document(posse: Call) -> None:
    outcome = posse("run", "samba", *SMALL, "--json")
    document = strict(outcome.out)
    assert document["identical"] is True
    secure, plain = document["records"]
    assert (secure["level"], plain["level"]) == ("strict", "plain")
    assert secure["pulls"] == plain["pulls"]
    assert secure["total"] == plain["total"]


def test_no_save_and_no_plain_twin(posse: Call, home: Path) -> None:
    outcome = posse("run", "samba", *SMALL, "--no-save", "--no-plain-too", "--json")
    assert len(strict(outcome.out)["records"]) == 1
    assert not home.exists()


def test_a_protection_that_is_off_is_said_aloud(posse: Call) -> None:
    words = ("run", "samba", *SMALL, "--level", "paper", "--no-aes", "--no-save")
    outcome = posse(*words, "--full")
    assert outcome.code == 0
    assert "OFF: aes" in outcome.out
    assert "AES is OFF" in outcome.out
    assert "OFF: aes" in posse(*words).out
    assert "the secure run" not in outcome.out
    assert "Identical: paper, aes off and its plain twin" in " ".join(outcome.out.split())


def test_simulate_with_report_and_figure(posse: Call, tmp_path: Path) -> None:
    outcome = posse(
        "run", "--plain", *SMALL, "--runs", "3", "--report", "r.html", "--figure", "f.svg"
    )
    assert outcome.code == 0
    assert "±" in outcome.out
    assert "<html" in (tmp_path / "r.html").read_text()
    assert "<svg" in (tmp_path / "f.svg").read_text()
    assert Store().get("last").runs == 3


def test_compare_policies_and_then_their_ids(posse: Call) -> None:
    flags = (
        "--policy",
        "ucb",
        "--policy",
        "epsilon-greedy",
        "--epsilon",
        "0.2",
        "--runs",
        "4",
        *SMALL,
    )
    outcome = posse("compare", *flags)
    assert outcome.code == 0
    assert "95 % interval, over 4 runs" in " ".join(outcome.out.split())
    ids = [row.id for row in Store().list()]
    assert len(ids) == 2
    document = strict(posse("compare", *ids, "--json").out)
    assert [row["id"] for row in document["rows"]] == ids
    policy = document["records"][1]["config"]["policy"]
    assert (policy["name"], policy["parameters"]) == ("epsilon-greedy", {"epsilon": 0.2})
    assert len(Store()) == 2


def shorten_demo(monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]) -> None:
    samba = system("samba")
    demo = replace(samba.about.demo, settings=settings)
    monkeypatch.setattr(type(samba), "about", replace(samba.about, demo=demo))


def test_demo(posse: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    quick = {"policy": "ucb", "owners": 10, "horizon": 200, "paillier_bits": 2048}
    shorten_demo(monkeypatch, quick)
    outcome = posse("demo", "--full")
    assert outcome.code == 0
    assert outcome.out.count("Identical") == 2
    for word in (
        "strict",
        "paper",
        "CPU time",
        "regret",
        "per step and owner",
        "messages",
        "What each role learns",
    ):
        assert word in outcome.out
    assert "4. Samba (paper)" in outcome.err
    assert "<html" in (tmp_path / "posse-demo" / "report.html").read_text()
    assert [row.level for row in Store().list()] == ["strict", "paper", "plain"]
    assert all(len(line.rstrip()) <= 80 for line in outcome.out.splitlines())


def test_a_slow_demo_leaves_the_second_level_out(
    posse: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = {"policy": "ucb", "owners": 10, "horizon": 200, "paillier_bits": 2048}
    shorten_demo(monkeypatch, quick)
    monkeypatch.setattr(demo, "ENOUGH_SECONDS", 0.0)
    assert posse("demo", "--full").out.count("Identical") == 1


def test_what_leaks_does_not_contradict_itself() -> None:
    both_off = " ".join(leaks("paper", Switches(aes=False, mask=False), 5, UCB()))
    assert "reads the scores" in both_off
    assert "masked scores" not in both_off
    assert "unknown scale" not in both_off
    assert "explor" not in both_off
    assert "masked scores" in " ".join(leaks("paper", Switches(aes=False), 5, UCB()))
    assert "exploring step" in " ".join(leaks("paper", Switches(), 5, EpsilonGreedy()))


def test_a_sweep_of_one_setting_and_flags_over_a_files_other_word(posse: Call) -> None:
    Path("c.toml").write_text("budget = 30\nmeans = [0.2, 0.8]\n")
    plain = ("sweep", "--config", "c.toml", "--path", "plain", "--workers", "1", "--runs", "2")
    assert posse(*plain, "--horizon", "8", "--over", "policy=ucb").code == 0
    assert posse(*plain, "--over", "horizon=9,10").code == 0
    assert sorted(row.horizon for row in Store().list()) == [8, 9, 10]


def test_a_sweep_over_lists_and_tables(posse: Call) -> None:
    plain = ("sweep", "--path", "plain", "--workers", "1", "--runs", "2", "--horizon", "9")
    made = posse(
        *plain,
        "--over",
        "means=[0.1,0.9],[0.4, 0.5]",
        "--over",
        'policy=ucb,{name="epsilon-greedy",epsilon=0.5}',
    )
    assert made.code == 0, made.err
    heads = [Store().get(row.id) for row in Store().list()]
    assert {(tuple(head.config["means"]), head.policy) for head in heads} == {
        (means, policy)
        for means in ((0.1, 0.9), (0.4, 0.5))
        for policy in ("ucb", "epsilon-greedy")
    }
    assert {row.problem for row in Store().list()} == {"means given"}
    assert "movielens" not in posse("runs", "list").out
    assert "means" in one_line(posse(*plain, "--over", "means=[0.1,0.9"))
    names = posse(*plain, "--means", "0.1,0.9", "--over", 'names=["a]","b"],["c","d"]')
    assert names.code == 0, names.err
    assert {tuple(Store().get(row.id).config["names"] or ()) for row in Store().list()} >= {
        ("a]", "b"),
        ("c", "d"),
    }
    assert "[old] r.csv" in one_line(posse(*plain, "--over", "data=[old] r.csv,b].csv"))
    assert "tau is varied twice" in one_line(posse(*plain, "--over", "tau=1", "--over", "tau=2"))


def test_a_list_tells_runs_apart_that_its_columns_do_not(
    posse: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    base = Samba(means=(0.2, 0.8), horizon=20, path="plain")
    changes = (
        {},
        {"seed": 2},
        {"points": 7},
        {"level": "paper"},
        {"reward": "beta"},
        {"concentration": 3.0},
    )
    store = Store()
    for change in (*changes, {"price": (1.0,)}, {"names": ("a", "b")}):
        store.save(run(base.but(**change)))
    lines = [
        line.split()[1:-2]
        for line in posse("runs", "list").out.splitlines()
        if line.startswith("1")
    ]
    assert len({tuple(line) for line in lines}) == len(lines) == len(changes) + 2


PLAIN = ("--owners", "3", "--budget", "60", "--runs", "2")


@pytest.mark.parametrize(
    "words",
    [
        ("run", "samba", *SMALL),
        ("compare", *PLAIN, "--policy", "ucb", "--policy", "softmax"),
        ("sweep", *PLAIN, "--path", "plain", "--over", "policy=ucb,softmax", "--workers", "1"),
        ("sweep", *PLAIN, "--path", "plain", "--over", "seed=1,2,3,4,5,6,7,8,9", "--workers", "1"),
        ("run", "mpc-contextual", "--rows", "100", "--steps", "20"),
        ("run", "dp-combinatorial", "--rounds", "300", "--agents", "3", "--runs", "2"),
        ("run", "fed-contextual", "--rounds", "4", "--clients", "12", "--cohort", "3"),
        ("demo", "--horizon", "60"),
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_a_command_prints_at_most_25_lines_of_80_columns(
    posse: Call, words: tuple[str, ...]
) -> None:
    short = posse(*words, COLUMNS="80")
    assert short.code == 0, short.err
    assert len(short.out.splitlines()) <= 25
    assert max(map(len, short.out.splitlines())) <= 80
    full = posse(*words, "--full", COLUMNS="80")
    assert full.code == 0, full.err
    assert len(full.out.splitlines()) > 25
