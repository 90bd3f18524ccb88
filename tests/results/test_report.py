import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from posse.core.errors import DataError
from posse.results import RunRecord, render_report, write_report
from posse.results.example import example_record

VOID = {"meta", "br"}
EVIL = "<script>alert(1)</script>\"'&"


class Page(HTMLParser):
    """What a browser would see: elements closed in order, their attributes, and the text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def records() -> list[RunRecord]:
    ledger = {"epsilon": 1.0, "delta": 1e-5, "unit": "one reward", "not covered": "timing"}
    return [example_record(), example_record(level="plain"), example_record(policy="thompson", privacy=(ledger,))]


@pytest.fixture(scope="module")
def page(records: list[RunRecord]) -> Page:
    return Page(render_report(records, notes=["A note."]))


def test_the_page_is_well_formed_and_fetches_nothing(page: Page, records: list[RunRecord]) -> None:
    assert page.open == []
    assert page.tags.count("svg") >= 4
    assert not {"script", "link", "iframe", "img", "object", "image"} & set(page.tags)
    for tag, name, value in page.attributes:
        if name in ("href", "src", "xlink:href", "action", "data"):
            assert value.startswith("#"), (tag, name, value)
        assert not name.startswith("on")
    text = render_report(records)
    assert not re.search(r"https?://|@import|url\((?!#)", text)
    assert "xlink" not in text
    assert "prefers-color-scheme: dark" in text


def test_ids_are_unique_and_references_resolve(page: Page) -> None:
    ids = [value for _, name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids)) > 20
    values = " ".join(value for _, name, value in page.attributes if name in ("href", "clip-path", "style"))
    wanted = set(re.findall(r"url\(#([^)]+)\)", values)) | {
        value[1:] for _, name, value in page.attributes if name == "href"
    }
    assert wanted
    assert wanted <= set(ids)


def test_it_says_what_was_earned_what_it_cost_and_what_leaks(page: Page, records: list[RunRecord]) -> None:
    for part in (
        "ucb (standard) earned",
        "in 4.1 s",
        "bit for bit: ucb (plain)",
        "identical",
        "plain: no protection",
        "A note.",
        "owner → controller",
        "World seed of a simulation",
        "differences are paired",
        "timing",
        "1e-05",
        "Written by Posse",
        *records[0].leaks,
        *records[1].leaks,
    ):
        assert part in page.text, part


def test_one_record_has_no_comparison_and_shows_its_configuration() -> None:
    one = Page(render_report(example_record(config={"policy": "ucb", "budget": 200, "keys": {"bits": 3072}})))
    assert "Comparison" not in one.text
    assert "keys.bits" in one.text
    assert "3072" in one.text


def test_text_from_records_is_escaped_everywhere() -> None:
    record = example_record(
        policy=EVIL,
        level=EVIL,
        kind=EVIL,
        problem={"name": EVIL, "names": [EVIL, "b", "c"], EVIL: EVIL},
        leaks=(EVIL,),
        summary={EVIL: EVIL},
        privacy=({EVIL: EVIL},),
        role_seconds={EVIL: 1.0},
    )
    page = Page(render_report([record, example_record()], notes=[EVIL]))
    assert "script" not in page.tags
    assert page.open == []
    assert page.text.count("<script>alert(1)</script>") >= 8


def test_a_deployment_and_a_failed_run_have_a_page_too() -> None:
    real = Page(render_report(example_record(seeds=(), regret=None, leaks=())))
    assert "not from a simulation" in real.text
    assert "Do not take that for nothing" in real.text
    failed = example_record(
        seeds=(), steps=[], reward=[], regret=None, total=(), pulls=[], status="failed", role_seconds={}, traffic=()
    )
    page = Page(render_report(failed))
    assert "finished no run. It was not finished: failed." in page.text
    assert "svg" not in page.tags
    assert Page(render_report([example_record(), failed])).open == []


def test_names_in_any_script_are_kept() -> None:
    record = example_record(policy="上置信界", problem={"name": "三家诊所", "names": ["北京", "上海", "δοκιμή"]})
    page = Page(render_report(record))
    assert page.text.count("北京") >= 2  # in a figure and in a table
    assert "三家诊所" in page.text


def test_the_same_record_gives_the_same_page(records: list[RunRecord]) -> None:
    assert render_report(records) == render_report(records)


def test_it_is_written_whole(tmp_path: Path) -> None:
    path = write_report(example_record(), tmp_path / "report.html")
    assert path.read_text(encoding="utf-8").endswith("</html>\n")
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(DataError, match="folder does not exist"):
        write_report(example_record(), tmp_path / "none" / "report.html")
    with pytest.raises(DataError, match="at least one record"):
        write_report([], path)


def test_what_is_off_is_said_and_not_called_protected() -> None:
    off = example_record(level="paper", config={"policy": {"name": "ucb"}, "budget": 200, "mask": False})
    page = Page(render_report([off, example_record(level="plain", summary={"twin_of": "paper"})]))
    assert "ucb (paper, mask off) earned" in page.text
    assert "Level paper, mask off, against plain" in page.text
    assert "Protected against plain" not in page.text
    assert ("span", "class", "tag warn") in page.attributes
