"""What new users stumbled over: the first answer must not mislead."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from posse.core.errors import DataError, PolicyError
from posse.policies.arms.registry import policy
from posse.problems.tables.cells import number_fault
from posse.problems.tables.names import fit
from posse.results.audits import Audit
from posse.runtime.sources import SourceSettings

Call = Callable[..., Any]


def test_a_policy_with_parameters_that_is_no_dataclass_is_refused(tmp_path: Path) -> None:
    text = (
        "from dataclasses import dataclass\n"
        "from posse.policies import UCB\n\n\n"
        "{}class Mine(UCB):\n    width: float = 3.0\n"
    )
    plain, decorated = tmp_path / "plain_class.py", tmp_path / "data_class.py"
    plain.write_text(text.format(""))
    decorated.write_text(text.format("@dataclass(frozen=True)\n"))
    with pytest.raises(PolicyError) as caught:
        policy(f"{plain}:Mine")
    assert "width" in str(caught.value)
    assert "@dataclass" in str(caught.value)
    assert 3.0 in policy(f"{decorated}:Mine").parameters()


def test_an_audit_without_attacks_states_why_and_finds_nothing_fine() -> None:
    reasons = {"tracker": "it needs another policy"}
    audit = Audit(system="samba", protection="paper", rows=(), left_out=reasons)
    assert "it needs another policy" in audit.headline
    assert "none finds" not in audit.headline


def test_a_person_is_a_client_before_a_device() -> None:
    assert fit("user_id", "client") > fit("device", "client") > 0


def test_a_wrong_number_is_corrected_in_the_notation_of_the_file() -> None:
    assert "4,5" in number_fault("k", ",")[1]
    assert "4.5" in number_fault("k", ".")[1]


@pytest.mark.parametrize("kind", ["csv", "ratings"])
def test_a_source_reads_semicolons_and_drops_bad_rows(kind: str, tmp_path: Path) -> None:
    name = "reward" if kind == "csv" else "rating"
    (tmp_path / "own.csv").write_text("day;sold\n1;1\n2;missing?\n3;0\n4;1\n")
    settings = {"kind": kind, "file": "own.csv", "columns": f"{name}=sold"}
    with pytest.raises(DataError):
        SourceSettings.make(settings).known(tmp_path, 0.5)
    known = SourceSettings.make({**settings, "skip_bad": True}).known(tmp_path, 0.5)
    assert known is not None
    assert known.mean == pytest.approx(2 / 3)
    (tmp_path / "own.csv").write_text("day;sold\n1;1\n3;0\n")
    by_column = {"kind": kind, "file": "own.csv", "column": "sold"}
    known = SourceSettings.make(by_column).known(tmp_path, 0.5)
    assert known is not None
    assert known.mean == 0.5


def test_check_names_arms_that_cannot_be_told_apart_and_items_left_out(
    posse: Call, tmp_path: Path
) -> None:
    rows = ["item,rating"]
    for name, good in (("near", 20), ("nearer", 22), ("far", 3)):
        rows += [f"{name},{5 if i < good else 1}" for i in range(40)]
    rows.append("seldom,5")
    (tmp_path / "r.csv").write_text("\n".join(rows) + "\n")
    out = " ".join(posse("check", str(tmp_path / "r.csv")).out.split())
    rivals = out.partition("which is best: ")[2].partition(".")[0]
    assert set(rivals.split(" and ")) == {"near", "nearer"}
    assert "cannot be chosen: seldom" in out
