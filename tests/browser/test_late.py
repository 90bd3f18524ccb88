"""Answers that come late, in another order or not at all: a page shows no bytes, code or findings
of something else.
"""

from __future__ import annotations

import re
import time
from typing import Any

import pytest

from tests.browser.studio import FOUR, Visits

playwright = pytest.importorskip("playwright.sync_api")
expect = playwright.expect
expect.set_options(timeout=300_000)

PLAYED = f"/stage?{FOUR}&horizon=60&level=paper&t=50"


class Held:
    """The first answer of an address: the server gave it, and the page gets it when the test says
    so.
    """

    def __init__(self, page: Any, pattern: str) -> None:
        self._page, self._begun = page, False
        self._held: list[tuple[Any, Any]] = []
        page.route(re.compile(pattern), self._take)

    def _take(self, route: Any) -> None:
        if self._begun:  # the route stays: taking one away would let go what others hold
            route.fallback()
            return
        self._begun = True
        self._held.append((route, route.fetch(timeout=300_000)))

    def asked(self) -> None:
        """Wait until the server has given the answer."""
        ends = time.monotonic() + 300
        while not self._held:
            assert time.monotonic() < ends, "nothing was asked"
            self._page.wait_for_timeout(20)

    def release(self) -> None:
        """Let the page have it, and draw."""
        [(route, answer)] = self._held
        with self._page.expect_request_finished(lambda request: request.url == route.request.url):
            route.fulfill(response=answer)
        self._page.evaluate(
            "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
        )


def at(page: Any, time: int, of: int) -> None:
    expect(page.locator(".place")).to_have_text(f"t = {time} of {of}")


def seen_by(page: Any, name: str) -> None:
    page.get_by_role("radiogroup", name="seen by").get_by_role(
        "radio", name=name, exact=True
    ).click()


def test_no_observer_is_shown_the_bytes_of_another(visit: Visits) -> None:
    """Not while its own are fetched, not after a failure, not among earlier ones."""
    page = visit(allowed="ERR_FAILED|Failed to").enter(PLAYED)
    at(page, 50, 60)
    seen_by(page, "controller")
    panel, cards = page.locator("#panel-messages"), page.locator(".message")
    expect(panel.locator(".bytes").first).to_be_visible()
    late = Held(page, "messages.*observer=customer")
    seen_by(page, "customer")
    late.asked()
    expect(panel.locator(".empty")).to_contain_text("Fetching")
    expect(cards).to_have_count(0)
    late.release()
    expect(cards.first).to_contain_text("what data customer sees of it")
    expect(panel.locator(".bytes")).to_have_count(0)

    seen_by(page, "controller")
    expect(panel.locator(".bytes").first).to_be_visible()
    late = Held(page, "messages.*before=")
    page.get_by_role("button", name="Earlier messages").click()
    late.asked()
    tries: list[Any] = []  # of which the first one fails

    def fail(route: Any) -> None:
        tries.append(route)
        route.fallback() if len(tries) > 1 else route.abort()

    page.route(re.compile("messages.*observer=customer"), fail)
    seen_by(page, "customer")
    expect(cards).to_have_count(12)
    late.release()
    expect(cards).to_have_count(12)
    expect(panel.locator(".bytes")).to_have_count(0)


