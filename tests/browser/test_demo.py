"""The published web demo: its two scenarios can be played here, and six known faults of it are not
repeated.
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


def scenario(page: Any, name: str) -> None:
    page.get_by_label("Scenario").select_option(name)
    page.wait_for_function(
        "name => new URLSearchParams(location.hash.split('?')[1]).get('scenario') === name",
        arg=name,
    )
    expect(page.get_by_role("button", name="Start again")).to_be_enabled()


def switch(page: Any, name: str) -> None:
    page.get_by_label(name, exact=True).check()
    page.get_by_role("button", name="Start with these settings").click()
    page.wait_for_function(f"() => !location.hash.includes('{name}=false')")


def seen_by_comp(page: Any, time: int) -> Any:
    """Go on to a time and return the messages that comp gets."""
    page.get_by_role("slider", name="time").fill(str(time))
    at(page, time, 400)
    page.get_by_role("radiogroup", name="seen by").get_by_role("radio", name="comp").click()
    found = page.locator(".message").filter(has_text=re.compile("→ comp"))
    expect(found.locator(".bytes").first).to_be_visible()
    return found.first


def test_the_first_scenario_begins_naively_and_adds_protections_one_by_one(visit: Visits) -> None:
    """Scores in the clear are seen by comp; each switch takes something away from it."""
    page = visit().enter()
    expect(page.locator(".party").first).to_be_visible()
    scenario(page, "A naive federation")
    page.get_by_label("unit of forward, back and play").get_by_text("step").click()
    naive = seen_by_comp(page, 40)
    expect(naive.locator(".p-clear").first).to_be_visible()
    expect(naive.locator(".p-mask, .p-permutation, .p-aes")).to_have_count(0)
    page.get_by_role("tab", name="Found out").click()
    panel = page.get_by_role("tabpanel", name="Found out")
    panel.get_by_role("button", name=re.compile("^Try")).click()
    expect(panel.locator(".verdict.bad").first).to_have_text("finds it out")
    switch(page, "mask")
    page.get_by_role("tab", name="Messages").click()
    masked = seen_by_comp(page, 40)
    expect(masked.locator(".p-mask").first).to_be_visible()


def test_preprocessing_in_one_place_shows_what_that_place_sees(visit: Visits) -> None:
    """A filter on invented users, by age; at owners only a mean leaves, in one place every row is
    seen.
    """
    page = visit().enter()
    expect(page.locator(".party").first).to_be_visible()
    scenario(page, "Preprocessing in one place")
    expect(page.get_by_label("where")).to_have_value("age<40")
    expect(page.locator(".preview")).to_contain_text(re.compile("neighbourhood"))
    arms = page.locator(".preview summary").first
    before = arms.inner_text()
    page.get_by_text("What is learnt").click()
    page.get_by_label("where").fill("age>=40,neighbourhood=Harbour")
    page.get_by_label("where").blur()
    expect(arms).not_to_have_text(before)


def test_the_second_scenario_compares_rewards_times_and_protection(visit: Visits) -> None:
    page = visit().enter(f"/stage?{FOUR}&horizon=60&level=paper&paillier_bits=2048&t=60")
    at(page, 60, 60)
    page.get_by_role("button", name="Measure what each protection adds").click()
    measured = page.locator(".measured tbody tr")
    expect(measured.nth(2)).to_be_visible()
    expect(page.locator(".measured")).to_contain_text("CPU time of its roles")
    expect(page.locator(".measured")).to_contain_text("Theorem 4")
    expect(page.locator(".cost .legend button")).to_have_count(measured.count() + 1)
    page.get_by_role("button", name="Keep this run").click()
    expect(page.locator(".notices")).to_contain_text("Kept as")


# Six known faults ---------------------------------------------------------------------------------


def test_a_data_set_is_the_one_that_its_name_says(visit: Visits) -> None:
    page = visit().enter(f"/stage?{FOUR}&horizon=60")
    data = page.get_by_label("data", exact=True)
    expect(data).to_have_value("")
    expect(page.locator("[data-field=data]")).to_contain_text("means of your own")
    expect(data.locator("option[value=steam-reviews]")).to_have_count(1)
    expect(data.locator("option[value=steam-hours]")).to_have_count(1)
    expect(data.locator("option[value=steam]")).to_have_count(0)
    data.select_option("embedded:jester")
    expect(page.locator(".preview")).to_contain_text("jester")
    page.get_by_role("button", name="Start with these settings").click()
    page.wait_for_function(
        "() => location.hash.includes('data=embedded:jester') && !location.hash.includes('means')"
    )


def test_what_a_mask_costs_is_measured_by_running_without_it(visit: Visits) -> None:
    page = visit().enter(f"/stage?{FOUR}&horizon=60&level=paper&paillier_bits=2048&t=10")
    at(page, 10, 60)
    seen = []
    for _ in range(2):
        with page.expect_response(re.compile("/cost$")) as waiting:
            page.get_by_role("button", name="Measure what each protection adds").click()
        seen.append({row["name"]: row["seconds"] for row in waiting.value.json()["rows"]})
        expect(page.get_by_role("button", name="Measure what each protection adds")).to_be_enabled()
    assert any("mask" in name for name in seen[0])
    assert seen[0] != seen[1], "a formula gives the same figure twice"


def test_the_last_step_is_made_and_no_other(visit: Visits) -> None:
    page = visit().enter(f"/stage?{FOUR}&horizon=31&level=paper&t=30")
    at(page, 30, 31)
    page.keyboard.press("ArrowRight")
    at(page, 31, 31)
    page.keyboard.press("End")
    expect(page.locator(".log")).to_contain_text("The end")
    pulls = [
        int(text.split("/")[1]) for text in page.locator(".party.row .under").all_text_contents()
    ]
    record = posse.run(
        posse.Samba(policy="ucb", means=(0.38, 0.55, 0.47, 0.71), seed=7, horizon=31, level="paper")
    )
    assert sum(pulls) == 31
    assert pulls == [int(one) for one in record.pulls[0]]


def test_a_jump_to_before_every_arm_was_pulled_ends(visit: Visits) -> None:
    """The first pulls, one an owner, are one moment: there is nothing between it and the
    beginning.
    """
    page = visit().enter("/stage?system=samba&owners=20&horizon=60&level=paper&t=40")
    at(page, 40, 60)
    for time, reached in ((7, 20), (0, 0), (19, 20), (0, 0), (3, 20)):
        page.get_by_role("slider", name="time").fill(str(time))
        at(page, reached, 60)
        expect(page.get_by_role("button", name="Play", exact=True)).to_be_enabled()


@pytest.mark.parametrize(("owners", "shape"), [(4, "row"), (20, "chip"), (60, "cell")])
def test_a_click_on_an_owner_opens_what_it_knows(visit: Visits, owners: int, shape: str) -> None:
    page = visit().enter(
        f"/stage?system=samba&owners={owners}&horizon=200&level=paper&t={owners + 2}"
    )
    at(page, owners + 2, 200)
    for name in ("owner-1", f"owner-{owners}"):
        page.locator(f'.party.{shape}[data-party="{name}"]').click()
        card = page.get_by_role("region", name="About a party")
        expect(card).to_contain_text("its state now")
        page.keyboard.press("Escape")


def test_history_stays_after_a_reload(visit: Visits) -> None:
    page = visit().enter(f"/stage?{FOUR}&horizon=40&level=paper&t=40")
    at(page, 40, 40)
    page.get_by_role("button", name="Keep this run").click()
    expect(page.locator(".notices")).to_contain_text("Kept as")
    page.get_by_role("link", name="Runs").click()
    rows = page.locator(".ledger tbody tr")
    expect(rows.first).to_be_visible()
    count = rows.count()
    page.reload()
    expect(rows).to_have_count(count)
