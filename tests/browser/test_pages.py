"""Runs, Choose and Privacy in a browser: the store that the command line has, jobs, comparisons,
undo, budgets.
"""

from __future__ import annotations

import re
from datetime import datetime

import pytest

import posse
from tests.browser.studio import FOUR, Studio, Visits

playwright = pytest.importorskip("playwright.sync_api")
expect = playwright.expect
expect.set_options(timeout=300_000)

MEANS = (0.38, 0.55, 0.47, 0.71)


@pytest.fixture(scope="module")
def records(studio: Studio) -> list[posse.Record]:
    return [
        posse.run(
            posse.Samba(policy=policy, means=MEANS, horizon=120, seed=3, runs=runs, path="plain")
        )
        for policy, runs in (("ucb", 3), ("thompson", 1), ("softmax", 1))
    ]


@pytest.fixture
def stored(records: list[posse.Record]) -> list[str]:
    """Three runs in the store, as the command line puts them there, whatever other tests left."""
    store = posse.Store()
    store.delete([row.id for row in store.list()])
    return [store.save(record) for record in records]


def test_the_ledger_lists_filters_sorts_and_compares(visit: Visits, stored: list[str]) -> None:
    page = visit().enter("/runs")
    rows = page.locator(".ledger tbody tr")
    expect(rows).to_have_count(3)
    page.get_by_label("Show").fill("thompson")
    expect(rows).to_have_count(1)
    page.get_by_label("Show").fill("nothing like it")
    expect(page.locator(".runs-page .empty")).to_contain_text("No run fits")
    page.get_by_label("Show").fill("")
    page.get_by_role("button", name="policy", exact=True).click()
    expect(page.locator("th[aria-sort=ascending]")).to_have_text("policy")
    expect(rows.first).to_contain_text("softmax")
    for place in (0, 1):
        rows.nth(place).get_by_role("checkbox").check()
    beside = page.get_by_role("region", name="Comparison")
    expect(beside.locator(".chart").first).to_be_visible()
    expect(beside.get_by_role("heading", name="What it earned and cost")).to_be_visible()
    legend = beside.locator(".legend button").first
    lines = beside.locator(".chart").first.locator(".line")
    expect(lines).to_have_count(2)
    legend.click()
    expect(legend).to_have_attribute("aria-pressed", "false")
    expect(lines).to_have_count(1)
    for kind in ("CSV", "PARQUET"):
        with page.expect_download() as waiting:
            beside.get_by_role("link", name=f"Save {kind}").click()
        assert waiting.value.path().stat().st_size > 100
    with page.expect_download() as waiting:
        beside.get_by_role("button", name=re.compile("^Save reward")).click()
    assert waiting.value.path().read_text().startswith("<svg")


def test_a_chart_has_a_cursor_with_values(visit: Visits, stored: list[str]) -> None:
    page = visit().enter("/runs")
    for place in (0, 1):
        page.locator(".ledger tbody tr").nth(place).get_by_role("checkbox").check()
    plot = page.locator(".beside .plot").first
    expect(plot).to_be_visible()
    plot.hover(position={"x": 200, "y": 60})
    values = page.locator(".beside .values").first
    expect(values).to_contain_text(re.compile(r"step \d+: .* \d"))
    plot.focus()
    said = values.inner_text()
    page.keyboard.press("ArrowLeft")
    expect(values).not_to_have_text(said)


def test_long_names_stay_in_the_window_beside_a_comparison(
    visit: Visits, stored: list[str]
) -> None:
    """The page never scrolls sideways; in a wide window the ledger does not either."""
    names = (
        "The shop with the longest name of Northgate Street",
        "Harbour Books and Second Hand Records",
        "C",
        "D",
    )
    long = posse.run(
        posse.Samba(policy="ucb", means=MEANS, names=names, horizon=60, seed=3, path="plain")
    )
    store, page = posse.Store(), visit().enter("/runs")
    rows = page.locator(".ledger tbody tr")
    expect(rows).to_have_count(3)
    kept = store.save(long)  # as the command line does: the page follows
    try:
        expect(rows).to_have_count(4)
        for place in range(4):
            rows.nth(place).get_by_role("checkbox").check()
        beside = page.get_by_role("region", name="Comparison")
        expect(beside.get_by_role("heading", name="How often each").first).to_be_visible()
        fits = "() => document.documentElement.scrollWidth <= innerWidth"
        assert page.evaluate(fits)
        ledger = page.get_by_role("region", name="Runs", exact=True)
        assert ledger.evaluate("one => one.scrollWidth <= one.clientWidth")
        expect(rows.first.get_by_role("button", name="Delete")).to_be_in_viewport()
        page.set_viewport_size({"width": 390, "height": 844})
        page.wait_for_function(fits)
    finally:
        store.delete(kept)


def test_delete_can_be_undone(visit: Visits, stored: list[str]) -> None:
    page = visit().enter("/runs")
    rows = page.locator(".ledger tbody tr")
    expect(rows).to_have_count(3)
    page.clock.set_fixed_time(
        datetime.now()
    )  # undoing is offered for ten seconds, which a busy machine may take
    page.get_by_role("button", name="Delete").first.click()
    expect(rows).to_have_count(2)
    page.get_by_role("button", name="Delete").first.click()
    expect(rows).to_have_count(1)
    page.get_by_role("button", name="Undo").click()
    expect(rows).to_have_count(3)


def test_a_stored_run_goes_on_the_stage(visit: Visits, stored: list[str]) -> None:
    page = visit().enter("/runs")
    row = page.locator(".ledger tbody tr").filter(has_text="thompson")
    row.get_by_role("button", name="On the stage").click()
    expect(page.locator(".place")).to_have_text("t = 0 of 120")
    expect(page.get_by_label("Policy")).to_have_value("thompson")


