"""What the tests of reproductions share: a call of `python -m reproduction` in this process."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NamedTuple

import pytest

from reproduction.__main__ import main


class Outcome(NamedTuple):
    """What a call gave."""

    code: int
    out: str
    err: str


Reproduce = Callable[..., Outcome]


@pytest.fixture
def reproduce(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Reproduce:
    """Call a command."""

    def call(*words: str, columns: int = 200) -> Outcome:
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setattr(sys, "argv", ["python -m reproduction", *words])
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            main()
        return Outcome(int(left.value.code or 0), *capsys.readouterr())

    return call
