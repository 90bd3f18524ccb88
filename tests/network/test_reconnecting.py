"""Machines lose their power, and their links come up again in every order: the run is always the undisturbed one."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from posse.core.roles import Reward
from posse.policies import UCB
from posse.privacy.crypto.paillier import generate_key
from posse.privacy.sharing import shuffle
from posse.problems import BernoulliArms
from posse.problems.markets.instances import market_instance
from posse.protocols.dp_combinatorial import deploy as market_deploy
from posse.protocols.dp_combinatorial.federation import SimulatedMarket, federation
from posse.protocols.dp_combinatorial.terms import Terms as MarketTerms
from posse.protocols.mpc_contextual import deploy as mpc_deploy
from posse.protocols.mpc_contextual.terms import PAYEE, PULLER
from posse.protocols.samba import deploy as samba_deploy
from posse.protocols.samba.federation import owner_names, prepare
from posse.protocols.samba.setup import CONTROLLER, CUSTOMER, sole
from posse.protocols.samba.strict import controller as strict_controller
from tests.network.mpc import TestWorld, factories
from tests.network.reconnecting import System, Tally, check, undisturbed


@pytest.fixture(autouse=True, scope="module")
def small_chunks():
    """The dealer of level `strict` deals little at a time, so that it is asked often."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shuffle, "_CHUNK", 16)
        for module in (shuffle, strict_controller):
            patch.setattr(module, "PAIRS", 8)
        yield


def mpc(folder: Path, **more: Any) -> System:
    make, terms, world = factories(folder, **{"steps": 3, **more})

    def outcome(roles: dict[str, Any]) -> object:
        models = [roles[name].model.tobytes() for name in terms.parties]
        return roles[PULLER].arms.tolist(), roles[PAYEE].rewards.tolist(), models

    return System(make, list(itertools.combinations(make, 2)), mpc_deploy.VOCABULARY, TestWorld(world, terms), outcome)


def samba(level: str, owners: int = 2, *, sync: bool = True, **more: Any) -> System:
    arms, seed, names = BernoulliArms([0.2, 0.7, 0.5][:owners]), 11, owner_names(owners)
    key = None if level == "strict" else generate_key(2048)
    roles = prepare(arms, UCB(), owners + 2, seed=seed, level=level, key=key, **more)
    everyone = (*sole(level), *names)
    make: dict[str, Any] = {
        name: lambda name=name: next(role for role in roles() if role.name == name) for name in everyone
    }

    def world(ask: Any) -> Reward:
        return Reward(ask.number, arms.reward(seed, names.index(ask.party), ask.number))

    def outcome(roles: dict[str, Any]) -> object:
        return roles[CUSTOMER].total, [roles[name].pulls for name in names]

    links = [(CONTROLLER, name) for name in everyone if name != CONTROLLER]
    return System(make, links, samba_deploy.VOCABULARY, world, outcome, sync)


def market(agents: int = 3, *, sync: bool = True) -> System:
    market, seed = market_instance(3, agents=agents, producers=4, alpha=0.2), 5
    terms = MarketTerms(market.agents, market.producers, 8, reports=(2, 4, 6), multipliers=(1.0,) * 3)
    make: dict[str, Any] = {
        name: lambda j=j: federation(market, terms, seed=seed)[j] for j, name in enumerate(market.agents)
    }

    def outcome(roles: dict[str, Any]) -> object:
        return [([array.tobytes() for array in role.knowledge], role.taken) for role in roles.values()]

    world = SimulatedMarket(market, seed, terms.rounds)
    return System(make, list(itertools.combinations(make, 2)), market_deploy.VOCABULARY, world, outcome, sync)


SYSTEMS: dict[str, Callable[[Path], System]] = {
    "mpc-contextual": mpc,
    "samba strict": lambda _: samba("strict"),
    "samba paper": lambda _: samba("paper"),
    "dp-combinatorial": lambda _: market(),
}


@pytest.mark.parametrize("name", SYSTEMS)
def test_each_party_in_every_order(tmp_path, name, capsys):
    """Each machine in turn, in each phase; everything since the set-up is lost that no answer took to the disk."""
    run, tally = undisturbed(SYSTEMS[name](tmp_path)), Tally()
    started = time.process_time()
    for phase in ("set-up", "running", "closing"):
        check(run, run.phases[phase], 0, [[party] for party in run.system.make], tally)
    print(name, tally, run.phases, time.process_time() - started)
    assert tally.lost > 0
