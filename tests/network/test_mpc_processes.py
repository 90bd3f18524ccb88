"""The contextual bandit as processes: whoever is killed with kill -9, arms, rewards and model are
those in memory.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections import Counter

import numpy as np
import pytest

from posse.core.errors import DataError, JournalError, LinkError
from posse.core.fixed import REWARD_ONE
from posse.systems.mpc_contextual.roles.outside import read_shares
from posse.systems.mpc_contextual.terms import DEALER, PAYEE, PULLER
from tests.kit.mpc import PATIENCE, MpcTorment, found, laid_out, opened, run, twin

ROLES = ("clinic-1", "clinic-2", PULLER, PAYEE, DEALER)


def check(federation):
    federation.check_logs()
    outcome = federation.outcome()
    assert outcome == federation.twin()
    return outcome


def test_three_parties_over_loopback_are_the_run_in_memory(tmp_path):
    paths = laid_out(tmp_path, parties=3, overlap=True)
    run(paths)
    outcome = found(paths)
    assert outcome == twin(paths)
    assert len(set(outcome.arms)) > 1
    assert 0 < sum(outcome.rewards) < 30 * REWARD_ONE


def test_features_stay_as_they_were_when_the_run_began(tmp_path):
    """One mask would hide two numbers."""
    paths = laid_out(tmp_path, steps=5)
    own = tmp_path / "clinic-1.csv"
    text = own.read_text()
    opened(paths[0]).engine._journal.close()  # nothing has begun: they may still change
    lines = text.splitlines()
    own.write_text(
        "\n".join([lines[0], *(f"{line.split(',')[0]},0.1,0.2" for line in lines[1:]), ""])
    )
    run(paths)
    own.write_text(text)
    with pytest.raises(JournalError, match="features, world changed"):
        opened(paths[0])


def check_files(federation, outcome, steps):
    """What payee and puller leave beside their journals."""
    folder = federation.folder
    result = json.loads((folder / PAYEE / "journal" / "result.json").read_text())
    assert (result["total"], result["pulls"]) == (sum(outcome.rewards) / REWARD_ONE, steps)
    arms = folder / PULLER / "journal" / "arms.csv"
    lines = arms.read_text().splitlines()
    assert lines == ["step,arm", *(f"{step},{arm}" for step, arm in enumerate(outcome.arms))]
    assert arms.stat().st_mode & 0o777 == 0o600
    check_shares(folder, outcome, steps)


def check_shares(folder, outcome, steps):
    """The last two shares of every party are there, private, and make the model."""
    for name in ("clinic-1", "clinic-2"):
        shares = sorted((folder / name / "journal").glob("model-*.share"))
        assert [path.name for path in shares] == [
            f"model-{steps - 10}.share",
            f"model-{steps}.share",
        ]
        assert all(path.stat().st_mode & 0o777 == 0o600 for path in shares)
    model = read_shares(folder)
    assert model.step == steps
    assert model.words.ravel().tolist() == outcome.model.tolist()
    assert model.weights.shape == (3, 4)
    assert np.allclose(model.inverse, model.inverse.swapaxes(1, 2))
    assert np.all(np.linalg.eigvalsh(model.inverse) < 1 + 1e-6)
    assert read_shares(folder, steps - 10).step == steps - 10
    one = folder / "clinic-1" / "journal" / f"model-{steps}.share"
    with pytest.raises(DataError, match="the share of 'clinic-2' is missing"):
        read_shares([one])
    damaged = bytearray(one.read_bytes())
    damaged[-40] ^= 1
    one.write_bytes(damaged)
    with pytest.raises(DataError, match="is damaged"):
        read_shares(folder)


def test_every_role_is_killed(tmp_path):
    """The same with overlap, and that no step is pulled or paid anew, is tested at the seam."""
    with MpcTorment(tmp_path, 2, steps=150) as federation:
        federation.go(5, ROLES, again=0)
    assert sum(federation.kills.values()) >= 4
    check_files(federation, check(federation), 150)


@pytest.mark.long
def test_forty_kills_over_all_roles(tmp_path):
    kills, early, number = Counter(), 0, 0
    while (sum(kills.values()) < 60 or min(kills[name] for name in ROLES) < 6) and number < 20:
        folder = tmp_path / f"{number}"
        folder.mkdir()
        how = {"sync": bool(number % 2), "overlap": number % 4 > 1}
        with MpcTorment(folder, 300 + number, steps=400, **how) as federation:
            federation.go(10, ROLES, at_once=1 + number % 3)
        check(federation)
        kills, early, number = kills + federation.kills, early + federation.early_kills, number + 1
    print(f"\nkills in {number} runs: {dict(kills)}, of them {early} while starting")
    assert sum(kills.values()) >= 40
    assert min(kills[name] for name in ROLES) >= 6


@pytest.mark.long
def test_who_is_missing_is_named_and_the_run_goes_on_where_it_was(tmp_path):
    give_up = 20.0  # long enough for everyone to have started, on a busy machine too
    others = [name for name in ROLES if name != "clinic-2"]
    with MpcTorment(tmp_path, 3, steps=4_000, give_up=give_up) as federation:
        federation.until(2 * 20)
        gone = federation.running["clinic-2"].handle
        gone.kill()
        gone.wait()
        began = time.monotonic()
        for name in others:
            assert federation.running[name].handle.wait(60) == 2
        assert give_up - 0.5 <= time.monotonic() - began <= give_up + 15
        assert federation.pulled() < 2 * 4_000
        for name in others:
            (line,) = [
                line for line in federation.log(name).splitlines() if line.startswith("error:")
            ]
            assert re.search(
                r"'clinic-2' has been missing for 20 s \(.+\)\. Start it again, and then", line
            )
        for name in federation.paths:
            federation.start(name)
        federation.wait()
    check(federation)


GIVE_UP = 8.0
"""Seconds in which all have found each other, on a busy machine too."""


def test_a_party_that_stays_away_is_named_by_all_and_waited_for_by_none(tmp_path):
    """In one process, where nobody starts late: everyone stops at the same time, and for the same
    reason.
    """
    paths = laid_out(tmp_path, steps=200, give_up=GIVE_UP)

    async def go():
        parties = {path.stem: opened(path) for path in paths}
        running = {name: asyncio.create_task(party.run()) for name, party in parties.items()}
        while parties[PULLER].engine.role.step < 20:
            assert not any(task.done() for task in running.values())
            await asyncio.sleep(0.01)
        began = time.monotonic()
        parties["clinic-1"].stop()
        await running.pop("clinic-1")
        ended = await asyncio.wait_for(
            asyncio.gather(*running.values(), return_exceptions=True), PATIENCE
        )
        taken = time.monotonic() - began
        for party in parties.values():
            party.engine._journal.close()
        return ended, taken, parties[PULLER].engine.role.step

    ended, taken, step = asyncio.run(go())
    assert [type(error) for error in ended] == [LinkError] * 4
    assert all(f"'clinic-1' has been missing for {GIVE_UP:g} s" in str(error) for error in ended)
    assert taken >= GIVE_UP
    assert step < 200
    run(paths)
    assert found(paths) == twin(paths)


def test_who_has_done_its_part_is_not_missed(tmp_path):
    """The dealer leaves long before the end and the puller in the last step, however long the last
    reward takes.
    """
    paths = laid_out(tmp_path, steps=60, give_up=GIVE_UP)

    async def go():
        parties = {path.stem: opened(path) for path in paths}
        paid = parties[PAYEE].source

        async def slow(ask):
            if ask.step == 59:
                await asyncio.sleep(GIVE_UP + 2)  # longer than anybody who is missed is waited for
            return await paid(ask)

        parties[PAYEE].source = slow
        left = {}

        async def one(name, party):
            await party.run()
            left[name] = parties[PAYEE].engine.role.step

        await asyncio.wait_for(asyncio.gather(*(one(*each) for each in parties.items())), PATIENCE)
        for party in parties.values():
            party.engine._journal.close()
        return left

    left = asyncio.run(go())
    assert left[DEALER] < 59
    assert left[PULLER] == 59
    assert found(paths) == twin(paths)


COUNTING = """
import os, secrets
from pathlib import Path

