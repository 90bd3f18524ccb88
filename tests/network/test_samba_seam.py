"""Samba's roles as durable parties under every fault of the seam: total and pulls are the
undisturbed run's.
"""

from __future__ import annotations

import pytest

from posse.policies import UCB, Pursuit, Thompson
from posse.privacy.crypto.paillier import generate_key
from posse.privacy.sharing import shuffle
from posse.problems import BernoulliArms
from posse.systems.samba.deploy import VOCABULARY
from posse.systems.samba.federation import SimulatedWorld, owner_names, prepare
from posse.systems.samba.setup import CONTROLLER, CUSTOMER, sole
from posse.systems.samba.strict import controller as strict_controller
from posse.systems.samba.strict.messages import Tick, Tock
from posse.systems.samba.twin import simulate
from tests.network.seam import FAULTS, Network

ARMS = BernoulliArms([0.2, 0.5, 0.8])
BUDGET, SEED = 24, 11
OWNERS = owner_names(3)
CASES = [
    (UCB(), "strict"),
    (Pursuit(), "strict"),
    (UCB(), "paper"),
    (Pursuit(), "paper"),
]


@pytest.fixture(autouse=True, scope="module")
def small_chunks():
    """The dealer deals two passes and sixteen comparisons at a time, so that it is asked often."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shuffle, "_CHUNK", 48)
        for module in (shuffle, strict_controller):
            patch.setattr(module, "PAIRS", 16)
        yield


@pytest.fixture(scope="module")
def key():
    return generate_key(2048)


def factories(policy, level, key, slot=0.0, budget=BUDGET):
    """One function a party that makes its role anew with the identity and the secrets it has always
    had.
    """
    make = prepare(ARMS, policy, budget, seed=SEED, level=level, key=key, slot=slot)
    return {
        name: lambda name=name: next(role for role in make() if role.name == name)
        for name in (*sole(level), *OWNERS)
    }


class Counting(Network):
    """Counts how often each party died."""

    deaths: dict[str, int]

    def kill(self, name, *, power=False):
        self.deaths[name] = self.deaths.get(name, 0) + 1
        super().kill(name, power=power)


def disturbed(policy, level, key, faults, seed, budget=BUDGET):
    world = SimulatedWorld(ARMS, SEED, budget)
    links = [(CONTROLLER, name) for name in (*sole(level), *OWNERS) if name != CONTROLLER]
    Counting.deaths = {}
    make = factories(policy, level, key, budget=budget)
    network = Counting(make, links, VOCABULARY, world, seed, snapshot_bytes=4_000)
    network.run(faults)
    owners = [network.engines[name].role.state() for name in OWNERS]
    return (
        network.engines[CUSTOMER].role.total,
        [state["pulls"] for state in owners],
        dict(network.deaths),
    )


@pytest.mark.parametrize("faults", FAULTS)
@pytest.mark.parametrize(("policy", "level"), CASES)
def test_whatever_happens_the_run_is_the_plain_one(policy, level, faults, key):
    plain = simulate(ARMS, policy, BUDGET, [SEED], level=level)
    for seed in range(2 if faults == "everything" else 1):
        total, pulls, _ = disturbed(policy, level, key, FAULTS[faults], seed)
        assert (total,) == plain.total
        assert [pulls] == plain.pulls.tolist()


def test_calls_of_primitives_are_counted_once_however_often_a_party_dies(key):
    links = [(CONTROLLER, name) for name in (*sole("paper"), *OWNERS) if name != CONTROLLER]
    Counting.deaths = {}
    make, world = factories(UCB(), "paper", key), SimulatedWorld(ARMS, SEED, BUDGET)
    network = Counting(make, links, VOCABULARY, world, 1, snapshot_bytes=4_000)
    network.run({"kill": 0.08})
    assert min(network.deaths[OWNERS[0]], network.deaths[CUSTOMER]) > 0
    each = BUDGET - len(OWNERS)
    assert [network.engines[name].calls for name in OWNERS] == [(each, each, 1, 0)] * len(OWNERS)
    assert network.engines[CUSTOMER].calls == (0, 0, 0, 1)


@pytest.mark.parametrize("faults", FAULTS)
def test_slots_end_whenever_they_do(faults):
    """Ticks and rewards come in any order: slots are overrun, parties die, and the run is the plain
    one.
    """
    plain = simulate(ARMS, Pursuit(), BUDGET, [SEED], level="strict")
    world = SimulatedWorld(ARMS, SEED, BUDGET)
    links = [(CONTROLLER, name) for name in (*sole("strict"), *OWNERS) if name != CONTROLLER]
    network = Network(
        factories(Pursuit(), "strict", None, slot=0.1),
        links,
        VOCABULARY,
        lambda ask: Tock(ask.number) if isinstance(ask, Tick) else world(ask),
        1,
        snapshot_bytes=4_000,
    )
    network.run(FAULTS[faults])
    roles = {name: engine.role for name, engine in network.engines.items()}
    assert (roles[CUSTOMER].total,) == plain.total
    assert [[roles[name].pulls for name in OWNERS]] == plain.pulls.tolist()
    assert roles["controller"].gate.overruns == roles["comp"].gate.overruns > 0


@pytest.mark.long
@pytest.mark.parametrize("level", ["strict", "paper"])
def test_two_hundred_deaths_over_all_roles(key, level):
    """Each seed kills parties at commit points anywhere in a run, set-up and closing included."""
    plain = simulate(ARMS, Thompson(), 40, [SEED], level=level)
    deaths: dict[str, int] = {}
    for seed in range(100, 140):
        total, pulls, died = disturbed(Thompson(), level, key, FAULTS["kills"], seed, 40)
        assert (total,) == plain.total
        assert [pulls] == plain.pulls.tolist()
        for name, count in died.items():
            deaths[name] = deaths.get(name, 0) + count
    assert sum(deaths.values()) >= 200
    assert min(deaths.get(name, 0) for name in (*sole(level), *OWNERS)) >= (
        20 if level == "paper" else 5
    )
