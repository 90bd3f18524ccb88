"""What a system wants shown travels in its records; what a record does not know is left out without
a word.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from posse.core.errors import DataError
from posse.results import (
    Record,
    Store,
    Traffic,
    compare,
    export,
    pulls_per_arm,
    render_report,
    report,
    reward_curves,
    summary_rows,
    to_arrow,
)
from posse.results.document import document, sections
from tests.kit.pages import Page
from tests.kit.records import example_contextual_record, example_market_record, example_record

EVIL = "<script>alert(1)</script>"


def deployed(party: str, **changes: Any) -> Record:
    """A record as a party of a deployment may make it: no seeds, no curve, no pulls."""
    values: dict[str, Any] = {
        "kind": "clinics",
        "level": "standard",
        "config": {"policy": {"name": "ucb"}, "horizon": 500},
        "party": party,
        "problem": {"name": "three clinics", "words": {"party": "owner"}},
        "run_id": "0deployed",
        "seconds": 1.5,
        "traffic": (Traffic("owner -> controller", 10, 900),),
        "leaks": ("Timing shows who pulls.",),
    }
    return Record(**{**values, **changes})


CUSTOMER = deployed("customer", total=(212.0,))
CONTROLLER = deployed("controller")
OWNER = deployed("clinic-a", parties=("clinic-a",), party_total=[[80.0]])


def test_a_party_records_what_it_may_know() -> None:
    assert (CUSTOMER.runs, CUSTOMER.total_mean, CUSTOMER.arms, CUSTOMER.reward.shape) == (
        1,
        212.0,
        0,
        (1, 0),
    )
    assert (CONTROLLER.runs, CONTROLLER.total_mean, CONTROLLER.state) == (0, None, "finished")
    assert (OWNER.runs, OWNER.total_mean, OWNER.pulls.shape) == (1, None, (1, 0))
    assert CUSTOMER.run_id == CONTROLLER.run_id != CONTROLLER.id
    assert example_record(id="0a").run_id == "0a"


def test_deployed_records_are_stored_compared_exported_and_reported(tmp_path: Path) -> None:
    records = [CUSTOMER, CONTROLLER, OWNER]
    store = Store(tmp_path / "runs.sqlite")
    for record in records:
        store.save(record)
        assert store.get(record.id) == record
        assert Page(render_report(record)).open == []
    assert {(row.run_id, row.party) for row in store.list()} == {
        ("0deployed", record.party) for record in records
    }
    table = compare(records)
    assert [row.identical for row in table.rows] == [True, False, False]
    assert any(note.startswith(f"Records of one run: {CUSTOMER.id}, ") for note in table.notes)
    titles = [section.title for section in document(records).details]
    assert "What each owner earned" in titles
    assert to_arrow(records).num_rows == 0
    assert [row["party"] for row in summary_rows(records)] == ["customer", "controller", "clinic-a"]
    for name in ("a.csv", "a.json", "a.parquet", "a.html"):
        assert export(records, tmp_path / name).stat().st_size > 0
    controller = document(CONTROLLER)
    assert controller.headline == "controller: three clinics"
    assert "does not know what was earned" in " ".join(controller.sentences)
    assert document(CUSTOMER).headline == "customer: a total of 212"


def test_what_is_not_known_is_not_drawn() -> None:
    with pytest.raises(DataError, match="does not know its curve"):
        reward_curves(CUSTOMER)
    with pytest.raises(DataError, match="does not know its pulls"):
        pulls_per_arm(CUSTOMER)
    assert "<svg" not in render_report([CUSTOMER, CONTROLLER])


def test_unfinished_records_say_how_far_they_are() -> None:
    record = deployed("", status="running", summary={"steps_done": 120})
    assert record.state == "running: 120 of 500 steps"
    assert document(record).title.endswith("running: 120 of 500 steps")
    assert deployed("", status="lost").state == "lost"


def test_every_spelling_of_the_horizon_is_read() -> None:
    for name in ("horizon", "budget", "steps", "rounds"):
        assert deployed("", config={name: 70}).horizon == 70
    assert deployed("", config={"budget": 70, "horizon": 80}).horizon == 80
    assert deployed("", config={"rounds": True}).horizon == 0


def test_tables_of_a_system_are_shown_as_they_are() -> None:
    table = {
        "title": "Devices",
        "columns": ["model", "size"],
        "rows": [["linear", "3 kB"]],
        "notes": ["Small."],
    }
    record = example_record(show={"title": "Fleet", "sections": [table]})
    (section,) = sections(record)
    assert (section.title, section.columns, section.rows) == (
        "Devices",
        ("model", "size"),
        (("linear", "3 kB"),),
    )
    page = Page(render_report(record))
    for part in ("Posse report · Fleet: ucb", "Devices", "linear", "3 kB", "Small."):
        assert part in page.text
    assert page.open == []


def test_tables_of_one_title_are_together_with_their_labels() -> None:
    tables = [{"title": title, "columns": ["a"], "rows": [["1"]]} for title in ("Cost", "Time")]
    records = [example_record(horizon=100 * number, show={"sections": tables}) for number in (1, 2)]
    assert [section.heading for section in sections(records)] == [
        "Cost: ucb (standard), 100 steps",
        "Cost: ucb (standard), 200 steps",
        "Time: ucb (standard), 100 steps",
        "Time: ucb (standard), 200 steps",
    ]


def test_what_roles_learn_is_said() -> None:
    page = Page(render_report(example_record()))
    assert "What each role learns" in page.text
    assert "The customer learns the total." in page.text
    assert "What each role learns" not in Page(render_report(example_record(level="plain"))).text


def test_roles_are_called_and_coloured_as_their_system_says() -> None:
    text = render_report(example_record())
    assert "data owner" in text
    assert "--c2f7fd6: #4f95e3;" in text  # on a dark page
    assert "fill: var(--c2f7fd6, #2f7fd6)" in text


def test_a_system_that_says_nothing_still_has_names_and_colours() -> None:
    record = example_record(show={})
    text = render_report(record)
    assert "Posse report · clinics" in text
    assert "owner" in text


@pytest.mark.parametrize(
    "show",
    [
        {"roles": {"owner": {"label": "o", "colour": ["red; background: url(x)", "#000000"]}}},
        {"roles": {"owner": "blue"}},
        {"roles": ["owner"]},
        {"learns": "everything"},
        {"sections": [{"title": "x", "columns": ["a"], "rows": [["1", "2"]]}]},
        {"sections": ["text"]},
        {"off": "mask"},
    ],
)
def test_what_could_not_be_shown_is_refused(show: dict[str, Any]) -> None:
    with pytest.raises(DataError) as error:
        example_record(show=show).validate()
    assert error.value.rule.startswith("results.show.")
    assert error.value.field.startswith("show.")


def test_a_record_shows_itself_in_a_notebook() -> None:
    html = example_record(id="0a")._repr_html_()
    page = Page(html)
    assert page.open == []
    for part in (
        "ucb (standard)",
        "0a",
        "earned",
        "three clinics",
        "Clinics",
        "regret",
        "What is not protected (2)",
    ):
        assert part in page.text, part
    assert html.count("<svg") == 1
    assert "http" not in html.replace("http://www.w3.org", "")
    assert "url(#posse-0a-" in html


@pytest.mark.parametrize(
    "record", [CUSTOMER, CONTROLLER, OWNER, example_market_record(), example_contextual_record()]
)
def test_every_record_shows_itself(record: Record) -> None:
    page = Page(record._repr_html_())
    assert page.open == []
    assert record.id in page.text


def test_a_notebook_shows_no_code_of_others() -> None:
    record = example_record(
        problem={"name": EVIL}, leaks=(EVIL,), show={"title": EVIL}, summary={"label": EVIL}
    )
    assert "<script" not in record._repr_html_()
    assert "<script" not in compare([record, example_record()])._repr_html_()


def test_a_record_shows_itself_without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    html = example_record()._repr_html_()
    assert "<svg" not in html
    assert "earned" in html


def test_a_comparison_shows_itself_in_a_notebook() -> None:
    table = compare([example_record(level="plain"), example_record()])
    page = Page(table._repr_html_())
    assert page.open == []
    for part in ("plain", "standard", "identical", "paired, run by run"):
        assert part in page.text, part


def test_the_page_is_written_by_report(tmp_path: Path) -> None:
    assert (
        report([example_record()], tmp_path / "run.html").read_text().startswith("<!doctype html>")
    )
