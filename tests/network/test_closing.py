"""The end of a run: nobody leaves before the customer has an answer, whichever it is, and what is
missing is said.
"""

from __future__ import annotations

import asyncio
import json
import random

import pytest

from posse.core.errors import ConfigError, DisagreementError, ProtocolError, UnconfirmedError
from posse.privacy.crypto.paillier import PublicKey
from posse.runtime.network.connection import Timing
from posse.runtime.place import open_place
from posse.systems.parties import run_and_record
from posse.systems.samba.deploy import build
from posse.systems.samba.messages import Total
from posse.systems.samba.strict import sums
from posse.systems.samba.strict.messages import Shares
from tests.kit.federations import QUICK, laid_out, opened, run_all
from tests.kit.parties import all_stop
from tests.network.proxy import Proxy

BRIEF = Timing(0.1, 1.0, 0.01, 0.1, 0.005, linger=0.3, closing=0.6)
"""Of a party that lingers a thirtieth of the default."""


class Behind:
    """A federation of which one party reaches the controller through a proxy."""

    def __init__(self, folder, who, **values):
        paths = laid_out(folder, **values)
        (self.at,) = [path for path in paths if path.stem == who]
        self.paths, self.who = paths, who

    async def start(self):
        controller = next(path for path in self.paths if path.stem == "controller")
        port = int(open_place(controller).file.listen.rpartition(":")[2])
        self.proxy = Proxy(port, random.Random(1), power=20)
        await self.proxy.start()
        self.at.write_text(
            self.at.read_text().replace(f"127.0.0.1:{port}", f"127.0.0.1:{self.proxy.port}")
        )
        self.parties = {path.stem: opened(path, timing=BRIEF) for path in self.paths}
        self.running = {
            name: asyncio.create_task(party.run()) for name, party in self.parties.items()
        }


@pytest.mark.parametrize("level", ["strict", "paper"])
def test_an_outage_before_the_total_strands_nobody(tmp_path, level):
    """Before, owners and comp were gone after a while, and said that the customer has the total."""
    federation = Behind(tmp_path, "customer", budget=40, level=level, sync=level == "strict")

    async def go():
        await federation.start()
        parties, running = federation.parties, federation.running
        controller, customer = parties["controller"].engine.role, parties["customer"].engine.role
        while not controller._going:
            await asyncio.sleep(0)
        federation.proxy._open.clear()  # the customer hears nothing any more
        while controller.state()["step"] < 40:
            await asyncio.sleep(0.01)
        await asyncio.sleep(4 * BRIEF.linger)
        assert customer.total is None
        assert not any(task.done() for task in running.values())
        federation.proxy.cut()
        federation.proxy._open.set()
        await asyncio.wait_for(asyncio.gather(*running.values()), 240)
        await federation.proxy.stop()
        return customer.total

    assert asyncio.run(go()) is not None


def test_a_customer_whose_word_does_not_arrive_says_so_and_is_started_again(tmp_path):
    federation = Behind(tmp_path, "customer", budget=40)

    async def go():
        await federation.start()
        parties, running = federation.parties, federation.running
        customer = parties["customer"]
        send = customer._send
        customer._send = lambda peer, connection: (
            None if customer.engine.role.finished else send(peer, connection)
        )
        with pytest.raises(
            UnconfirmedError, match="part of 'customer' is over, but controller has not confirmed"
        ):
            await running.pop("customer")
        assert customer.engine.role.total is not None
        assert not any(task.done() for task in running.values())
        customer.engine.close()
        running["customer"] = asyncio.create_task(opened(federation.at, timing=BRIEF).run())
        await asyncio.wait_for(asyncio.gather(*running.values()), 240)
        await federation.proxy.stop()

    asyncio.run(go())


def test_an_owner_that_comes_back_after_the_end_hears_of_it(tmp_path):
    """The controller stays until those who need it have the word that the run is over."""
    federation = Behind(tmp_path, "clinic-2", budget=40)

    async def go():
        await federation.start()
        parties, running = federation.parties, federation.running
        parties["controller"].timing = Timing(0.1, 1.0, 0.01, 0.1, 0.005, linger=0.3, closing=240)
        controller = parties["controller"].engine.role
        while len(controller._sums) < 3:
            await asyncio.sleep(0)
        federation.proxy._open.clear()
        federation.proxy.cut()
        done = ("customer", "comp", "clinic-1", "clinic-3")
        await asyncio.wait_for(asyncio.gather(*(running.pop(name) for name in done)), 240)
        await asyncio.sleep(3 * BRIEF.linger)
        assert not any(task.done() for task in running.values())
        federation.proxy._open.set()
        await asyncio.wait_for(asyncio.gather(*running.values()), 240)
        await federation.proxy.stop()

    asyncio.run(go())


