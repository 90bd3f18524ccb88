"""Where arms go: a file that keeps each step once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from posse.core.errors import DataError
from posse.protocols.mpc_contextual.outside import ArmLog


def pull(log: ArmLog, *pulls: tuple[int, int]) -> None:
    async def all_of_them() -> None:
        for step, arm in pulls:
            await log(step, arm)

    asyncio.run(all_of_them())


def test_a_step_is_written_once_also_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "arms.csv"
    pull(ArmLog(path, "spring"), (0, 3), (1, 2))
    pull(ArmLog(path, "spring"), (1, 2), (0, 3), (2, 0))
    assert path.read_text() == "run,step,arm\nspring,0,3\nspring,1,2\nspring,2,0\n"


def test_a_torn_line_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "arms.csv"
    path.write_text("run,step,arm\nspring,0,3\nspri")
    pull(ArmLog(path, "spring"), (1, 2))
    assert path.read_text() == "run,step,arm\nspring,0,3\nspring,1,2\n"


def test_another_run_and_another_arm_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "arms.csv"
    pull(ArmLog(path, "spring"), (0, 3))
    with pytest.raises(DataError, match="arms of run 'spring'"):
        pull(ArmLog(path, "summer"), (0, 1))
    with pytest.raises(DataError, match="has arm 3 for step 0"):
        pull(ArmLog(path, "spring"), (0, 1))
    assert path.read_text() == "run,step,arm\nspring,0,3\n"
