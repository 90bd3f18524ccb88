"""Parties whose files differ all stop and say so; corrected, they go on, and the run ends right."""

from __future__ import annotations

import asyncio

import pytest

from posse.core.errors import DisagreementError, JournalError
from posse.protocols.registry import run
from posse.protocols.samba.settings import Samba
from tests.network import test_mesh
from tests.network.federations import laid_out, opened, run_all


def edit(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


async def all_stop(paths, open_=opened):
    """Run everyone until everyone has stopped; return what each says."""
    parties = [open_(path) for path in paths]
    ends = await asyncio.wait_for(asyncio.gather(*(party.run() for party in parties), return_exceptions=True), 60)
    for party in parties:
        party.engine._journal.close()
    return {path.stem: end for path, end in zip(paths, ends, strict=True)}


@pytest.mark.parametrize(
    ("who", "old", "wrong"),
    [
        ("clinic-2", 'policy = "ucb"', 'policy = "thompson"'),
        ("clinic-2", 'policy = "ucb"', 'policy = "ucb"\ncoefficient = 1.5'),
        ("controller", 'level = "standard"', 'level = "paper"'),
        ("comp", 'policy = "ucb"', 'policy = "softmax"'),
        ("customer", 'policy = "ucb"', 'policy = "softmax"'),
    ],
)
def test_everyone_stops_and_goes_on_once_the_file_is_corrected(tmp_path, who, old, wrong):
    paths = laid_out(tmp_path, budget=40)
    edit(tmp_path / f"{who}.toml", old, wrong)
    for name, end in asyncio.run(all_stop(paths)).items():
        assert isinstance(end, DisagreementError), (name, end)
        assert "Correct" in str(end)
        assert "\n" not in str(end)
        assert wrong.split('"')[1] in str(end) or "coefficient" in str(end)
    edit(tmp_path / f"{who}.toml", wrong, old)
    notes = []
    asyncio.run(again(paths, notes))
    (total,) = [note.value for note in notes if note.kind == "total"]
    assert run(Samba(policy="ucb", owners=3, budget=40, seed=7).plain()).total == (total,)


async def again(paths, notes):
    await run_all([opened(path, notes) for path in paths])


def test_who_comes_late_is_told_and_who_starts_again_uncorrected_too(tmp_path):
    paths = laid_out(tmp_path, budget=40)
    edit(tmp_path / "clinic-2.toml", 'policy = "ucb"', 'policy = "thompson"')

    async def go():
        parties = {path.stem: opened(path) for path in paths if path.stem != "clinic-1"}
        running = [asyncio.create_task(party.run()) for party in parties.values()]
        await asyncio.sleep(0.3)
        assert not any(task.done() for task in running)  # nobody can say anything before all have joined
        parties["clinic-1"] = opened(tmp_path / "clinic-1.toml")
        ends = await asyncio.wait_for(asyncio.gather(*running, parties["clinic-1"].run(), return_exceptions=True), 60)
        for party in parties.values():
            party.engine._journal.close()
        return ends

    assert [type(end) for end in asyncio.run(go())] == [DisagreementError] * len(paths)
    assert {type(end) for end in asyncio.run(all_stop(paths)).values()} == {DisagreementError}


def test_terms_that_were_agreed_on_are_not_changed_by_editing_a_file(tmp_path):
    """The controller has signed; it neither goes on with other terms nor waits for ever."""
    paths = laid_out(tmp_path, budget=40)
    edit(tmp_path / "clinic-2.toml", 'policy = "ucb"', 'policy = "thompson"')
    asyncio.run(all_stop(paths))
    edit(tmp_path / "controller.toml", 'policy = "ucb"', 'policy = "thompson"')

    async def go():
        return opened(tmp_path / "controller.toml")

    with pytest.raises(JournalError, match=r"agreed to other terms .* begin a new run"):
        asyncio.run(go())


def test_the_same_holds_for_a_market(tmp_path):
    """Nothing of the refused agreement is kept: the corrected file goes on from the same folders."""
    paths = test_mesh.federation(tmp_path)
    edit(tmp_path / "agent-3.toml", "horizon = 120", "horizon = 60")
    for name, end in asyncio.run(all_stop(paths, test_mesh.opened)).items():
        assert isinstance(end, DisagreementError), (name, end)
        assert "\n" not in str(end)
        assert "start" in str(end)
    edit(tmp_path / "agent-3.toml", "horizon = 60", "horizon = 120")

    async def go():
        parties = [test_mesh.opened(path) for path in paths]
        await run_all(parties)
        return parties

    test_mesh.check(asyncio.run(go()), *test_mesh.expected())
