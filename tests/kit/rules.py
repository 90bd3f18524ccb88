"""Rules of refusals: those that the source names, and mistakes of users that break them."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

import posse
from posse.core import errors
from posse.core.errors import PosseError, room_of

SOURCE = Path(posse.__file__).parent
CLASSES = {
    name: value
    for name, value in vars(errors).items()
    if isinstance(value, type) and issubclass(value, PosseError)
}
STATES_RULE = {*CLASSES, "Requirement", "ensure"}
"""Calls that state a rule: errors, entries of lists of requirements, and `core.check.ensure`."""


class Refusal(NamedTuple):
    """A place in the source that states the rule of an error."""

    where: str
    room: str
    rule: str | None
    """The rule if it is written out, "" if it is computed, None if there is none."""


def refusals(*patterns: str) -> Iterator[Refusal]:
    """Yield everything that makes an error in the files of the package that match a pattern."""
    for path in sorted(path for pattern in patterns for path in SOURCE.glob(pattern)):
        inner = path.relative_to(SOURCE)
        room = room_of(".".join(("posse", *inner.with_suffix("").parts)))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in STATES_RULE:
                yield Refusal(f"{inner}:{node.lineno}", room, _rule(node))


def _rule(call: ast.Call) -> str | None:
    if isinstance(call.func, ast.Name) and call.func.id == "Requirement":
        rule = call.args[0]
        return str(rule.value) if isinstance(rule, ast.Constant) else ""
    for word in call.keywords:
        if word.arg == "rule":
            return str(word.value.value) if isinstance(word.value, ast.Constant) else ""
    return None


def rules(*patterns: str) -> set[str]:
    """Return the rules that are written out in these files."""
    return {refusal.rule for refusal in refusals(*patterns) if refusal.rule}


@contextmanager
def refused(rule: str) -> Iterator[pytest.ExceptionInfo[PosseError]]:
    """Check that a rule is broken, with an error of one line."""
    with pytest.raises(PosseError) as caught:
        yield caught
    assert caught.value.rule == rule
    assert "\n" not in str(caught.value)


class Broken(NamedTuple):
    """A user's mistake, with the code and the field of the error that it causes."""

    code: str
    field: str
    mistake: Callable[[Path], object]


def check_broken(rule: str, broken: Broken, folder: Path) -> None:
    """Check that a mistake breaks exactly this rule."""
    with pytest.raises(PosseError) as caught:
        broken.mistake(folder)
    error = caught.value
    assert (error.code, error.rule, error.field) == (broken.code, rule, broken.field)
    assert "\n" not in str(error)
