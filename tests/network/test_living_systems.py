"""Members of a living federation in one process: other systems, new keys, members that leave, what
operators read.
"""

from __future__ import annotations

import asyncio
import json
import math
from pathlib import Path
from typing import Any

import msgspec
import pytest

from posse.core.errors import CertificateError, ConfigError, LinkError, PosseError, ProtocolError
from posse.runtime.certificates import making
from posse.runtime.federation.service import Living
from posse.runtime.federation.talk import Proposal, Signed
from posse.systems import registry
from posse.systems.dp_combinatorial.settings import DpCombinatorial
from posse.systems.parties import make_invitation
from posse.systems.samba.settings import Samba
from tests.kit.living import Together

MARKET = {"agents": 4, "producers": 8, "horizon": 120, "start": 20, "seed": 5}


pytestmark = pytest.mark.usefixtures("home")


def test_agents_of_a_market_buy_together_and_the_ledger_adds_up(tmp_path: Path) -> None:
    agents = registry.system("dp-combinatorial").Settings(**MARKET).load().market.agents
    consent = {"systems": ["dp-combinatorial"], "epsilon": 1.0, "epsilon_in_all": 1.5}
    together = Together(tmp_path, dict.fromkeys(agents[1:], "agent"), (agents[0], "agent"), consent)
    earned: dict[str, float] = {}
    spent: dict[str, Any] = {}

    async def story() -> None:
        for run in ("one", "two"):
            await together.ask(
                agents[0],
                f"submit {json.dumps({'protocol': 'dp-combinatorial', 'run': run, **MARKET})}",
            )
        await together.until(lambda: is_in("one", "over"))
        for name in agents:
            result = json.loads(
                (together.laid.runs(name) / "one" / "journal" / "result.json").read_text()
            )
            earned[name] = result["total"]
        await together.until(lambda: is_in("two", "dropped"))
        refusal = (await together.phase("two"))["text"]
        assert "the run is outside epsilon_in_all in its [consent]" in refusal
        assert "1.5" not in refusal
        spent.update((await together.ask(agents[1], "status"))["spent"])

    async def is_in(run: str, phase: str) -> bool:
        return bool((await together.phase(run))["phase"] == phase)

    together.play(story)
    record = registry.run(DpCombinatorial(**MARKET))
    assert sum(earned.values()) == pytest.approx(record.total[0], rel=1e-12)
    assert spent["runs"] == 1
    assert 0.99 < spent["epsilon"] <= 1.0
    assert spent["delta"] == 0.01


def test_a_new_key_between_runs_and_a_member_that_leaves(tmp_path: Path) -> None:
    together = Together(tmp_path, {"controller": "controller", "comp": "comp", "clinic-1": "owner"})
    founder = "customer"

    async def story() -> None:
        service = together.services["clinic-1"]
        before = service.member.identity
        await together.ask("clinic-1", "renew new")
        await together.until(lambda: renewed(service, before.certificate.serial_number))
        after = service.member.identity
        assert making.fingerprint(after.key.public_key()) != making.fingerprint(
            before.key.public_key()
        )
        assert after.peer == before.peer
        # When it shows the new key, the old one counts no more, and all members know.
        service.control.connections[founder].hang_up("to call again")
        await together.until(lambda: revoked(before.certificate.serial_number))
        with pytest.raises(LinkError, match="the founder cannot leave"):
            await together.ask(founder, "leave")
        await together.ask("clinic-1", "leave")
        await together.until(gone)

    async def renewed(service: Living, serial: int) -> bool:
        return service.member.identity.certificate.serial_number != serial

    async def revoked(serial: int) -> bool:
        lists = [together.services[name].member.identity.crl for name in ("controller", "comp")]
        return all(
            each.get_revoked_certificate_by_serial_number(serial) is not None for each in lists
        )

    async def gone() -> bool:
        return "clinic-1" not in (await together.ask(founder, "status"))["members"]

    together.play(story)