def test_what_was_asked_about_a_run_is_not_shown_on_the_next(visit: Visits) -> None:
    """Attacks, costs and code of a run that was replaced before they came."""
    one = visit()
    page, parts = one.page, ("code$", "audit$", "cost$")
    late = {part: Held(page, f"/api/stages/[0-9a-f]+/{part}") for part in parts}
    softmax = FOUR.replace("policy=ucb", "policy=softmax&tau=0.1")
    one.enter(f"/stage?{softmax}&horizon=60&level=paper&paillier_bits=2048&t=30")
    at(page, 30, 60)
    page.get_by_role("button", name="Measure what each protection adds").click()
    for part in parts:
        late[part].asked()
    expect(page.get_by_role("button", name="Measuring")).to_be_disabled()
    page.get_by_label("Policy").select_option("ucb")
    page.get_by_role("radiogroup", name="level").get_by_role("radio", name="strict").click()
    page.get_by_role("button", name="Start with these settings").click()
    at(page, 0, 60)
    expect(page.locator("#panel-code .note")).to_contain_text("strict")
    for part in parts:
        late[part].release()
    expect(page.locator("#panel-code .code li").first).to_be_visible()
    expect(page.locator("#panel-code .code")).not_to_contain_text("exp(")
    expect(page.locator("#panel-found .verdict.bad")).to_have_count(0)
    expect(page.locator(".measured tr")).to_have_count(0)
    expect(page.get_by_role("button", name="Measure what each protection adds")).to_be_enabled()
    page.get_by_role("button", name=re.compile("^Forward")).click()
    at(page, 4, 60)  # every owner is pulled once at first
    expect(page.locator("#panel-found")).to_contain_text(
        "Measured on the 4 steps so far"
    )  # attacks go on here


def test_a_card_describes_the_run_on_the_stage_not_the_form(visit: Visits) -> None:
    page = visit().enter(f"/stage?{FOUR}&horizon=60&level=paper&paillier_bits=2048&t=30")
    at(page, 30, 60)
    card, comp = (
        page.get_by_role("region", name="About a party"),
        page.locator('[data-party="comp"]'),
    )
    comp.hover()
    expect(card).to_contain_text("can never know at paper")
    said = card.inner_text()
    page.get_by_role("radiogroup", name="level").get_by_role("radio", name="strict").click()
    expect(page.locator(".setup .level")).to_contain_text("strict:")
    comp.hover()
    expect(card).to_contain_text("comp knows")
    assert card.inner_text() == said


def test_the_state_of_a_party_follows_the_run(visit: Visits) -> None:
    page = visit().enter(f"/stage?{FOUR}&horizon=60&level=paper&t=20")
    at(page, 20, 60)
    owner = page.locator('[data-party="owner-1"]')
    owner.click()
    values = page.get_by_role("region", name="About a party").locator("dl")
    expect(values).to_be_visible()
    before = values.inner_text()
    page.get_by_role("slider", name="time").fill("50")
    at(page, 50, 60)
    expect(values).not_to_have_text(before)
    pulls = int(owner.locator(".under").text_content().split("/")[1])
    expect(values).to_contain_text(f"pulls{pulls}")


def test_play_ends_with_the_run_also_where_its_answer_comes_after(visit: Visits) -> None:
    page = visit().enter(f"/stage?{FOUR}&horizon=200&level=paper")
    at(page, 0, 200)
    page.get_by_label("speed, units a second").select_option("0")
    late = Held(page, "/do$")
    page.get_by_role("button", name="Play", exact=True).click()
    expect(page.get_by_role("button", name="Pause", exact=True)).to_be_visible()
    late.asked()
    at(page, 200, 200)
    expect(page.locator(".log")).to_contain_text("The end")
    late.release()
    expect(page.get_by_role("button", name="Play", exact=True)).to_be_disabled()


def test_that_a_run_was_stopped_elsewhere_is_said_until_it_is_taken_up_again(visit: Visits) -> None:
    page = visit(allowed="404").enter(PLAYED)
    at(page, 50, 60)
    expect(page.locator(".message").first).to_be_visible()
    page.evaluate("""async () => {
        const live = await (await fetch('/api/stages')).json();
        for (const one of live) await fetch(`/api/stages/${one.id}`, { method: 'DELETE' });
    }""")
    notices = page.locator(".notices")
    expect(notices).to_contain_text("stopped elsewhere")
    page.get_by_role("button", name=re.compile("^Forward")).click()
    expect(notices.get_by_text("stopped elsewhere")).to_be_hidden()
    at(page, 50, 60)
