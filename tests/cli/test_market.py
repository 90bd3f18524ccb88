"""`posse run dp-combinatorial`: what a user sees, and what is refused."""

from __future__ import annotations

import json

import pytest

from tests.kit.commands import one_line

SMALL = ("--agents", "3", "--producers", "8", "--rounds", "600", "--start", "100", "--runs", "2")
RUN = ("run", "dp-combinatorial")


def test_says_what_joining_is_worth_and_what_it_costs_in_privacy(posse):
    out = posse(*RUN, *SMALL, "--currency", "EUR", "--full").out
    for wanted in (
        "revenue (EUR)",
        "What joining is worth",
        "agent-3",
        "regret ratio",
        "δ = 0.01",
        "not covered",
        "parallel over disjoint windows",
        "What is not protected",
        "one noisy pair for each producer",
        "posse runs show",
    ):
        assert wanted in " ".join(out.split()), wanted


def test_prints_one_json_document(posse):
    found = json.loads(posse(*RUN, *SMALL, "--json", "--no-save").out)
    assert [record["policy"] for record in found["records"]] == ["p-fcb", "alone", "fcb"]
    first = found["records"][0]
    assert first["parties"] == ["agent-1", "agent-2", "agent-3"]
    assert first["privacy"][0]["delta"] == 0.01


def test_without_the_others_beside_it(posse):
    small = [word for word in SMALL if word not in ("--start", "100")]
    found = json.loads(
        posse(*RUN, *small, "--json", "--no-save", "--no-beside", "--method", "fcb").out
    )
    assert [record["level"] for record in found["records"]] == ["plain"]


def test_a_stored_run_can_be_shown_reported_and_exported(posse, tmp_path):
    posse(*RUN, *SMALL)
    shown = " ".join(posse("runs", "show", "last", "--full").out.split())
    assert "p-fcb" in shown
    assert "one noisy pair for each producer" in shown
    page, table = tmp_path / "r.html", tmp_path / "parties.csv"
    posse("runs", "report", "last", "--out", str(page))
    assert "Privacy spent" in page.read_text()
    posse("runs", "export", "last", "--parties", "--out", str(table))
    assert len(table.read_text().splitlines()) == 1 + 2 * 3


def test_a_market_of_ones_own(posse, tmp_path):
    offers, qualities = tmp_path / "offers.csv", tmp_path / "q.csv"
    rows = ["a,north,0.2,10", "a,south,0.1,5", "b,north,0.3,8", "b,south,0.2,9"]
    offers.write_text("\n".join(["agent,supplier,cost,capacity", *rows]))
    qualities.write_text("supplier,quality\nnorth,0.9\nsouth,0.7\n")
    files = ("--offers", str(offers), "--qualities", str(qualities))
    out = posse(*RUN, *files, "--rounds", "500", "--alpha", "0.5").out
    assert "offers.csv" in out
    assert "2 producers" in " ".join(out.split())


@pytest.mark.parametrize(
    ("flags", "what"),
    [
        (("--epsilon", "0"), "epsilon must be"),
        (("--delta", "1"), "delta must be"),
        (("--start", "500", "--stop", "100"), "stop 100 before start 500"),
        (("--alpha", "0.99999"), "out of reach"),
        (("--unit", "week"), "unit must be 'entry'"),
        (("--offers", "nowhere.csv", "--qualities", "q.csv"), "nowhere.csv"),
        (("--qualities", "q.csv"), "qualities need offers"),
        (("--noise", "paper", "--unit", "history"), "schedule paper proves"),
        (("--epsilom", "1"), "--epsilon"),
        (("--method", "fcb", "--epsilon", "7"), "epsilon has no meaning with method 'fcb'"),
        (("--method", "placebo", "--noise", "none"), "a placebo is noise alone"),
        (("--rule", "fuse", "--width", "9"), "width has no meaning with rule 'fuse'"),
    ],
)
def test_mistakes_are_one_line(posse, flags, what):
    assert what in one_line(posse(*RUN, *flags))


def test_files_that_do_not_match_are_named(posse, tmp_path):
    offers, qualities = tmp_path / "offers.csv", tmp_path / "q.csv"
    qualities.write_text("supplier,quality\nnorth,0.9\n")
    for row, what in (
        ("a,south,0.2,10", "south"),
        ("a,north,-0.2,10", "cost"),
        ("a,north,0.2,-1", "capacity"),
    ):
        offers.write_text(f"agent,supplier,cost,capacity\n{row}\nb,north,0.1,2\n")
        assert what in one_line(posse(*RUN, "--offers", str(offers), "--qualities", str(qualities)))