def test_a_customer_that_did_not_found_the_federation_and_what_it_may_not(tmp_path: Path) -> None:
    """It proposes and has its total; nobody passes the limits: not by others' names, again, at
    once, or expelled.
    """
    owners = ["clinic-1", "clinic-2", "clinic-3"]
    members = {
        "customer": "customer",
        "controller": "controller",
        "comp": "comp",
        **dict.fromkeys(owners, "owner"),
    }
    consent = {"systems": ["samba"], "customers": ["customer"], "budget_in_all": 150}
    together = Together(tmp_path, members, ("registry", "operator"), consent, at_once=2)
    given = {
        "protocol": "samba",
        "level": "paper",
        "policy": "ucb",
        "budget": 60,
        "owners": owners,
        "paillier_bits": 2048,
        "world": {"seed": 7, "owners": 3},
    }

    async def propose(name: str, run: str, **values: Any) -> dict[str, Any]:
        shown: dict[str, Any] = await together.ask(
            name, f"submit {json.dumps({**given, 'run': run, **values})}"
        )
        while shown["phase"] in ("asked", "queued", "proposed", "started"):
            await asyncio.sleep(0.02)
            shown = await together.ask(name, f"follow {run}")
        return shown

    async def story() -> None:
        founder = together.services["registry"].founder
        assert founder is not None
        shown = await propose("customer", "march")
        assert shown["phase"] == "over", shown
        (total,) = registry.run(
            Samba(policy="ucb", owners=3, budget=60, seed=7, level="paper").plain()
        ).total
        assert json.loads((Path(shown["journal"]) / "result.json").read_text())["total"] == total

        # An owner may not propose, nor send on what the customer signed; nobody asks for, or drops,
        # another's run.
        assert "may not propose runs" in (await propose("clinic-1", "april"))["text"]
        signed = founder.items[0].signed
        with pytest.raises(ProtocolError, match="signed by 'customer', and 'clinic-1' sent it"):
            founder.propose("clinic-1", signed)
        with pytest.raises(ProtocolError, match="a proposal may have 100,000 bytes"):
            founder.propose("customer", msgspec.structs.replace(signed, body=bytes(100_001)))
        shown = await together.ask("clinic-1", "cancel march")
        await together.until(lambda: is_in("clinic-1", "march", "refused"))
        # The same again is the same run, and its name is taken.
        assert founder.propose("customer", signed) is founder.items[0]
        shown = await propose("customer", "march", budget=30)
        assert (shown["phase"], "was proposed before" in shown["text"]) == ("refused", True)
        # Two at once: each fits, both do not.
        ends = await asyncio.gather(propose("customer", "may"), propose("customer", "june"))
        assert sorted(end["phase"] for end in ends) == ["dropped", "over"]
        refusal = next(end["text"] for end in ends if end["text"])
        assert "the run is outside budget_in_all in its [consent]" in refusal
        assert "150" not in refusal
        assert {(await together.ask(name, "status"))["spent"]["decisions"] for name in owners} == {
            120
        }
        # Expelled: what it had queued is dropped, and its old certificate opens nothing any more.
        founder.member.file = founder.member.file.model_copy(update={"at_once": 0})
        customer = together.services["customer"]
        queued = await together.ask(
            "customer", f"submit {json.dumps({**given, 'run': 'july', 'budget': 10})}"
        )
        assert queued["phase"] == "asked"
        await together.until(lambda: is_in("customer", "july", "queued"))
        await together.ask("registry", "expel customer")
        await together.until(lambda: is_in("registry", "july", "dropped"))
        assert (
            "customer, who proposed it, is no member any more"
            in (await together.phase("july"))["text"]
        )
        await together.until(refused)
        with pytest.raises(LinkError, match="founder is not connected"):
            await together.ask("customer", f"submit {json.dumps({**given, 'run': 'august'})}")
        late = Signed.sign(
            Proposal.make("hospitals", {**given, "run": "late"}), customer.member.identity
        )
        with pytest.raises(CertificateError, match="revoked"):
            founder.propose("customer", late)

    async def is_in(name: str, run: str, phase: str) -> bool:
        return bool((await together.ask(name, f"follow {run}"))["phase"] == phase)

    async def refused() -> bool:
        return "revoked" in together.services["customer"].control.trouble

    together.play(story)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"protocol": "samba", "run": "x", "policy": "mine.py:Best"}, "policy names custom code"),
        (
            {"protocol": "samba", "run": "x", "world": {"data": "/etc/passwd"}},
            "world.data names a file",
        ),
        (
            {"protocol": "samba", "run": "x", "source": {"kind": "python"}},
            "source belongs to the file of a member",
        ),
        (
            {"protocol": "samba", "run": "x", "level": "paper", "budget": 50, "owners": ["a"]},
            "at least 2 owners",
        ),
        ({"protocol": "nothing", "run": "x"}, "nothing"),
        ({"run": "x"}, "Give protocol and run"),
        ({"protocol": "mpc-contextual", "run": "x", "world": {"seed": 1}}, "Use 'posse up'"),
        (
            {"protocol": "dp-combinatorial", "run": "x", "own": "prices.csv"},
            "own belongs to the file of a member",
        ),
    ],
)
def test_a_run_that_is_not_proposed(values: dict[str, Any], words: str) -> None:
    def propose() -> None:
        proposal = Proposal.make("hospitals", values)
        make_invitation(proposal.system, proposal.values)

    with pytest.raises(PosseError, match=words):
        propose()


