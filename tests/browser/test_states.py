"""Every state of the page in both colours and sizes: axe finds nothing, nothing is cut off, the
server may go away.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from posse.studio.stages import resident
from tests.browser.studio import FOUR, SIZES, Studio, Visits

playwright = pytest.importorskip("playwright.sync_api")
axe = pytest.importorskip("axe_playwright_python.sync_playwright")
expect = playwright.expect
expect.set_options(timeout=300_000)

STATIC = Path(__file__).parents[2] / "src" / "posse" / "studio" / "static"
PLAYED = f"/stage?{FOUR}&horizon=60&level=paper&t=20"


def sound(page: Any) -> None:
    """Axe finds nothing wrong, and nothing is wider than the window."""
    found = axe.Axe().run(page).response["violations"]
    assert [(one["id"], [node["html"][:120] for node in one["nodes"][:3]]) for one in found] == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def sound_in_both_sizes(page: Any) -> None:
    """The same in a window as wide as a phone, and back."""
    sound(page)
    for size in ("phone", "wide"):
        page.set_viewport_size(dict(zip(("width", "height"), SIZES[size], strict=True)))
        page.wait_for_function("() => document.documentElement.scrollWidth <= innerWidth")
        if size == "phone":
            sound(page)


def until(holds: Callable[[], bool], page: Any) -> None:
    """Wait until something holds on the server's side."""
    ends = time.monotonic() + 300
    while not holds():
        assert time.monotonic() < ends
        page.wait_for_timeout(50)


@pytest.mark.parametrize("size", ["wide", "phone"])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_all_pages_are_sound_in_both_colours_and_sizes(
    visit: Visits, size: str, dark: bool
) -> None:
    page = visit(size, dark=dark).enter(PLAYED)
    expect(page.locator(".place")).to_have_text("t = 20 of 60")
    expect(page.locator(".message").first).to_be_visible()
    assert page.evaluate("document.documentElement.dataset.scheme") == ("dark" if dark else "light")
    sound(page)
    for one in page.get_by_role("radiogroup", name="seen by").get_by_role("radio").all():
        one.click()
        expect(one).to_have_attribute("aria-checked", "true")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), one.inner_text()
    page.get_by_role("tab", name="Found out").click()
    expect(
        page.get_by_role("button", name="Try the attacks now")
    ).to_be_visible()  # none is tried by itself here
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.get_by_role("tab", name="Code").click()
    page.locator('[data-party="comp"]').click()
    expect(page.get_by_role("region", name="About a party")).to_contain_text("knows")
    sound(page)
    page.keyboard.press("Escape")
    page.get_by_role("tab", name="Found out").click()
    for name, mark in (
        ("Runs", ".runs-page .empty"),
        ("Choose", ".choose-page"),
        ("Privacy", ".uncovered li"),
    ):
        page.get_by_role("link", name=re.compile(f"^{name}")).click()
        expect(page.locator(mark).first).to_be_visible(timeout=300_000)
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
    order = [
        page.locator(one).bounding_box()["y"]
        for one in (".stage", ".log", ".closer", ".charts", ".setup")
    ]
    assert order == sorted(order)
    edge = page.locator(".transport").bounding_box()
    assert abs(edge["y"] + edge["height"] - 844) < 2
    fold = page.get_by_role("button", name=re.compile("^Set-up: .*ucb"))
    expect(page.get_by_label("Horizon")).to_be_hidden()
    fold.click()
    expect(page.get_by_label("Horizon")).to_be_visible()


@pytest.mark.parametrize("size", ["wide", "phone"])
def test_names_do_not_run_into_the_lines_beside_them(visit: Visits, size: str) -> None:
    page = visit(size).enter("/stage?system=samba&policy=thompson&data=invented:stores&horizon=60")
    expect(page.locator(".party.row")).to_have_count(8)
    across = """() => [...document.querySelectorAll('.party.row')].filter(row => {
        const [text, line] = ['.name', '.track'].map(one => row.querySelector(one)?.getBoundingClientRect());
        return line && text.right > line.left - 4;  // whose end is round
    }).map(row => row.textContent)"""
    assert page.evaluate(across) == []


