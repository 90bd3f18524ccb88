"""A living federation of real processes over TLS: runs queue, services are killed, members come and go."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from posse.core.errors import LinkError
from posse.protocols import registry
from posse.protocols.samba.settings import Samba
from tests.network.living import LivingFederation

SERVERS = {"controller": "controller", "comp": "comp", "dealer": "dealer"}
CLINICS = ["clinic-1", "clinic-2", "clinic-3"]
OWNERS = dict.fromkeys(CLINICS, "owner")


def undisturbed(owners: int, budget: int, policy: str = "ucb") -> float:
    (total,) = registry.run(Samba(policy=policy, owners=owners, budget=budget, seed=7).plain()).total
    return float(total)


def renewed_in_a_run(federation: LivingFederation, name: str, run: str) -> None:
    """Renew a member's certificate while a run is held, and see that its connection stands."""
    before = federation.ask(name, "status")["serial"]
    federation.ask(name, "renew")
    while federation.ask(name, "status")["serial"] == before:
        federation.tick(f"'{name}' to be renewed")
    lost = [json.loads(line) for line in federation.file(name).with_suffix(".log").read_text().splitlines()]
    assert not [line for line in lost if line["event"] == "lost"]
    assert federation.ask(name, "status")["parts"][run]["state"] == "started"


def test_runs_queue_services_die_and_members_come_and_go(tmp_path: Path) -> None:
    federation = LivingFederation(tmp_path, {**SERVERS, **OWNERS})
    with federation:
        federation.submit("march", CLINICS, level="strict", budget=40)
        federation.submit("april", CLINICS, policy="thompson")
        federation.hold("controller", "march")
        assert federation.phase("april")["phase"] == "queued"
        renewed_in_a_run(federation, "clinic-2", "march")
        for victim in ("dealer", "customer", "controller"):
            federation.kill(victim)  # and the controller goes on, for nobody holds it any more
        federation.until("march", "over")
        federation.until("april", "over")

        # Between runs: one member joins, another is expelled.
        federation.join("clinic-4", "owner")
        federation.start("clinic-4")
        federation.ask("customer", "expel clinic-1")
        with pytest.raises(LinkError, match="'clinic-1', which is no member of the federation"):
            federation.submit("may", CLINICS)
        federation.submit("may", ["clinic-2", "clinic-3", "clinic-4"])
        federation.until("may", "over")
        assert "may" not in federation.ask("clinic-1", "status")["parts"]
        spent = federation.ask("clinic-2", "status")["spent"]
    assert spent["runs"] == 3
    assert spent["decisions"] == 40 + 60 + 60
    assert federation.total("march") == undisturbed(3, 40)
    assert federation.total("april") == undisturbed(3, 60, "thompson")
    assert federation.total("may") == undisturbed(3, 60)
    assert federation.kills.total() == 3


def test_a_member_is_expelled_in_a_run_and_another_refuses(tmp_path: Path) -> None:
    """With rewards of the owners' own, not of a simulated world."""
    federation = LivingFederation(tmp_path, {"controller": "controller", "comp": "comp"})
    four = [*CLINICS, "clinic-4"]
    for number, name in enumerate(four):
        federation.join(name, "owner", source={"kind": "bernoulli", "mean": number / 4})
    federation.join("clinic-5", "owner", consent={"systems": ["samba"], "budget": 10})
    with federation:
        federation.submit("refused", [*CLINICS, "clinic-5"])
        federation.submit("march", four, budget=400, world=None)
        while (shown := federation.phase("refused"))["phase"] != "dropped":
            federation.tick("a run to be refused")
        assert shown["text"] == "clinic-5 refused: decisions would be 60; budget is 10."
        federation.hold("controller", "march")
        assert federation.ask("clinic-2", "status")["spent"]["decisions"] == 400  # what never started is given back
        federation.ask("customer", "expel clinic-4")
        federation.resume("controller", "march")
        assert federation.until("march", "over")["without"] == ["clinic-4"]
        result = json.loads((federation.runs("customer") / "march" / "journal" / "result.json").read_text())
    assert result["ended_early_with"] == CLINICS


ROUNDS, AT_ONCE = 25, 3
"""Of each of four runs: how often services are killed, and how many at a time."""


@pytest.mark.long
def test_three_hundred_kills_over_a_living_federation(tmp_path: Path) -> None:
    """Three runs queue; services die in turn at points of each run, the founder's and the dealer's too.

    When the first is over two members join, and take part in a fourth.
    """
    federation = LivingFederation(tmp_path, {**SERVERS, **OWNERS}, seed=300)
    budget, joined = 300, ["clinic-2", "clinic-3", "clinic-4", "clinic-5"]
    wanted = {"march": undisturbed(3, budget), "april": undisturbed(3, budget, "thompson")}
    wanted |= {"may": wanted["march"], "june": undisturbed(4, budget)}
    turn: list[str] = []
    with federation:
        federation.submit("march", CLINICS, level="strict", budget=budget)
        federation.submit("april", CLINICS, policy="thompson", budget=budget)
        federation.submit("may", CLINICS, level="strict", budget=budget)
        for run in wanted:
            for step in sorted(federation.rng.uniform(0, budget) for _ in range(ROUNDS)):
                federation.until_step(run, step)
                time.sleep(federation.rng.uniform(0.0, 0.1))
                turn += federation.rng.sample(sorted(federation.running), len(federation.running))
                victims, turn = turn[:AT_ONCE], turn[AT_ONCE:]
                for victim in victims:
                    federation.kill(victim)
                federation.extend()
            federation.until(run, "over")
            if run == "march":
                for name in joined[2:]:
                    federation.join(name, "owner")
                    federation.start(name)
                federation.submit("june", joined, level="strict", budget=budget)
    assert federation.kills.total() == len(wanted) * ROUNDS * AT_ONCE == 300
    assert set(federation.kills) == set(federation.running)
    assert {run: federation.total(run) for run in wanted} == wanted
