import re
from pathlib import Path

import pytest

from posse.core.errors import DataError
from posse.results import Record, render_report, report
from posse.results.document import REST, document, times
from posse.results.guarantees import guarantees
from tests.kit.pages import Page
from tests.kit.records import example_market_record, example_record

EVIL = "<script>alert(1)</script>\"'&"


@pytest.fixture(scope="module")
def records() -> list[Record]:
    ledger = {"epsilon": 1.0, "delta": 1e-5, "unit": "one reward", "not covered": "timing"}
    return [
        example_record(),
        example_record(level="plain"),
        example_record(policy="thompson", privacy=(ledger,)),
    ]


@pytest.fixture(scope="module")
def page(records: list[Record]) -> Page:
    return Page(render_report(records, notes=["A note."]))


def test_the_page_is_well_formed_and_fetches_nothing(page: Page, records: list[Record]) -> None:
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
    values = " ".join(
        value for _, name, value in page.attributes if name in ("href", "clip-path", "style")
    )
    wanted = set(re.findall(r"url\(#([^)]+)\)", values)) | {
        value[1:] for _, name, value in page.attributes if name == "href"
    }
    assert wanted
    assert wanted <= set(ids)


def test_a_page_has_every_part_of_the_document(page: Page, records: list[Record]) -> None:
    shown = document(records, notes=["A note."])
    for text in (
        shown.headline,
        *shown.sentences,
        *shown.notes,
        *(part.heading for part in shown.details),
        *(plot.caption for plot in shown.plots),
        *(text for level in shown.protection for _, text in level.lines),
        *(cell for row in shown.table.rows for cell in row),
        *records[0].leaks,
        *records[1].leaks,
    ):
        assert text in page.text, text
    summaries = page.tags.count("summary")
    assert summaries == page.tags.count("details") == len(shown.details)


def test_one_record_has_no_comparison_and_shows_its_configuration() -> None:
    one = Page(
        render_report(
            example_record(config={"policy": "ucb", "budget": 200, "keys": {"bits": 3072}})
        )
    )
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
    real = document(example_record(seeds=(), regret=None, leaks=()))
    facts = dict(real.details[-1].rows)
    assert facts["world seeds"].startswith("none")
    (unknown,) = [part for part in real.details if part.title == "What is not protected"]
    assert "not state" in unknown.items[0]
    failed = example_record(
        seeds=(),
        steps=[],
        reward=[],
        regret=None,
        total=(),
        pulls=[],
        status="failed",
        role_seconds={},
        traffic=(),
    )
    page = Page(render_report(failed))
    assert "failed" in " ".join(document(failed).sentences)
    assert "svg" not in page.tags
    assert Page(render_report([example_record(), failed])).open == []


def test_names_in_any_script_are_kept() -> None:
    record = example_record(
        policy="上置信界", problem={"name": "三家诊所", "names": ["北京", "上海", "δοκιμή"]}
    )
    page = Page(render_report(record))
    assert page.text.count("北京") >= 2  # in a figure and in a table
    assert "三家诊所" in page.text


def test_the_same_record_gives_the_same_page(records: list[Record]) -> None:
    assert render_report(records) == render_report(records)


def test_it_is_written_whole(tmp_path: Path) -> None:
    path = report(example_record(), tmp_path / "report.html")
    assert path.read_text(encoding="utf-8").endswith("</html>\n")
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(DataError, match="folder does not exist"):
        report(example_record(), tmp_path / "none" / "report.html")
    with pytest.raises(DataError, match="at least one record"):
        report([], path)


def test_what_is_off_is_marked() -> None:
    config = {"policy": {"name": "ucb"}, "horizon": 200, "mask": False}
    off = example_record(level="paper", config=config, show={"title": "Clinics", "off": ["mask"]})
    page = Page(render_report([off, example_record(level="plain", summary={"twin_of": "paper"})]))
    assert "Level paper, mask off, against plain" in page.text
    assert ("span", "class", "tag alarm") in page.attributes
    assert ("span", "class", "tag alarm") not in Page(render_report(example_record())).attributes