def test_the_tour_leaves_the_controls_of_a_phone_free(visit: Visits) -> None:
    page = visit("phone", first=True).enter()
    tour = page.get_by_role("dialog", name="Tour")
    tour.get_by_role("button", name="Next").click()
    box, controls = tour.bounding_box(), page.locator(".transport").bounding_box()
    assert box["y"] + box["height"] <= controls["y"]


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
    expect(page.locator(".log p")).not_to_be_empty()
    said, line = (page.locator(one).inner_text() for one in (".stepname", ".log p"))
    studio.stop()
    bar = page.get_by_role("alert").filter(has_text="gone since")
    expect(bar).to_be_visible()
    sound_in_both_sizes(page)
    page.get_by_role("button", name="Try now").click()  # nobody is there yet
    expect(bar).to_be_visible()
    studio.start()
    # By now the page may have come back by itself, and then there is no bar to click on.
    page.locator("button", has_text="Try now").dispatch_event("click")
    expect(bar).to_be_hidden()
    expect(page.locator(".place")).to_have_text("t = 20 of 60")
    expect(page.locator(".stepname")).to_have_text(said)
    expect(page.locator(".log p")).to_have_text(line)
    page.get_by_role("button", name=re.compile("^Forward")).click()
    expect(page.locator(".place")).to_have_text("t = 21 of 60")


def test_too_many_runs_asks_which_shall_stop(visit: Visits, tmp_path: Path) -> None:
    small = Studio(tmp_path / "small", live=1)
    try:
        first = visit(at=small, allowed="409|404").enter(PLAYED)
        expect(first.locator(".place")).to_have_text("t = 20 of 60")
        page = visit(at=small, allowed="409").enter(PLAYED)
        expect(page.locator(".strip.tall")).to_contain_text("Which one shall stop?")
        sound_in_both_sizes(page)
        page.get_by_role("button", name="Stop it").click()
        expect(page.locator(".place")).to_have_text("t = 20 of 60")
        for one in (first, page):
            one.close()
    finally:
        small.stop()


def test_too_much_memory_is_said_with_what_can_be_stopped(visit: Visits, tmp_path: Path) -> None:
    small = Studio(tmp_path / "small")
    try:
        first = visit(at=small, allowed="409|404").enter(PLAYED)
        expect(first.locator(".place")).to_have_text("t = 20 of 60")
        small.parts.stages.memory = 1
        page = visit(at=small, allowed="409", dark=True).enter(PLAYED)
        expect(page.locator(".strip.tall")).to_contain_text(
            re.compile(r"MB are used, .* Which one shall stop\?")
        )
        sound_in_both_sizes(page)
        page.get_by_role("button", name="Stop it").click()
        expect(page.locator(".place")).to_have_text("t = 20 of 60")
        for one in (first, page):
            one.close()
    finally:
        small.stop()


def test_a_tour_and_refused_settings_are_sound_in_both_sizes(visit: Visits) -> None:
    page = visit(first=True, allowed="400").enter(PLAYED)
    expect(page.get_by_role("dialog", name="Tour")).to_be_visible()
    sound_in_both_sizes(page)
    page.get_by_role("button", name="Skip").click()
    page.get_by_label("Horizon").fill("-5")
    page.get_by_label("Horizon").blur()
    expect(page.locator("[data-field=horizon] .error")).to_be_visible()
    sound(page)
    page.goto(
        f"{page.url.split('#')[0]}#/stage?system=samba&data=file:{'0' * 64}&file=mine.csv&horizon=50"
    )
    expect(page.locator("[data-field=data] .error")).to_contain_text(
        "mine.csv: the file 000000000000 is not here"
    )
    sound_in_both_sizes(page)


CROWDS = {
    "samba": ("policy=ucb&owners=100&horizon=400&level=paper&t=103", ".party.cell", 100, 3),
    "mpc-contextual": ("data=digits&rows=60&horizon=20&parties=10&t=1", ".party.row", 10, 76),
    "dp-combinatorial": (
        "agents=100&producers=12&horizon=60&start=50&delta=0.01&t=2",
        ".party.cell",
        100,
        24,
    ),
    "fed-contextual": ("data=digits&clients=200&horizon=4&cohort=100&t=1", ".party.cell", 61, 1),
}


