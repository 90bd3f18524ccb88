"""A living federation of real processes over TLS: runs queue, services are killed, members come and
go.
"""

from __future__ import annotations

import json
import math
import time
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from posse.core import files
from posse.core.errors import LinkError
from posse.core.fixed import REWARD_ONE
from posse.core.roles import Ask, Message
from posse.problems.contexts.contexts import read_block
from posse.runtime.certificates import making
from posse.runtime.certificates.identity import PartyIdentity
from posse.systems import registry
from posse.systems.mpc_contextual.deploy import OUTSIDE
from posse.systems.mpc_contextual.roles.messages import Act, Acted, Earn, Earned
from posse.systems.mpc_contextual.terms import DEALER, PAYEE, PULLER
from posse.systems.samba.settings import Samba
from tests.kit.living import LivingFederation
from tests.kit.mpc import found, twin, write_world

SERVERS = {"controller": "controller", "comp": "comp", "dealer": "dealer"}
CLINICS = ["clinic-1", "clinic-2", "clinic-3"]
OWNERS = dict.fromkeys(CLINICS, "owner")


def undisturbed(owners: int, budget: int, policy: str = "ucb") -> float:
    (total,) = registry.run(
        Samba(policy=policy, owners=owners, budget=budget, seed=7).plain()
    ).total
    return float(total)


def renewed_in_a_run(federation: LivingFederation, name: str, run: str) -> None:
    """Renew a member's certificate while a run is held, and see that its connection stands."""
    before = federation.ask(name, "status")["serial"]
    federation.ask(name, "renew")
    while federation.ask(name, "status")["serial"] == before:
        federation.tick(f"'{name}' to be renewed")
    lost = [
        json.loads(line)
        for line in federation.file(name).with_suffix(".log").read_text().splitlines()
    ]
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
    federation = LivingFederation(tmp_path, SERVERS)
    four = [*CLINICS, "clinic-4"]
    for number, name in enumerate(four):
        federation.join(name, "owner", source={"kind": "bernoulli", "mean": number / 4})
    federation.join("clinic-5", "owner", consent={"systems": ["samba"], "budget": 10})
    with federation:
        federation.submit("refused", [*CLINICS, "clinic-5"])
        federation.submit("march", four, budget=400, world=None)
        while (shown := federation.phase("refused"))["phase"] != "dropped":
            federation.tick("a run to be refused")
        refusal = "the run is outside budget in its [consent]. Its own log has the value."
        assert shown["text"] == f"clinic-5 refused: {refusal}"
        federation.hold("controller", "march")
        assert (
            federation.ask("clinic-2", "status")["spent"]["decisions"] == 400
        )  # what never started is given back
        federation.ask("customer", "expel clinic-4")
        federation.resume("controller", "march")
        assert federation.until("march", "over")["without"] == ["clinic-4"]
        result = json.loads(
            (federation.runs("customer") / "march" / "journal" / "result.json").read_text()
        )
    assert result["ended_early_with"] == CLINICS


def short_certificate(federation: LivingFederation, name: str) -> str:
    """Give a member a certificate for an hour, of which fifty minutes are over; returns its
    serial.
    """
    authority, identity = federation.authority, PartyIdentity.load(federation.folder / name)
    issued = authority.now() - timedelta(minutes=50)
    made = making.party_certificate(
        authority.certificate,
        authority.key,
        identity.key.public_key(),
        identity.peer,
        (),
        issued,
        1 / 24,
    )
    with authority.register.writing() as writing:
        writing.add_certificate(
            made, making.fingerprint(identity.key.public_key()), identity.peer, issued
        )
    files.write_whole(identity.folder / "party.crt", made.public_bytes(Encoding.PEM))
    return f"{made.serial_number:x}"


def test_a_contextual_run_that_a_member_proposes_and_a_certificate_renewed_by_date(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Features lie with the members; the payee proposes; services die in a run, the proposer's and
    founder's too.
    """
    write_world(tmp_path, rows=40)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "march_outcomes.py").write_text(
        "def reward(run, number):\n    return (number * 7 % 11) / 10\n"
    )
    consent = {"systems": ["mpc-contextual"], "customers": [PAYEE], "budget": 40}
    federation = LivingFederation(
        tmp_path,
        {},
        founder=("clinic-1", "party"),
        consent=consent,
        options={"features": "clinic-1.csv"},
    )
    federation.join("clinic-2", "party", consent=consent, options={"features": "clinic-2.csv"})
    federation.join(PULLER, PULLER, consent=consent, source={"kind": "csv", "file": "arms.csv"})
    federation.join(
        PAYEE,
        PAYEE,
        consent=consent,
        source={"kind": "python", "function": "march_outcomes:reward"},
    )
    federation.join(DEALER, DEALER, consent=consent)
    rows = read_block(tmp_path / "clinic-1.csv", 1.0).ids_digest
    terms = {
        "parties": ["clinic-1", "clinic-2"],
        "columns": [2, 2],
        "arms": 3,
        "epsilon": "1/5",
        "rows": rows,
    }
    march = {"protocol": "mpc-contextual", "run": "march", "steps": 40, **terms}
    with federation:
        while PULLER not in federation.connected() or PAYEE not in federation.connected():
            federation.tick("puller and payee to call")
        assert federation.refusal(PULLER, march) == (
            "'puller' may not propose runs: its certificate says no customer, and the founder's "
            "[consent] does not "
            "name it under customers."
        )
        assert federation.ask(PAYEE, f"submit {json.dumps(march)}")["phase"] == "asked"
        federation.hold(PULLER, "march")
        federation.stop("clinic-2")
        before = short_certificate(federation, "clinic-2")
        federation.start("clinic-2")
        while (shown := federation.ask("clinic-2", "status"))["serial"] == before:
            federation.tick("a certificate to be renewed by its date")
        assert shown["parts"]["march"]["state"] == "started"
        for victim in (
            DEALER,
            PAYEE,
            "clinic-1",
            PULLER,
        ):  # and the puller goes on, for nobody holds it any more
            federation.kill(victim)
        while (mine := federation.ask(PAYEE, "follow march"))["phase"] != "over":
            assert mine["phase"] != "refused", mine
            federation.tick(f"the proposer to see the end, which has {mine}")
        spent = federation.ask("clinic-2", "status")["spent"]
    assert spent["decisions"] == 40
    assert 0 < spent["epsilon"] < math.inf
    paths = [
        federation.runs(name) / "march" / "party.toml"
        for name in ("clinic-1", "clinic-2", *OUTSIDE)
    ]
    assert found(paths) == twin(paths, _outcomes)
    result = json.loads((federation.runs(PAYEE) / "march" / "journal" / "result.json").read_text())
    assert result["total"] == pytest.approx(
        sum(number * 7 % 11 for number in range(40)) / 10, abs=1e-6
    )


def _outcomes(ask: Ask) -> Message:
    if isinstance(ask, Act):
        return Acted(ask.step)
    assert isinstance(ask, Earn)
    return Earned(ask.step, round((ask.step * 7 % 11) / 10 * REWARD_ONE))


ROUNDS, AT_ONCE = 25, 3
"""Of each of four runs: how often services are killed, and how many at a time."""


@pytest.mark.long
def test_three_hundred_kills_over_a_living_federation(tmp_path: Path) -> None:
    """Three runs queue; services die in turn at points of each run, the founder's and the dealer's
    too.

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
