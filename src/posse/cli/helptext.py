"""What a flag says about itself, taken from the settings it stands for.

A field's own words come first: its description, or the docstring below it. The parameters of policies are described by
the policies that have them. `_SAID` holds only what a model leaves unsaid.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from dataclasses import fields
from functools import cache
from itertools import pairwise

from posse.core.settings import Settings
from posse.policies.registry import POLICIES

_SAID = {
    "data": "embedded:movielens, embedded:jester, a data set (see 'posse problems') or a CSV file with columns "
    "name,mean or item,rating.",
    "data_dir": "Folder of the data sets; else the one that POSSE_DATA names.",
    "means": "The means themselves: --means 0.2,0.5,0.8.",
    "items": "An item of the data set to take as an arm; repeat it.",
    "policy": "How to choose (see 'posse policies').",
    "level": "Level of protection: 'standard', or 'paper' as published.",
    "aes": "AES-GCM on what owners send (can be off at level paper only).",
    "paillier": "Paillier on the sums (can be off at level paper only).",
    "permutation": "Permute the owners before comp sees scores (off at level paper only).",
    "mask": "Mask the scores that comp compares (off at level paper only).",
    "paillier_bits": "Size of the Paillier key.",
}

_PANELS = {"ProblemSettings": "What is learnt", "PolicySettings": "How to choose"}
_PROTECTION = ("level", "aes", "paillier", "permutation", "mask", "paillier_bits")


def help_of(model: type[Settings], name: str) -> str:
    """Give the help of one field; an empty string would be a gap that a test finds."""
    said = model.model_fields[name].description or _docstrings(model).get(name) or _SAID.get(name)
    return said or _of_policies(name)


def panel_of(model: type[Settings], name: str) -> str:
    """Give the heading under which a flag is listed: what it is about."""
    if name in _PROTECTION:
        return "Who may learn what"
    owner = next((cls for cls in reversed(model.__mro__) if name in inspect.get_annotations(cls)), model)
    return _PANELS.get(owner.__name__, "The run")


def _of_policies(name: str) -> str:
    """Say which policies have a parameter, and its default in each."""
    found = [
        f"{policy.name} (default {field.default})"
        for policy in POLICIES.values()
        for field in fields(policy)
        if field.name == name
    ]
    return f"Parameter of {', '.join(found)}." if found else ""


@cache
def _docstrings(model: type[Settings]) -> dict[str, str]:
    """Read the docstrings below the fields of a model and of the models it extends."""
    found: dict[str, str] = {}
    for cls in reversed(model.__mro__):
        if not issubclass(cls, Settings):
            continue
        try:
            (tree,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
        except (OSError, SyntaxError):  # an installation without sources has flags without these words
            continue
        for field, below in pairwise(getattr(tree, "body", [])):
            match field, below:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    found[name] = " ".join(text.split())
    return found
