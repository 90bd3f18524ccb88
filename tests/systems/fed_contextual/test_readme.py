"""The example of the system's page runs."""

from __future__ import annotations

import doctest
from pathlib import Path

PAGE = Path(__file__).resolve().parents[3] / "docs/systems/fed-contextual.md"


def test_the_example_of_the_page_runs() -> None:
    found = doctest.testfile(str(PAGE), module_relative=False)
    assert found.attempted == 11
    assert found.failed == 0
