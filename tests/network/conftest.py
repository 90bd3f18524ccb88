"""A store for tests of the network, and what is not collected.

The fuzzing program is no test: it needs atheris and rewrites the decoders it drives.
"""

from __future__ import annotations

from pathlib import Path

import pytest

collect_ignore = ["fuzz_decoders.py"]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a store of the test's own."""
    monkeypatch.setenv("POSSE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"
