"""How much work a run with a report is: the files of Posse that it enters, and the calls."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from types import FrameType

import pytest

import posse
from posse.core import compiled
from posse.systems.samba import twin
from tests.kit.commands import call

PACKAGE = f"{Path(posse.__file__).parent}/"
RUN = ("run", "samba", "--owners", "10", "--horizon", "200", "--report", "r.html")


class Counter:
    """Counts calls of functions of Posse, and the files that they are in."""

    def __init__(self) -> None:
        self.calls = 0
        self.files: dict[str, int] = {}

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        # Bodies of modules and classes run at import and are no calls.
        if event != "call" or not code.co_flags & inspect.CO_OPTIMIZED:
            return
        if code.co_filename.startswith(PACKAGE) and code.co_filename.endswith(".py"):
            self.calls += 1
            name = code.co_filename.removeprefix(PACKAGE)
            self.files[name] = self.files.get(name, 0) + 1


@pytest.fixture
def counter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Counter:
    monkeypatch.setenv("POSSE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    # The twin is compiled: interpreted functions make calls, as many as the machine has time for.
    compiled.stop_interpreting()
    monkeypatch.setattr(twin, "PATIENCE", 0.0)
    assert call(*RUN).code == 0  # compiles, imports and fills caches
    counter = Counter()
    sys.setprofile(counter)
    try:
        call(*RUN)
    finally:
        sys.setprofile(None)
    return counter


def test_a_run_with_a_report_enters_few_files_and_makes_few_calls(counter: Counter) -> None:
    results = [name for name in counter.files if name.startswith("results/")]
    assert "results/document.py" in results
    assert len(results) <= 12, sorted(results)
    assert sum(counter.files[name] for name in results) <= 8_200
    assert len(counter.files) <= 75, sorted(counter.files)
    assert counter.calls <= 66_000
