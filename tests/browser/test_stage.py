"""The stage in a browser: controls, log line, messages by observer, code, the address, and the same
total as a run.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

import posse
from tests.browser.studio import FOUR, Visits

playwright = pytest.importorskip("playwright.sync_api")
expect = playwright.expect
expect.set_options(timeout=300_000)


def at(page: Any, time: int, of: int) -> None:
    expect(page.locator(".place")).to_have_text(f"t = {time:,} of {of:,}")


def press(page: Any, name: str) -> None:
    page.get_by_role("button", name=re.compile(f"^{name}")).click()


def test_a_first_visit_is_paused_with_a_tour_that_is_shown_once(visit: Visits) -> None:
    page = visit(first=True).enter()
    tour = page.get_by_role("dialog", name="Tour")
    expect(tour).to_be_visible()
    expect(page.get_by_role("button", name="Play", exact=True)).to_be_enabled()
    expect(page.locator(".place")).to_have_text(re.compile("^t = 0 of "))
    expect(page.locator(".log")).to_contain_text("nothing has happened yet")
    for place in range(1, 4):
        expect(tour).to_contain_text(f"{place} of 4")
        tour.get_by_role("button", name="Next").click()
    tour.get_by_role("button", name="Done").click()
    expect(tour).to_be_hidden()
    page.reload()
    expect(page.locator(".party").first).to_be_visible()
    expect(tour).to_be_hidden()


def test_forward_and_back_by_every_unit_and_by_keys(visit: Visits) -> None:
    page = visit().enter(f"/stage?{FOUR}&horizon=60&level=paper&t=20")
    at(page, 20, 60)
    line = page.locator(".log p")
    before = line.inner_text()
    page.get_by_role("radio", name="message", exact=True).click()
    press(page, "Forward")
    expect(line).not_to_have_text(before)
    after = line.inner_text()
    press(page, "Back")
    expect(line).to_have_text(before)
    page.keyboard.press("ArrowRight")
    expect(line).to_have_text(after)
    page.get_by_role("radio", name="step", exact=True).click()
    press(page, "Forward")
    expect(line).not_to_have_text(after)
    page.get_by_role("radio", name="time", exact=True).click()
    press(page, "Forward")
    at(page, 21, 60)
    page.locator("body").click(position={"x": 4, "y": 400})
    page.keyboard.press("ArrowUp")
    at(page, 31, 60)
    page.keyboard.press("ArrowDown")
    at(page, 21, 60)
    page.keyboard.press("Home")
    at(page, 0, 60)
    expect(page.get_by_role("button", name="Back")).to_be_disabled()
    page.get_by_role("slider", name="time").fill("40")
    at(page, 40, 60)


def test_play_pause_and_speed(visit: Visits) -> None:
    page = visit(still=False).enter(f"/stage?{FOUR}&horizon=5000&level=paper")
    at(page, 0, 5000)
    page.keyboard.press("t")
    expect(page.get_by_role("radio", name="time", exact=True)).to_have_attribute(
        "aria-checked", "true"
    )
    page.get_by_label("speed, units a second").select_option("20")
    press(page, "Play")
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    expect(page.locator(".party.chosen")).to_have_count(1)
    page.wait_for_function("() => Number(document.querySelector('.transport input').value) >= 8")
    with page.expect_response(lambda answer: answer.url.endswith("/do")) as waiting:
        press(page, "Pause")
    stood = waiting.value.json()["state"]["time"]  # where the server has paused
    expect(page.get_by_role("button", name="Play")).to_be_visible()
    at(page, stood, 5000)
    press(page, "Forward")
    at(page, stood + 1, 5000)
    page.keyboard.press("m")
    page.get_by_label("speed, units a second").select_option("2")
    press(page, "Forward")
    expect(page.locator(".pill").first).to_be_visible()


def test_a_key_changes_the_unit_of_a_run_that_plays(visit: Visits) -> None:
    page = visit().enter(f"/stage?{FOUR}&horizon=5000&level=paper")
    at(page, 0, 5000)
    press(page, "Play")
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    with page.expect_request(lambda request: request.url.endswith("/do")) as waiting:
        page.keyboard.press("m")
    asked = waiting.value.post_data_json
    assert (asked["action"], asked["unit"]) == ("play", "message")


def test_an_address_without_a_moment_of_the_run_says_so(visit: Visits) -> None:
    page = visit().enter(f"/stage?{FOUR}&horizon=60&level=paper&t=-3")
    at(page, 0, 60)
    expect(page.locator(".notices")).to_contain_text("no moment of a run with t=-3")


@pytest.mark.parametrize("policy", ["ucb", "thompson"])
def test_the_total_on_the_page_is_the_total_of_the_run(visit: Visits, policy: str) -> None:
    address = FOUR.replace("policy=ucb", f"policy={policy}")
    page = visit().enter(f"/stage?{address}&horizon=80&level=strict")
    at(page, 0, 80)
    page.keyboard.press("End")
    at(page, 80, 80)
    expect(page.locator(".log")).to_contain_text("The end")
    record = posse.run(
        posse.Samba(policy=policy, means=(0.38, 0.55, 0.47, 0.71), seed=7, horizon=80)
    )
    shown = page.locator(".reward .headline").inner_text()
    assert float(shown.split(";")[0].split()[0].replace(",", "")) == float(record.total[0])
    pulls = [
        int(text.split("/")[1]) for text in page.locator(".party.row .under").all_text_contents()
    ]
    assert pulls == [int(one) for one in record.pulls[0]]
    for name in ("Forward", "Play", "Run to the end"):
        expect(page.get_by_role("button", name=re.compile(f"^{name}"))).to_be_disabled()
    press(page, "Keep this run")
    expect(page.locator(".notices")).to_contain_text("Kept as")


def test_messages_are_shown_as_the_observer_has_them(visit: Visits) -> None:
    page = visit().enter(f"/stage?{FOUR}&horizon=60&level=paper&t=20")
    at(page, 20, 60)
    page.get_by_role("radio", name="step", exact=True).click()
    for _ in range(2):
        press(page, "Forward")
    cards = page.locator(".message")
    by_comp = page.get_by_role("radiogroup", name="seen by").get_by_role("radio", name="comp")
    expect(by_comp).to_have_attribute("aria-checked", "true")
    sent = cards.filter(has_text=re.compile("controller → comp")).first
    expect(sent.locator(".bytes")).to_be_visible()
    hidden = cards.filter(has_text=re.compile("(Mill|Harbour|Green|Station) → controller")).first
    expect(hidden).to_contain_text("nothing arrives")
    expect(hidden.locator(".bytes")).to_have_count(0)
    bytes_shown = sent.locator(".bytes .run").all_inner_texts()
    assert re.fullmatch(r"([0-9a-f]{2} ?)+( … [\d,]+ more)?", bytes_shown[0])
    observers = page.get_by_role("radiogroup", name="seen by")
    observers.get_by_role(
        "radio", name="owner"
    ).click()  # who of them is said, and it alone is ringed
    expect(cards.first).to_contain_text("what Mill (data owner) sees of it")
    expect(page.locator(".party.observer")).to_have_count(1)
    expect(page.locator('[data-party="owner-1"].observer')).to_be_visible()
    assert (
        "owner-" not in page.locator("#panel-messages").inner_text()
    )  # parties have the names of the stage
    page.get_by_role("radio", name="wire", exact=True).click()
    expect(page.locator(".bytes")).to_have_count(0)
    expect(cards.first).to_contain_text("bytes")
    page.get_by_role("radiogroup", name="seen by").get_by_role("radio", name="controller").click()
    expect(hidden.locator(".bytes")).to_be_visible()


def test_a_selected_message_is_the_same_event_everywhere(visit: Visits) -> None:
    page = visit().enter(f"/stage?{FOUR}&horizon=60&level=paper&t=20")
    at(page, 20, 60)
    card = page.locator(".message").nth(3)
    card.locator(".pick").click()
    expect(card).to_have_class(re.compile("selected"))
    expect(page.locator(".link.marked")).to_have_count(1)
    sender = card.locator(".pick").inner_text().split(" → ")[0]
    expect(page.locator(".log .who").first).to_have_text(sender)
    expect(page.locator(".code .ran").first).to_be_attached()
    page.keyboard.press("Escape")
    expect(card).not_to_have_class(re.compile("selected"))


def test_code_with_the_lines_that_ran_and_the_real_source(visit: Visits) -> None:
    page = visit().enter(f"/stage?{FOUR}&horizon=60&level=paper&t=20")
    at(page, 20, 60)
    page.get_by_role("tab", name="Code").click()
    panel = page.get_by_role("tabpanel", name="Code")
    expect(panel.locator(".ran").first).to_be_visible()
    panel.get_by_role("radio", name="comp").click()
    expect(panel.get_by_role("radio", name="comp")).to_have_attribute("aria-checked", "true")
    panel.get_by_role("button", name="Real source").click()
    expect(panel.locator(".code")).to_contain_text("class ")
    expect(panel.locator(".note")).to_contain_text(".py")


def test_a_party_says_what_it_knows(visit: Visits) -> None:
    page = visit(allowed="ERR_FAILED").enter(f"/stage?{FOUR}&horizon=60&level=strict&t=10")
    at(page, 10, 60)
    page.locator('[data-party="comp"]').click()
    card = page.get_by_role("region", name="About a party")
    expect(card).to_contain_text("comp knows")
    expect(card).to_contain_text("its state now")
    page.keyboard.press("Escape")
    page.locator('[data-party="comp"]').click()  # again, at the same moment
    expect(card).to_contain_text("its state now")
    page.keyboard.press("Escape")
    page.route(
        "**/party/controller", lambda route: route.abort(), times=1
    )  # a first answer may be lost
    page.locator('[data-party="controller"]').click()
    expect(card).to_contain_text("its state now")
    page.keyboard.press("Escape")
    page.locator('[data-party="owner-1"]').focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(card).to_contain_text("Harbour knows")
    card.get_by_role("button", name="See messages as Harbour").click()
    expect(page.get_by_role("radio", name="Harbour")).to_have_attribute("aria-checked", "true")
    card.get_by_role("button", name="Close").click()


@pytest.mark.parametrize("size", ["wide", "phone"])
def test_what_is_said_of_a_party_stays_while_the_pointer_does(visit: Visits, size: str) -> None:
    page = visit(size).enter(f"/stage?{FOUR}&horizon=60&level=paper&paillier_bits=2048&t=10")
    at(page, 10, 60)
    card = page.get_by_role("region", name="About a party")
    page.evaluate("""() => {
        window.flips = 0;
        const card = document.querySelector('.knows');
        new MutationObserver(() => window.flips++).observe(card, { attributeFilter: ['hidden'] });
    }""")
    for party in page.locator(".party").all():
        party.hover()
        expect(card).to_be_visible()
        flips = page.evaluate("window.flips")
        page.evaluate("""() => new Promise(done => {
            let pictures = 12;
            const next = () => pictures-- > 0 ? requestAnimationFrame(next) : done();
            next();
        })""")
        assert page.evaluate("window.flips") == flips, party.get_attribute("data-party")
        page.mouse.move(1, 1)


def test_the_keyboard_stays_at_a_party_when_the_stage_changes_its_size(visit: Visits) -> None:
    page = visit().enter(f"/stage?{FOUR}&horizon=60&level=paper&t=10")
    at(page, 10, 60)
    party = page.locator('[data-party="owner-2"]')
    party.focus()
    before = party.bounding_box()
    page.set_viewport_size({"width": 1100, "height": 800})
    page.wait_for_function(
        "was => document.querySelector('[data-party=owner-2]').getBoundingClientRect().x !== was",
        arg=before["x"],
    )
    expect(party).to_be_focused()
    expect(party).to_have_attribute("tabindex", "0")
    expect(page.get_by_role("region", name="About a party")).to_contain_text("knows")


def test_found_out_and_cost_are_measured(visit: Visits) -> None:
    page = visit().enter(f"/stage?{FOUR}&horizon=60&level=paper&paillier_bits=2048&t=50")
    at(page, 50, 60)
    page.get_by_role("tab", name="Found out").click()
    panel = page.get_by_role("tabpanel", name="Found out")
    expect(panel.locator("tbody tr, .stated li").first).to_be_visible(timeout=300_000)
    expect(panel.locator(".note").first).not_to_be_empty()
    panel.get_by_text("Who sees what, by message").click()
    expect(panel.get_by_role("row", name="cumulative reward")).to_contain_text("Paillier")
    expect(page.locator(".cost .bars li").first).to_be_visible()
    page.get_by_text("Messages and bytes").click()
    expect(page.locator(".cost details tbody tr").first).to_be_visible()
    page.get_by_role("button", name="Measure what each protection adds").click()
    expect(page.locator(".measured tbody tr").nth(1)).to_be_visible(timeout=300_000)


def test_the_address_holds_the_moment(visit: Visits) -> None:
    page = visit().enter(f"/stage?{FOUR}&horizon=60&level=paper&t=20")
    at(page, 20, 60)
    press(page, "Forward")
    at(page, 21, 60)
    page.wait_for_function("() => /[?&]t=21&m=\\d+/.test(location.hash)")
    address, said = page.evaluate("location.hash"), page.locator(".stepname").inner_text()
    other = visit().enter(address.removeprefix("#"))
    at(other, 21, 60)
    expect(other.locator(".stepname")).to_have_text(said)
    expect(other.locator(".party.row").nth(1)).to_have_attribute(
        "aria-label", re.compile("^Harbour: ")
    )
    expect(other.get_by_label("Horizon")).to_have_value("60")
    assert (
        other.locator(".party.row .name").all_text_contents()
        == page.locator(".party.row .name").all_text_contents()
    )


OTHERS = {
    "mpc-contextual": "system=mpc-contextual&data=digits&rows=60&horizon=20&t=4",
    "dp-combinatorial": "system=dp-combinatorial&agents=5&producers=8&horizon=60&start=10&delta=0.01&t=11",
    "fed-contextual": "system=fed-contextual&data=digits&clients=12&horizon=6&cohort=4&t=4",
}


@pytest.mark.parametrize("system", list(OTHERS))
def test_another_system_stands_on_the_same_stage(visit: Visits, system: str) -> None:
    """Its parties by their labels, its figures, its code, and a sentence about what happened
    last.
    """
    page = visit().enter(f"/stage?{OTHERS[system]}")
    expect(page.locator(".log p")).to_contain_text(
        re.compile(r"\w+ (sends|reports|opens|shows|returns|takes|tells|compares)")
    )
    labels = {
        "mpc-contextual": "Laboratory",
        "dp-combinatorial": "Harbour Market",
        "fed-contextual": "server",
    }
    expect(
        page.get_by_text(labels[system], exact=True).locator("visible=true").first
    ).to_be_visible()
    over = """() => { const all = [...document.querySelectorAll('.pill rect')].map(one => one.getBoundingClientRect());
        return all.filter((a, i) => all.slice(i + 1).some(b => a.left < b.right && b.left < a.right && a.top < b.bottom
            && b.top < a.bottom)).length; }"""
    assert page.evaluate(over) == 0  # no label covers another
    page.get_by_role("tab", name="Code").click()
    expect(page.get_by_role("tabpanel", name="Code").locator("li").first).to_be_visible()
