"""Every code and rule of an error is on a page of docs/errors.

After a change of a rule: POSSE_SNAPSHOTS=write, and run this file once.
"""

from __future__ import annotations

import os
import re
from itertools import groupby
from pathlib import Path

import pytest

from posse.cli import app
from posse.core import errors
from posse.core.check import between, one_of, positive
from posse.core.errors import ConfigError, PosseError
from posse.core.settings import _PROBLEMS
from tests.kit.stated_rules import rules

DOCS = Path(__file__).parents[1] / "docs"
PAGES = DOCS / "errors"
HEADING = "## Rules\n"
CLASSES = [
    each
    for each in vars(errors).values()
    if isinstance(each, type) and issubclass(each, PosseError) and not each.__name__.startswith("_")
]


def page_of(code: str) -> Path:
    """The page of a code's family."""
    return DOCS.parent / errors.page_of(code)


def write_pages() -> None:
    """Write the tables of rules anew; what is above them stays."""
    by_page = groupby(rules(), key=lambda rule: page_of(rule.code))
    tables = {path: {rule.name: rule for rule in stated} for path, stated in by_page}
    for path in sorted(PAGES.glob("P*.md")):
        stated = tables.get(path, {})
        lines = ["| rule | code | message |", "|---|---|---|"] if stated else ["None yet."]
        lines += [f"| `{name}` | {rule.code} | {rule.text} |" for name, rule in stated.items()]
        kept = path.read_text(encoding="utf-8").partition(HEADING)[0]
        path.write_text(f"{kept}{HEADING}\n" + "\n".join(lines) + "\n", encoding="utf-8")


def test_every_rule_is_on_the_page_of_its_family() -> None:
    if os.environ.get("POSSE_SNAPSHOTS") == "write":
        write_pages()
    stated = rules()
    assert len(stated) > 70
    for rule in stated:
        assert f"`{rule.name}`" in page_of(rule.code).read_text(encoding="utf-8"), (
            f"{rule.name}: POSSE_SNAPSHOTS=write pytest tests/{Path(__file__).name} adds it"
        )


@pytest.mark.parametrize("error", CLASSES, ids=lambda error: error.__name__)
def test_every_code_is_on_its_page_with_its_exit_code(error: type[PosseError]) -> None:
    assert f"\n| {error.code} | {error.exit_code} |" in page_of(error.code).read_text("utf-8")
    assert f"{page_of(error.code).name})" in (PAGES / "index.md").read_text("utf-8")


def test_rules_that_settings_and_validators_make_are_on_the_page_of_settings() -> None:
    text = page_of("P100").read_text(encoding="utf-8")
    for call in (
        lambda: positive(tau=0.0),
        lambda: positive(tau=float("nan")),
        lambda: between(0, 1, tau=2.0),
        lambda: one_of(("a",), tau="b"),
    ):
        with pytest.raises(ConfigError) as caught:
            call()
        assert f"{caught.value.rule.split('.')[-1]}`" in text
    for word in (*_PROBLEMS.values(), "invalid"):
        assert f"{word}`" in text, word


def test_exit_codes_of_the_command_line_are_documented() -> None:
    text = (PAGES / "index.md").read_text(encoding="utf-8")
    for code in re.findall(r"^\| (\d+) \|", app.__doc__ or "", re.MULTILINE):
        assert re.search(rf"^\| {code} \||; {code} is", text, re.MULTILINE), code
