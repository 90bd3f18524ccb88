"""Guarantees and digests as numbers: privacy figures of docstrings, identities of built-in
policies, entry points.
"""

from __future__ import annotations

import ast
import doctest
import re
from collections import Counter
from pathlib import Path
from typing import Any

import posse

_FLOAT = re.compile(r"(?<![\w.])-?\d+\.\d+(?:e-?\d+)?(?![\w.])")
_ABOUT = re.compile(r"epsilon|delta|privacy", re.IGNORECASE)


def _docstrings(tree: ast.Module) -> list[str]:
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return [
        text
        for node in ast.walk(tree)
        if isinstance(node, kinds) and (text := ast.get_docstring(node))
    ]


def epsilons() -> dict[str, int]:
    """Count the numbers that examples about privacy print; names in examples, and where they stand,
    may change.
    """
    parser, found = doctest.DocTestParser(), Counter[str]()
    package = Path(posse.__file__).parent
    reproductions = Path(__file__).parents[2] / "reproduction"  # a part of the package in 0.1
    for path in sorted([*package.rglob("*.py"), *reproductions.rglob("*.py")]):
        text = path.read_text(encoding="utf-8")
        if ">>> " not in text or not _ABOUT.search(text):
            continue
        for docstring in _docstrings(ast.parse(text)):
            for example in parser.get_examples(docstring):
                if "Traceback" not in example.want:
                    found.update(_FLOAT.findall(example.want))
    return dict(found)


def figures() -> dict[str, Any]:
    """All of them."""
    from tests.frozen import adapter

    return {"epsilons": epsilons(), "policies": adapter.policies(), "outside": adapter.outside()}
