"""Where small faults can be made in a source, a seeded sample of them, and a source with switches
around some.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOMS = ("systems", "privacy", "runtime")
LEFT_OUT = re.compile(r"/(attacks|scene|leakage|flower)/|/(attacks|scene|scenes)\.py$")
"""Pictures and attacks explain what is there; what they say has tests of its own kind."""
_FLIPPED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
PROBE = """
import os
PASSED, ON, WHERE = set(), int(os.environ.get("POSSE_FAULT", -1)), os.environ.get("POSSE_PASSED", "")
def fault(number):
    if number not in PASSED:
        PASSED.add(number)
        if WHERE:
            try:
                open(os.path.join(WHERE, str(number)), "w").close()
            except OSError:
                pass
    return number == ON
"""
Place = tuple[str, int, str, int]
"""File, number of the fault in it, kind, line."""


def faults(tree: ast.Module) -> Iterator[tuple[str, int, ast.AST]]:
    """Give every place where a fault can be made: its kind, its line and its node."""
    quiet = {
        id(node)
        for each in ast.walk(tree)
        if isinstance(each, ast.Raise | ast.Assert)
        for node in ast.walk(each)
    }
    for parent in ast.walk(tree):
        if (
            isinstance(parent, ast.If)
            and isinstance(parent.test, ast.Name)
            and parent.test.id == "TYPE_CHECKING"
        ):
            quiet |= {id(node) for node in ast.walk(parent)}
    for node in ast.walk(tree):
        if id(node) in quiet:
            continue
        if isinstance(node, ast.Compare) and type(node.ops[0]) in _FLIPPED:
            yield "flipped comparison", node.lineno, node
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            yield "dropped call", node.lineno, node
        elif isinstance(node, ast.If | ast.While | ast.IfExp):
            yield "condition never true", node.lineno, node
        elif (
            isinstance(node, ast.BinOp)
            and isinstance(node.right, ast.Constant)
            and type(node.right.value) is int
        ):
            yield "changed constant", node.lineno, node


def sample(count: int, seed: int, root: Path) -> list[Place]:
    """Draw faults, every place equally likely: file, number, kind and line."""
    places, alike = [], Counter[str]()
    for path in sorted((root / "src" / "posse").rglob("*.py")):
        name, source = path.relative_to(root).as_posix(), path.read_text()
        if name.split("/")[2] in ROOMS and not LEFT_OUT.search(name):
            lines = source.splitlines()
            for number, (kind, line, _) in enumerate(faults(ast.parse(source))):
                what = f"{seed} {name} {kind} {lines[line - 1].strip()}"
                alike[what] += 1
                rank = hashlib.sha256(f"{what} {alike[what]}".encode()).digest()
                places.append((rank, (name, number, kind, line)))
    return [place for _, place in sorted(places)[:count]]


class _Switches(ast.NodeTransformer):
    """Put switches around some nodes; a switch of None is always on."""

    def __init__(self, numbers: dict[int, int | None]) -> None:
        self._numbers = numbers

    def visit(self, node: ast.AST) -> Any:
        self.generic_visit(node)
        if id(node) not in self._numbers:
            return node
        number = self._numbers[id(node)]
        on: ast.expr = (
            ast.Constant(True)
            if number is None
            else ast.parse(f"_posse_fault({number})", mode="eval").body
        )
        if isinstance(node, ast.Compare):
            flipped = ast.Compare(
                node.left, [_FLIPPED[type(node.ops[0])](), *node.ops[1:]], node.comparators
            )
            return flipped if number is None else ast.IfExp(on, flipped, node)
        if isinstance(node, ast.Expr):
            return ast.If(on, [ast.Pass()], [node])
        if isinstance(node, ast.If | ast.While | ast.IfExp):
            node.test = (
                ast.Constant(False)
                if number is None
                else ast.IfExp(on, ast.Constant(False), node.test)
            )
        elif (
            isinstance(node, ast.BinOp)
            and isinstance(node.right, ast.Constant)
            and isinstance(node.right.value, int)
        ):
            more = ast.Constant(node.right.value + 1)
            node.right = more if number is None else ast.IfExp(on, more, node.right)
        return node


def switched(source: str, numbers: dict[int, int | None]) -> str:
    """Return a source with a switch around each of these faults (fault -> number of its switch,
    None: always on).
    """
    tree = ast.parse(source)
    places = list(faults(tree))
    tree = _Switches({id(places[fault][2]): number for fault, number in numbers.items()}).visit(
        tree
    )
    first = next(
        at
        for at, node in enumerate(tree.body)
        if not (isinstance(node, ast.Expr) or _of_future(node))
    )
    tree.body[first:first] = ast.parse("from posse._faults import fault as _posse_fault").body
    return ast.unparse(ast.fix_missing_locations(tree))


def _of_future(node: ast.AST) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"


def compiled(source: str) -> bool:
    """Whether numba compiles functions of a module: what they call must be compiled too, and a
    switch is not.
    """
    return "posse.core.compiled" in source
