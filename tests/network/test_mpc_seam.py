"""The roles of the contextual bandit as durable parties under every fault of the seam: the run is
the one in memory.
"""

from __future__ import annotations

import itertools

import pytest

from posse.runtime.memory import MemoryRun
from tests.kit.mpc import Outcome, TestWorld, factories
from tests.network.mpc_seam import FAULTS, Seam


def in_memory(make, terms, world):
    roles = {name: each() for name, each in make.items()}
    MemoryRun(roles.values(), TestWorld(world, terms)).finish()
    return Outcome(roles)


@pytest.mark.parametrize(
    ("faults", "parties"), [*((faults, 2) for faults in FAULTS), ("everything", 3)]
)
def test_whatever_happens_the_run_is_the_one_in_memory(tmp_path, faults, parties):
    made = factories(tmp_path, parties)
    expected = in_memory(*made)
    for seed in range(2):
        network = Seam(*made, seed)
        network.run(FAULTS[faults])
        assert network.outcome == expected


@pytest.mark.parametrize(
    "more",
    [{"batch": 4}, {"bonus": "ucb"}, {"bonus": "thompson"}, {"overlap": True}],
    ids=["batch", "ucb", "thompson", "overlap"],
)
def test_batches_bonuses_and_overlap_too(tmp_path, more):
    made = factories(tmp_path, **more)
    network = Seam(*made, 1)
    network.run(FAULTS["everything"])
    assert network.outcome == in_memory(*made)


def test_a_death_at_every_commit_point(tmp_path):
    """Each role in turn dies after every so many things that happened, set-up and end included."""
    made = factories(tmp_path, steps=3)
    expected = in_memory(*made)
    for name in made[0]:
        for first in (0, 5, 9):
            network = Seam(*made, first)
            for count in itertools.count(first):
                if count % 12 == 0:
                    network.kill(name, power=count % 24 == 0)
                if not network.step({}):
                    break
            assert network.outcome == expected


@pytest.mark.parametrize(
    "snapshot_bytes", [1, 1 << 30], ids=["a snapshot at every commit", "no snapshot"]
)
def test_snapshots_make_no_difference(tmp_path, snapshot_bytes):
    made = factories(tmp_path, steps=4)
    network = Seam(*made, 1, snapshot_bytes=snapshot_bytes)
    network.run(FAULTS["kills"])
    assert network.outcome == in_memory(*made)


def test_what_was_journalled_is_not_asked_again(tmp_path):
    """With the answers on disk before anything follows, deaths between two commits ask nothing
    twice.
    """
    made = factories(tmp_path)
    network = Seam(*made, 4)
    network.run(FAULTS["power"])
    assert sum(network.deaths.values()) > 10
    assert network.world.asked == {"Act": 8, "Earn": 8}


@pytest.mark.long
def test_two_thousand_deaths_over_all_roles(tmp_path):
    made = factories(tmp_path, steps=10)
    expected = in_memory(*made)
    deaths: dict[str, int] = {}
    seed = 100
    while sum(deaths.values()) < 2_000:
        network = Seam(*made, seed)
        network.run({"kill": 0.05, "power": 0.05, "cut": 0.03, "drop": 0.02})
        assert network.outcome == expected
        for name, count in network.deaths.items():
            deaths[name] = deaths.get(name, 0) + count
        seed += 1
    print(f"\ndeaths in {seed - 100} runs: {deaths}")
    assert min(deaths.values()) >= 200
