"""The numeric core runs on a machine that has numpy and jax and nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from posse.problems.populations.prepared import save
from tests.systems.fed_contextual.toys import population

PROGRAM = """
import sys

BLOCKED = {"numba", "pydantic", "msgspec", "cryptography", "scipy", "typer", "rich", "gmpy2", "flwr", "sklearn"}

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in BLOCKED:
            raise ImportError(f"{name} is not on a bare machine")

sys.meta_path.insert(0, Refuse())

import posse.policies.contextual.explorations
import posse.problems.populations
import posse.problems.populations.prepared
import posse.problems.populations.worlds
from posse.systems.fed_contextual import jobs, study
from posse.systems.fed_contextual.computing import client
from posse.systems.fed_contextual.computing import cohorts
from posse.systems.fed_contextual.computing import models
from posse.systems.fed_contextual.computing import rounds
from posse.systems.fed_contextual.computing import server
from posse.systems.fed_contextual.computing import tasks
from posse.systems.fed_contextual.computing import training

assert not BLOCKED & set(sys.modules), BLOCKED & set(sys.modules)
sys.exit(study.main(sys.argv[1:]))
"""


def test_a_study_runs_on_a_bare_machine(tmp_path: Path) -> None:
    save(population(), tmp_path / "toy.npz")
    (tmp_path / "jobs.json").write_text(json.dumps([{"name": "line", "rounds": 2, "cohort": 4}]))
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            PROGRAM,
            "--data",
            str(tmp_path / "toy.npz"),
            "--jobs",
            str(tmp_path / "jobs.json"),
            "--out",
            str(tmp_path / "out"),
        ],
        env=os.environ | {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "line.npz").exists()
