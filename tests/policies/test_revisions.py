"""Policies that ship are identified by their revision, custom ones by their source."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from posse.policies.arms import shipped
from posse.policies.arms.registry import POLICIES
from posse.policies.arms.shipped import UCB
from posse.policies.contextual import explorations
from posse.policies.contextual.explorations import EXPLORATIONS
from posse.policies.own import Revision, load

SUBCLASS = """
from dataclasses import dataclass

from {module} import UCB


@dataclass(frozen=True)
class Wider(UCB):
    coefficient: float = {coefficient}
"""


@pytest.fixture(autouse=True)
def modules(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)


def laid_out_anew(module: Any) -> str:
    """Write a module of the package again with another layout; return its name."""
    name = f"{module.__name__.rpartition('.')[2]}_anew"
    text = Path(module.__file__).read_text()
    Path(f"{name}.py").write_text(text.replace("\n\n", "\n\n    # another comment\n\n"))
    return name


def digest(kind: Any) -> str:
    return str(kind().describe()["digest"])


@pytest.mark.parametrize(("module", "kinds"), [(shipped, POLICIES), (explorations, EXPLORATIONS)])
def test_another_layout_changes_no_digest_and_another_revision_does(
    module: Any, kinds: Any
) -> None:
    name, digests = laid_out_anew(module), {digest(kind) for kind in kinds.values()}
    assert len(digests) == len(kinds)
    for kind in kinds.values():
        assert digest(load(f"{name}:{kind.__name__}")) == digest(kind)
        later = type(kind.__name__, (kind,), {"revision": Revision(2, kind.revision.first)})
        assert digest(later) not in digests


def test_a_custom_subclass_is_identified_by_its_own_source() -> None:
    """It does not inherit the revision, and the layout of what it inherits does not count."""

    def subclass(name: str, module: str, coefficient: float) -> str:
        Path(f"{name}.py").write_text(SUBCLASS.format(module=module, coefficient=coefficient))
        return digest(load(f"{name}:Wider"))

    own = subclass("one", shipped.__name__, 3.0)
    assert own != digest(UCB)
    assert subclass("two", laid_out_anew(shipped), 3.0) == own
    assert subclass("three", shipped.__name__, 4.0) != own