@pytest.mark.parametrize(
    "system",
    [
        "samba",
        "mpc-contextual",
        *(pytest.param(one, marks=pytest.mark.long) for one in list(CROWDS)[2:]),
    ],
)
def test_a_crowd_of_each_system_is_sound_in_both_sizes(visit: Visits, system: str) -> None:
    """Every party has its place, no name leaves the stage, and what moves at once has few
    labels.
    """
    settings, shape, count, arrows = CROWDS[system]
    page = visit(dark=system == "samba").enter(f"/stage?system={system}&{settings}")
    expect(page.locator(".place")).to_have_text(
        re.compile(f"^t = {settings.rpartition('=')[2]} of")
    )
    expect(page.locator(shape)).to_have_count(count)
    sound_in_both_sizes(page)
    outside = """() => {
        const box = document.querySelector('.stage').getBoundingClientRect();
        return [...document.querySelectorAll('.stage .parties text')].filter(one => {
            const at = one.getBoundingClientRect();
            return at.width > 0 && (at.left < box.left - 1 || at.right > box.right + 1 || at.bottom > box.bottom + 1);
        }).map(one => one.textContent);
    }"""
    assert page.evaluate(outside) == []
    assert page.locator(".pill").count() <= 12
    page.get_by_label("unit of forward, back and play").get_by_text("message", exact=True).click()
    for _ in range(0 if system == "fed-contextual" else 3):  # whose round is one message here
        log = page.locator(".log").inner_text()
        page.get_by_role("button", name=re.compile("^Back")).click()
        expect(page.locator(".log")).not_to_have_text(log)
    until(
        lambda: page.locator(".links .link").count() <= arrows, page
    )  # those that nothing takes any more are gone


def test_a_hidden_tab_closes_its_stream(visit: Visits, studio: Studio) -> None:
    page = visit().enter(PLAYED)
    expect(page.locator(".place")).to_have_text("t = 20 of 60")
    until(lambda: studio.parts.streams == 1, page)
    hide = """hidden => {
        Object.defineProperty(document, 'hidden', { configurable: true, get: () => hidden });
        document.dispatchEvent(new Event('visibilitychange'));
    }"""
    page.evaluate(hide, True)
    until(lambda: studio.parts.streams == 0, page)
    page.evaluate(hide, False)
    until(lambda: studio.parts.streams == 1, page)
    page.get_by_role("button", name=re.compile("^Forward")).click()
    expect(page.locator(".place")).to_have_text("t = 21 of 60")


def test_ten_visible_tabs_leave_connections_free(visit: Visits, studio: Studio) -> None:
    """A browser opens six connections to a server: more streams than that would leave none for
    anything else.
    """
    one = visit()
    page = one.enter(PLAYED)
    tabs = [page]
    for number in range(9):
        tabs.append(one.context.new_page())
        tabs[-1].goto(f"{studio.origin}/#{PLAYED.replace('t=20', f't={21 + number}')}")
    for number, tab in enumerate(tabs):
        expect(tab.locator(".place")).to_have_text(f"t = {20 + number} of 60", timeout=180_000)
    for number, tab in enumerate(tabs):
        tab.get_by_role("button", name=re.compile("^Forward")).click()
        expect(tab.locator(".place")).to_have_text(f"t = {21 + number} of 60")
    until(lambda: sum(live.readers > 0 for live in studio.parts.stages.live.values()) == 10, page)
    until(lambda: studio.parts.streams == 1, page)


def opened_and_closed(visit: Visits, studio: Studio, count: int) -> None:
    """Open tabs one after the other, let each play, close it: nothing of it is left on the
    server.
    """
    one = visit()
    page = one.enter(PLAYED)
    expect(page.locator(".place")).to_have_text("t = 20 of 60")
    until(lambda: studio.parts.streams == 1, page)
    live = len(studio.parts.stages.live)
    for _ in range(count):
        tab = one.context.new_page()
        tab.set_default_timeout(300_000)
        tab.goto(f"{studio.origin}/#{PLAYED}")
        tab.get_by_role("button", name="Play", exact=True).click()
        expect(tab.get_by_role("button", name="Pause", exact=True)).to_be_visible()
        tab.close()
    until(lambda: studio.parts.streams == 1 and len(studio.parts.stages.live) <= live, page)
    page.get_by_role("button", name=re.compile("^Forward")).click()
    expect(page.locator(".place")).to_have_text("t = 21 of 60")
    page.close()


@pytest.mark.long
def test_tabs_that_are_opened_and_closed_leave_nothing(visit: Visits, studio: Studio) -> None:
    opened_and_closed(visit, studio, 4)


@pytest.mark.long
def test_200_tabs_that_are_opened_and_closed_leave_nothing(visit: Visits, studio: Studio) -> None:
    opened_and_closed(visit, studio, 20)
    before = resident()
    opened_and_closed(visit, studio, 200)
    assert resident() - before < 100 << 20


def test_the_first_load_is_small() -> None:
    lazy = {"runs.js", "choose.js", "privacy.js", "types.js"}
    files = [path for path in STATIC.rglob("*") if path.is_file() and path.name not in lazy]
    assert sum(path.stat().st_size for path in files) <= 200_000
