"""Every state of the page in both colours and sizes: axe finds nothing, nothing is cut off, the server may go away."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.browser.studio import FOUR, Studio, Visits

playwright = pytest.importorskip("playwright.sync_api")
axe = pytest.importorskip("axe_playwright_python.sync_playwright")
expect = playwright.expect
expect.set_options(timeout=90_000)

STATIC = Path(__file__).parents[2] / "src" / "posse" / "studio" / "static"
PLAYED = f"/stage?{FOUR}&horizon=60&level=standard&t=20"


def sound(page: Any) -> None:
    """Axe finds nothing wrong, and nothing is wider than the window."""
    found = axe.Axe().run(page).response["violations"]
    assert [(one["id"], [node["html"][:120] for node in one["nodes"][:3]]) for one in found] == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("size", ["wide", "phone"])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_all_pages_are_sound_in_both_colours_and_sizes(visit: Visits, size: str, dark: bool) -> None:
    page = visit(size, dark=dark).enter(PLAYED)
    expect(page.locator(".place")).to_have_text("t = 20 of 60")
    expect(page.locator(".message").first).to_be_visible()
    assert page.evaluate("document.documentElement.dataset.scheme") == ("dark" if dark else "light")
    sound(page)
    page.get_by_role("tab", name="Code").click()
    page.locator('[data-party="comp"]').click()
    expect(page.get_by_role("region", name="About a party")).to_contain_text("knows")
    sound(page)
    page.keyboard.press("Escape")
    page.get_by_role("tab", name="Found out").click()
    for name, mark in (("Runs", ".runs-page"), ("Choose", ".choose-page"), ("Privacy", ".uncovered li")):
        page.get_by_role("link", name=re.compile(f"^{name}")).click()
        expect(page.locator(mark).first).to_be_visible(timeout=90_000)
        sound(page)
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys and help")).to_be_visible()
    sound(page)
    page.get_by_role("button", name="Close").click()
    page.get_by_role("button", name="Light page" if dark else "Dark page").click()
    assert page.evaluate("document.documentElement.dataset.scheme") == ("light" if dark else "dark")


def test_on_a_phone_the_set_up_is_one_line_and_the_controls_are_at_the_edge(visit: Visits) -> None:
    page = visit("phone").enter(PLAYED)
    expect(page.locator(".place")).to_have_text("t = 20 of 60")
    order = [page.locator(one).bounding_box()["y"] for one in (".stage", ".log", ".closer", ".charts", ".setup")]
    assert order == sorted(order)
    edge = page.locator(".transport").bounding_box()
    assert abs(edge["y"] + edge["height"] - 844) < 2
    fold = page.get_by_role("button", name=re.compile("^Set-up: .*ucb"))
    expect(page.get_by_label("Horizon")).to_be_hidden()
    fold.click()
    expect(page.get_by_label("Horizon")).to_be_visible()


def test_whoever_has_not_entered_is_asked_for_a_token(visit: Visits, studio: Studio) -> None:
    page = visit(allowed="401|403").page
    page.goto(studio.origin)
    expect(page.get_by_label("Launch token")).to_be_visible()
    sound(page)
    page.get_by_label("Launch token").fill("wrong")
    page.get_by_role("button", name="Enter").click()
    expect(page.locator(".door .error")).not_to_be_empty()
    page.get_by_label("Launch token").fill(studio.keys.token())
    page.get_by_role("button", name="Enter").click()
    expect(page.locator(".party").first).to_be_visible()


def test_the_server_goes_away_and_comes_back(visit: Visits, studio: Studio) -> None:
    page = visit(allowed="ERR_|404|500|Failed to load").enter(PLAYED)
    expect(page.locator(".place")).to_have_text("t = 20 of 60")
    said = page.locator(".stepname").inner_text()
    studio.stop()
    bar = page.get_by_role("alert").filter(has_text="gone since")
    expect(bar).to_be_visible()
    sound(page)
    studio.start()
    page.get_by_role("button", name="Try now").click()
    expect(bar).to_be_hidden()
    expect(page.locator(".place")).to_have_text("t = 20 of 60")
    expect(page.locator(".stepname")).to_have_text(said)
    line = page.locator(".log p").inner_text()
    page.get_by_role("button", name=re.compile("^Forward")).click()
    expect(page.locator(".log p")).not_to_have_text(line)


def test_too_many_runs_asks_which_shall_stop(visit: Visits, tmp_path: Path) -> None:
    small = Studio(tmp_path / "small", live=1)
    try:
        first = visit(at=small, allowed="409|404").enter(PLAYED)
        expect(first.locator(".place")).to_have_text("t = 20 of 60")
        page = visit(at=small, allowed="409").enter(PLAYED)
        expect(page.locator(".strip.tall")).to_contain_text("Which one shall stop?")
        sound(page)
        page.get_by_role("button", name="Stop it").click()
        expect(page.locator(".place")).to_have_text("t = 20 of 60")
        for one in (first, page):
            one.close()
    finally:
        small.stop()


def test_a_hidden_tab_closes_its_stream(visit: Visits, studio: Studio) -> None:
    page = visit().enter(PLAYED)
    expect(page.locator(".place")).to_have_text("t = 20 of 60")
    hide = """hidden => {
        Object.defineProperty(document, 'hidden', { configurable: true, get: () => hidden });
        document.dispatchEvent(new Event('visibilitychange'));
    }"""
    with page.expect_event("requestfailed", predicate=lambda one: "/api/stream" in one.url):
        page.evaluate(hide, True)
    with page.expect_request(re.compile("/api/stream")):
        page.evaluate(hide, False)


def test_the_first_load_is_small() -> None:
    lazy = {"runs.js", "choose.js", "privacy.js", "types.js"}
    files = [path for path in STATIC.rglob("*") if path.is_file() and path.name not in lazy]
    assert sum(path.stat().st_size for path in files) <= 200_000
