"""The example of the protocol's page runs."""

from __future__ import annotations

import doctest
from pathlib import Path

from posse.systems import fed_contextual

PAGE = Path(fed_contextual.__file__).with_name("README.md")


def test_the_example_of_the_page_runs() -> None:
    found = doctest.testfile(str(PAGE), module_relative=False)
    assert found.attempted == 11
    assert found.failed == 0
