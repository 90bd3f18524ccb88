"""One browser, one server a module; a page on which anything goes wrong fails its test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the page is not tested: fastapi is not installed")
pytest.importorskip("playwright", reason="the page is not tested: playwright is not installed")

from playwright.sync_api import sync_playwright

from posse.systems.registry import systems
from tests.browser.studio import ARGS, CHROMIUM, SIZES, Studio, Visit, Visits


@pytest.fixture(scope="package")
def chrome() -> Iterator[Any]:
    """Debian's Chromium."""
    if CHROMIUM is None:
        pytest.skip(
            "the page is not tested: no Chromium is here (Debian: apt-get install chromium)"
        )
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(ARGS))
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def studio(chrome: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Studio]:
    """A studio with a store of its own."""
    with pytest.MonkeyPatch.context() as patch:
        home: Path = tmp_path_factory.mktemp("home")
        patch.setenv("POSSE_HOME", str(home))
        made = Studio(home / "studio")
        for (
            known
        ) in systems():  # what is imported for the first time is not part of any test's waiting
            known.Settings
        yield made
        made.stop()


@pytest.fixture
def visit(studio: Studio, chrome: Any) -> Iterator[Visits]:
    """Open a page: its size, colours, motion, whether it is a first visit, and errors that are
    meant to come.
    """
    made: list[Visit] = []

    def open_page(
        size: str = "wide",
        *,
        dark: bool = False,
        still: bool = True,
        first: bool = False,
        allowed: str = "",
        at: Studio | None = None,
    ) -> Visit:
        wide, high = SIZES[size]
        context = chrome.new_context(
            viewport={"width": wide, "height": high},
            color_scheme="dark" if dark else "light",
            reduced_motion="reduce" if still else "no-preference",
        )
        if not first:
            context.add_init_script("localStorage.setItem('posse-studio-tour', 'yes')")
        made.append(Visit(at or studio, context, allowed))
        return made[-1]

    yield open_page
    for one in made:
        one.context.close()
    assert [error for one in made for error in one.errors] == []
    assert [url for one in made for url in one.outside] == []
