"""A federation as processes: whoever is killed with kill -9, the run is the plain one and no reward
is lost.
"""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from posse.core.errors import LinkError
from posse.core.fixed import REWARD_ONE
from posse.runtime.network.operate import ask
from posse.systems import registry
from posse.systems.samba.settings import Samba
from tests.kit.torment import Torment

FICKLE = """
import os, secrets
from pathlib import Path

def source(name):
    path = Path(__file__).parent / f"{name}.asked"
    def reward(run, number):
        value = secrets.randbelow(1025) / 1024
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(file, f"{number} {value!r}\\n".encode())
        os.close(file)
        return value
    return reward

clinic_1, clinic_2, clinic_3 = (source(f"clinic-{i}") for i in (1, 2, 3))
"""


def check_plain(federation, owners, budget, policy="ucb", level="strict"):
    """The customer's total and every owner's pulls are those of the plain bandit."""
    federation.check_journals()
    settings = Samba(policy=policy, owners=owners, budget=budget, seed=7, level=level)
    plain = registry.run(settings.plain())
    states = federation.states()
    assert (federation.result(),) == plain.total == (states["customer"]["total"],)
    assert [[states[f"clinic-{i + 1}"]["pulls"] for i in range(owners)]] == plain.pulls.tolist()


def asked(federation, name):
    while True:
        try:
            return asyncio.run(ask(federation.folder / name / "journal", "status"))
        except LinkError:
            federation._tick()


def test_six_kills(tmp_path):
    """At level `strict`, where the dealer may be among them."""
    with Torment(tmp_path, 2, owners=2, budget=300, level="strict", sync=True) as federation:
        shown = asked(federation, "controller")
        federation.go(3, at_once=2, again=0)
    assert shown["role"] == "controller"
    # Neither who was pulled nor whose reward is awaited is shown to anybody.
    public = {
        "party",
        "role",
        "run",
        "version",
        "pid",
        "healthy",
        "paused",
        "begun",
        "finished",
        "missing",
        "waiting",
        "over",
        "step",
        "horizon",
        "unit",
        "digest",
    }
    assert set(shown) <= public
    assert sum(federation.kills.values()) >= 5
    check_plain(federation, 2, 300)


def killed_in_all_roles(folder, kills, **values):
    """Kill parties over several runs until there were so many kills; every run is the plain one."""
    found, early, again, run = Counter(), 0, 0, 0
    budget = values.pop("budget", 600)
    while sum(found.values()) < kills and run < 40:
        (place := folder / f"{run}").mkdir()
        policy = ("ucb", "thompson", "pursuit", "epsilon-greedy")[run % 4]
        with Torment(
            place, 100 + run, owners=3, budget=budget, policy=policy, **values
        ) as federation:
            federation.go(min(14, kills), at_once=1 + run % 3)
        check_plain(federation, 3, budget, policy, values.get("level", "paper"))
        found += federation.kills
        early, run = early + federation.early_kills, run + 1
        again += federation.restarts_for_others + federation.unconfirmed
    print(
        f"\nkills in {run} runs: {dict(found)}, of them {early} while starting; started for others "
        f"{again} times"
    )
    assert set(found) == set(federation.paths)
    assert sum(found.values()) >= kills
    return found, early


WITH_SLOTS = {"level": "strict", "sync": True, "slot": 0.02, "slowest_pull": 0.02, "budget": 200}


@pytest.mark.long
@pytest.mark.parametrize(
    "values",
    [{}, {"level": "strict", "sync": True}, WITH_SLOTS],
    ids=["paper", "strict", "slots"],
)
def test_two_hundred_kills_over_all_roles(tmp_path, values):
    kills, early = killed_in_all_roles(tmp_path, 200, **values)
    assert min(kills.values()) >= 15
    assert early >= 20


class Fickle(Torment):
    """Owners whose sources answer otherwise whenever they are asked, and count the questions."""

    def __init__(self, folder, seed, **values):
        (folder / "fickle.py").write_text(FICKLE)
        names = [f"clinic-{i + 1}" for i in range(values["owners"])]
        entries = [
            {
                "name": name,
                "source": {"kind": "python", "function": f"fickle:{name.replace('-', '_')}"},
            }
            for name in names
        ]
        super().__init__(folder, seed, world=None, owner=entries, sync=True, **values)
        self.names = tuple(names)
        self.journalled = []

    def killed(self, name):
        if name in self.names:
            self.journalled.append(
                (name, {reward.number for reward in self.rewards(name)}, len(self.questions(name)))
            )

    def questions(self, name):
        path = self.folder / f"{name}.asked"
        lines = path.read_text().splitlines() if path.exists() else []
        return [(int(number), float(value)) for number, value in map(str.split, lines)]

    def check_rewards(self, budget):
        """Every pull counts once, with a reward that the source gave; the one that was journalled
        first stands.
        """
        self.check_journals()
        states, units = self.states(), 0
        for name in self.names:
            rewards, questions = self.rewards(name), self.questions(name)
            assert [reward.number for reward in rewards] == list(range(len(rewards)))
            for reward in rewards:
                assert reward.units / REWARD_ONE in {
                    value for number, value in questions if number == reward.number
                }
            # A death between an answer and its journal asks once more, and nothing else does.
            assert 0 <= len(questions) - len(rewards) <= self.kills[name]
            assert states[name]["pulls"] == len(rewards)
            assert states[name]["reward"] == sum(reward.units for reward in rewards) / REWARD_ONE
            units += sum(reward.units for reward in rewards)
        for name, journalled, before in self.journalled:
            assert not journalled & {number for number, _ in self.questions(name)[before:]}
        assert self.result() == states["customer"]["total"] == units / REWARD_ONE
        assert sum(states[name]["pulls"] for name in self.names) == budget


def test_the_first_journalled_reward_counts(tmp_path):
    with Fickle(tmp_path, 3, owners=2, budget=120) as federation:
        federation.go(2, federation.names, at_once=2, again=0)
    assert sum(federation.kills.values()) >= 3
    federation.check_rewards(120)


@pytest.mark.long
def test_no_journalled_reward_is_lost_or_replaced(tmp_path):
    kills = Counter()
    for run in range(3):
        folder = tmp_path / f"{run}"
        folder.mkdir()
        with Fickle(folder, 200 + run, owners=3, budget=400) as federation:
            federation.go(12, (*federation.names, "controller"), at_once=2)
        federation.check_rewards(400)
        kills += federation.kills
    print(f"\nkills with a source that never answers twice the same: {dict(kills)}")
    assert min(kills[name] for name in federation.names) >= 5