ROWS = {
    "parties": ["bank", "shop"],
    "columns": [2, 3],
    "arms": 3,
    "steps": 50,
    "rows": "ab" * 32,
    "delta": 0.001,
}


@pytest.mark.parametrize(
    ("system", "values", "least", "most", "delta"),
    [
        ("samba", {"owners": ["a", "b"], "budget": 50, "level": "strict"}, math.inf, math.inf, 0),
        ("dp-combinatorial", {**MARKET, "epsilon": 0.5, "delta": "0.003"}, 0.4999, 0.5, 0.003),
        ("dp-combinatorial", {**MARKET, "noise": "none"}, math.inf, math.inf, 0),
        ("dp-combinatorial", {**MARKET, "policy": "placebo"}, 0, 0, 0),
        ("mpc-contextual", {**ROWS, "epsilon": "1/3"}, math.log(7), 50 * math.log(7), 0.001),
        ("mpc-contextual", {**ROWS, "epsilon": "1"}, 0, 0, 0.001),
        (
            "mpc-contextual",
            {**ROWS, "epsilon": "0", "without_guarantee": True},
            math.inf,
            math.inf,
            0,
        ),
    ],
)
def test_a_member_counts_what_the_settings_of_a_proposal_prove(
    system: str, values: dict[str, Any], least: float, most: float, delta: float
) -> None:
    """Its ledger adds these figures up, whatever a proposer says of them."""
    demand = make_invitation(system, values).demand()
    assert least <= demand.epsilon <= most
    assert demand.delta == delta


def test_what_a_contextual_run_asks_of_everyone() -> None:
    values = {
        "parties": ["bank", "shop"],
        "columns": [2, 3],
        "arms": 3,
        "steps": 50,
        "epsilon": "1/3",
        "rows": "ab" * 32,
    }
    made = make_invitation("mpc-contextual", values)
    assert made.members == {
        "bank": "party",
        "shop": "party",
        "puller": "puller",
        "payee": "payee",
        "dealer": "dealer",
    }
    assert made.files["puller"]["connect"] == ("bank", "shop")
    assert [name for name, part in made.files.items() if not part["listens"]] == ["dealer"]
    demand = made.demand()
    assert demand.decisions == 50
    assert 0 < demand.epsilon < 50 * 3
    with pytest.raises(ConfigError, match="rows"):
        make_invitation(
            "mpc-contextual", {key: value for key, value in values.items() if key != "rows"}
        )
