"""The set-up in a browser: forms from the schema, refused settings, a file of one's own, crowds of
every size.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.browser.studio import FOUR, Visits

playwright = pytest.importorskip("playwright.sync_api")
expect = playwright.expect
expect.set_options(timeout=300_000)

CSV = "item,rating\n" + "".join(
    f"{name},{1 + (i * k) % 5}\n" for k, name in enumerate("abc", 1) for i in range(20)
)


def start(page: Any) -> None:
    page.get_by_role("button", name=re.compile("^Start")).click()


def drop(page: Any, name: str, text: str) -> None:
    """Drop a file on the page."""
    make = (
        "([name, text]) => { const data = new DataTransfer(); data.items.add(new File([text], "
        "name)); return data; }"
    )
    dropped = page.evaluate_handle(make, [name, text])
    page.dispatch_event("body", "dragover", {"dataTransfer": dropped})
    page.dispatch_event("body", "drop", {"dataTransfer": dropped})


def test_a_policy_brings_its_parameters_and_a_wrong_value_says_why(visit: Visits) -> None:
    page = visit().enter(f"/stage?{FOUR}&horizon=60&level=paper")
    expect(page.locator(".place")).to_have_text("t = 0 of 60")
    expect(page.get_by_label("Coefficient")).to_be_visible()
    page.get_by_label("Policy").select_option("softmax")
    expect(page.get_by_label("Coefficient")).to_be_hidden()
    page.get_by_label("Tau").fill("0.2")
    page.get_by_label("Horizon").fill("-5")
    page.get_by_label("Horizon").blur()
    wrong = page.locator("[data-field=horizon] .error")
    expect(wrong).to_be_visible()
    assert "-5" in wrong.inner_text()
    expect(page.get_by_label("Horizon")).to_have_attribute("aria-invalid", "true")
    expect(page.get_by_role("button", name="Start with these settings")).to_be_disabled()
    page.get_by_label("Horizon").fill("90")
    page.get_by_label("Horizon").blur()
    expect(wrong).to_be_hidden()
    page.get_by_role("radiogroup", name="level").get_by_role("radio", name="paper").click()
    expect(page.get_by_role("button", name="Start with these settings")).to_be_enabled()
    start(page)
    expect(page.locator(".place")).to_have_text("t = 0 of 90")
    page.wait_for_function(
        "() => location.hash.includes('tau=0.2') && location.hash.includes('level=paper')"
    )


def test_a_file_dropped_on_the_page_becomes_the_data(visit: Visits) -> None:
    page = visit().enter()
    expect(page.locator(".party").first).to_be_visible()
    drop(page, "mine.csv", CSV)
    expect(page.locator(".notices")).to_contain_text("mine.csv")
    expect(page.get_by_label("data", exact=True)).to_have_value(re.compile("^file:[0-9a-f]{64}$"))
    expect(page.locator("[data-field=threshold] .error")).to_be_visible()
    page.get_by_label("Threshold").fill("3")
    page.get_by_label("Threshold").blur()
    expect(page.locator("[data-field=threshold] .error")).to_be_hidden()
    expect(page.get_by_role("button", name="Start with these settings")).to_be_enabled()
    expect(page.locator(".histogram .no")).to_have_count(
        3
    )  # what is not above the threshold pays nothing
    page.get_by_label("Threshold").fill("4")
    page.get_by_label("Threshold").blur()
    expect(page.locator(".histogram .no")).to_have_count(4)
    expect(page.locator(".preview")).to_contain_text("mine.csv; ratings above 4")
    start(page)
    expect(page.locator(".party.row")).to_have_count(3)
    page.wait_for_function("() => location.hash.includes('data=file:')")


def test_what_is_wrong_with_a_file_stands_beside_data_with_its_name(visit: Visits) -> None:
    page = visit(allowed="400").enter(f"/stage?{FOUR}&horizon=60")
    expect(page.locator(".place")).to_have_text("t = 0 of 60")
    drop(page, "stores.csv", "store,stars,age,area\nMill,3,40,north\n")
    wrong = page.locator("[data-field=data] .error")
    expect(wrong).to_contain_text(re.compile("^stores.csv: expected columns item,rating"))
    assert wrong.evaluate("one => one.scrollWidth <= one.clientWidth")
    expect(page.locator("[data-field=means] .error")).to_be_hidden()
    drop(page, "x.bin", "\0")
    expect(wrong).to_have_text(re.compile("^x.bin: the file is empty or no text"))


def test_a_file_that_is_not_here_is_named(visit: Visits) -> None:
    page = visit(allowed="400").enter(f"/stage?system=samba&data=file:{'0' * 64}&horizon=50")
    expect(page.locator("[data-field=data] .error")).to_contain_text("000000000000")


@pytest.mark.parametrize(("count", "shape"), [(12, "row"), (20, "chip"), (100, "cell")])
def test_crowds_of_every_size_are_drawn(visit: Visits, count: int, shape: str) -> None:
    page = visit().enter(
        f"/stage?system=samba&owners={count}&horizon=400&level=paper&t={count + 3}"
    )
    expect(page.locator(f".party.{shape}")).to_have_count(count)
    expect(page.locator(".place")).to_have_text(f"t = {count + 3} of 400")
    expect(page.locator(f".party.{shape}.chosen")).to_have_count(1)
    page.locator('[data-party="owner-7"]').hover()
    expect(page.get_by_role("region", name="About a party")).to_be_visible()
    if shape == "cell":
        expect(page.locator(".named")).not_to_be_empty()


def test_the_preview_shows_what_one_place_would_read(visit: Visits) -> None:
    page = visit().enter(
        "/stage?system=samba&policy=thompson&data=invented:stores&where=age<40&horizon=60"
    )
    expect(page.locator(".place")).to_have_text("t = 0 of 60")
    page.get_by_text("What one place would read").click()
    expect(page.locator(".central tbody tr").first).to_be_visible()
    assert page.locator(".central th").all_text_contents()[0] == "user"


def test_a_level_of_which_something_is_off_says_so(visit: Visits) -> None:
    page = visit().enter(f"/stage?{FOUR}&horizon=60&level=paper&aes=false&mask=false")
    expect(page.locator(".setup .level")).to_have_text(re.compile("^paper, aes.* off"))


def test_every_system_stands_on_the_stage_without_its_own_code(visit: Visits) -> None:
    page = visit().enter()
    expect(page.locator(".party").first).to_be_visible()
    names = (
        page.get_by_label("System", exact=True)
        .locator("option")
        .evaluate_all("all => all.map(one => one.value)")
    )
    assert len(names) >= 4
    for name in names[1:]:
        page.get_by_label("System", exact=True).select_option(name)
        page.wait_for_function(f"() => location.hash.includes('system={name}')")
        expect(page.locator(".transport .play")).to_be_enabled(timeout=300_000)
