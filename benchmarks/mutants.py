"""Small faults in the code, one at a time, each against the tests that cover its module: which are found?

    python -m benchmarks.mutants [--sample 200] [--seed 1] [--most 40] [--minutes 60] [--out mutants.json]

A seeded sample of comparisons flipped, calls dropped, constants changed and conditions never true in `protocols`,
`privacy` and `runtime`. A fault is made in a copy of the source, never in place, and the tests that import its module
(directly first, then through one other module) run until one fails. Results go to a file after each, so a run that was
stopped goes on where it was. Survivors are listed with their line, to be read one by one.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("protocols", "privacy", "runtime")
LEFT_OUT = re.compile(r"/(attacks|scene|leakage|flower)/|/(attacks|scene|scenes)\.py$")
"""Pictures and attacks explain what is there; what they say has tests of its own kind."""
MOST_TESTS = 6
"""Test files that a fault meets at most, those that import its module directly first."""
PATIENCE = 240.0
"""Seconds for one test file; a fault that hangs it is found."""
_FLIPPED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip


def faults(tree: ast.Module) -> Iterator[tuple[str, int, ast.AST]]:
    """Give every place where a fault can be made: its kind, its line and its node."""
    quiet = {id(node) for each in ast.walk(tree) if isinstance(each, ast.Raise | ast.Assert) for node in ast.walk(each)}
    for parent in ast.walk(tree):
        if isinstance(parent, ast.If) and _is_typing(parent.test):
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
        elif isinstance(node, ast.BinOp) and isinstance(node.right, ast.Constant) and type(node.right.value) is int:
            yield "changed constant", node.lineno, node


def _is_typing(test: ast.AST) -> bool:
    return isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"


def made(source: str, number: int) -> str:
    """Return the source with fault `number` in it."""
    tree = ast.parse(source)
    node = list(faults(tree))[number][2]
    if isinstance(node, ast.Compare):
        node.ops[0] = _FLIPPED[type(node.ops[0])]()
    elif isinstance(node, ast.Expr):
        node.value = ast.Constant(None)
    elif isinstance(node, ast.If | ast.While | ast.IfExp):
        node.test = ast.Constant(False)
    elif isinstance(node, ast.BinOp) and isinstance(node.right, ast.Constant) and isinstance(node.right.value, int):
        node.right = ast.Constant(node.right.value + 1)
    return ast.unparse(ast.fix_missing_locations(tree))


def sample(count: int, seed: int) -> list[tuple[str, int, str, int]]:
    """Draw faults, every place equally likely: file, number, kind and line."""
    places = []
    for path in sorted((ROOT / "src" / "posse").rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        if name.split("/")[2] in ROOMS and not LEFT_OUT.search(name):
            found = faults(ast.parse(path.read_text()))
            places += [(name, number, kind, line) for number, (kind, line, _) in enumerate(found)]
    return random.Random(seed).sample(places, count)


def covering(name: str) -> list[str]:
    """Return the test files for a module: those that import it, then those that import a module that does."""
    module = name.removeprefix("src/").removesuffix(".py").replace("/", ".").removesuffix(".__init__")
    parent, _, leaf = module.rpartition(".")
    direct = re.compile(rf"{re.escape(module)}\b|from {re.escape(parent)} import [^\n]*\b{re.escape(leaf)}\b")
    tests = {
        path: path.read_text() for path in sorted((ROOT / "tests").rglob("test_*.py")) if "browser" not in path.parts
    }
    first = [path for path, text in tests.items() if direct.search(text)]
    users = [
        path.relative_to(ROOT / "src").with_suffix("").as_posix().replace("/", ".")
        for path in (ROOT / "src" / "posse").rglob("*.py") if direct.search(path.read_text())
    ]  # fmt: skip
    indirect = re.compile("|".join(rf"{re.escape(user)}\b" for user in users) or "$^")
    then = [path for path, text in tests.items() if path not in first and indirect.search(text)]
    near = parent.split(".")[-1]
    ranked = sorted(first, key=lambda path: (near not in path.as_posix(), path.stat().st_size))
    ranked += sorted(then, key=lambda path: (near not in path.as_posix(), path.stat().st_size))
    return [path.relative_to(ROOT).as_posix() for path in ranked[:MOST_TESTS]]


def found(name: str, number: int, tests: list[str], work: Path) -> str:
    """Make a fault in a copy of the source and return the test file that finds it; empty if none does."""
    target = work / name
    plain = target.read_text()
    target.write_text(made((ROOT / name).read_text(), number))
    try:
        failed = next((test for test in tests if not _passes(test, work)), "")
    finally:
        target.write_text(plain)
    if failed and not _sound.setdefault(failed, _passes(failed, work)):  # it fails without the fault too
        return found(name, number, tests[tests.index(failed) + 1 :], work)
    return failed


_sound: dict[str, bool] = {}
"""Whether test files pass without a fault, of those that found one."""


def _passes(test: str, work: Path) -> bool:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-m", "not long", "-p", "no:cacheprovider", test]
    environment = {**os.environ, "PYTHONPATH": str(work / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(command, cwd=work, env=environment, capture_output=True, timeout=PATIENCE)
        return done.returncode in (0, 5)
    except subprocess.TimeoutExpired:
        return False


def main() -> None:
    parser = argparse.ArgumentParser(description="Small faults, and the tests that find them.")
    parser.add_argument("--sample", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--most", type=int, default=None, help="try so many of the sample in this run")
    parser.add_argument("--minutes", type=float, default=240.0)
    parser.add_argument("--out", type=Path, default=ROOT / "mutants.json")
    given = parser.parse_args()
    os.nice(10)
    results = json.loads(given.out.read_text()) if given.out.exists() else {}
    drawn = sample(given.sample, given.seed)
    left = [each for each in drawn if _key(each) not in results][: given.most]
    end = time.monotonic() + 60 * given.minutes
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        for part in ("src", "tests", "benchmarks", "docs", "examples", "deploy"):
            shutil.copytree(ROOT / part, work / part, ignore=shutil.ignore_patterns("__pycache__"))
        for part in (
            "pyproject.toml",
            "conftest.py",
            "README.md",
            "LICENSE",
            "CHANGELOG.md",
            "CONTRIBUTING.md",
            "Makefile",
        ):
            shutil.copy(ROOT / part, work / part)
        for each in left:
            if time.monotonic() > end:
                break
            name, number, kind, line = each
            tests = covering(name)
            by = found(name, number, tests, work) if tests else ""
            results[_key(each)] = {"kind": kind, "line": line, "tests": tests, "found": by}
            given.out.write_text(json.dumps(results, indent=1))
            print(f"{'found' if by else 'SURVIVED':9}{kind:21}{name}:{line}  {by}", flush=True)
    tried = [results[_key(each)] for each in drawn if _key(each) in results]
    caught = sum(bool(each["found"]) for each in tried)
    print(f"\nfound {caught} of {len(tried)} tried, of a sample of {given.sample} (seed {given.seed})")
    for each in drawn:
        if _key(each) in results and not results[_key(each)]["found"]:
            print(f"  survived: {each[0]}:{each[3]} {each[2]}")


def _key(each: tuple[str, int, str, int]) -> str:
    return f"{each[0]}#{each[1]}"


if __name__ == "__main__":
    main()