def note(name, *values):
    file = os.open(Path(__file__).parent / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(file, (" ".join(map(repr, values)) + "\\n").encode())
    os.close(file)

async def pull(run, step, arm):
    note("pulled", step, arm)

def reward(run, number):
    value = secrets.randbelow(1025) / 1024
    note("earned", number, value)
    return value
"""


class Outside(MpcTorment):
    """A puller and a payee with systems of their own that count; the payee's never answers twice
    the same.
    """

    def __init__(self, folder, seed, **values):
        (folder / "counting.py").write_text(COUNTING)
        self.journalled = []
        super().__init__(folder, seed, **values)
        for name, function in ((PULLER, "pull"), (PAYEE, "reward")):
            path = self.paths[name]
            path.write_text(
                path.read_text()
                + f'\n[source]\nkind = "python"\nfunction = "counting:{function}"\n'
            )

    def pulled(self):
        return 2 * len({step for step, _ in self.notes("pulled")})

    def notes(self, name):
        path = self.folder / name
        lines = path.read_text().splitlines() if path.exists() else []
        return [(int(step), float(value)) for step, value in map(str.split, lines)]

    def check_asked(self, steps):
        """A step comes once, or once more for a death in between, and always with its arm; the
        first reward stands.
        """
        self.check_logs()
        outcome = self.outcome()
        for name, role, values in (("pulled", PULLER, outcome.arms), ("earned", PAYEE, None)):
            asked = self.notes(name)
            assert {step for step, _ in asked} == set(range(steps))
            assert 0 <= len(asked) - steps <= self.kills[role]
            assert [step for step, _ in asked] == sorted(step for step, _ in asked)
            if values is not None:
                assert all(values[step] == arm for step, arm in asked)
        given = {}
        for step, value in self.notes("earned"):
            given.setdefault(step, []).append(round(value * REWARD_ONE))
        assert all(units in given[step] for step, units in enumerate(outcome.rewards))


@pytest.mark.long
def test_no_step_is_pulled_or_paid_anew_over_many_kills(tmp_path):
    kills = Counter()
    for number in range(4):
        folder = tmp_path / f"{number}"
        folder.mkdir()
        with Outside(folder, 400 + number, steps=400, sync=True) as federation:
            federation.go(10, (PULLER, PAYEE, "clinic-1"), at_once=2)
        federation.check_asked(400)
        kills += federation.kills
    print(f"\nkills with systems that count: {dict(kills)}")
    assert min(kills[PULLER], kills[PAYEE]) >= 10
