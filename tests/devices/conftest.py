"""Devices need Flower and jax."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'posse[flower]'")
pytest.importorskip("jax", reason="jax is not installed: pip install 'posse[contextual]'")
pytest.importorskip("sklearn", reason="scikit-learn is not installed: pip install 'posse[data]'")


@pytest.fixture(autouse=True)
def flower_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of Flower's for each test, and nothing reported."""
    monkeypatch.setenv("FLWR_HOME", str(tmp_path / "flower-home"))
    monkeypatch.setenv("FLWR_TELEMETRY_ENABLED", "0")
    return tmp_path / "flower-home"
