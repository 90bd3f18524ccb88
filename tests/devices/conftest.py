"""What tests of devices share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def flower_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of Flower's for each test, and nothing reported."""
    monkeypatch.setenv("FLWR_HOME", str(tmp_path / "flower-home"))
    monkeypatch.setenv("FLWR_TELEMETRY_ENABLED", "0")
    monkeypatch.setenv("POSSE_HOME", str(tmp_path / "posse-home"))
    return tmp_path / "flower-home"
