"""A party whose disk fails stops with one clear error, the others wait; with a disk that works the
run goes on.
"""

from __future__ import annotations

import asyncio
import errno

import pytest

from posse.core.errors import JournalError
from posse.systems.registry import run
from posse.systems.samba.settings import Samba
from tests.kit.federations import laid_out, opened
from tests.network.disks import FailingDisk

BUDGET = 30
FAULTS = {
    "disk full": {"kind": "write", "error": errno.ENOSPC},
    "nearly full": {"kind": "write", "part": True},
    "broken": {"kind": "sync", "error": errno.EIO},
    "no snapshot": {"kind": "rename", "error": errno.EIO},
}
NAMES = ("controller", "comp", "customer", "clinic-2")


def failing(folder, name, fault, after, *, times=1):
    """Run a federation in which one party's disk fails `times` times; return total, pulls and the
    errors.
    """
    paths = {path.stem: path for path in laid_out(folder, budget=BUDGET, sync=True)}
    notes, errors = [], []

    def made(stem, disk=None):
        party = opened(paths[stem], notes, **({} if disk is None else {"disk": disk}))
        # Small enough for snapshots in a short run; the customer takes in five messages in all.
        party.engine._snapshot_bytes = 600 if stem == "customer" else 2_000
        return party

    async def all_of_them():
        parties = {stem: made(stem) for stem in paths if stem != name}
        others = asyncio.gather(*(party.run() for party in parties.values()))
        try:
            for _ in range(times):
                party = made(name, FailingDisk(after=after, **FAULTS[fault]))
                try:
                    with pytest.raises(JournalError) as caught:
                        await asyncio.wait_for(party.run(), 240)
                finally:
                    party.engine._journal.close()
                errors.append(str(caught.value))
                await asyncio.sleep(0.05)
                assert not others.done()  # they wait
            parties[name] = made(name)
            await asyncio.wait_for(asyncio.gather(others, parties[name].run()), 240)
        finally:
            others.cancel()
        return [parties[stem] for stem in paths]

    parties = asyncio.run(all_of_them())
    for party in parties:
        party.engine._journal.close()
    (total,) = {note.value for note in notes if note.kind == "total"}
    pulls = [
        party.engine.role.state()["pulls"] for party in parties if party.engine.role.kind == "owner"
    ]
    return total, pulls, errors


def check(folder, name, fault, after, **how):
    total, pulls, errors = failing(folder, name, fault, after, **how)
    plain = run(Samba(policy="ucb", owners=3, budget=BUDGET, seed=7, level="paper").plain())
    assert plain.total == (total,)
    assert plain.pulls.tolist() == [pulls]
    for error in errors:
        assert "cannot be kept" in error
        assert "\n" not in error


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", NAMES)
def test_every_party_in_turn(tmp_path, name, fault):
    check(tmp_path, name, fault, 0 if fault == "no snapshot" else 2)


WRITES = {
    "controller": (0, 1, 3, 17, 40),
    "comp": (0, 1, 3, 17, 25),
    "customer": (0, 1, 2),
    "clinic-2": (0, 3, 8),
}
SNAPSHOTS = {"controller": (0, 1), "comp": (0, 1), "customer": (0,), "clinic-2": (0,)}


def points(name, fault):
    """Calls that a short run is sure to make: how often it waits for the disk depends on the
    machine.
    """
    return {"no snapshot": SNAPSHOTS[name], "broken": (0, 1, 2)}.get(fault, WRITES[name])


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "fault", "after"),
    [(name, fault, after) for name in NAMES for fault in FAULTS for after in points(name, fault)],
)
def test_at_many_points(tmp_path, name, fault, after):
    check(tmp_path, name, fault, after)


def test_a_disk_that_fails_again_and_again(tmp_path):
    check(tmp_path, "clinic-2", "disk full", 6, times=3)
