"""What tests share: where real data lies, and where compiled code is kept."""

from __future__ import annotations

import os
from importlib.metadata import version
from pathlib import Path

import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings

from tests import forks

REPOSITORY = Path(__file__).resolve().parents[1]

# Tests compile many small programs and run each for a moment: quick compiling costs a quarter. Its last bits may be
# others (equivalence/test_runs.py compiles as users do). A flag that a jaxlib does not know would end every process.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
if version("jaxlib").startswith("0.10."):
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1")
# What JAX compiles is kept on disk, as numba's code is: workers and the processes that tests start share it.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(REPOSITORY / ".jax_cache"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "0")

# A busy machine is slow at everything: no test fails for the time it took.
hypothesis_settings.register_profile("posse", deadline=None, suppress_health_check=[HealthCheck.too_slow])
hypothesis_settings.load_profile("posse")

forks.begin()


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes of this test begin in the usual way, with an interpreter of their own."""
    monkeypatch.setenv(forks.PLACE, "")


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of real data sets: POSSE_DATA, or shared/data beside the repository."""
    path = Path(os.environ["POSSE_DATA"]) if "POSSE_DATA" in os.environ else REPOSITORY.parent / "shared" / "data"
    if not path.is_dir():
        pytest.skip(f"no data sets at {path}; set POSSE_DATA to the folder that holds them")
    return path
