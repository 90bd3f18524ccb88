"""What 0.1 wrote of level `standard` of samba, which 0.2 does not have: runs open for reading, and
nothing of a federation changes when its parties are started.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.frozen import archive

DATA = Path(__file__).with_name("data")
REFUSAL = "level 'standard' was removed in Posse 0.2"


def call(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "POSSE_HOME": str(folder / "home"), "COLUMNS": "200"}
    return subprocess.run(
        [sys.executable, "-m", "posse", *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )


def refused(done: subprocess.CompletedProcess[str]) -> bool:
    return done.returncode == 2 and REFUSAL in done.stderr and "with Posse 0.1" in done.stderr


def contents(folder: Path) -> dict[str, str]:
    """Digests of all files but locks, which say nothing of a run."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "lock"
    }


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Parties in the middle of a run."""
    folder = tmp_path_factory.mktemp("standard") / "federation"
    return archive.unpack(DATA / "parties" / "samba-standard.zip", folder)


@pytest.mark.parametrize(
    "words",
    [
        *(("party", f"{name}.toml") for name in ("customer", "controller", "comp", "clinic-2")),
        ("up", "federation.toml"),
    ],
    ids=" ".join,
)
def test_a_federation_is_told_to_finish_with_0_1_and_stays_as_it_is(
    federation: Path, words: tuple[str, ...]
) -> None:
    before = contents(federation)
    assert refused(call(federation, *words))
    assert contents(federation) == before


def test_its_doctor_names_the_level_and_its_backup_is_made(federation: Path) -> None:
    examined = call(federation, "doctor", "comp.toml")
    assert examined.returncode == 1
    assert REFUSAL in " ".join(examined.stdout.split())
    assert call(federation, "backup", "comp.toml", "--out", "../comp.backup").returncode == 0


def test_a_stored_run_opens_for_reading_and_is_audited_with_0_1(tmp_path: Path) -> None:
    folder = archive.unpack(DATA / "stored.zip", tmp_path / "stored")
    run = json.loads((folder / "ids.json").read_text())["standard"]
    listed = json.loads(call(folder, "runs", "list", "--limit", "0", "--json").stdout)
    assert {row["level"] for row in listed if row["id"] == run} == {"standard"}
    assert json.loads(call(folder, "runs", "show", run, "--json").stdout)["level"] == "standard"
    assert call(folder, "runs", "report", run, "--out", "run.html").returncode == 0
    assert "standard" in (folder / "run.html").read_text()
    assert refused(call(folder, "audit", run))
