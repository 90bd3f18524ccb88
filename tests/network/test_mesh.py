"""A mesh of agents over mutual TLS gives the run of the compiled market, also when agents die on
the way.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress

import pytest

from posse.core.errors import ConfigError, DataError, UnconfirmedError
from posse.systems.dp_combinatorial.deploy import MarketFederation, lay_out, layout
from tests.kit.federations import free_port, run_all
from tests.kit.market import MARKET, check, laid_out, twin
from tests.kit.parties import opened

NAIVE = {"policy": "naive", "start": 200, "rounds": 60}
"""Reports of every round have no start of their own: 200 is the default."""


@pytest.mark.parametrize(
    "values",
    [{}, {"rule": "fuse", "explore": 30}, {"noise": "none"}, NAIVE],
    ids=["accept", "fuse after exploring", "no noise", "naive"],
)
def test_a_mesh_is_the_compiled_market(tmp_path, values):
    paths = laid_out(tmp_path, **values)

    async def go():
        parties = [opened(path) for path in paths]
        await run_all(parties)
        return parties

    check(asyncio.run(go()), *twin(**values))


def test_a_mesh_in_which_agents_die(tmp_path):
    """Agents are stopped where they are and made anew from their journals; nothing else of them
    survives.
    """
    paths, rng = laid_out(tmp_path), random.Random(3)

    async def go():
        parties = {path.stem: opened(path) for path in paths}
        running = {name: asyncio.create_task(party.run()) for name, party in parties.items()}
        for _ in range(8):
            await asyncio.sleep(rng.uniform(0.01, 0.08))
            name = rng.choice(list(parties))
            if running[name].done():
                continue
            parties[name].stop()
            with suppress(UnconfirmedError):  # its part was over, and another had not confirmed it
                await running[name]
            parties[name].engine._journal.close()
            parties[name] = opened(tmp_path / f"{name}.toml")
            running[name] = asyncio.create_task(parties[name].run())
        await asyncio.wait_for(asyncio.gather(*running.values()), 240)
        return list(parties.values())

    check(asyncio.run(go()), *twin())


DELIVERIES = (
    "def good(run, round, units):\n    return {name: count - (count + round) % 2 for name, count "
    "in units.items()}\n"
)


def test_agents_with_offers_and_deliveries_of_their_own(tmp_path):
    (tmp_path / "my_deliveries.py").write_text(DELIVERIES)
    agents = []
    for i in range(3):
        own = tmp_path / f"own-{i}.csv"
        own.write_text(f"supplier,cost,capacity\nnorth,0.{i + 1},10\nsouth,0.2,{5 + i}\n")
        agents.append(
            {
                "name": f"buyer-{i}",
                "listen": f"127.0.0.1:{free_port()}",
                "own": str(own),
                "source": {"function": "my_deliveries:good"},
            }
        )
    given = {
        "run": "m2",
        "agent": agents,
        "suppliers": ["north", "south", "west"],
        "rounds": 60,
        "start": 10,
        "alpha": 0.3,
        "sync": False,
    }
    paths = lay_out(MarketFederation.make(given), tmp_path)

    async def go():
        parties = [opened(path) for path in paths]
        await run_all(parties)
        return parties

    for party in asyncio.run(go()):
        agent = party.engine.role
        assert agent.finished
        assert agent.knowledge.units[2] == 0  # nobody deals with west
        assert agent.ledger.guarantee().releases == 3
        assert 0.9 < agent.ledger.epsilon <= 1


def test_an_agent_needs_a_listen_address(tmp_path):
    agents = [{"name": "agent-1", "listen": "127.0.0.1:7601"}, {"name": "agent-2"}]
    with pytest.raises(ConfigError, match=r"'agent-2' has no listen address.* VPN or a tunnel"):
        layout({"run": "m1", "agent": agents, **MARKET}, tmp_path)


def test_files_that_do_not_fit(tmp_path):
    paths = laid_out(tmp_path)
    text = paths[0].read_text()
    for change, what in (("agents = 4", "agents = 1"), ("horizon = 120", "horizon = 5")):
        paths[0].write_text(text.replace(change, what))
        with pytest.raises((ConfigError, DataError)) as caught:
            opened(paths[0])
        assert "\n" not in str(caught.value)
