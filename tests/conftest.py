"""What tests share: where real data lies, and where compiled code is kept."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings

REPOSITORY = Path(__file__).resolve().parents[1]

# What JAX compiles is kept on disk, as numba's code is: workers and the processes that tests start share it.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(REPOSITORY / ".jax_cache"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "0")

# A busy machine is slow at everything: no test fails for the time it took.
hypothesis_settings.register_profile("posse", deadline=None, suppress_health_check=[HealthCheck.too_slow])
hypothesis_settings.load_profile("posse")


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of real data sets: POSSE_DATA, or shared/data beside the repository."""
    path = Path(os.environ["POSSE_DATA"]) if "POSSE_DATA" in os.environ else REPOSITORY.parent / "shared" / "data"
    if not path.is_dir():
        pytest.skip(f"no data sets at {path}; set POSSE_DATA to the folder that holds them")
    return path
