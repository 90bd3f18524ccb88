"""A backup put back never uses randomness twice: peers vouch that the run went no further, or the
party refuses.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import tarfile
from functools import cache

import pytest
from typer.testing import CliRunner

from posse.cli.app import app
from posse.core.errors import DataError, JournalError
from posse.core.settings import read_toml
from posse.privacy.sharing import dealing
from posse.runtime import backup, journal
from posse.runtime.federation import care
from posse.runtime.local import write_party
from posse.runtime.network.deployment import make_party
from posse.runtime.network.doctor import examine
from posse.runtime.network.vouching import RESTORED, backup_time, vouch
from posse.runtime.place import open_place
from posse.systems.parties import deploy_by_name, deployed_systems, run_and_record
from tests.kit import market, mpc
from tests.kit.federations import QUICK, laid_out, run_all, until
from tests.kit.parties import close, finish, opened

SYSTEMS = {
    "samba": lambda folder: laid_out(folder, budget=60),
    "samba strict": lambda folder: laid_out(folder, budget=40, level="strict", sync=True),
    "mpc-contextual": lambda folder: mpc.laid_out(folder, steps=24),
    "dp-combinatorial": lambda folder: market.laid_out_with_own_files(folder, rounds=30),
}
ROLES = {
    "samba": ("customer", "controller", "comp", "owner"),
    "samba strict": ("customer", "controller", "comp", "dealer", "owner"),
    "mpc-contextual": ("party", "puller", "payee", "dealer"),
    "dp-combinatorial": ("agent",),
}
EACH = [(name, role) for name, roles in ROLES.items() for role in roles]


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    """A dealer deals one pass at a time, so that it has its part until the end."""
    monkeypatch.setattr(dealing, "_CHUNK", 1)


def test_every_role_of_every_system_is_here(tmp_path):
    assert {each.name for each in deployed_systems()} == {
        name.partition(" ")[0] for name in SYSTEMS
    }
    for name, lay in SYSTEMS.items():
        (tmp_path / name).mkdir()
        assert {open_place(path).identity.role for path in lay(tmp_path / name)} == set(ROLES[name])


def came(party):
    """What came to everyone, as far as it shows in its journal: the same in all lives of a run."""
    return {peer: (link.sent, link.received) for peer, link in party.engine.links.items()}


def seen(party, parties):
    """What its peers have of a party, and what they know to be on its disk: behind this no backup
    may go on.
    """
    links = {
        peer: parties[peer].engine.links[party.engine.role.name] for peer in party.engine.links
    }
    return {peer: (link.received, link.durable_there) for peer, link in links.items()}


def gone_on(party, parties, backup):
    """Whether a peer has something that the backup does not know of."""
    return any(
        received > backup[peer][0] or durable > backup[peer][1]
        for peer, (received, durable) in seen(party, parties).items()
    )


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """What came to everyone in a run that nothing disturbs, by the name of the system; each is run
    once.
    """
    return cache(
        lambda name: {
            each.engine.role.name: came(each)
            for each in finish(SYSTEMS[name](tmp_path_factory.mktemp("u")))
        }
    )


@pytest.mark.parametrize(("name", "role"), EACH)
def test_an_old_backup_is_refused_and_the_newest_goes_on(tmp_path, name, role, undisturbed):
    """The old one was made while the party ran; its peers have gone on since, and it sends them
    nothing.
    """
    tried = tmp_path / "tried"
    tried.mkdir()
    paths = SYSTEMS[name](tried)
    path = next(path for path in paths if open_place(path).identity.role == role)
    place, old, newest = open_place(path), tried / "old", tried / "newest"

    async def go():
        parties = {each.stem: opened(each) for each in paths}
        party, others = (
            parties[path.stem],
            [each for key, each in parties.items() if key != path.stem],
        )
        running = [asyncio.create_task(each.run()) for each in others]
        mine = asyncio.create_task(party.run())
        await until(
            lambda: party.engine.bound, 0
        )  # in every turn of the loop: a part may be over in milliseconds
        party.engine._journal.write()
        made = backup.make(path, old)
        assert made.begun
        assert not made.finished
        then = came(party)
        await until(lambda: gone_on(party, parties, then), 0)
        assert not party.engine.role.finished
        party.stop()
        await mine
        close(party)
        backup.make(path, newest)
        shutil.rmtree(place.journal)

        backup.restore(old, path)
        assert backup_time(place.journal) == made.made
        # what the first life sent last may still be on its way
        await until(lambda: not any(party.engine.role.name in each.connections for each in others))
        before = seen(party, parties)
        again = opened(path)
        with pytest.raises(JournalError, match="Nothing was sent"):
            await asyncio.wait_for(vouch(again, place.journal), 240)
        close(again)
        for peer, (received, durable) in seen(party, parties).items():
            assert received == before[peer][0]
            # the copy's own greeting says what lies on its disk, which its first life may not have
            # said yet
            assert durable in (before[peer][1], then[peer][1])
        assert (place.journal / RESTORED).exists()  # the next start asks again

        backup.restore(newest, path)
        last = opened(path)
        await asyncio.wait_for(vouch(last, place.journal), 240)
        assert not (place.journal / RESTORED).exists()
        await run_all([last])
        await asyncio.gather(*running)
        close(last, *others)
        return {each.engine.role.name: came(each) for each in (last, *others)}

    assert asyncio.run(go()) == undisturbed(name)


def test_two_that_were_restored_do_not_vouch_for_each_other(tmp_path):
    """All parties set back together would go another way under the same randomness."""
    paths = {path.stem: path for path in laid_out(tmp_path, budget=60)}

    async def go():
        parties = [opened(path) for path in paths.values()]
        running = [asyncio.create_task(party.run()) for party in parties]
        await until(lambda: all(party.engine.bound for party in parties))
        for party in parties:
            party.stop()
        await asyncio.gather(*running)
        close(*parties)
        for path in paths.values():
            backup.make(path, path.with_suffix(".backup"))
            shutil.rmtree(open_place(path).journal)
            backup.restore(path.with_suffix(".backup"), path)
        again = [opened(path) for path in paths.values()]
        vouched = [
            vouch(party, open_place(path).journal)
            for party, path in zip(again, paths.values(), strict=True)
        ]
        tasks = [asyncio.create_task(each) for each in vouched]
        done, waiting = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION, timeout=240)
        for party in again:
            party.stop()
        await asyncio.gather(*waiting, return_exceptions=True)
        close(*again)
        assert not any(task.exception() is None for task in done)
        assert all((open_place(path).journal / RESTORED).exists() for path in paths.values())
        return [str(task.exception()) for task in done]

    assert any("was restored from a backup too" in text for text in asyncio.run(go()))


def test_a_finished_part_is_restored_without_questions(tmp_path):
    paths = {path.stem: path for path in laid_out(tmp_path, budget=12)}
    finish(paths.values())
    path = paths["clinic-1"]
    place = open_place(path)
    (place.journal / backup.FINISHED).write_text("{}")
    expected = journal.copy(place.journal)
    backup.make(path, tmp_path / "b")
    shutil.rmtree(tmp_path / "clinic-1")
    file = path.read_bytes()
    path.unlink()
    backup.restore(tmp_path / "b", path)
    assert path.read_bytes() == file
    assert journal.copy(place.journal) == expected
    assert not backup_time(place.journal)
    assert (tmp_path / "clinic-1" / "party.key").stat().st_mode & 0o777 == 0o600
    party = opened(path)
    assert party.engine.role.finished
    close(party)


def test_a_journal_that_is_as_new_or_open_is_not_replaced(tmp_path):
    paths = {path.stem: path for path in laid_out(tmp_path, budget=12)}
    finish(paths.values())
    path = paths["comp"]
    backup.make(path, tmp_path / "b")
    kept = journal.copy(open_place(path).journal)
    with pytest.raises(JournalError, match="as new as the backup"):
        backup.restore(tmp_path / "b", path)
    party = opened(path)
    with pytest.raises(JournalError, match="is using the journal"):
        backup.restore(tmp_path / "b", path)
    close(party)
    assert journal.copy(open_place(path).journal) == kept
    with pytest.raises(DataError, match="the identity of"):
        backup.restore(tmp_path / "b", paths["clinic-2"])


def test_a_journal_of_another_beginning_is_not_replaced_however_short_it_is(tmp_path):
    """What it has sent is hidden by secrets that the backup does not have."""
    paths = {path.stem: path for path in laid_out(tmp_path, budget=12)}
    finish(paths.values())
    path, place = paths["comp"], open_place(paths["comp"])
    backup.make(path, tmp_path / "b")
    longer = journal.copy(place.journal)
    shutil.rmtree(place.journal)
    party = opened(path)
    party.engine.begin()
    party.engine.commit()
    close(party)
    kept = journal.copy(place.journal)
    assert (kept.generation, kept.size) < (longer.generation, longer.size)
    with pytest.raises(JournalError, match="of another beginning"):
        backup.restore(tmp_path / "b", path)
    assert journal.copy(place.journal) == kept


def test_a_restore_that_is_killed_leaves_no_journal_without_its_mark(tmp_path, monkeypatch):
    paths = {path.stem: path for path in laid_out(tmp_path, budget=12)}
    finish(paths.values())
    path, place = paths["comp"], open_place(paths["comp"])
    backup.make(path, tmp_path / "b")  # without its result: as in the middle of a run
    made, held = backup.read(tmp_path / "b")
    run = {name: data for name, data in held.items() if name.startswith("journal/")}
    run["run.json"] = b'{"state": "started"}'
    put = backup.put

    def killed(target, data, **options):
        put(target, data, **options)
        if re.fullmatch(r"journal-\d+.log", target.name):
            raise KeyboardInterrupt

    ways = {
        place.journal: lambda: backup.restore(tmp_path / "b", path),
        tmp_path / "march" / "journal": lambda: care._restore_run(made, run, tmp_path / "march"),
    }
    shutil.rmtree(place.journal)
    for folder, restore in ways.items():
        with monkeypatch.context() as patch:
            patch.setattr(backup, "put", killed)
            with pytest.raises(KeyboardInterrupt):
                restore()
        assert journal.copy(folder).first is not None
        assert backup_time(folder) == made.made

    # Of a service a journal that is the backup's own is marked, and one that has gone on since is
    # not.
    mark = folder / RESTORED
    mark.unlink()
    assert "asks its peers" in ways[folder]()[0]
    assert mark.exists()
    mark.unlink()
    (log,) = folder.glob("journal-*.log")
    with log.open("ab") as file:
        file.write(journal.framed(b"more"))
    assert "stays" in ways[folder]()[0]
    assert not mark.exists()


def test_a_damaged_journal_is_replaced_and_a_damaged_backup_is_refused(tmp_path):
    paths = {path.stem: path for path in laid_out(tmp_path, budget=12)}
    finish(paths.values())
    path, place = paths["comp"], open_place(paths["comp"])
    backup.make(path, tmp_path / "b")
    (name,) = [
        each for each in place.journal.iterdir() if re.fullmatch(r"journal-\d+.log", each.name)
    ]
    data = bytearray(name.read_bytes())
    data[20] ^= 1
    name.write_bytes(data)
    with pytest.raises(JournalError, match="is damaged"):
        journal.look(place.journal)
    backup.restore(tmp_path / "b", path)
    journal.look(place.journal)
    for broken in (b"", (tmp_path / "b").read_bytes()[:-100], b"x" * 5000):
        (tmp_path / "c").write_bytes(broken)
        with pytest.raises(DataError, match=r"no backup|damaged"):
            backup.read(tmp_path / "c")
    with tarfile.open(tmp_path / "d", "w:gz") as archive:
        archive.add(tmp_path / "b", "../out")
    with pytest.raises(DataError, match="no backup does"):
        backup.read(tmp_path / "d")


def test_the_backup_of_a_service_is_not_put_back_as_a_party(tmp_path):
    backup.write(
        tmp_path / "b", backup.Backup("clinic-1", "owner", "r", "", "", False, False, "service"), {}
    )
    with pytest.raises(DataError, match="is the backup of a service"):
        backup.restore(tmp_path / "b", tmp_path / "clinic-1.toml")


def test_a_file_that_is_put_back_is_for_its_owner_only(tmp_path):
    """It may hold the password of a proxy."""
    path = laid_out(tmp_path)[0]
    backup.make(path, tmp_path / "b")
    path.unlink()
    backup.restore(tmp_path / "b", path)
    assert path.stat().st_mode & 0o777 == 0o600


def test_the_identity_alone_gives_a_journal_with_secrets_of_its_own(tmp_path):
    paths = {path.stem: path for path in laid_out(tmp_path, budget=12)}
    finish(paths.values())
    path, place = paths["clinic-1"], open_place(paths["clinic-1"])
    before = (place.journal / "root.key").read_bytes()
    runner = CliRunner()
    made = runner.invoke(app, ["party", "backup", str(path), "--out", str(tmp_path / "b")])
    assert made.exit_code == 0, made.output
    assert (tmp_path / "b").stat().st_mode & 0o777 == 0o600
    shutil.rmtree(tmp_path / "clinic-1")
    assert (
        runner.invoke(
            app, ["party", "restore", str(tmp_path / "b"), str(path), "--without-journal"]
        ).exit_code
        == 0
    )
    assert not place.journal.exists()
    party = opened(path)
    assert not party.engine.bound
    assert (place.journal / "root.key").read_bytes() != before
    close(party)


def test_a_journal_set_back_by_itself_is_refused_where_the_store_noted_more(tmp_path, monkeypatch):
    """And doctor says of a restored one that it waits for its peers."""
    monkeypatch.setenv("POSSE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("posse.systems.parties.BEAT", 0.05)
    paths = {path.stem: path for path in laid_out(tmp_path, budget=2000)}
    path, place = paths["comp"], open_place(paths["comp"])
    write_party(path, {**read_toml(path), "give_up": 60.0})
    aside = tmp_path / "aside"
    build = deploy_by_name("samba").build

    def kept(other):
        return make_party(open_place(other), build, timing=QUICK)[0]

    def marks():
        found = [
            json.loads(each.read_text()) for each in (tmp_path / "home" / "marks").glob("*.json")
        ]
        return max((sum(each["durable"].values()) for each in found), default=0)

    async def go():
        others = [kept(other) for name, other in paths.items() if name != "comp"]
        running = [asyncio.create_task(party.run()) for party in others]
        mine = asyncio.create_task(
            run_and_record(open_place(path), lambda place, made: made, print)
        )
        await until(lambda: marks() > 5)
        held = journal.copy(place.journal)
        aside.mkdir()
        for name, data in held.files.items():
            (aside / name).write_bytes(data)
        first = marks()
        await until(lambda: marks() > first + 50)
        asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGTERM)
        await mine
        for party in others:
            party.stop()
        await asyncio.gather(*running)
        close(*others)

    asyncio.run(go())
    for name in list(journal.copy(place.journal).files):
        (place.journal / name).unlink()
    for each in aside.iterdir():
        shutil.copy(each, place.journal)
    with pytest.raises(JournalError) as error:
        asyncio.run(run_and_record(open_place(path), lambda place, made: made, print))
    assert error.value.rule == "systems.journal.older-copy"
    (place.journal / RESTORED).write_text(json.dumps({"made": "2026-01-01"}))
    said = {one.what: one.said for one in examine(path, lambda name: deploy_by_name(name).build)}
    assert "of a backup of 2026-01-01" in said["journal"]
