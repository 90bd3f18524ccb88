"""What a notebook shows of answers: the answer first, notes folded, a picture where there are
curves.
"""

from __future__ import annotations

from html.parser import HTMLParser

import posse
from posse.results import compare, render_report
from posse.results.audits import Audit, Row
from posse.results.logs import Evaluation, evaluate_logs
from tests.kit.records import example_record


class Unfolded(HTMLParser):
    """Text of a page that stands open: outside of details, or in their summaries."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag in ("details", "summary", "style"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if self.open and self.open[-1] == tag:
            self.open.pop()

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] == "summary":
            self.text += f" {data}"


def test_an_audit_begins_with_what_was_found_and_folds_its_notes() -> None:
    rows = (
        Row("delays", "the arm", "comp", "finds it out", says="arm 3", value=0.9),
        Row("order", "the order", "comp", "nothing found", says="none", value=0.1),
    )
    page = Audit("samba", "strict", rows, left_out={"wire": "needs a network"})._repr_html_()
    shown = Unfolded(page).text
    assert "Of 2 attacks: 1 finds it out" in shown
    assert shown.index("Of 2 attacks") < shown.index("delays")
    assert "Left out" not in shown
    assert "Left out: wire" in page
    quiet = Audit("samba", "strict", rows[1:])
    assert quiet.headline == "Of 1 attack: none finds anything"


def test_a_comparison_has_a_headline_and_a_picture() -> None:
    page = compare([example_record(), example_record(policy="thompson")])._repr_html_()
    assert "earned most" in page
    assert page.index("earned most") < page.index("<table")
    assert page.count("<svg") == 1
    unknown = example_record(
        total=(), pulls=(), steps=(), reward=(), regret=None, seeds=(), party="comp"
    )
    assert "<svg" not in compare([unknown, unknown])._repr_html_()


def test_an_evaluation_of_a_log_is_shown_with_its_best_policy() -> None:
    rows = [{"arm": "ab"[i % 2], "reward": float(i % 2), "probability": 0.5} for i in range(60)]
    made = evaluate_logs(rows)
    logged, found = made  # still two things
    assert isinstance(made, Evaluation)
    shown = Unfolded(made._repr_html_()).text
    assert "always b would have earned most: 1 per decision, 0.33 to 0.67 more" in shown
    assert "clients as clusters" not in shown
    assert (logged.arms, found[0].policy) == (("a", "b"), "always b")


def test_a_bandit_says_how_far_it_is() -> None:
    bandit = posse.live(posse.Samba(policy="ucb").plain(), arms=["tea", "coffee"])
    decision = bandit.decide()
    assert repr(bandit) == "<Bandit of Samba: 2 arms, 1 decisions, 1 open, earned 0>"
    bandit.reward(decision.id, 1.0)
    assert "0 open, earned 1" in repr(bandit)


def test_rewards_of_two_problems_have_no_difference() -> None:
    other = example_record(problem={"name": "four clinics", "names": ["a", "b", "c"]})
    made = compare([example_record(), other])
    assert (made.rows[1].difference, made.rows[1].paired) == (None, False)
    assert any("no difference is taken" in note for note in made.notes)
    assert not any("paired" in note for note in made.notes)


def test_one_arm_is_no_picture() -> None:
    alone = {
        "steps": (),
        "reward": (),
        "regret": None,
        "total": (),
        "seeds": (),
        "party": "clinic-a",
    }
    record = example_record(pulls=[[109]], problem={"name": "run", "names": ["clinic-a"]}, **alone)
    page = render_report(record)
    assert "109 pulls of clinic-a" in page
    assert "<svg" not in page
