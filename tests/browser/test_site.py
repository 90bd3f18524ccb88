"""The documentation as a site: built strictly, and read in a browser, on a desk and on a phone."""

from __future__ import annotations

import functools
import http.server
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.studio import SIZES

pytest.importorskip("mkdocs", reason="the site is not tested: mkdocs is not installed")
ROOT = Path(__file__).resolve().parents[2]
PAGES = (
    "",
    "quickstart.html",
    "faq.html",
    "systems/samba.html",
    "tutorials/fed-contextual.html",
    "threats.html",
    "reference/settings.html",
    "examples/index.html",
)


QUESTIONS = {
    "how do I install it": "quickstart.html#install",
    "use my own table": "quickstart.html#your-own-table",
    "arm with few ratings is best": "faq.html#why-did-an-arm-with-three-ratings-win",
    "are these numbers real or simulated": "faq.html#which-numbers-are-simulated",
    "meaning of epsilon": "faq.html#what-does-epsilon-mean-here",
    "what does the dealer see": "faq.html#what-does-the-dealer-see",
    "stop a run before the end": "faq.html#can-i-stop-early",
    "different total every time": "faq.html#why-is-the-total-different-each-time",
    "what can other shops find out about us": "faq.html#what-can-a-shop-infer-about-the-others",
    "how much slower than a plain bandit": "faq.html#how-much-does-protection-cost",
    "write a custom policy": "faq.html#can-i-use-my-own-policy",
    "log of past decisions": "faq.html#i-only-have-a-log-of-past-decisions-what-can-i-do",
    "which system is mine": "index.html#which-system-is-mine",
    "level strict or paper": "concepts.html#levels-who-must-collude-to-read-a-run",
    "three organisations on different machines": "organisations.html",
    "party was killed, how do I start it again": "faq.html#what-happens-when-a-party-fails",
    "backup of keys": "operations.html",
    "android phone": "devices.html",
    "security audit": "security.html",
    "upgrade from 0.1": "upgrade.html",
}
"""What new users type, and the page or section that answers it."""
HITS = """[...document.querySelectorAll(".md-search-result__item")].slice(0, 3).map(
    item => [...item.querySelectorAll("a")].map(link => link.href.replace(/[?][^#]*/, ""))
)"""
"""Addresses in each of the first three hits: the page, then its sections."""


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def folder(chrome: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--quiet",
        "--site-dir",
        str(folder),
    ]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def site(folder: Path) -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder))
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("size", SIZES)
def test_pages_load_nothing_from_elsewhere_and_fit_the_screen(
    site: str, chrome: Any, size: str
) -> None:
    wide, high = SIZES[size]
    context = chrome.new_context(viewport={"width": wide, "height": high})
    outside: list[str] = []
    context.on(
        "request",
        lambda request: None if request.url.startswith(site) else outside.append(request.url),
    )
    page = context.new_page()
    page.set_default_timeout(180_000)  # a busy machine is slow
    for place in PAGES:
        assert page.goto(site + place).status == 200
        page.locator("h1").first.wait_for()
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, place
        broken = "[...document.images].filter(i => !i.complete || !i.naturalWidth).map(i => i.src)"
        page.wait_for_function(f"{broken}.length === 0")
    context.close()
    assert outside == []


def test_examples_of_docstrings_are_code_and_pages_of_systems_have_one_source(
    site: str, chrome: Any
) -> None:
    page = chrome.new_page()
    page.set_default_timeout(180_000)
    page.goto(site + "reference/index.html")
    assert page.locator("code", has_text=">>> bar = Bar()").count() == 1
    page.goto(site + "threats.html")
    heads = page.locator("h2").all_inner_texts()
    assert [head.split("\n")[0].rstrip("¶") for head in heads] == [
        "dp-combinatorial",
        "fed-contextual",
        "mpc-contextual",
        "samba",
    ]
    page.close()


def test_the_site_is_read_and_searched_from_disk(folder: Path, chrome: Any) -> None:
    """As `make docs` announces it: site/index.html, opened without a server."""
    context = chrome.new_context(viewport={"width": 1280, "height": 900})
    outside: list[str] = []
    context.on(
        "request",
        lambda one: None if one.url.startswith(folder.as_uri()) else outside.append(one.url),
    )
    page = context.new_page()
    page.set_default_timeout(180_000)
    page.goto((folder / "index.html").as_uri())
    page.locator(".md-tabs__link", has_text="Quick start").click()
    page.wait_for_url("**/quickstart.html")
    assert "Quick start" in page.locator("h1").first.inner_text()
    page.locator(".md-search__input").fill("Paillier")
    found = page.locator(".md-search-result__link").first
    found.wait_for()
    assert ".html" in str(found.get_attribute("href"))
    context.close()
    assert [url for url in outside if not url.startswith("about:")] == []


def test_the_search_answers_questions_of_new_users_in_its_first_three_hits(
    folder: Path, chrome: Any
) -> None:
    """From disk, in the search box of the built site."""
    page = chrome.new_page()
    page.set_default_timeout(180_000)
    page.goto((folder / "quickstart.html").as_uri())
    box, result = page.locator(".md-search__input"), page.locator(".md-search-result__item")
    box.fill("Paillier")
    result.first.wait_for()
    missed = {}
    for question, place in QUESTIONS.items():
        box.fill("")
        box.press("End")  # the page reads the box when a key is released
        result.first.wait_for(state="detached")
        box.fill(question)
        box.press("End")
        result.first.wait_for()
        hits = page.evaluate(HITS)
        target = f"{folder.as_uri()}/{place}"
        if not any(link.startswith(target) for hit in hits for link in hit):
            missed[question] = [hit[0] for hit in hits]
    page.close()
    assert missed == {}
