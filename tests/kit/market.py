"""Federations of the market over loopback mutual TLS, for tests: a simulated one and one of own files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from posse.runtime.network.party import Party
from posse.systems.dp_combinatorial.deploy import MarketFederation, lay_out
from posse.systems.dp_combinatorial.settings import DpCombinatorial
from posse.systems.dp_combinatorial.twin import run_once
from tests.kit.federations import free_port

MARKET = {"agents": 4, "producers": 8, "rounds": 120, "start": 20, "seed": 5}
DELIVERIES = "def good(run, round, units):\n    return dict(units)\n"


def laid_out(folder: Path, **values: Any) -> list[Path]:
    """Write the files of four agents in a simulated market."""
    agents = [{"name": f"agent-{i + 1}", "listen": f"127.0.0.1:{free_port()}"} for i in range(4)]
    return lay_out(
        MarketFederation.make({"run": "m1", "sync": False, "agent": agents, **MARKET, **values}),
        folder,
    )


def laid_out_with_own_files(folder: Path, **values: Any) -> list[Path]:
    """Write the files of three agents with price lists; everything they buy is good."""
    (folder / "all_good.py").write_text(DELIVERIES)
    agents = []
    for name in ("ada", "bob", "eve"):
        own = folder / f"{name}.csv"
        own.write_text("supplier,cost,capacity\nnorth,0.5,10\nsouth,0.5,10\n")
        source = {"function": "all_good:good"}
        agents.append(
            {"name": name, "listen": f"127.0.0.1:{free_port()}", "own": str(own), "source": source}
        )
    settings = {
        "run": "m1",
        "sync": False,
        "suppliers": ["north", "south"],
        "rounds": 12,
        "start": 3,
        "alpha": 0.3,
        **values,
    }
    settings = {name: value for name, value in settings.items() if value is not None}
    return lay_out(MarketFederation.make({**settings, "agent": agents}), folder)


def twin(**values: Any) -> tuple[Any, Any]:
    """What all agents know after the same run in the compiled market, and its curves."""
    setup = DpCombinatorial.make({**MARKET, **values}).load()
    return run_once(setup.market, setup.terms, MARKET["seed"])


def check(parties: list[Party], known: Any, curves: Any) -> None:
    """Compare every agent's knowledge with the twin's, bit by bit."""
    for party in parties:
        j = int(party.engine.role.name.removeprefix("agent-")) - 1
        for field in known._fields:
            own = getattr(party.engine.role.knowledge, field)
            assert own.tobytes() == getattr(known, field)[j].tobytes(), (j, field)
    assert sum(party.engine.role.taken for party in parties) == curves.taken.sum()