@pytest.mark.parametrize(
    ("level", "says"), [("paper", "outside its range"), ("strict", "a server altered")]
)
def test_a_refused_total_ends_the_run_and_only_the_customer_knows(
    tmp_path, monkeypatch, level, says
):
    """All others end as they do after an accepted total; the customer's result says why there is
    none.
    """
    paths = {
        path.stem: path
        for path in laid_out(tmp_path, budget=40, level=level, sync=level == "strict")
    }
    monkeypatch.setenv("POSSE_STORE", str(tmp_path / "store"))

    async def go():
        parties = {name: opened(path) for name, path in paths.items() if name != "customer"}
        engine = parties["controller"].engine
        send = engine._send

        def forged(receiver, message):
            if isinstance(message, Total):
                key = PublicKey(int.from_bytes(engine.role.manifest.terms.paillier_n, "big"))
                message = Total(key.encrypt(1 << 40).to_bytes())
            if isinstance(message, Shares):
                number, tag = sums.decode(message.controller)
                message = Shares(sums.encode((number + 1, tag)), message.comp)
            send(receiver, message)

        engine._send = forged
        customer = run_and_record(
            open_place(paths["customer"]), lambda place, made: made, lambda text: None
        )
        others = asyncio.gather(*(party.run() for party in parties.values()))
        with pytest.raises(ProtocolError, match=says) as error:
            await asyncio.wait_for(customer, 240)
        assert error.value.rule == "systems.run.no-result"
        await asyncio.wait_for(others, 240)
        for name, party in parties.items():
            known = build_known(paths[name], party)
            assert known.failure == ""
            assert "the customer has its answer" in known.outcome

    def build_known(path, party):
        from posse.systems.samba.deploy import _known

        return _known(party.engine.role, party.engine.role._expected, "trial-1")

    asyncio.run(go())
    result = json.loads((tmp_path / "customer" / "journal" / "result.json").read_text())
    assert "there is no total" in result["outcome"]
    assert "total" not in result


# What an owner agrees to --------------------------------------------------------------------------


def test_owners_sign_a_budget_within_their_own_limit_only(tmp_path):
    paths = {path.stem: path for path in laid_out(tmp_path, budget=60)}
    text = paths["clinic-2"].read_text()
    assert "[consent]\nbudget = 60\n" in text
    paths["clinic-2"].write_text(text.replace("budget = 60", "budget = 59"))
    errors = asyncio.run(all_stop(list(paths.values())))
    for name, error in errors.items():
        assert isinstance(error, DisagreementError)
        assert "'clinic-2' refuses 60 pulls: budget in its [consent] is " in error.text
        # Only the party itself reads its limit.
        assert ("59" in error.text) == (name == "clinic-2"), name
    assert errors["clinic-2"].rule == "samba.budget.above-consent"
    paths["clinic-2"].write_text(text)
    asyncio.run(
        run_all([opened(path) for path in paths.values()])
    )  # the run goes on once it is corrected


@pytest.mark.parametrize(
    ("consent", "says"),
    [
        ("", r"Add \[consent\] with the most pulls"),
        ("[consent]\n", r"Add \[consent\] with the most pulls"),
        ("[consent]\nbudget = 60\nlimit = 3\n", "unknown setting 'limit'"),
        ("[consent]\nbudget = 'many'\n", "budget"),
    ],
)
def test_an_owner_without_a_limit_or_with_unknown_ones_is_refused(tmp_path, consent, says):
    path = next(path for path in laid_out(tmp_path) if path.stem == "clinic-1")
    path.write_text(path.read_text().replace("[consent]\nbudget = 60\n", consent))
    with pytest.raises(ConfigError, match=says):
        build(open_place(path))


def test_the_quick_timing_of_tests_lingers_no_longer_than_the_default():
    assert (Timing().linger, Timing().closing) == (10.0, 120.0)
    assert QUICK.linger < Timing().linger
