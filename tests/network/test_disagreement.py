"""A party that was started for something else stops and says so; corrected, it goes on, and the run ends right."""

from __future__ import annotations

import asyncio

import pytest

from posse.core.errors import DisagreementError
from posse.protocols.registry import run
from posse.protocols.samba.settings import Samba
from tests.network.federations import laid_out, opened


@pytest.mark.parametrize(
    ("wrong", "said"), [('policy = "thompson"', "policy"), ('policy = "ucb"\ncoefficient = 1.5', "policy")]
)
def test_a_wrong_file_can_be_corrected(tmp_path, wrong, said):
    paths, notes = laid_out(tmp_path, budget=40), []
    path = tmp_path / "clinic-2.toml"
    right = path.read_text()
    path.write_text(right.replace('policy = "ucb"', wrong))
    assert path.read_text() != right

    async def go():
        parties = {each.stem: opened(each, notes) for each in paths}
        running = {name: asyncio.create_task(party.run()) for name, party in parties.items()}
        with pytest.raises(DisagreementError, match=said):
            await asyncio.wait_for(running.pop("clinic-2"), 60)
        parties["clinic-2"].engine._journal.close()
        path.write_text(right)
        again = opened(path, notes)
        await asyncio.wait_for(asyncio.gather(again.run(), *running.values()), 60)

    asyncio.run(go())
    (total,) = [note.value for note in notes if note.kind == "total"]
    assert run(Samba(policy="ucb", owners=3, budget=40, seed=7).plain()).total == (total,)
