"""Where arms go: a file that keeps each step once; and answers that come at whole slots."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from posse.core.errors import ConfigError, DataError
from posse.core.roles import Ask, Message
from posse.systems.mpc_contextual.roles.messages import Earn, Earned
from posse.systems.mpc_contextual.roles.outside import ActSettings, ArmLog, Slotted
from posse.systems.mpc_contextual.settings import MpcContextual
from posse.systems.mpc_contextual.terms import leaks


def pull(log: ArmLog, *pulls: tuple[int, int]) -> None:
    async def all_of_them() -> None:
        for step, arm in pulls:
            await log(step, arm)

    asyncio.run(all_of_them())


def test_a_step_is_written_once_also_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "arms.csv"
    pull(ArmLog(path, "spring"), (0, 3), (1, 2))
    again = ActSettings(kind="csv", file=Path(path.name)).pull("spring", tmp_path)
    assert isinstance(again, ArmLog)
    pull(again, (1, 2), (0, 3), (2, 0))
    assert path.read_text() == "run,step,arm\nspring,0,3\nspring,1,2\nspring,2,0\n"


def test_a_torn_line_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "arms.csv"
    path.write_text("run,step,arm\nspring,0,3\nspri")
    pull(ArmLog(path, "spring"), (1, 2))
    assert path.read_text() == "run,step,arm\nspring,0,3\nspring,1,2\n"


def test_arms_reach_the_disk_where_there_is_no_fdatasync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on macOS."""
    path = tmp_path / "arms.csv"
    fsync = os.fsync
    synced: list[int] = []

    def note(descriptor: int) -> None:
        fsync(descriptor)
        synced.append(os.fstat(descriptor).st_size)

    monkeypatch.delattr(os, "fdatasync", raising=False)
    monkeypatch.setattr(os, "fsync", note)
    pull(ArmLog(path, "spring"), (0, 3))
    assert synced == [path.stat().st_size]
    assert path.read_text() == "run,step,arm\nspring,0,3\n"


def test_another_run_and_another_arm_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "arms.csv"
    pull(ArmLog(path, "spring"), (0, 3))
    with pytest.raises(DataError, match="arms of run 'spring'"):
        pull(ArmLog(path, "summer"), (0, 1))
    with pytest.raises(DataError, match="has arm 3 for step 0"):
        pull(ArmLog(path, "spring"), (0, 1))
    assert path.read_text() == "run,step,arm\nspring,0,3\n"


def test_a_function_gets_run_step_and_arm(tmp_path: Path) -> None:
    (tmp_path / "noted_pulls.py").write_text(
        "pulls = []\n\n\nasync def pull(*given):\n    pulls.append(given)\n"
    )
    source = ActSettings(kind="python", function="noted_pulls:pull").pull("spring", tmp_path)
    asyncio.run(source(2, 1))  # type: ignore[arg-type]
    assert sys.modules["noted_pulls"].pulls == [("spring", 2, 1)]


class Clock(asyncio.SelectorEventLoop):
    """A loop whose time passes by waiting alone: nothing is proved by how long a test takes."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def time(self) -> float:
        return self.now

    def _run_once(self) -> None:
        if not self._ready and self._scheduled:  # type: ignore[attr-defined]
            self.now = max(self.now, self._scheduled[0].when())  # type: ignore[attr-defined]
        super()._run_once()  # type: ignore[misc]


def answered(took: float, slot: float, jitter: float = 0.0) -> tuple[float, int]:
    """Return when an answer comes that took so many seconds, and how many overran their slot."""

    async def source(ask: Ask) -> Message:
        await asyncio.sleep(took)
        return Earned(0, 5)

    async def go() -> tuple[float, int]:
        held = Slotted(source, slot, jitter)
        assert await held(Earn("payee", 0)) == Earned(0, 5)
        return asyncio.get_running_loop().time(), held.overruns

    loop = Clock()
    try:
        return loop.run_until_complete(go())
    finally:
        loop.close()


def test_answers_come_at_whole_slots() -> None:
    assert {answered(took, 0.5) for took in (0.001, 0.1, 0.2, 0.49)} == {(0.5, 0)}
    assert answered(0.6, 0.5) == (1.0, 1)
    assert 0.2 <= answered(0.2, 0.0, 0.3)[0] <= 0.5
    assert 0.5 <= answered(0.2, 0.5, 0.3)[0] <= 0.8
    assert len({answered(0.2, 0.5, 0.3) for _ in range(20)}) > 1


def test_slots_are_terms_and_change_what_is_not_protected() -> None:
    plain, slotted, jittered = (
        MpcContextual(rows=50, **given).load().terms
        for given in ({}, {"slot": 0.5}, {"jitter": 0.1})
    )
    assert len({terms.digest() for terms in (plain, slotted, jittered)}) == 3
    said = ["".join(leaks(terms)) for terms in (plain, slotted, jittered)]
    assert "a reward that takes longer for some arms tells something" in said[0]
    assert "longer than the slot of 0.5 s tells something" in said[1]
    assert "behind a random wait of up to 0.1 s" in said[2]
    with pytest.raises(ConfigError, match="slot"):
        MpcContextual(rows=50, slot=-1).load()
