"""What tests share: where real data lies."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of real data sets: POSSE_DATA, or shared/data beside the repository."""
    path = Path(os.environ["POSSE_DATA"]) if "POSSE_DATA" in os.environ else REPOSITORY.parent / "shared" / "data"
    if not path.is_dir():
        pytest.skip(f"no data sets at {path}; set POSSE_DATA to the folder that holds them")
    return path