@pytest.fixture(scope="module")
def market() -> list[Record]:
    return [example_market_record(level=level) for level in ("alone", "tight", "plain")]


def test_a_market_reads_as_a_market(market: list[Record]) -> None:
    page = Page(render_report(market))
    assert page.open == []
    assert "revenue (EUR)" in document(market).table.columns
    for part in ("cumulative revenue (EUR)", "Units of each producer", "units per run (mean)"):
        assert part in page.text, part
    for word in ("reward", "pulls", " steps", " step ", "owner"):
        assert word not in page.text, word


def test_who_loses_by_joining_is_named_above_the_tables(market: list[Record]) -> None:
    text = render_report(market)
    assert text.index("isles") < text.index("<table")
    without = [part.title for part in document(market[1:]).details]
    assert "What each agent earned" in without
    assert "What joining is worth" not in without


def test_levels_that_share_nothing_are_not_warnings(market: list[Record]) -> None:
    shown = document([*market, example_market_record(level="placebo")])
    assert not any(level.warning for level in shown.protection)
    assert not any("not state" in item for part in shown.details for item in part.items)
    assert document(market[0]).protection[0].against.startswith("everybody")


def _said(record: Record) -> str:
    return " ".join(guarantee.sentence("agent") for guarantee in guarantees([record]))


def test_an_epsilon_never_stands_alone(market: list[Record]) -> None:
    page = Page(render_report(market))
    for part in ("ε = 1 at δ = 1e-05", "for one purchase", "each of 4 agents", "accountant: PLD"):
        assert part in page.text
    for figure in re.finditer(r"ε = [\d.,]+", page.text):
        assert page.text[figure.end() :].startswith(" at δ = ")
    bare = {"epsilon": 0.61341, "composition": "basic"}
    told = Page(render_report(example_market_record(privacy=(bare,)))).text
    assert "ε = 0.6135 at δ = not stated" in told
    assert "for unit not stated" in told
    unproved = {"epsilon": None, "delta": 0.01, "unit": "entry", "composition": "sequential"}
    assert "no finite ε at δ = 0.01 for unit entry" in _said(
        example_market_record(privacy=(unproved,))
    )


def test_parties_and_guarantees_are_escaped() -> None:
    privacy = {
        "party": EVIL,
        "epsilon": 1.0,
        "delta": EVIL,
        "unit": EVIL,
        "composition": EVIL,
        "not covered": [EVIL],
    }
    words = {"step": EVIL, "arm": EVIL, "pull": EVIL, "reward": EVIL, "party": EVIL, "money": EVIL}
    changes = {"parties": (EVIL, "b", "c", "d"), "problem": {"words": words}, "privacy": (privacy,)}
    page = Page(
        render_report(
            [example_market_record(**changes, level=level) for level in ("alone", "tight")]
        )
    )
    assert "script" not in page.tags
    assert page.open == []


def test_one_role_alone_is_not_drawn_in_shares(market: list[Record]) -> None:
    def kinds(*records: Record) -> list[str]:
        return [plot.kind for plot in document(records).plots]

    assert "role_times" not in kinds(*market)
    assert "role_times" not in kinds(example_record())  # the table of costs has it
    assert "role_times" in kinds(example_record(), example_record(policy="thompson"))


def test_time_by_role_adds_up_to_the_time_of_the_run() -> None:
    record = example_record(seconds=4.1)  # its roles took 3.75 s
    shown = times(record)
    assert sum(shown.values()) == pytest.approx(4.1)
    assert list(shown)[-1] == REST
    page = render_report(record)
    for words in ("rest of the process", "350 ms", "8.5%", "4.1 s</td>"):
        assert words in page, words
    assert REST not in times(example_record(seconds=3.0))  # roles in several processes
    assert REST not in times(example_record(level="plain"))