def test_choose_fills_a_grid_and_answers(visit: Visits, stored: list[str]) -> None:
    page = visit().enter(f"/stage?{FOUR}&horizon=100&level=paper")
    expect(page.locator(".place")).to_have_text("t = 0 of 100")
    page.get_by_role("link", name="Choose").click()
    boxes = page.locator(".ticks label")
    expect(boxes.first).to_be_visible()
    for place in range(boxes.count()):
        box = boxes.nth(place).locator("input")
        box.set_checked(boxes.nth(place).inner_text() == "ucb")
    page.get_by_label("runs of each").fill("2")
    page.get_by_label("runs of each").blur()
    page.get_by_role("button", name="Run the grid").click()
    expect(page.locator(".grid-table .small-chart").first).to_be_visible(timeout=180_000)
    expect(page.locator(".answer")).to_contain_text("ucb at", timeout=180_000)
    expect(page.locator(".grid-table thead th")).to_contain_text(["", "strict", "paper", "plain"])
    page.get_by_role("link", name="Runs").click()
    expect(page.locator(".jobs li").filter(has_text="choose of")).to_have_count(1)


def test_a_grid_is_shown_with_its_own_system_and_settings(visit: Visits, studio: Studio) -> None:
    """Not as that of another system, and not as one of other settings."""
    page = visit(allowed="404").enter(f"/stage?{FOUR}&horizon=100&level=paper")
    expect(page.locator(".place")).to_have_text("t = 0 of 100")
    page.get_by_role("link", name="Choose").click()
    given, grid = page.locator(".choose-page .given"), page.locator(".grid-table")
    boxes = page.locator(".ticks input")
    expect(boxes.first).to_be_visible()
    for place in range(boxes.count()):
        boxes.nth(place).set_checked(place == 0)
    page.get_by_label("runs of each").fill("1")
    page.get_by_label("runs of each").blur()
    page.get_by_role("button", name="Run the grid").click()
    expect(given).to_contain_text(
        re.compile("^Run with the settings of the stage: horizon 100, means 0.38,")
    )
    cell = page.get_by_role("button", name="On the stage").first
    expect(cell).to_be_visible(timeout=180_000)
    page.route(
        "**/api/runs/*",
        lambda route: route.fulfill(status=404, json={"error": "this run is gone."}),
    )
    cell.click()
    expect(page.locator(".choose-form .error")).to_contain_text("this run is gone.")
    page.get_by_role("link", name="Stage").click()
    page.get_by_label("Horizon").fill("90")
    page.get_by_label("Horizon").blur()
    page.get_by_role("link", name="Choose").click()
    expect(given).to_contain_text("Run with other settings than the stage has now: horizon 100")
    page.get_by_role("link", name="Stage").click()
    page.get_by_label("System", exact=True).select_option("dp-combinatorial")
    page.get_by_role("link", name="Choose").click()
    expect(page.locator(".choose-page .empty")).to_be_visible()
    expect(grid).to_be_hidden()


def test_a_background_run_has_progress_and_can_be_cancelled(
    visit: Visits, stored: list[str]
) -> None:
    page = visit().enter(f"/stage?{FOUR}&horizon=100000&level=strict")
    expect(page.locator(".place")).to_have_text("t = 0 of 100,000")
    page.get_by_role("link", name="Runs").click()
    page.locator("#job-runs").fill("1")
    late = []  # an answer of before, to whoever asks for the list of jobs, comes when all is over
    page.route(
        "**/api/jobs",
        lambda route: late.append(route) if route.request.method == "GET" else route.continue_(),
    )
    page.get_by_role("button", name="Start in the background").click()
    job = page.locator(".jobs li").filter(has_text="run of").first
    expect(job).to_be_visible()
    job.get_by_role("button", name="Cancel").click()
    expect(job).to_contain_text("cancelled")
    for route in late:
        route.fulfill(json=[])
    page.evaluate(
        "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
    )
    expect(job).to_contain_text("cancelled", timeout=5_000)
    page.unroute("**/api/jobs")
    page.locator("#job-over").select_option("coefficient")
    page.locator("#job-values").fill("1, 2, 3")
    page.get_by_role("button", name="Start in the background").click()
    sweep = page.locator(".jobs li").filter(has_text="sweep of").first
    expect(sweep).to_contain_text("0 of 3")
    sweep.get_by_role("button", name="Cancel").click()
    expect(sweep).to_contain_text("cancelled")


def test_a_budget_answers_and_says_what_it_does_not_cover(visit: Visits) -> None:
    page = visit(allowed="400").enter("/privacy")
    answer, uncovered = page.locator(".privacy-page .answer"), page.locator(".uncovered li")
    expect(answer).to_contain_text("differential privacy", timeout=300_000)
    expect(uncovered.first).to_be_visible()
    said = answer.inner_text()
    page.get_by_role("slider", name="arms, slider").fill("2")
    expect(answer).not_to_have_text(said)
    said = answer.inner_text()
    page.get_by_role("slider", name="epsilon, slider").fill("-2")
    expect(page.get_by_label("epsilon", exact=True)).to_have_value("0.01")
    expect(answer).not_to_have_text(said)
    page.get_by_label("arms", exact=True).fill("1")
    page.get_by_label("arms", exact=True).blur()
    expect(page.locator("[data-field=arms] .error")).to_be_visible()
    page.get_by_label("arms", exact=True).fill("10")
    page.get_by_label("arms", exact=True).blur()
    expect(page.locator("[data-field=arms] .error")).to_be_hidden()
    page.get_by_role("button", name="Draw the curve").click()
    expect(page.get_by_role("button", name="Draw the curve")).to_be_enabled(timeout=300_000)
    expect(page.locator(".privacy-page .plot .line")).to_have_count(1)
