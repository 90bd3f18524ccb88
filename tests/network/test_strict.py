"""Level `strict` over mutual TLS on loopback: the plain run's result, and a dealer that is late,
dead, back again.
"""

from __future__ import annotations

import asyncio
import shutil

import pytest

from posse.core.errors import ConfigError
from posse.privacy.sharing import shuffle
from posse.runtime.place import open_place
from posse.systems import registry
from posse.systems.samba.deploy import build
from posse.systems.samba.layout import layout
from posse.systems.samba.settings import Samba
from posse.systems.samba.strict import controller as strict_controller
from tests.kit.federations import laid_out, opened, run, settled, until

VALUES = {"level": "strict", "sync": True, "budget": 60}


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    """The dealer is asked every other pass."""
    monkeypatch.setattr(shuffle, "_CHUNK", 48)
    for module in (shuffle, strict_controller):
        monkeypatch.setattr(module, "PAIRS", 16)


@pytest.mark.parametrize("policy", ["ucb", "epsilon-greedy", "pursuit"])
def test_the_total_and_all_pulls_are_the_plain_runs(tmp_path, policy):
    total, owners = run(tmp_path, **VALUES, policy=policy)
    plain = registry.run(Samba(policy=policy, owners=3, budget=60, seed=7).plain())
    assert (total,) == plain.total
    assert [pulls for pulls, _ in owners] == plain.pulls[0].tolist()


def test_a_budget_of_one_pull_each_ends(tmp_path):
    """There is nothing to compare, and the total is asked for all the same."""
    total, owners = run(tmp_path, **{**VALUES, "budget": 3})
    assert (total,) == registry.run(Samba(policy="ucb", owners=3, budget=3, seed=7).plain()).total
    assert [pulls for pulls, _ in owners] == [1, 1, 1]


def test_a_dealer_that_is_late_dies_and_comes_back(tmp_path):
    """The others wait for it, whatever it was doing; randomness is dealt once, and the result is
    the plain one.
    """
    paths = {path.stem: path for path in laid_out(tmp_path, **VALUES)}
    plain = registry.run(Samba(policy="ucb", owners=3, budget=60, seed=7).plain())
    notes = []

    async def play():
        others = [opened(path, notes) for name, path in paths.items() if name != "dealer"]
        running = asyncio.gather(*(party.run() for party in others))
        controller = next(party for party in others if party.engine.role.name == "controller")
        await until(lambda: len(controller.connections) == len(others) - 1)
        await settled(others)
        assert controller.engine.role.state()["step"] == 0
        lives = 0
        while not running.done():
            dealer = opened(paths["dealer"])
            life = asyncio.create_task(dealer.run())
            lives += 1
            reached = controller.engine.role.state()["step"]
            while not running.done() and controller.engine.role.state()["step"] < reached + 12:
                await asyncio.sleep(0.005)
            if not running.done() and controller.engine.role.state()["step"] < 50:
                dealer.stop()
                await life
                dealer.engine.close()
                continue
            await asyncio.wait_for(running, 240)
            await asyncio.wait_for(life, 240)
        return lives

    lives = asyncio.run(play())
    assert lives >= 3
    assert [note.value for note in notes if note.kind == "total"] == list(plain.total)


@pytest.mark.parametrize("name", ["clinic-2", "comp", "dealer", "controller"])
def test_a_rolled_back_journal_is_refused(tmp_path, name):
    """A party that is taken back in time would use randomness twice: the controller refuses it, and
    all the controller.
    """
    paths = {path.stem: path for path in laid_out(tmp_path, **{**VALUES, "budget": 20_000})}
    journal, old = tmp_path / name / "journal", tmp_path / "old"

    async def play():
        others = [opened(path) for other, path in paths.items() if other != name]
        tasks = [asyncio.create_task(party.run()) for party in others]
        witness = "comp" if name == "controller" else "controller"
        controller = next(party for party in others if party.engine.role.name == witness)

        async def live(step):
            party = opened(paths[name])
            task = asyncio.create_task(party.run())
            await until(lambda: controller.engine.role.state()["step"] >= step)
            taken = party.engine.links[witness].received
            await until(
                lambda: controller.engine.links[name].durable_there >= taken
            )  # the witness knows its disk
            party.stop()
            await task
            party.engine.close()

        await live(15)
        shutil.copytree(journal, old)
        await live(60)
        shutil.rmtree(journal)
        shutil.copytree(old, journal)
        await settled(
            others
        )  # what the others had on its way, and what the dealer had dealt ahead, is used up
        reached = controller.engine.role.state()["step"]
        party = opened(paths[name])
        task = asyncio.create_task(party.run())
        await until(
            lambda: "older copy" in f"{controller.troubles.get(name)} {party.troubles.get(witness)}"
        )
        said = f"{controller.troubles.get(name)} {party.troubles.get(witness)}"
        await settled(others)
        moved = controller.engine.role.state()["step"] - reached
        for each in (party, *others):
            each.stop()
        await asyncio.gather(task, *tasks)
        for each in (party, *others):
            each.engine.close()
        return said, moved

    said, moved = asyncio.run(play())
    assert "set back to an older copy" in said
    assert moved == 0


def test_files_without_a_level_are_refused_with_the_lines_to_add(tmp_path):
    values = {
        "run": "trial-1",
        "budget": 60,
        "policy": "ucb",
        "owner": [{"name": "a"}, {"name": "b"}],
        "world": {"seed": 7, "owners": 2},
    }
    with pytest.raises(ConfigError, match='level = "strict"') as raised:
        layout(dict(values), tmp_path)
    assert "dealer" in raised.value.text
    (owner,) = [path for path in laid_out(tmp_path, **VALUES) if path.stem == "clinic-1"]
    owner.write_text(
        "\n".join(line for line in owner.read_text().splitlines() if not line.startswith("level"))
    )
    with pytest.raises(ConfigError, match='level = "strict"'):
        build(open_place(owner))


def test_the_dealer_has_no_part_at_other_levels_and_no_other_name(tmp_path):
    paths = {path.stem: path for path in laid_out(tmp_path / "one", **VALUES)}
    assert set(paths) == {
        "controller",
        "comp",
        "customer",
        "dealer",
        "clinic-1",
        "clinic-2",
        "clinic-3",
    }
    text = paths["dealer"].read_text()
    paths["dealer"].write_text(text.replace('level = "strict"', 'level = "paper"'))
    with pytest.raises(ConfigError, match="no role 'dealer' at level 'paper'"):
        build(open_place(paths["dealer"]))
    with pytest.raises(ConfigError, match="dealer"):
        layout({**_file(), "owner": [{"name": "dealer"}, {"name": "b"}]}, tmp_path)


def _file():
    return {
        "run": "trial-1",
        "level": "strict",
        "budget": 60,
        "policy": "ucb",
        "world": {"seed": 7, "owners": 2},
    }


def test_an_owner_waits_for_the_disk(tmp_path):
    paths = {path.stem: path for path in laid_out(tmp_path, **{**VALUES, "sync": False})}
    with pytest.raises(ConfigError, match="sync"):
        build(open_place(paths["clinic-1"]))
    with pytest.raises(ConfigError, match="sync"):  # before anything is written
        layout({**_file(), "owner": [{"name": "a"}, {"name": "b"}], "sync": False}, tmp_path)


def test_a_policy_with_its_own_choice_is_refused(tmp_path):
    values = {
        **_file(),
        "owner": [{"name": "a"}, {"name": "b"}],
        "policy": "tests.kit.policies:SecondBest",
    }
    with pytest.raises(ConfigError, match="Use level 'paper'"):
        layout(values, tmp_path)
