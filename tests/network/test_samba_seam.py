"""Samba's roles as durable parties under every fault of the seam: total and pulls are the undisturbed run's."""

from __future__ import annotations

import pytest

from posse.core.roles import Role
from posse.policies import UCB, Pursuit, Thompson
from posse.privacy.crypto.keys import Identity, Secrets
from posse.privacy.crypto.paillier import generate_key
from posse.problems import BernoulliArms
from posse.protocols.samba.comp import Comp
from posse.protocols.samba.controller import Controller
from posse.protocols.samba.customer import Customer
from posse.protocols.samba.deploy import VOCABULARY
from posse.protocols.samba.federation import SimulatedWorld, owner_names
from posse.protocols.samba.levels import Switches
from posse.protocols.samba.owner import Owner
from posse.protocols.samba.setup import COMP, CONTROLLER, CUSTOMER, Expected, Terms, policy_terms
from posse.protocols.samba.twin import simulate
from tests.network.seam import Network

ARMS = BernoulliArms([0.2, 0.5, 0.8])
BUDGET, SEED = 40, 11
FAULTS = {
    "kills": {"kill": 0.08},
    "power": {"power": 0.08},
    "connections": {"cut": 0.05, "duplicate": 0.05, "reorder": 0.05, "drop": 0.03},
    "everything": {"cut": 0.04, "duplicate": 0.03, "reorder": 0.03, "drop": 0.02, "kill": 0.04, "power": 0.04},
}


@pytest.fixture(scope="module")
def key():
    return generate_key(2048)


def factories(policy, level, key):
    """One function a party that makes its role anew with the identity and the secrets it has always had."""
    names = owner_names(len(ARMS))
    identities = {name: Identity() for name in (*names, CONTROLLER, COMP, CUSTOMER)}
    secrets = {name: Secrets.fresh() for name in identities}
    customer, expected = identities[CUSTOMER].public, Expected(policy, level, Switches())
    n = key.public_key.n.to_bytes((key.public_key.bits + 7) // 8, "big")
    terms = Terms("run-1", BUDGET, policy_terms(policy), len(policy.passes()), level, (), n)
    admitted = {name: identity.public for name, identity in identities.items() if name != CUSTOMER}

    def owner(name: str) -> Role:
        return Owner(name, identities[name], customer, expected, SEED, secrets=secrets[name])

    return {
        CUSTOMER: lambda: Customer(identities[CUSTOMER], expected, terms, admitted, key, secrets=secrets[CUSTOMER]),
        CONTROLLER: lambda: Controller(
            identities[CONTROLLER], customer, expected, names, SEED, secrets=secrets[CONTROLLER]
        ),
        COMP: lambda: Comp(identities[COMP], customer, expected, SEED, secrets=secrets[COMP]),
        **{name: lambda name=name: owner(name) for name in names},
    }


class Counting(Network):
    """Counts how often each party died."""

    deaths: dict[str, int]

    def kill(self, name, *, power=False):
        self.deaths[name] = self.deaths.get(name, 0) + 1
        super().kill(name, power=power)


def disturbed(policy, level, key, faults, seed):
    world = SimulatedWorld(ARMS, SEED, BUDGET)
    links = [(CONTROLLER, name) for name in (CUSTOMER, COMP, *owner_names(len(ARMS)))]
    Counting.deaths = {}
    network = Counting(factories(policy, level, key), links, VOCABULARY, world, seed, snapshot_bytes=4_000)
    network.run(faults)
    owners = [network.engines[name].role.state() for name in owner_names(len(ARMS))]
    return network.engines[CUSTOMER].role.total, [state["pulls"] for state in owners], dict(network.deaths)


@pytest.mark.parametrize("faults", FAULTS)
@pytest.mark.parametrize(("policy", "level"), [(UCB(), "standard"), (Pursuit(), "standard"), (UCB(), "paper")])
def test_whatever_happens_the_run_is_the_plain_one(policy, level, faults, key):
    plain = simulate(ARMS, policy, BUDGET, [SEED], level=level)
    for seed in range(2):
        total, pulls, _ = disturbed(policy, level, key, FAULTS[faults], seed)
        assert (total,) == plain.total
        assert [pulls] == plain.pulls.tolist()


@pytest.mark.long
def test_two_hundred_deaths_over_all_roles(key):
    """Each seed kills parties at commit points anywhere in a run, set-up and closing included."""
    plain = simulate(ARMS, Thompson(), BUDGET, [SEED])
    deaths: dict[str, int] = {}
    for seed in range(100, 140):
        total, pulls, died = disturbed(Thompson(), "standard", key, FAULTS["kills"], seed)
        assert (total,) == plain.total
        assert [pulls] == plain.pulls.tolist()
        for name, count in died.items():
            deaths[name] = deaths.get(name, 0) + count
    assert sum(deaths.values()) >= 200
    assert min(deaths.get(name, 0) for name in (CUSTOMER, CONTROLLER, COMP, *owner_names(3))) >= 20
