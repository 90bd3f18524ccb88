"""Rules of errors as the source states them: by code, with the message of each."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import posse
from posse.core import errors
from posse.core.errors import PosseError

SOURCE = Path(posse.__file__).parent


@dataclass(frozen=True, order=True)
class Rule:
    """A rule, the code of its error and its message; what is only known later is in capitals."""

    code: str
    name: str
    text: str


def rules() -> list[Rule]:
    """Return every rule that the source states, sorted."""
    stated = set()
    for path in SOURCE.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        stated.update(rule for node in ast.walk(tree) for rule in _rule_of(node))
    return sorted(stated)


def _rule_of(node: ast.AST) -> Iterator[Rule]:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        return
    if node.func.id == "Requirement":
        yield _rule_of_requirement(node)
        return
    checks = node.func.id == "ensure"  # of `core.check`: a condition, then the text
    error = errors.DataError if checks else vars(errors).get(node.func.id)
    names = [keyword.value for keyword in node.keywords if keyword.arg == "rule"]
    if not (isinstance(error, type) and issubclass(error, PosseError)) or not names:
        return
    name = _text(names[0])
    if name.startswith("...."):  # the room is that of the caller
        name = name.replace("...", "ROOM", 1)
    if "." in name:
        text = _text(node.args[int(checks)]) if node.args else ""
        yield Rule(error.code, name, " ".join(text.split()).replace("|", "\\|"))


def _rule_of_requirement(call: ast.Call) -> Rule:
    """Return the rule of an entry of a list: its rule, what must hold, its text, its error."""
    rule, _, text, *others = call.args
    classes = [*others, *(word.value for word in call.keywords if word.arg == "error")]
    names = [each.id for each in classes if isinstance(each, ast.Name)]
    error = vars(errors)[names[0] if names else "ConfigError"]
    assert isinstance(text, ast.Lambda)
    return Rule(error.code, _text(rule), " ".join(_text(text.body).split()).replace("|", "\\|"))


def _text(node: ast.expr) -> str:
    """Return a text; values that are filled in are named in capitals."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) for part in node.values)
    if isinstance(node, ast.FormattedValue):
        return _text(node.value)
    if isinstance(node, ast.Name):
        return node.id.upper()
    if isinstance(node, ast.Attribute):
        return node.attr.upper()
    if isinstance(node, ast.BinOp):
        return _text(node.left) + _text(node.right)
    return "..."
